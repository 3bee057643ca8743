//! Whether a position continues the log that was read before it (docs/announcement-log.md,
//! "Identity, loading, replay"). A log can be made anew, cut, and grow past a position again; every
//! tick names the tick before it, so that a reader notices.

use std::collections::VecDeque;
use std::fmt;

use waypost_core::record::{LogIdentity, TickRef};
use waypost_core::{Offset, PartitionId, Timestamp};

use crate::limits::TICKS_REMEMBERED;

/// Why a position is not continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discontinuity {
    /// The log has no such position any more: it ends below it, or begins above it.
    OutOfRange,
    /// A tick carries another identity. Whether the log is another one is then asked of its identity
    /// record.
    OtherLog(LogIdentity),
    /// The identity record is not the one that was read.
    IdentityGone,
    /// Another identity was written: somebody found the log cut.
    Renamed(LogIdentity),
    /// A tick names a predecessor that was not there when that offset was passed.
    OtherPredecessor {
        /// Where the tick stands.
        tick: Offset,
        /// The predecessor it names.
        prev: Offset,
    },
    /// The tick read last is not there any more.
    LastTickGone(Offset),
    /// So much time has passed in the log since everything was read that tombstones may be gone.
    TombstonesGone,
}

impl Discontinuity {
    /// Whether this says that the log was cut, or could have been: what it lacks is then no statement.
    #[must_use]
    pub fn is_truncation(self) -> bool {
        match self {
            Self::OutOfRange | Self::OtherPredecessor { .. } | Self::LastTickGone(_) => true,
            Self::OtherLog(_) | Self::IdentityGone | Self::Renamed(_) | Self::TombstonesGone => {
                false
            }
        }
    }

    /// The closed label of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfRange => "out_of_range",
            Self::OtherLog(_) => "other_log",
            Self::IdentityGone => "identity_gone",
            Self::Renamed(_) => "renamed",
            Self::OtherPredecessor { .. } => "other_predecessor",
            Self::LastTickGone(_) => "last_tick_gone",
            Self::TombstonesGone => "tombstones_gone",
        }
    }
}

impl fmt::Display for Discontinuity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("the log does not reach the position any more"),
            Self::OtherLog(identity) => write!(f, "a tick belongs to log {identity}"),
            Self::IdentityGone => f.write_str("the log's identity record is another one"),
            Self::Renamed(identity) => write!(f, "the log was named anew: {identity}"),
            Self::OtherPredecessor { tick, prev } => write!(
                f,
                "the tick at offset {tick} names one at {prev} that was not there"
            ),
            Self::LastTickGone(offset) => {
                write!(f, "the tick read last, at offset {offset}, is gone")
            }
            Self::TombstonesGone => {
                f.write_str("the position is so old that removals may have been compacted away")
            }
        }
    }
}

/// A discontinuity, and where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) partition: PartitionId,
    pub(crate) cause: Discontinuity,
}

/// What one partition's reading left behind for later records to be compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    /// Every offset from here to the position was read: none was compacted away.
    dense_from: Offset,
    /// The ticks read last, oldest first.
    ticks: VecDeque<TickRef>,
    /// Where the log ended when this reading began; `None` until it has said so.
    floor: Option<Offset>,
    /// Where it ended when it was last asked.
    end: Offset,
    /// The position when the log last said where it ends. Its next answer is to a question asked
    /// after that.
    asked_at: Offset,
    /// Append time of the last record when everything had been read.
    complete_at: Option<Timestamp>,
}

impl Trail {
    /// The position moves from `position` to the record at `offset`, or beyond what is compacted.
    pub(crate) fn enter(&mut self, position: Offset, offset: Offset) {
        if offset > position {
            self.dense_from = offset;
        }
    }

    /// The reader stands at `position`, and the log took the last record read at `last_append`.
    pub(crate) fn stand(&mut self, position: Offset, last_append: Option<Timestamp>) {
        if self.floor.is_some() && position >= self.end {
            self.complete_at = last_append;
        }
    }

    /// The log ends at `end` and the reader stands at `position`; whether the log has become shorter
    /// than what was read of it, or than it was.
    pub(crate) fn on_end(&mut self, end: Offset, position: Offset) -> bool {
        let floor = *self.floor.get_or_insert(end);
        let is_below = end < self.asked_at || end < floor;
        self.end = end;
        self.asked_at = position;
        is_below
    }

    /// The reader came to the end, at `position`.
    pub(crate) fn caught_up(&mut self, position: Offset) {
        self.floor.get_or_insert(position);
        self.end = position;
    }

    pub(crate) fn is_below_floor(&self, offset: Offset) -> bool {
        self.floor.is_none_or(|floor| offset < floor)
    }

    pub(crate) fn lost_tombstones(&self, last: Timestamp, kept_ms: i64) -> bool {
        let complete_at = self.complete_at;
        complete_at.is_some_and(|then| last.millis_since(then) > kept_ms / 2)
    }

