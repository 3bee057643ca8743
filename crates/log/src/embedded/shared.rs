//! What writer, readers and handles share: the store, and of every partition the newest records.

use std::collections::VecDeque;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use waypost_core::partition::PartitionId;
use waypost_core::port::LogError;
use waypost_core::record::{Offset, Record, Topic};

use super::directory::Directory;
use super::ledger::Ledger;
use super::store::{Store, StoreError};
use super::stored::Place;
use crate::limits::{EMBEDDED_TAIL_BYTES_MAX, EMBEDDED_TAIL_MAX, READ_RECORDS_MAX};

#[derive(Debug)]
pub(super) struct Shared {
    directory: Directory,
    /// Empty while it is opened anew after a failure, and once the log is closed.
    store: RwLock<Option<Store>>,
    /// Why nothing can be written at present.
    failure: Mutex<Option<String>>,
    announcements: Vec<Mutex<Tail>>,
    config: Vec<Mutex<Tail>>,
    control: Vec<Mutex<Tail>>,
    /// Counts what became visible; the last change is the end of the log.
    changes_tx: watch::Sender<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Open(u64),
    Closed,
}

/// The newest records of a partition, and all that are not on disk yet.
#[derive(Debug)]
struct Tail {
    /// Below it the store is asked.
    start: Offset,
    /// The offset of the next record that becomes visible.
    end: Offset,
    records: VecDeque<Record>,
    bytes: usize,
}

/// What a partition's tail says of a position.
#[derive(Debug)]
pub(super) enum Found {
    /// The position is above the end.
    OutOfRange,
    /// The position is the end.
    End,
    /// The store has what comes next, below the offset given.
    InStore(Offset),
    /// What comes next, and the position after it.
    Records(Vec<Record>, Offset),
}

impl Shared {
    /// Every partition ends where the ledger says, with nothing in memory.
    pub(super) fn new(directory: Directory, store: Store, ledger: &Ledger) -> Self {
        let tails = |topic| {
            let ends = ledger.ends(super::store::Closing::Orderly);
            let of_topic = ends.into_iter().filter(|(of, ..)| *of == topic);
            of_topic
                .map(|(.., end)| Mutex::new(Tail::new(end.next)))
                .collect()
        };
        Self {
            directory,
            store: RwLock::new(Some(store)),
            failure: Mutex::new(None),
            announcements: tails(Topic::Announcements),
            config: tails(Topic::Config),
            control: tails(Topic::Control),
            changes_tx: watch::Sender::new(Change::Open(0)),
        }
    }

