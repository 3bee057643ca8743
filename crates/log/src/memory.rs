//! A log in memory for tests: deterministic, driven by a clock that the test moves, with the faults
//! of a real log on demand: [`MemoryLog::pause`], [`MemoryLog::compact`], [`MemoryLog::truncate`],
//! [`MemoryLog::recreate`], [`MemoryLog::move_leader`], [`MemoryLog::duplicate_next`],
//! [`MemoryLog::set_acknowledgements`] and others.
//!
//! Everything happens when it is called for: there is no task and no timer. Readers report bounds
//! again once the clock has moved by [`BOUNDS_INTERVAL`](crate::limits::BOUNDS_INTERVAL).

mod compaction;
mod faults;
mod reader;
mod topic;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog, LogError, LogReader};
use waypost_core::record::{
    Appended, Headers, IDENTITY_KEY, LogIdentity, NewRecord, Offset, Record, RecordKind, Topic,
};
use waypost_core::time::Timestamp;

pub use self::compaction::CompactionRules;
pub use self::faults::{Acknowledgements, Pause};
use self::faults::{Faults, Flow};
use self::reader::MemoryReader;
use self::topic::{NewEntry, TopicState};
use crate::admission::{admit, check_expected, no_such_partition};
use crate::clock::{Clock, ManualClock};

/// The log. Clones are handles of one log; readers keep it alive.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: ManualClock,
    state: Mutex<State>,
    /// Counts changes, so that readers and held appends look again.
    changes_tx: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    topics: [TopicState; Topic::ALL.len()],
    faults: Faults,
    appended: u64,
}

impl MemoryLog {
    /// An empty log whose announcements have `partitions` partitions (0 is read as 1) and whose
    /// other topics have one. It has no identity record: see [`Self::write_identity`].
    #[must_use]
    pub fn new(partitions: u32, clock: ManualClock) -> Self {
        let state = State {
            topics: [partitions, 1, 1].map(TopicState::new),
            faults: Faults::default(),
            appended: 0,
        };
        Self {
            shared: Arc::new(Shared {
                clock,
                state: Mutex::new(state),
                changes_tx: watch::Sender::new(0),
            }),
        }
    }

    /// The clock that stamps append times.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.shared.clock
    }

    /// Writes the record that says which log this is into partition 0 of every topic, as
    /// `waypost topics create` does.
    pub fn write_identity(&self, identity: LogIdentity) {
        for topic in Topic::ALL {
            let entry = NewEntry {
                key: Some(Bytes::from_static(IDENTITY_KEY)),
                value: Some(identity.to_string().into()),
                headers: Ok(Headers {
                    kind: RecordKind::Identity,
                    log: Some(identity),
                    ..Headers::default()
                }),
            };
            self.change(|state, now| state.topic_mut(topic).push(PartitionId(0), now, entry));
        }
    }

    /// Writes a record as any producer could: without a key, with headers of any form. `None` if
    /// there is no such partition.
    pub fn append_raw(
        &self,
        topic: Topic,
        partition: PartitionId,
        key: Option<Bytes>,
        value: Option<Bytes>,
        headers: &[(&str, &[u8])],
    ) -> Option<Offset> {
        let headers = Headers::read(headers.iter().copied());
        let entry = NewEntry {
            key,
            value,
            headers,
        };
        self.change(|state, now| state.topic_mut(topic).push(partition, now, entry))
    }

    /// Everything that `topic` holds now, partition by partition.
    #[must_use]
    pub fn records(&self, topic: Topic) -> Vec<Record> {
        self.shared.state.lock().topic(topic).records()
    }

    /// How many records it has taken in its life.
    #[must_use]
    pub fn appended(&self) -> u64 {
        self.shared.state.lock().appended
    }

    /// Where the next record of a partition will stand; `None` if there is no such partition.
    #[must_use]
    pub fn find_end(&self, topic: Topic, partition: PartitionId) -> Option<Offset> {
        let state = self.shared.state.lock();
        state.topic(topic).partition(partition).map(|p| p.end)
    }

    /// Applies `change` and wakes whoever waits.
    fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.shared.clock.now();
        let result = change(&mut self.shared.state.lock(), now);
        self.shared.changes_tx.send_modify(|count| *count += 1);
        result
    }

    /// Appends as soon as appends are not held back.
    async fn append_guarded(
        &self,
        record: NewRecord,
        guard: Option<Option<Offset>>,
    ) -> Result<Appended, LogError> {
        let mut changes_rx = self.shared.changes_tx.subscribe();
        loop {
            if let Some(outcome) = self.try_append(&record, guard) {
                return outcome;
            }
            let changed = changes_rx.changed().await;
            changed.map_err(|_| LogError::Closed)?;
        }
    }

    /// `None` while appends are held back.
    fn try_append(
        &self,
        record: &NewRecord,
        guard: Option<Option<Offset>>,
    ) -> Option<Result<Appended, LogError>> {
        match self.shared.state.lock().faults.append_flow() {
            Flow::Running => {}
            Flow::Refusing(reason) => return Some(Err(LogError::Unavailable(reason.clone()))),
            Flow::Hanging => return None,
        }
        Some(self.change(|state, now| state.append(record, guard, now)))
    }
}