    pub(crate) fn follow_tick(
        &mut self,
        at: TickRef,
        prev: Option<TickRef>,
    ) -> Option<Discontinuity> {
        let broken = prev.filter(|prev| !self.is_below_floor(at.offset) && self.denies(at, *prev));
        if self.ticks.len() == TICKS_REMEMBERED {
            self.ticks.pop_front();
        }
        self.ticks.push_back(at);
        broken.map(|prev| Discontinuity::OtherPredecessor {
            tick: at.offset,
            prev: prev.offset,
        })
    }

    /// Whether `prev` cannot be what stood at its offset. What was compacted away, or is longer ago
    /// than is remembered, could be anything.
    fn denies(&self, at: TickRef, prev: TickRef) -> bool {
        if prev.offset >= at.offset {
            return true;
        }
        if let Some(read) = self.ticks.iter().rev().find(|t| t.offset == prev.offset) {
            return read.append_time != prev.append_time;
        }
        let remembered_from = if self.ticks.len() < TICKS_REMEMBERED {
            self.dense_from
        } else {
            let oldest = self.ticks.front().map_or(self.dense_from, |t| t.offset);
            oldest.max(self.dense_from)
        };
        prev.offset >= remembered_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64, second: i64) -> TickRef {
        TickRef {
            offset: Offset(offset),
            append_time: Timestamp(second * 1000),
        }
    }

    /// Offsets 10 to 19 were read, with ticks at 12 and 16; 20 and 21 were compacted away.
    fn mk_trail() -> Trail {
        let mut trail = Trail::default();
        trail.on_end(Offset(5), Offset(0));
        trail.enter(Offset(0), Offset(10));
        trail.follow_tick(at(12, 100), None);
        trail.follow_tick(at(16, 101), Some(at(12, 100)));
        trail
    }

    #[test]
    fn a_tick_follows_only_the_log_that_was_read() {
        let cases = [
            (at(20, 102), Some(at(16, 101)), false, "the next tick"),
            (at(20, 102), Some(at(12, 100)), false, "by one who lags"),
            (
                at(20, 102),
                Some(at(16, 99)),
                true,
                "another tick was there",
            ),
            (at(20, 102), Some(at(14, 100)), true, "no tick was there"),
            (at(20, 102), Some(at(9, 99)), false, "before what was read"),
            (at(20, 102), Some(at(20, 102)), true, "itself"),
            (at(20, 102), Some(at(31, 102)), true, "one that comes later"),
            (at(20, 102), None, false, "a writer who has read none"),
            (at(4, 102), Some(at(31, 102)), false, "below the floor"),
        ];
        for (tick, prev, broken, what) in cases {
            let found = mk_trail().follow_tick(tick, prev);
            assert_eq!(found.is_some(), broken, "{what}: {found:?}");
        }
    }

    #[test]
    fn what_was_compacted_away_could_be_anything() {
        let mut trail = mk_trail();
        trail.enter(Offset(20), Offset(22));
        assert_eq!(trail.follow_tick(at(22, 102), Some(at(20, 101))), None);
        assert_eq!(trail.follow_tick(at(23, 102), Some(at(21, 101))), None);
        assert!(trail.follow_tick(at(25, 103), Some(at(24, 101))).is_some());
    }

    #[test]
    fn older_ticks_than_are_remembered_raise_no_alarm() {
        let mut trail = mk_trail();
        let count = i64::try_from(TICKS_REMEMBERED).unwrap();
        for offset in 20..20 + count {
            trail.follow_tick(at(offset, offset), Some(at(offset - 1, offset - 1)));
        }
        assert_eq!(trail.follow_tick(at(999, 999), Some(at(14, 100))), None);
        assert!(trail.follow_tick(at(999, 999), Some(at(25, 1))).is_some());
    }

    #[test]
    fn a_log_that_becomes_shorter_is_noticed_and_an_old_answer_is_not_taken_for_it() {
        let mut trail = Trail::default();
        let cases = [
            (5, 0, false, "the first answer"),
            (9, 5, false, "it grows"),
            (9, 12, false, "asked before the last records were read"),
            (11, 12, true, "asked after they were"),
            (4, 0, true, "below where it ended at first"),
        ];
        for (end, position, is_below, what) in cases {
            assert_eq!(
                trail.on_end(Offset(end), Offset(position)),
                is_below,
                "{what}"
            );
        }
    }

    #[test]
    fn a_reader_that_was_away_for_half_the_life_of_a_tombstone_has_lost_some() {
        let kept_ms = 24 * 3_600_000;
        let hours = |hours: i64| Timestamp(hours * 3_600_000);
        let mut trail = Trail::default();
        trail.stand(Offset(7), Some(hours(0)));
        assert!(!trail.lost_tombstones(hours(99), kept_ms), "while loading");
        trail.on_end(Offset(7), Offset(7));
        trail.stand(Offset(7), Some(hours(1)));
        assert!(!trail.lost_tombstones(hours(13), kept_ms));
        assert!(trail.lost_tombstones(hours(14), kept_ms));
        trail.on_end(Offset(9), Offset(7));
        trail.stand(Offset(8), Some(hours(12)));
        assert!(trail.lost_tombstones(hours(14), kept_ms), "not at the end");
        trail.stand(Offset(9), Some(hours(12)));
        assert!(!trail.lost_tombstones(hours(14), kept_ms));
    }
}
