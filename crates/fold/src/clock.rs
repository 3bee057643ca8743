//! Where a partition was read to, and how much time its ticks say has passed.

use std::collections::VecDeque;

use waypost_core::record::{KeeperId, TickRef};
use waypost_core::time::millis;
use waypost_core::{Headers, LogTime, Offset, Timestamp};

use crate::continuity::{Discontinuity, Trail};
use crate::limits::{STANDSTILL, TICK_HISTORY, TICK_STEP_MAX};

/// A moment in one partition: how many ticks had been read. Age counts from the first tick after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u32);

/// Position and log time of one partition. Advanced by records only, never by a clock.
#[derive(Clone, Debug, Default)]
pub struct PartitionClock {
    position: Offset,
    last_append: Option<Timestamp>,
    log_time: LogTime,
    last_tick: Option<LastTick>,
    ticks_read: u32,
    /// Log time after each of the last ticks, oldest first.
    history: VecDeque<LogTime>,
    missed_to: Option<Offset>,
    unbroken_since: LogTime,
    is_unbroken: bool,
    trail: Trail,
}

/// The tick that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTick {
    /// Where it stands and when the log took it.
    pub at: TickRef,
    /// Who wrote it.
    pub keeper: KeeperId,
}

impl PartitionClock {
    /// The offset of the next record to be read.
    #[must_use]
    pub fn position(&self) -> Offset {
        self.position
    }

    /// When the log took the record that was read last.
    #[must_use]
    pub fn last_append(&self) -> Option<Timestamp> {
        self.last_append
    }

    /// How much time the ticks read say has passed.
    #[must_use]
    pub fn log_time(&self) -> LogTime {
        self.log_time
    }

    /// The tick read last.
    #[must_use]
    pub fn last_tick(&self) -> Option<LastTick> {
        self.last_tick
    }

