//! Follows one topic: records near the end from memory, older ones from the store, which is asked
//! on a thread for blocking work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use waypost_core::partition::PartitionId;
use waypost_core::port::{LogError, LogReader, ReadEvent};
use waypost_core::record::{Offset, Record, Topic};

use super::opening::START;
use super::shared::{Change, Found, Shared};
use super::store::StoreError;
use super::stored::Place;

#[derive(Debug)]
pub(super) struct EmbeddedReader {
    shared: Arc<Shared>,
    topic: Topic,
    changes_rx: watch::Receiver<Change>,
    cursors: Vec<Cursor>,
    /// Partitions are announced before anything else.
    greeting: Greeting,
    bounds_interval: Duration,
    bounds_at: Instant,
    /// A read of the store that is under way, so that a dropped `next` does not lose it.
    reading: Option<(usize, JoinHandle<StoreRead>)>,
    reach: Reach,
    writing: Writing,
    /// The partition that is looked at first, so that a busy one does not starve the others.
    first: usize,
}

type StoreRead = Result<(Vec<Record>, Offset), StoreError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    Due,
    Said,
}

/// Whether the reader last said that it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Available,
    Unavailable,
}

/// Whether the reader last said that the log takes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Works,
    Fails,
}

#[derive(Debug)]
struct Cursor {
    partition: PartitionId,
    position: Offset,
    bounds: Bounds,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bounds {
    Due,
    Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Reading,
    CaughtUp,
    /// Reported; nothing more is read from this partition.
    OutOfRange,
}

/// What a cursor does next.
enum Step {
    Say(ReadEvent),
    AskStore(Offset),
    Wait,
}

impl EmbeddedReader {
    pub(super) fn new(
        shared: Arc<Shared>,
        topic: Topic,
        from: &[(PartitionId, Offset)],
        bounds_interval: Duration,
    ) -> Self {
        let position_by_partition: BTreeMap<_, _> = from.iter().copied().collect();
        let partitions = (0..shared.partition_count(topic)).map(PartitionId);
        let cursors = partitions.map(|partition| Cursor {
            partition,
            position: position_by_partition
                .get(&partition)
                .copied()
                .unwrap_or(START),
            bounds: Bounds::Due,
            standing: Standing::Reading,
        });
        Self {
            changes_rx: shared.subscribe(),
            cursors: cursors.collect(),
            shared,
            topic,
            greeting: Greeting::Due,
            bounds_interval,
            bounds_at: Instant::now() + bounds_interval,
            reading: None,
            reach: Reach::Available,
            writing: Writing::Works,
            first: 0,
        }
    }

    /// The next event, if there is one without waiting for the store.
    fn poll_event(&mut self) -> Option<ReadEvent> {
        if self.greeting == Greeting::Due {
            self.greeting = Greeting::Said;
            let count = self.shared.partition_count(self.topic);
            return Some(ReadEvent::Partitions(count));
        }
        if self.reach == Reach::Unavailable && self.shared.is_readable() {
            self.reach = Reach::Available;
            self.make_bounds_due();
            return Some(ReadEvent::Available);
        }
        if let Some(failure) = self.report_failure() {
            return Some(failure);
        }
        if self.writing == Writing::Fails {
            return self.advance();
        }
        if self.bounds_at <= Instant::now() {
            self.make_bounds_due();
        }
        self.report_bounds().or_else(|| self.advance())
    }

    /// While nothing can be written, says so instead of where partitions end: the log stands still
    /// although announcers speak. What is there can be read.
    fn report_failure(&mut self) -> Option<ReadEvent> {
        let failure = self.shared.failure();
        let before = self.writing;
        self.writing = match failure {
            Some(_) => Writing::Fails,
            None => Writing::Works,
        };
        match (before, failure) {
            (Writing::Fails, None) => {
                self.make_bounds_due();
                Some(ReadEvent::Available)
            }
            (Writing::Works, Some(reason)) => {
                self.bounds_at = Instant::now() + self.bounds_interval;
                Some(ReadEvent::Unavailable(reason))
            }
            (Writing::Fails, Some(reason)) if self.bounds_at <= Instant::now() => {
                self.bounds_at = Instant::now() + self.bounds_interval;
                Some(ReadEvent::Unavailable(reason))
            }
            _ => None,
        }
    }

