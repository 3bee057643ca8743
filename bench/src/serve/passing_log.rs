//! A log in this process through which records pass once: what its reader has taken is dropped.
//!
//! `waypost_log::MemoryLog` is made for tests: it keeps every record for ever, under a clock that is
//! moved by hand. Under a load of minutes that would be the largest part of the memory that is measured,
//! and a beat of that clock would wake every reader. This one keeps what was not read yet, stamps records
//! by the machine's clock, and cannot be read twice from the beginning.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use waypost_core::partition::{PartitionId, partition_for_key};
use waypost_core::record::{Appended, IDENTITY_KEY, LogIdentity};
use waypost_core::{
    AnnouncementLog, Headers, LogError, LogReader, NewRecord, Offset, ReadEvent, Record,
    RecordKind, Topic,
};
use waypost_log::limits::{BOUNDS_INTERVAL, READ_RECORDS_MAX};
use waypost_runtime::WallClock;

/// Records of one topic that wait to be read. Who appends faster than the Observer reads has to look at
/// [`PassingLog::waiting`]; beyond this the log refuses.
const WAITING_MAX: usize = 1_000_000;

/// The log. Clones are handles of one log.
#[derive(Clone, Debug)]
pub(crate) struct PassingLog {
    topics: Arc<[Queue; Topic::ALL.len()]>,
    clock: WallClock,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// Wakes the reader.
    appended: Notify,
    /// How many records the reader's owner is done with.
    read_tx: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    partitions: Vec<Partition>,
    waiting: usize,
    appended: u64,
}

#[derive(Debug, Default)]
struct Partition {
    records: VecDeque<Record>,
    /// The offset of the next record.
    end: Offset,
    /// Its reader has to be told that it stands at the end.
    is_caught_up_due: bool,
}

impl PassingLog {
    /// An empty log with an identity, whose announcements have `partitions` partitions.
    pub(crate) fn new(partitions: u32) -> anyhow::Result<Self> {
        let log = Self {
            topics: Arc::new([partitions, 1, 1].map(Queue::new)),
            clock: WallClock::system(),
        };
        let identity = LogIdentity(1);
        for topic in Topic::ALL {
            log.push(NewRecord {
                topic,
                partition: Some(PartitionId(0)),
                key: IDENTITY_KEY.into(),
                value: Some(identity.to_string().into()),
                headers: Headers {
                    kind: RecordKind::Identity,
                    log: Some(identity),
                    ..Headers::default()
                },
                delivery: waypost_core::record::Delivery::Change,
            })?;
        }
        Ok(log)
    }

    /// Appends a record; never waits.
    ///
    /// # Errors
    /// Its reader is [`WAITING_MAX`] records behind.
    pub(crate) fn push(&self, record: NewRecord) -> Result<Appended, LogError> {
        let queue = self.queue(record.topic);
        let now = self.clock.now();
        let mut state = queue.state.lock();
        let count = u32::try_from(state.partitions.len()).unwrap_or(u32::MAX);
        let id = record.partition;
        let id = id.unwrap_or_else(|| partition_for_key(&record.key, count));
        if state.waiting >= WAITING_MAX {
            return Err(LogError::Unavailable("its reader is far behind".to_owned()));
        }
        let Some(partition) = state.partitions.get_mut(id.0 as usize) else {
            return Err(LogError::Refused(format!("there is no partition {id}")));
        };
        let offset = partition.end;
        partition.end = offset.next();
        partition.records.push_back(Record {
            partition: id,
            offset,
            append_time: now,
            key: Some(record.key),
            value: record.value,
            headers: Ok(record.headers),
        });
        state.waiting += 1;
        state.appended += 1;
        drop(state);
        queue.appended.notify_one();
        Ok(Appended {
            partition: id,
            offset,
            append_time: Some(now),
        })
    }

    /// Records of `topic` that its reader has not taken yet.
    pub(crate) fn waiting(&self, topic: Topic) -> usize {
        self.queue(topic).state.lock().waiting
    }

    /// Waits until the store shows everything that was appended to `topic` before.
    pub(crate) async fn all_read(&self, topic: Topic) {
        let queue = self.queue(topic);
        let appended = queue.state.lock().appended;
        // The sender is in `queue`: the wait ends with success only.
        let mut read_rx = queue.read_tx.subscribe();
        let _ = read_rx.wait_for(|read| *read >= appended).await;
    }

    /// Waits until at most `count` records of `topic` wait to be read.
    pub(crate) async fn waiting_at_most(&self, topic: Topic, count: usize) {
        let queue = self.queue(topic);
        let mut read_rx = queue.read_tx.subscribe();
        let is_near = |_: &u64| queue.state.lock().waiting <= count;
        let _ = read_rx.wait_for(is_near).await;
    }

    fn queue(&self, topic: Topic) -> &Queue {
        let [announcements, config, control] = &*self.topics;
        match topic {
            Topic::Announcements => announcements,
            Topic::Config => config,
            Topic::Control => control,
        }
    }
}

impl Queue {
    fn new(partitions: u32) -> Self {
        let partitions = (0..partitions.max(1)).map(|_| Partition::default());
        Self {
            state: Mutex::new(State {
                partitions: partitions.collect(),
                waiting: 0,
                appended: 0,
            }),
            appended: Notify::new(),
            read_tx: watch::Sender::new(0),
        }
    }
}

#[async_trait]
impl AnnouncementLog for PassingLog {
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError> {
        let count = self.queue(topic).state.lock().partitions.len();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        self.push(record)
    }

    async fn append_if(
        &self,
        _record: NewRecord,
        _expected: Option<Offset>,
    ) -> Result<Appended, LogError> {
        let reason = "records pass: the last of a key is not known";
        Err(LogError::Refused(reason.to_owned()))
    }