    /// Now, for measuring age later.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.ticks_read)
    }

    /// Log time since which the partition was read without a missing tick, and did not stand still.
    #[must_use]
    pub fn unbroken_since(&self) -> LogTime {
        self.unbroken_since
    }

    /// Whether the tick read last came with no other between it and the one read before it.
    #[must_use]
    pub fn is_unbroken(&self) -> bool {
        self.is_unbroken
    }

    /// Milliseconds of log time since the first tick after `mark`; 0 before that tick.
    #[must_use]
    pub fn age_ms(&self, mark: Mark) -> i64 {
        self.age_ms_at(mark, self.mark())
    }

    /// The age of `mark` as it was at the moment `at`.
    #[must_use]
    pub fn age_ms_at(&self, mark: Mark, at: Mark) -> i64 {
        if at.0 <= mark.0 {
            return 0;
        }
        match (self.after_tick(mark.0 + 1), self.after_tick(at.0)) {
            (Some(born), Some(now)) => now.millis_since(born),
            _ => 0,
        }
    }

    /// Whether a tick between `offset` and the position may have been missed, so that an age
    /// measured since then may be too small.
    #[must_use]
    pub fn may_have_missed_since(&self, offset: Offset) -> bool {
        self.last_tick.is_none() || self.missed_to.is_some_and(|missed| missed > offset)
    }

    /// Log time after tick number `number` (from 1). Of ticks longer ago than is remembered the
    /// oldest one that is, which makes ages smaller, never larger.
    fn after_tick(&self, number: u32) -> Option<LogTime> {
        let from_end = usize::try_from(self.ticks_read.checked_sub(number)?).ok()?;
        let last = self.history.len().checked_sub(1)?;
        self.history.get(last.saturating_sub(from_end)).copied()
    }

    /// Takes the place of a record that is about to be read; false if it was read before.
    pub(crate) fn enter(&mut self, offset: Offset, append_time: Timestamp) -> bool {
        if offset < self.position {
            return false;
        }
        self.trail.enter(self.position, offset);
        self.position = offset.next();
        self.last_append = Some(append_time);
        self.trail.stand(self.position, self.last_append);
        true
    }

    /// Nothing stands between the position and `position` (compacted away).
    pub(crate) fn advance_to(&mut self, position: Offset) {
        if position > self.position {
            self.trail.enter(self.position, position);
            self.position = position;
        }
        self.trail.caught_up(position);
        self.trail.stand(self.position, self.last_append);
    }

    /// The log says that the partition ends at `end`; whether that is below what was read when it
    /// was asked.
    pub(crate) fn on_end(&mut self, end: Offset) -> bool {
        let is_below = self.trail.on_end(end, self.position);
        self.trail.stand(self.position, self.last_append);
        is_below
    }

    /// Whether a record at `offset` was there already when this reading began: what it says of the
    /// log's identity and order raises no alarm.
    pub(crate) fn is_below_floor(&self, offset: Offset) -> bool {
        self.trail.is_below_floor(offset)
    }

    /// Whether the record read last stands so long after the moment when everything was read that
    /// tombstones between the two may be gone.
    pub(crate) fn lost_tombstones(&self, kept_ms: i64) -> bool {
        let last = self.last_append;
        last.is_some_and(|last| self.trail.lost_tombstones(last, kept_ms))
    }

    /// Whether the tick at `at`, which names `prev` as the one before it, stands in the log that was
    /// read here up to now. Remembers it for the ticks that follow.
    pub(crate) fn follow_tick(
        &mut self,
        at: TickRef,
        prev: Option<TickRef>,
    ) -> Option<Discontinuity> {
        self.trail.follow_tick(at, prev)
    }

    /// Reads a tick. Its writer stood at `time` when it wrote it.
    pub(crate) fn tick(&mut self, at: TickRef, keeper: KeeperId, headers: &Headers) {
        let time = headers.time.unwrap_or_default();
        let missed = match (self.last_tick, headers.prev) {
            (Some(last), Some(prev)) => prev.offset > last.at.offset,
            (None, _) => true,
            (Some(_), None) => false,
        };
        let own = self
            .last_tick
            .map_or(self.log_time, |last| advance(self.log_time, last.at, at));
        self.log_time = if missed {
            let theirs = headers.prev.map_or(time, |prev| advance(time, prev, at));
            // Of a writer who has not noticed yet that the log is another one it may be anything.
            let missed_to = headers.prev.map(|prev| prev.offset.min(at.offset));
            self.missed_to = missed_to.max(self.missed_to);
            own.max(theirs)
        } else {
            own
        };
        let stood_still = self.last_tick.is_some_and(|last| {
            at.append_time.millis_since(last.at.append_time) > millis(STANDSTILL)
        });
        if missed || stood_still {
            self.unbroken_since = self.log_time;
        }
        self.is_unbroken = !missed;
        self.last_tick = Some(LastTick { at, keeper });
        self.ticks_read = self.ticks_read.saturating_add(1);
        if self.history.len() == TICK_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(self.log_time);
    }
}

/// Log time `from`, at the tick `before`, moved on to the tick `at`: by the append time between the
/// two, at least nothing, at most [`TICK_STEP_MAX`].
fn advance(from: LogTime, before: TickRef, at: TickRef) -> LogTime {
    let passed = at.append_time.millis_since(before.append_time);
    LogTime(
        from.0
            .saturating_add(passed.clamp(0, millis(TICK_STEP_MAX))),
    )
}

