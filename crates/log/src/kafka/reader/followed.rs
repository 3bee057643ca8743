//! One partition that a reader follows: its position, what is to be asked about it, and whether the
//! handle that fetches it still does.

use std::time::Duration;

use tokio::time::Instant;
use waypost_core::port::ReadEvent;

use super::position::Position;
use crate::kafka::limits::{BOUNDS_RETRY_INTERVAL_MAX, RETRY_INTERVAL};
use crate::limits::BOUNDS_INTERVAL;

#[derive(Debug)]
pub(super) struct Followed {
    pub(super) position: Position,
    pub(super) bounds_due: Instant,
    /// Where it stood when its bounds were asked for last.
    asked_at: Option<i64>,
    /// Questions for its bounds in a row that stayed without an answer.
    unanswered: u32,
    /// librdkafka fetches it: not before its bounds are known, so that they come before its first
    /// record, and a position that does not exist is never fetched from.
    pub(super) is_assigned: bool,
    /// librdkafka stopped some partition: whether it may be this one is being asked.
    pub(super) is_suspect: bool,
    /// Since when nothing came although there is more, in the reader's time of waiting.
    stuck_since: Option<Duration>,
}

impl Followed {
    pub(super) fn new(position: Position) -> Self {
        Self {
            position,
            bounds_due: Instant::now(),
            asked_at: None,
            unanswered: 0,
            is_assigned: false,
            is_suspect: false,
            stuck_since: None,
        }
    }

    /// Its bounds are asked for now: everything fetched before was delivered.
    pub(super) fn asked(&mut self) {
        self.asked_at = self.position.next();
    }

    /// The answer: what to report. `waited` is the reader's time of waiting.
    ///
    /// Records may have come while the answer was out. They do not make it wrong unless they stand
    /// above it: then it says nothing of the end after them, and is asked for again.
    pub(super) fn take_bounds(&mut self, start: i64, end: i64, waited: Duration) -> Vec<ReadEvent> {
        self.unanswered = 0;
        self.is_suspect = false;
        let next = self.position.next();
        if next > self.asked_at && next > Some(end) {
            self.bounds_due = Instant::now();
            return Vec::new();
        }
        self.bounds_due = Instant::now() + BOUNDS_INTERVAL;
        let events = self.position.bounds(start, end);
        if self.position.next().is_some_and(|next| next < end) {
            self.stuck_since.get_or_insert(waited);
        } else {
            self.stuck_since = None;
        }
        events
    }

    /// Nobody answered.
    pub(super) fn not_answered(&mut self) {
        self.is_suspect = false;
        let backoff = RETRY_INTERVAL * (1 << self.unanswered.min(4)) / 4;
        self.unanswered = self.unanswered.saturating_add(1);
        self.bounds_due = Instant::now() + backoff.min(BOUNDS_RETRY_INTERVAL_MAX);
    }

    /// Something came: the handle works.
    pub(super) fn moved(&mut self) {
        self.stuck_since = None;
    }

    /// How long nothing has come although there is more.
    pub(super) fn stuck_for(&self, waited: Duration) -> Duration {
        let is_fetched = self.is_assigned && !self.position.is_lost;
        let since = self.stuck_since.filter(|_| is_fetched);
        since.map_or(Duration::ZERO, |since| waited.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use waypost_core::partition::PartitionId;
    use waypost_core::record::Offset;

    use super::*;

    fn mk_followed(next: i64) -> Followed {
        let position = Position::new(PartitionId(0), Some(Offset(next)));
        let mut followed = Followed::new(position);
        followed.is_assigned = true;
        followed
    }

    fn is_lost(events: &[ReadEvent]) -> bool {
        let out = |event: &ReadEvent| matches!(event, ReadEvent::OutOfRange { .. });
        events.iter().any(out)
    }

    #[test]
    fn an_answer_that_records_have_overtaken_is_asked_for_again_and_loses_nothing() {
        let mut followed = mk_followed(4);
        followed.asked();
        assert!(followed.position.advance(4) && followed.position.advance(5));
        assert_eq!(followed.take_bounds(0, 5, Duration::ZERO), []);
        assert!(!followed.position.is_lost);
        assert!(followed.bounds_due <= Instant::now());
        followed.asked();
        assert_eq!(followed.take_bounds(0, 6, Duration::ZERO).len(), 2);
    }

    #[test]
    fn records_that_came_meanwhile_leave_an_answer_true_that_stands_above_them() {
        let mut followed = mk_followed(4);
        followed.asked();
        assert!(followed.position.advance(4));
        assert_eq!(followed.take_bounds(0, 9, Duration::ZERO).len(), 1);
    }

    #[test]
    fn an_end_below_a_position_that_did_not_move_is_out_of_range() {
        let mut followed = mk_followed(4);
        followed.asked();
        assert!(is_lost(&followed.take_bounds(0, 3, Duration::ZERO)));
    }

    #[test]
    fn a_partition_is_stuck_while_there_is_more_and_nothing_comes() {
        let second = Duration::from_secs(1);
        let mut followed = mk_followed(4);
        followed.asked();
        followed.take_bounds(0, 9, second);
        followed.take_bounds(0, 9, 2 * second);
        assert_eq!(followed.stuck_for(4 * second), 3 * second);
        followed.moved();
        assert_eq!(followed.stuck_for(4 * second), Duration::ZERO);
        followed.asked();
        followed.take_bounds(0, 9, 5 * second);
        followed.take_bounds(0, 4, 6 * second);
        assert_eq!(followed.stuck_for(9 * second), Duration::ZERO, "at the end");
    }
}
