//! The two clocks of the announcement log. Neither is ever an announcer's or an Observer's own.
//!
//! Source: docs/announcement-log.md, "Time".

use std::time::Duration;

/// A wall-clock instant as stamped by the log (Kafka's `LogAppendTime`), or a time of origin:
/// milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The instant `age` before this one.
    #[must_use]
    pub fn minus(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(millis(age)))
    }

    /// How much later this is than `earlier`; negative when a clock went back.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The age of one Kafka partition as the ticks read from it count it, in milliseconds.
///
/// Log time advances only when a tick is read, by at most two seconds a tick, so a log that stands
/// still, a broker clock that jumps or an Observer that sleeps can only slow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(pub i64);

impl LogTime {
    /// Milliseconds of log time since `earlier`.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A duration as whole milliseconds, saturating: the unit of every time in the log.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