/// Whether a tick at `offset` can have been written at this log time: each tick before it has added
/// one step at most. So one absurd record cannot push log time to where no honest tick follows.
pub(crate) fn is_plausible(time: LogTime, offset: Offset) -> bool {
    let ticks = offset.0.saturating_add(1).max(0);
    time.0 <= millis(TICK_STEP_MAX).saturating_mul(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks as `(offset, append second, previous tick, writer's log time)`.
    type Read = (i64, i64, Option<(i64, i64)>, i64);

    fn at(offset: i64, second: i64) -> TickRef {
        TickRef {
            offset: Offset(offset),
            append_time: Timestamp(second * 1000),
        }
    }

    fn read(clock: &mut PartitionClock, (offset, second, prev, time): Read) -> i64 {
        let headers = Headers {
            prev: prev.map(|(offset, second)| at(offset, second)),
            time: Some(LogTime(time * 1000)),
            ..Headers::default()
        };
        clock.tick(at(offset, second), KeeperId(1), &headers);
        clock.log_time().0 / 1000
    }

    #[test]
    fn log_time_advances_by_ticks_alone_and_never_by_a_jump() {
        let mut clock = PartitionClock::default();
        let cases: [(Read, i64, &str); 8] = [
            ((1, 100, None, 0), 0, "the first tick of a log"),
            ((5, 101, Some((1, 100)), 0), 1, "a second"),
            ((6, 103, Some((5, 101)), 1), 3, "two, one was missed"),
            ((7, 3703, Some((6, 103)), 3), 5, "an hour of standstill"),
            ((8, 50, Some((7, 3703)), 5), 5, "a clock that went back"),
            ((9, 51, Some((8, 50)), 5), 6, "and goes on"),
            ((10, 51, Some((8, 50)), 5), 6, "two keepers at once"),
            ((11, 52, None, 900), 7, "a writer that claims more"),
        ];
        for (tick, expected, what) in cases {
            assert_eq!(read(&mut clock, tick), expected, "{what}");
        }
        assert_eq!(
            clock.unbroken_since(),
            LogTime(5_000),
            "an hour of standstill"
        );
    }

    #[test]
    fn who_missed_ticks_takes_the_writers_log_time() {
        let mut late = PartitionClock::default();
        assert_eq!(read(&mut late, (50, 200, Some((40, 199)), 70)), 71);
        assert!(late.may_have_missed_since(Offset(39)));
        assert!(!late.may_have_missed_since(Offset(40)));
        assert_eq!(late.unbroken_since(), LogTime(71_000));
        assert_eq!(read(&mut late, (60, 201, Some((50, 200)), 71)), 72);
        assert_eq!(
            read(&mut late, (90, 300, Some((80, 299)), 100)),
            101,
            "missed again"
        );
        assert!(late.may_have_missed_since(Offset(79)));
        assert_eq!(late.unbroken_since(), LogTime(101_000));
        assert_eq!(
            read(&mut late, (99, 400, Some((95, 399)), 1)),
            103,
            "never back"
        );
    }

    #[test]
    fn a_tick_cannot_claim_more_log_time_than_there_is_room_for_ticks_before_it() {
        let cases = [
            (0, 0, true, "the first record"),
            (2_000, 0, true, "one step"),
            (2_001, 0, false, "more than one step"),
            (2_000_000, 999, true, "a tick at every offset"),
            (2_000_001, 999, false, "and more"),
            (i64::MAX, 1_000_000, false, "for ever"),
            (i64::MAX, i64::MAX, true, "at the end of all offsets"),
        ];
        for (time, offset, expected, what) in cases {
            assert_eq!(
                is_plausible(LogTime(time), Offset(offset)),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn age_counts_from_the_first_tick_after() {
        let mut clock = PartitionClock::default();
        read(&mut clock, (1, 100, None, 0));
        let mark = clock.mark();
        assert_eq!(clock.age_ms(mark), 0);
        read(&mut clock, (2, 102, Some((1, 100)), 0));
        assert_eq!(clock.age_ms(mark), 0, "it may have come just before");
        let between = clock.mark();
        read(&mut clock, (3, 103, Some((2, 102)), 2));
        read(&mut clock, (4, 104, Some((3, 103)), 3));
        assert_eq!(clock.age_ms(mark), 2_000);
        assert_eq!(clock.age_ms_at(mark, between), 0);
        assert_eq!(clock.age_ms_at(between, mark), 0);
    }

    #[test]
    fn what_is_older_than_the_memory_of_ticks_counts_as_younger() {
        let mut clock = PartitionClock::default();
        let mark = clock.mark();
        let ticks = i64::try_from(TICK_HISTORY).unwrap() + 100;
        for second in 0..ticks {
            let prev = (second > 0).then(|| (second - 1, second - 1));
            read(&mut clock, (second, second, prev, second - 1));
        }
        let expected = i64::try_from(TICK_HISTORY).unwrap() * 1000 - 1000;
        assert_eq!(clock.age_ms(mark), expected);
    }
}