    async fn read(
        &self,
        topic: Topic,
        _from: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError> {
        Ok(Box::new(PassingReader::new(self.clone(), topic)))
    }

    async fn read_at(
        &self,
        _topic: Topic,
        _partition: PartitionId,
        _offset: Offset,
    ) -> Result<Option<Record>, LogError> {
        Ok(None)
    }
}

/// Takes records out of the log, the busiest partition no more often than the others.
#[derive(Debug)]
struct PassingReader {
    log: PassingLog,
    topic: Topic,
    /// What is to be said before the next record: partitions and bounds.
    due: VecDeque<ReadEvent>,
    bounds_due: Instant,
    /// The partition that is looked at first.
    first: usize,
    /// Records handed out so far.
    handed_out: u64,
}

impl PassingReader {
    fn new(log: PassingLog, topic: Topic) -> Self {
        let mut state = log.queue(topic).state.lock();
        let count = u32::try_from(state.partitions.len()).unwrap_or(u32::MAX);
        for partition in &mut state.partitions {
            partition.is_caught_up_due = true;
        }
        drop(state);
        Self {
            due: VecDeque::from([ReadEvent::Partitions(count)]),
            log,
            topic,
            bounds_due: Instant::now(),
            first: 0,
            handed_out: 0,
        }
    }

    fn report_bounds(&mut self) {
        self.bounds_due = Instant::now() + BOUNDS_INTERVAL;
        let state = self.log.queue(self.topic).state.lock();
        for (id, partition) in (0..).zip(&state.partitions) {
            let first = partition.records.front().map(|record| record.offset);
            self.due.push_back(ReadEvent::Bounds {
                partition: PartitionId(id),
                start: first.unwrap_or(partition.end),
                end: partition.end,
            });
        }
    }

    /// The next event, if there is one now. Who asks for it is done with the one before.
    fn poll_event(&mut self) -> Option<ReadEvent> {
        let queue = self.log.queue(self.topic);
        if *queue.read_tx.borrow() != self.handed_out {
            queue.read_tx.send_replace(self.handed_out);
        }
        if let Some(event) = self.due.pop_front() {
            return Some(event);
        }
        if self.bounds_due <= Instant::now() {
            self.report_bounds();
            return self.due.pop_front();
        }
        let queue = self.log.queue(self.topic);
        let mut state = queue.state.lock();
        let count = state.partitions.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            let Some(event) = state.partitions[index].take(index) else {
                continue;
            };
            self.first = (index + 1) % count;
            if let ReadEvent::Records(records) = &event {
                state.waiting -= records.len();
                self.handed_out += records.len() as u64;
            }
            return Some(event);
        }
        None
    }
}

impl Partition {
    fn take(&mut self, index: usize) -> Option<ReadEvent> {
        if self.records.is_empty() {
            let is_due = std::mem::take(&mut self.is_caught_up_due);
            return is_due.then(|| ReadEvent::CaughtUp {
                partition: PartitionId(u32::try_from(index).unwrap_or(u32::MAX)),
                position: self.end,
            });
        }
        self.is_caught_up_due = true;
        let count = self.records.len().min(READ_RECORDS_MAX);
        Some(ReadEvent::Records(self.records.drain(..count).collect()))
    }
}

#[async_trait]
impl LogReader for PassingReader {
    async fn next(&mut self) -> Result<ReadEvent, LogError> {
        loop {
            if let Some(event) = self.poll_event() {
                return Ok(event);
            }
            let appended = self.log.queue(self.topic).appended.notified();
            tokio::select! {
                () = appended => {}
                () = sleep_until(self.bounds_due) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_record(key: &'static str) -> NewRecord {
        NewRecord {
            topic: Topic::Announcements,
            partition: None,
            key: key.into(),
            value: Some("v".into()),
            headers: Headers::default(),
            delivery: waypost_core::record::Delivery::Change,
        }
    }

    async fn next_records(reader: &mut Box<dyn LogReader>) -> Vec<Record> {
        loop {
            if let ReadEvent::Records(records) = reader.next().await.unwrap() {
                return records;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn records_pass_in_order_and_count_as_read_once_the_next_is_asked_for() {
        let log = PassingLog::new(1).unwrap();
        log.push(mk_record("a")).unwrap();
        log.push(mk_record("b")).unwrap();
        let mut reader = log.read(Topic::Announcements, &[]).await.unwrap();
        let records = next_records(&mut reader).await;
        let offsets: Vec<_> = records.iter().map(|record| record.offset.0).collect();
        assert_eq!(offsets, [0, 1, 2], "the identity, then both");
        assert_eq!(*log.queue(Topic::Announcements).read_tx.borrow(), 0);
        let event = reader.next().await.unwrap();
        assert!(matches!(event, ReadEvent::CaughtUp { .. }), "{event:?}");
        assert_eq!(*log.queue(Topic::Announcements).read_tx.borrow(), 3);
        log.all_read(Topic::Announcements).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_told_again_after_new_records() {
        let log = PassingLog::new(1).unwrap();
        let mut reader = log.read(Topic::Announcements, &[]).await.unwrap();
        next_records(&mut reader).await;
        reader.next().await.unwrap();
        log.push(mk_record("a")).unwrap();
        assert_eq!(next_records(&mut reader).await.len(), 1);
        let event = reader.next().await.unwrap();
        let position = Offset(2);
        let partition = PartitionId(0);
        let expected = ReadEvent::CaughtUp {
            partition,
            position,
        };
        assert_eq!(event, expected);
        let bounds = reader.next().await.unwrap();
        assert!(matches!(bounds, ReadEvent::Bounds { .. }), "{bounds:?}");
    }
}
