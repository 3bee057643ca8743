//! The wall clock. It gives times of origin and ages for people; order never comes from it
//! (docs/announcement-log.md, "Time").

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use waypost_core::Timestamp;
use waypost_core::time::millis;

/// A source of wall-clock time: the machine's, or one that a test moves by hand.
#[derive(Clone, Debug, Default)]
pub struct WallClock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Manual(Arc<AtomicI64>),
}

impl WallClock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start` until [`WallClock::advance`] moves it; clones share it.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(start.0))))
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(now_ms) => Timestamp(now_ms.load(Ordering::Acquire)),
        }
    }

    /// Moves a manual clock on; does nothing to the machine's.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now_ms) = &self.0 {
            now_ms.fetch_add(millis(by), Ordering::AcqRel);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the machine's clock; never used for order"
)]
fn system_now() -> Timestamp {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp(millis(since)),
        Err(before) => Timestamp(-millis(before.duration())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_for_every_clone() {
        let clock = WallClock::manual(Timestamp(100));
        let other = clock.clone();
        assert_eq!(other.now(), Timestamp(100));
        clock.advance(Duration::from_millis(5));
        assert_eq!(other.now(), Timestamp(105));
    }

    #[test]
    fn the_machine_clock_is_in_this_century() {
        let now = WallClock::system().now();
        assert!(now > Timestamp(1_600_000_000_000), "{now:?}");
    }
}