    fn make_bounds_due(&mut self) {
        self.bounds_at = Instant::now() + self.bounds_interval;
        for cursor in &mut self.cursors {
            cursor.bounds = Bounds::Due;
        }
    }

    fn report_bounds(&mut self) -> Option<ReadEvent> {
        let mut due = self
            .cursors
            .iter_mut()
            .filter(|cursor| cursor.bounds == Bounds::Due);
        let cursor = due.next()?;
        cursor.bounds = Bounds::Said;
        let end = self.shared.end(self.topic, cursor.partition)?;
        Some(ReadEvent::Bounds {
            partition: cursor.partition,
            start: START,
            end,
        })
    }

    /// Moves the first cursor that can move.
    fn advance(&mut self) -> Option<ReadEvent> {
        if self.reach == Reach::Unavailable {
            return None;
        }
        let count = self.cursors.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            let cursor = &mut self.cursors[index];
            let place = Place {
                topic: self.topic,
                partition: cursor.partition,
                offset: cursor.position,
            };
            match cursor.advance(|| self.shared.find(place)) {
                Step::Say(event) => {
                    self.first = (index + 1) % count;
                    return Some(event);
                }
                Step::AskStore(below) => {
                    let shared = Arc::clone(&self.shared);
                    let ask = move || shared.ask(|store| store.read(place, below));
                    self.reading = Some((index, tokio::task::spawn_blocking(ask)));
                    return None;
                }
                Step::Wait => {}
            }
        }
        None
    }

    /// Takes what the store answered.
    fn take_read(&mut self, index: usize, read: StoreRead) -> Result<Option<ReadEvent>, LogError> {
        match read {
            Ok((records, position)) => {
                if let Some(cursor) = self.cursors.get_mut(index) {
                    cursor.position = position;
                    cursor.standing = Standing::Reading;
                }
                let count = self.cursors.len();
                self.first = (index + 1) % count.max(1);
                Ok((!records.is_empty()).then_some(ReadEvent::Records(records)))
            }
            Err(error) => match self.shared.to_log_error(&error) {
                LogError::Unavailable(reason) => {
                    self.reach = Reach::Unavailable;
                    Ok(Some(ReadEvent::Unavailable(reason)))
                }
                fatal => Err(fatal),
            },
        }
    }
}

impl Cursor {
    fn advance(&mut self, find: impl FnOnce() -> Found) -> Step {
        if self.standing == Standing::OutOfRange {
            return Step::Wait;
        }
        if self.position < START {
            return self.out_of_range();
        }
        match find() {
            Found::OutOfRange => self.out_of_range(),
            Found::InStore(below) => Step::AskStore(below),
            Found::End => {
                let told = std::mem::replace(&mut self.standing, Standing::CaughtUp);
                if told == Standing::CaughtUp {
                    return Step::Wait;
                }
                Step::Say(ReadEvent::CaughtUp {
                    partition: self.partition,
                    position: self.position,
                })
            }
            Found::Records(records, position) => {
                self.position = position;
                self.standing = Standing::Reading;
                Step::Say(ReadEvent::Records(records))
            }
        }
    }

    fn out_of_range(&mut self) -> Step {
        self.standing = Standing::OutOfRange;
        Step::Say(ReadEvent::OutOfRange {
            partition: self.partition,
            position: self.position,
        })
    }
}

#[async_trait]
impl LogReader for EmbeddedReader {
    async fn next(&mut self) -> Result<ReadEvent, LogError> {
        loop {
            if *self.changes_rx.borrow_and_update() == Change::Closed {
                return Err(LogError::Closed);
            }
            if let Some((index, handle)) = &mut self.reading {
                let index = *index;
                // It ends without a value only when the runtime does.
                let read = handle.await.map_err(|_| LogError::Closed)?;
                self.reading = None;
                if let Some(event) = self.take_read(index, read)? {
                    return Ok(event);
                }
                continue;
            }
            if let Some(event) = self.poll_event() {
                return Ok(event);
            }
            if self.reading.is_some() {
                continue;
            }
            tokio::select! {
                changed = self.changes_rx.changed() => changed.map_err(|_| LogError::Closed)?,
                () = sleep_until(self.bounds_at) => {}
            }
        }
    }
}