impl State {
    fn topic(&self, topic: Topic) -> &TopicState {
        let [announcements, config, control] = &self.topics;
        match topic {
            Topic::Announcements => announcements,
            Topic::Config => config,
            Topic::Control => control,
        }
    }

    fn topic_mut(&mut self, topic: Topic) -> &mut TopicState {
        let [announcements, config, control] = &mut self.topics;
        match topic {
            Topic::Announcements => announcements,
            Topic::Config => config,
            Topic::Control => control,
        }
    }

    fn append(
        &mut self,
        record: &NewRecord,
        guard: Option<Option<Offset>>,
        now: Timestamp,
    ) -> Result<Appended, LogError> {
        let topic = self.topic(record.topic);
        let partition = admit(record, topic.partition_count())?;
        if let Some(expected) = guard {
            check_expected(topic.find_last(partition, &record.key), expected)?;
        }
        let copies = if self.faults.take_duplicate() { 2 } else { 1 };
        self.appended += copies;
        let topic = self.topic_mut(record.topic);
        let mut first = None;
        for _ in 0..copies {
            let offset = topic.push(partition, now, NewEntry::from(record));
            first = first.or(offset);
        }
        let count = topic.partition_count();
        let offset = first.ok_or_else(|| no_such_partition(record.topic, partition, count))?;
        if self.faults.loses_acknowledgements() {
            let reason = "the acknowledgement was lost".to_owned();
            return Err(LogError::Unavailable(reason));
        }
        Ok(Appended {
            partition,
            offset,
            append_time: Some(self.topic(record.topic).leader_time(partition, now)),
        })
    }
}

#[async_trait]
impl AnnouncementLog for MemoryLog {
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError> {
        Ok(self.shared.state.lock().topic(topic).partition_count())
    }

    async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        self.append_guarded(record, None).await
    }

    async fn append_if(
        &self,
        record: NewRecord,
        expected: Option<Offset>,
    ) -> Result<Appended, LogError> {
        self.append_guarded(record, Some(expected)).await
    }

    async fn read(
        &self,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError> {
        let reader = MemoryReader::new(Arc::clone(&self.shared), topic, from);
        Ok(Box::new(reader))
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Option<Record>, LogError> {
        let state = self.shared.state.lock();
        match state.faults.read_flow() {
            Flow::Running => Ok(state.topic(topic).find(partition, offset)),
            Flow::Refusing(reason) => Err(LogError::Unavailable(reason.clone())),
            Flow::Hanging => Err(LogError::Unavailable("reads are held back".to_owned())),
        }
    }
}
