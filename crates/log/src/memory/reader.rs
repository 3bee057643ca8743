//! Follows one topic of the log in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use waypost_core::partition::PartitionId;
use waypost_core::port::{LogError, LogReader, ReadEvent};
use waypost_core::record::{Offset, Record, Topic};
use waypost_core::time::{Timestamp, millis};

use super::Shared;
use super::faults::Flow;
use super::topic::{PartitionState, TopicState};
use crate::limits::{BOUNDS_INTERVAL, READ_RECORDS_MAX};

#[derive(Debug)]
pub(super) struct MemoryReader {
    shared: Arc<Shared>,
    topic: Topic,
    changes_rx: watch::Receiver<u64>,
    clock_rx: watch::Receiver<Timestamp>,
    start_by_partition: BTreeMap<PartitionId, Offset>,
    cursors: Vec<Cursor>,
    reach: Reach,
    /// The partition that is looked at first, so that a busy one does not starve the others.
    first: usize,
}

/// Whether the reader last said that it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Available,
    Unavailable,
}

#[derive(Debug)]
struct Cursor {
    partition: PartitionId,
    position: Offset,
    /// How many of the leaders' epochs it has heard of; `None` before it has read anything.
    epochs_heard: Option<usize>,
    bounds_at: Option<Timestamp>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Reading,
    CaughtUp,
    /// Reported; nothing more is read from this partition.
    OutOfRange,
}

impl MemoryReader {
    pub(super) fn new(shared: Arc<Shared>, topic: Topic, from: &[(PartitionId, Offset)]) -> Self {
        let changes_rx = shared.changes_tx.subscribe();
        let clock_rx = shared.clock.subscribe();
        Self {
            shared,
            topic,
            changes_rx,
            clock_rx,
            start_by_partition: from.iter().copied().collect(),
            cursors: Vec::new(),
            reach: Reach::Available,
            first: 0,
        }
    }

    /// The next event, if there is one now.
    fn poll_event(&mut self) -> Option<ReadEvent> {
        let shared = Arc::clone(&self.shared);
        let now = *self.clock_rx.borrow_and_update();
        self.changes_rx.borrow_and_update();
        let state = shared.state.lock();
        let unavailable = match state.faults.read_flow() {
            Flow::Running => None,
            Flow::Refusing(reason) => Some(reason),
            Flow::Hanging => return None,
        };
        if let Some(event) = self.report_reach(unavailable) {
            return Some(event);
        }
        if unavailable.is_some() {
            return None;
        }
        let topic = state.topic(self.topic);
        self.grow(topic.partition_count())
            .or_else(|| self.report_bounds(topic, now))
            .or_else(|| self.advance(topic))
    }

    fn report_reach(&mut self, unavailable: Option<&String>) -> Option<ReadEvent> {
        match (self.reach, unavailable) {
            (Reach::Available, Some(reason)) => {
                self.reach = Reach::Unavailable;
                Some(ReadEvent::Unavailable(reason.clone()))
            }
            (Reach::Unavailable, None) => {
                self.reach = Reach::Available;
                for cursor in &mut self.cursors {
                    cursor.bounds_at = None;
                }
                Some(ReadEvent::Available)
            }
            _ => None,
        }
    }

    fn grow(&mut self, count: u32) -> Option<ReadEvent> {
        let known = u32::try_from(self.cursors.len()).unwrap_or(u32::MAX);
        let added = (known..count).map(PartitionId).map(|partition| Cursor {
            partition,
            position: self
                .start_by_partition
                .remove(&partition)
                .unwrap_or_default(),
            epochs_heard: None,
            bounds_at: None,
            standing: Standing::Reading,
        });
        self.cursors.extend(added);
        (known < count).then_some(ReadEvent::Partitions(count))
    }

    fn report_bounds(&mut self, topic: &TopicState, now: Timestamp) -> Option<ReadEvent> {
        let due = |cursor: &&mut Cursor| {
            cursor
                .bounds_at
                .is_none_or(|at| now.millis_since(at).saturating_abs() >= millis(BOUNDS_INTERVAL))
        };
        self.cursors.iter_mut().filter(due).find_map(|cursor| {
            let state = topic.partition(cursor.partition)?;
            cursor.bounds_at = Some(now);
            Some(ReadEvent::Bounds {
                partition: cursor.partition,
                start: state.start,
                end: state.end,
            })
        })
    }

    fn advance(&mut self, topic: &TopicState) -> Option<ReadEvent> {
        let count = self.cursors.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            let cursor = &mut self.cursors[index];
            let event = match topic.partition(cursor.partition) {
                Some(state) => cursor.advance(state),
                None => cursor.give_up(),
            };
            if let Some(event) = event {
                self.first = (index + 1) % count;
                return Some(event);
            }
        }
        None
    }
}

impl Cursor {
    fn advance(&mut self, state: &PartitionState) -> Option<ReadEvent> {
        if self.standing == Standing::OutOfRange {
            return None;
        }
        let heard = self.epochs_heard.replace(state.epochs.len());
        let new = state.epochs.get(heard.unwrap_or(usize::MAX)..);
        let is_cut = new.is_some_and(|ends| ends.iter().any(|end| *end < self.position));
        if is_cut || self.position < state.start || self.position > state.end {
            return self.give_up();
        }
        if self.position == state.end {
            let told = std::mem::replace(&mut self.standing, Standing::CaughtUp);
            return (told == Standing::Reading).then_some(ReadEvent::CaughtUp {
                partition: self.partition,
                position: self.position,
            });
        }
        self.standing = Standing::Reading;
        let rest = state.records_by_offset.range(self.position..);
        let records: Vec<Record> = rest
            .take(READ_RECORDS_MAX)
            .map(|(_, r)| r.clone())
            .collect();
        let Some(last) = records.last() else {
            // Compaction left nothing between here and the end.
            self.position = state.end;
            return self.advance(state);
        };
        self.position = last.offset.next();
        Some(ReadEvent::Records(records))
    }

    /// The position is none of this log's, or even the partition is not.
    fn give_up(&mut self) -> Option<ReadEvent> {
        let told = std::mem::replace(&mut self.standing, Standing::OutOfRange);
        (told != Standing::OutOfRange).then_some(ReadEvent::OutOfRange {
            partition: self.partition,
            position: self.position,
        })
    }
}

#[async_trait]
impl LogReader for MemoryReader {
    async fn next(&mut self) -> Result<ReadEvent, LogError> {
        loop {
            if let Some(event) = self.poll_event() {
                return Ok(event);
            }
            // The sender side lives in `shared`, so neither can end while this reader exists.
            tokio::select! {
                changed = self.changes_rx.changed() => changed.map_err(|_| LogError::Closed)?,
                changed = self.clock_rx.changed() => changed.map_err(|_| LogError::Closed)?,
            }
        }
    }
}
