//! The store's idea of now: how long names that left are remembered is counted on it.
//!
//! While the log is read for the first time it is the append time of what is read, so that what left
//! before this Observer began to look is remembered as long as everywhere else. From then on log time
//! alone moves it (docs/announcement-log.md, "What is remembered of what left"): a broker's clock that
//! jumps, or a log that stands still, makes nobody forget.

use waypost_core::time::millis;
use waypost_core::{LogTime, Timestamp};

use crate::limits::LOG_CLOCK_STEP_MAX;

/// An instant on the log's clock that never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogClock {
    now: Timestamp,
    log_time: LogTime,
}

impl LogClock {
    pub(super) fn now(self) -> Timestamp {
        self.now
    }

    /// It stands here: a record was read while loading, or a snapshot.
    pub(super) fn set(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Log time is this. Another log may be at any time, which says nothing of the time that passed:
    /// what is longer than a step counts as one, and what goes back as none.
    pub(super) fn advance(&mut self, log_time: LogTime) {
        let passed_ms = log_time.millis_since(self.log_time);
        let step_ms = passed_ms.clamp(0, millis(LOG_CLOCK_STEP_MAX));
        self.now = Timestamp(self.now.0.saturating_add(step_ms));
        self.log_time = log_time;
    }

    /// Log time is this, and the instant is set by what is read.
    pub(super) fn follow(&mut self, log_time: LogTime) {
        self.log_time = log_time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time_moves_it_and_neither_jumps_nor_another_log_do() {
        let mut clock = LogClock::default();
        for (append_ms, log_time_ms) in [(5_000, 100), (9_000, 2_000)] {
            clock.set(Timestamp(append_ms));
            clock.follow(LogTime(log_time_ms));
        }
        let step_ms = millis(LOG_CLOCK_STEP_MAX);
        let cases = [
            (3_000, 10_000, "a second of log time"),
            (3_000, 10_000, "a log that stands still"),
            (0, 10_000, "another log, at its beginning"),
            (1_000, 11_000, "goes on"),
            (1_000_000_000, 11_000 + step_ms, "another log, far ahead"),
        ];
        for (log_time_ms, expected, what) in cases {
            clock.advance(LogTime(log_time_ms));
            assert_eq!(clock.now(), Timestamp(expected), "{what}");
        }
        clock.set(Timestamp(1));
        assert_eq!(clock.now(), Timestamp(11_000 + step_ms), "never back");
    }
}
