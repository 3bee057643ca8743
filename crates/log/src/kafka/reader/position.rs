//! Where a reader stands in one partition. Pure: what to report follows from what was seen.

use waypost_core::partition::PartitionId;
use waypost_core::port::ReadEvent;
use waypost_core::record::Offset;

/// One partition of a reader.
#[derive(Debug)]
pub(super) struct Position {
    partition: PartitionId,
    /// The offset of the next record; unknown until the log said where it begins.
    next: Option<i64>,
    /// The end, as the log said last.
    end: Option<i64>,
    /// Where the owner was told that everything is read.
    told_caught_up: Option<i64>,
    /// Out of range: the owner knows, the reader follows it no more.
    pub(super) is_lost: bool,
}

impl Position {
    /// At `start`, or at the beginning of the partition.
    pub(super) fn new(partition: PartitionId, start: Option<Offset>) -> Self {
        Self {
            partition,
            next: start.map(|offset| offset.0),
            end: None,
            told_caught_up: None,
            is_lost: false,
        }
    }

    /// Where to fetch from; `None`: the beginning, wherever that is.
    pub(super) fn next(&self) -> Option<i64> {
        self.next
    }

    pub(super) fn is_at(&self, offset: i64) -> bool {
        self.next == Some(offset)
    }

    /// Takes the offset of a fetched record. `false`: it was delivered before (fetched again by a
    /// new assignment) or is none of ours any more.
    pub(super) fn advance(&mut self, offset: i64) -> bool {
        if self.is_lost || self.next.is_some_and(|next| offset < next) {
            return false;
        }
        self.next = Some(offset + 1);
        true
    }

    /// The log was asked where the partition begins and ends, after all that was advanced over was
    /// delivered.
    pub(super) fn bounds(&mut self, start: i64, end: i64) -> Vec<ReadEvent> {
        let mut events = vec![ReadEvent::Bounds {
            partition: self.partition,
            start: Offset(start),
            end: Offset(end),
        }];
        let next = *self.next.get_or_insert(start);
        if next < start || next > end {
            events.extend(self.lose());
        } else {
            self.end = Some(end);
            events.extend(self.caught_up());
        }
        events
    }

    /// Everything below `offset` (if it was said) was delivered, and it was the end.
    pub(super) fn end_reached(&mut self, offset: Option<i64>) -> Option<ReadEvent> {
        // Above the last record where compaction, a deletion or a transaction left a gap.
        self.next = self.next.max(offset);
        self.end = self.next;
        self.caught_up()
    }

    /// Tells once for each position that it is the end, if it is one that the log named.
    pub(super) fn caught_up(&mut self) -> Option<ReadEvent> {
        let next = self.next?;
        let is_news = self.end == Some(next) && self.told_caught_up != Some(next);
        (is_news && !self.is_lost).then(|| {
            self.told_caught_up = Some(next);
            ReadEvent::CaughtUp {
                partition: self.partition,
                position: Offset(next),
            }
        })
    }

    /// Gives the partition up: its position does not exist in the log any more. Told once.
    pub(super) fn lose(&mut self) -> Option<ReadEvent> {
        let told = std::mem::replace(&mut self.is_lost, true);
        let position = Offset(self.next.unwrap_or_default());
        (!told).then_some(ReadEvent::OutOfRange {
            partition: self.partition,
            position,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(3);

    fn bounds(start: i64, end: i64) -> ReadEvent {
        ReadEvent::Bounds {
            partition: P,
            start: Offset(start),
            end: Offset(end),
        }
    }

    fn caught_up(position: i64) -> ReadEvent {
        ReadEvent::CaughtUp {
            partition: P,
            position: Offset(position),
        }
    }

    fn out_of_range(position: i64) -> ReadEvent {
        ReadEvent::OutOfRange {
            partition: P,
            position: Offset(position),
        }
    }

    #[test]
    fn an_empty_partition_is_caught_up_as_soon_as_the_log_says_so() {
        let mut position = Position::new(P, None);
        assert_eq!(position.bounds(7, 7), [bounds(7, 7), caught_up(7)]);
        assert_eq!(position.bounds(7, 7), [bounds(7, 7)]);
    }

    #[test]
    fn the_end_named_by_the_log_is_caught_up_with_without_waiting_for_more() {
        let mut position = Position::new(P, None);
        assert_eq!(position.bounds(0, 2), [bounds(0, 2)]);
        assert!(position.advance(0));
        assert_eq!(position.caught_up(), None);
        assert!(position.advance(1));
        assert_eq!(position.caught_up(), Some(caught_up(2)));
        assert_eq!(position.end_reached(Some(2)), None);
    }

    #[test]
    fn a_gap_before_the_end_is_crossed_by_what_librdkafka_says() {
        let mut position = Position::new(P, None);
        position.bounds(0, 5);
        position.advance(2);
        assert_eq!(position.end_reached(Some(5)), Some(caught_up(5)));
        assert_eq!(position.next(), Some(5));
        // Without words the end is just past the last record.
        position.advance(6);
        assert_eq!(position.end_reached(None), Some(caught_up(7)));
    }

    #[test]
    fn records_that_come_again_are_not_delivered_again() {
        let mut position = Position::new(P, Some(Offset(4)));
        assert!(!position.advance(3));
        assert!(position.advance(4));
        assert!(!position.advance(4));
        assert!(position.advance(9));
    }

    #[test]
    fn a_position_outside_the_log_is_given_up_and_told_once() {
        for (start, end) in [(5, 9), (0, 3)] {
            let mut position = Position::new(P, Some(Offset(4)));
            assert_eq!(
                position.bounds(start, end),
                [bounds(start, end), out_of_range(4)]
            );
            assert_eq!(position.bounds(start, end), [bounds(start, end)]);
            assert!(!position.advance(8));
            assert_eq!(position.caught_up(), None);
        }
        let mut at_the_end = Position::new(P, Some(Offset(4)));
        assert_eq!(at_the_end.bounds(0, 4), [bounds(0, 4), caught_up(4)]);
    }
}
