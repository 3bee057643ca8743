//! Follows one topic for ever: opens a reader, and another one when that ends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rand::Rng as _;
use tokio::time::Sleep;
use waypost_core::{AnnouncementLog, LogError, LogReader, Offset, PartitionId, ReadEvent, Topic};

use crate::limits::{REOPEN_PAUSE_MAX, REOPEN_PAUSE_MIN};

/// What a topic's follower reports.
#[derive(Debug)]
pub(super) enum Followed {
    /// Its reader said something.
    Event(ReadEvent),
    /// Its reader ended or could not be opened. Nothing more comes until [`Follower::reopen`].
    Failed(LogError),
}

/// The follower of one topic.
pub(super) struct Follower {
    log: Arc<dyn AnnouncementLog>,
    topic: Topic,
    state: State,
    failures_in_a_row: u32,
}

type Positions = Vec<(PartitionId, Offset)>;

enum State {
    Idle,
    Pausing(Pin<Box<Sleep>>, Positions),
    Opening(BoxFuture<'static, Result<Box<dyn LogReader>, LogError>>),
    Reading(Box<dyn LogReader>),
}

impl Follower {
    /// Follows `topic` from its beginning once [`Follower::open`] is called.
    pub(super) fn new(log: Arc<dyn AnnouncementLog>, topic: Topic) -> Self {
        Self {
            log,
            topic,
            state: State::Idle,
            failures_in_a_row: 0,
        }
    }

    /// Opens a reader at once.
    pub(super) fn open(&mut self, from: Positions) {
        let (log, topic) = (Arc::clone(&self.log), self.topic);
        self.state = State::Opening(Box::pin(async move { log.read(topic, &from).await }));
    }

    /// Opens a reader after a pause that grows with each failure in a row.
    pub(super) fn reopen(&mut self, from: Positions) {
        let pause = pause_after(self.failures_in_a_row);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.state = State::Pausing(Box::pin(tokio::time::sleep(pause)), from);
    }

    /// Waits for something to happen. Cancel-safe: what was begun goes on in the next call.
    pub(super) async fn next(&mut self) -> Followed {
        loop {
            match &mut self.state {
                State::Idle => std::future::pending().await,
                State::Pausing(pause, from) => {
                    pause.as_mut().await;
                    let from = std::mem::take(from);
                    self.open(from);
                }
                State::Opening(opening) => match opening.as_mut().await {
                    Ok(reader) => self.state = State::Reading(reader),
                    Err(error) => return self.fail(error),
                },
                State::Reading(reader) => match reader.next().await {
                    Ok(event) => {
                        if !matches!(event, ReadEvent::Unavailable(_)) {
                            self.failures_in_a_row = 0;
                        }
                        return Followed::Event(event);
                    }
                    Err(error) => return self.fail(error),
                },
            }
        }
    }

    fn fail(&mut self, error: LogError) -> Followed {
        self.state = State::Idle;
        Followed::Failed(error)
    }
}

/// Doubles from [`REOPEN_PAUSE_MIN`] to [`REOPEN_PAUSE_MAX`]; the upper half is random, so that a
/// fleet of Observers does not come back in step.
pub(super) fn pause_after(failures_in_a_row: u32) -> Duration {
    let doubled = REOPEN_PAUSE_MIN.saturating_mul(1 << failures_in_a_row.min(16));
    doubled
        .min(REOPEN_PAUSE_MAX)
        .mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_are_spread() {
        for failures in 0..40 {
            let pause = pause_after(failures);
            assert!(pause >= REOPEN_PAUSE_MIN / 2, "{failures}: {pause:?}");
            assert!(pause <= REOPEN_PAUSE_MAX, "{failures}: {pause:?}");
        }
        assert!(pause_after(30) >= REOPEN_PAUSE_MAX / 2);
    }
}
