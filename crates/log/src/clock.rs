//! The clock that stamps append times, where the log is in this process.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use waypost_core::time::{Timestamp, millis};

/// Says what time it is by the log.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment. May go back; a log that must not go back sees to that itself.
    fn now(&self) -> Timestamp;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the log's own clock: append times are wall-clock times of the log's machine"
    )]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(millis(since_epoch))
    }
}

/// A clock driven by hand. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now_tx: watch::Sender<Timestamp>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self {
            now_tx: watch::Sender::new(start),
        }
    }

    /// Moves on by `by`.
    pub fn advance(&self, by: Duration) {
        self.now_tx
            .send_modify(|now| now.0 = now.0.saturating_add(millis(by)));
    }

    /// Jumps to `now`, back too: a leader moved to a broker whose clock is another.
    pub fn set(&self, now: Timestamp) {
        self.now_tx.send_replace(now);
    }

    /// Follows the clock: changes whenever it is moved.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Timestamp> {
        self.now_tx.subscribe()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now_tx.borrow()
    }
}