    pub(super) fn partition_count(&self, topic: Topic) -> u32 {
        u32::try_from(self.tails(topic).len()).unwrap_or(u32::MAX)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Change> {
        self.changes_tx.subscribe()
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.changes_tx.borrow() == Change::Closed
    }

    /// Makes records visible, each partition's in the order of offsets.
    pub(super) fn publish<'a>(&self, records: impl IntoIterator<Item = (Topic, &'a Record)>) {
        for (topic, record) in records {
            if let Some(tail) = self.tail(topic, record.partition) {
                tail.lock().push(record.clone());
            }
        }
        self.changes_tx.send_modify(|change| {
            if let Change::Open(count) = change {
                *count += 1;
            }
        });
    }

    /// Drops records from memory that readers near the end no longer need. All of them are on disk.
    pub(super) fn trim(&self) {
        for topic in Topic::ALL {
            for tail in self.tails(topic) {
                tail.lock().trim();
            }
        }
    }

    /// The offset of the next record, `None` if there is no such partition.
    pub(super) fn end(&self, topic: Topic, partition: PartitionId) -> Option<Offset> {
        self.tail(topic, partition).map(|tail| tail.lock().end)
    }

    pub(super) fn find(&self, place: Place) -> Found {
        let tail = self.tail(place.topic, place.partition);
        tail.map_or(Found::OutOfRange, |tail| tail.lock().find(place.offset))
    }

    /// The record at a place that memory knows of: `None` if only the store does, `Some(None)` if
    /// there is none.
    pub(super) fn find_in_memory(&self, place: Place) -> Option<Option<Record>> {
        let tail = self.tail(place.topic, place.partition);
        tail.map_or(Some(None), |tail| tail.lock().find_one(place.offset))
    }

    /// Whether the store can be asked. Does not wait for one that is being opened.
    pub(super) fn is_readable(&self) -> bool {
        self.store.try_read().is_some_and(|store| store.is_some())
    }

    /// Asks the store. Blocks.
    pub(super) fn ask<T>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.store.read() {
            Some(store) => ask(store),
            None => Err(StoreError::NotOpen),
        }
    }

    /// What a failure of the store means to the log's users.
    pub(super) fn to_log_error(&self, error: &StoreError) -> LogError {
        if matches!(error, StoreError::NotOpen) && self.is_closed() {
            return LogError::Closed;
        }
        self.directory.to_log_error(error)
    }

    /// The same as the reason of `Unavailable`.
    pub(super) fn to_reason(&self, error: &StoreError) -> String {
        match self.to_log_error(error) {
            LogError::Unavailable(reason) => reason,
            other => other.to_string(),
        }
    }

    /// Whether the open store still stands at its path.
    pub(super) fn check_store(&self) -> Result<(), StoreError> {
        self.directory.check_store()
    }

    /// Why nothing can be written at present: readers, who see nothing new then, say so.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Says why nothing can be written, or that it can.
    pub(super) fn set_failure(&self, reason: Option<String>) {
        *self.failure.lock() = reason;
        // Whoever waits for records looks again.
        self.publish([]);
    }

    /// Closes the store and puts what `open` makes in its place. Blocks until nobody reads.
    pub(super) fn replace_store(
        &self,
        open: impl FnOnce() -> Result<Store, StoreError>,
    ) -> Result<(), StoreError> {
        let mut store = self.store.write();
        drop(store.take());
        *store = Some(open()?);
        Ok(())
    }

    /// Ends the log: the store is closed and the directory free.
    pub(super) fn close(&self) {
        drop(self.store.write().take());
        self.directory.unlock();
        self.changes_tx.send_replace(Change::Closed);
    }

    fn tails(&self, topic: Topic) -> &[Mutex<Tail>] {
        match topic {
            Topic::Announcements => &self.announcements,
            Topic::Config => &self.config,
            Topic::Control => &self.control,
        }
    }

    fn tail(&self, topic: Topic, partition: PartitionId) -> Option<&Mutex<Tail>> {
        self.tails(topic).get(partition.0 as usize)
    }
}

impl Tail {
    fn new(end: Offset) -> Self {
        Self {
            start: end,
            end,
            records: VecDeque::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, record: Record) {
        self.end = record.offset.next();
        self.bytes += record_bytes(&record);
        self.records.push_back(record);
    }

    fn trim(&mut self) {
        while (self.records.len() > EMBEDDED_TAIL_MAX || self.bytes > EMBEDDED_TAIL_BYTES_MAX)
            && let Some(record) = self.records.pop_front()
        {
            self.bytes -= record_bytes(&record);
            self.start = record.offset.next();
        }
    }

    fn find(&self, position: Offset) -> Found {
        if position > self.end {
            return Found::OutOfRange;
        }
        if position == self.end {
            return Found::End;
        }
        if position < self.start {
            return Found::InStore(self.start);
        }
        let first = self
            .records
            .partition_point(|record| record.offset < position);
        let rest = self.records.range(first..);
        let records: Vec<_> = rest.take(READ_RECORDS_MAX).cloned().collect();
        let next = records.last().map_or(self.end, |last| last.offset.next());
        Found::Records(records, next)
    }

    fn find_one(&self, offset: Offset) -> Option<Option<Record>> {
        if offset < self.start {
            return None;
        }
        let index = self
            .records
            .partition_point(|record| record.offset < offset);
        let at = self
            .records
            .get(index)
            .filter(|record| record.offset == offset);
        Some(at.cloned())
    }
}

fn record_bytes(record: &Record) -> usize {
    let key = record.key.as_ref().map_or(0, bytes::Bytes::len);
    let value = record.value.as_ref().map_or(0, bytes::Bytes::len);
    size_of::<Record>() + key + value
}
