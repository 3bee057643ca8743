//! Which keys to look at when log time moves: each live key is in one bucket, the second at which it
//! could be overdue at the earliest. A heartbeat does not touch it; a key that is looked at too
//! early is put where it belongs then. So a key costs one look per time-to-live.

use waypost_core::LogTime;

use crate::key_table::Slot;
use crate::limits::WHEEL_SECONDS;

/// A second of log time for which a key is queued, without its upper half: what is queued for the
/// same key differs by [`WHEEL_SECONDS`] twice at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueuedAt(u16);

impl QueuedAt {
    fn of(second: u32) -> Self {
        let [low, high, ..] = second.to_le_bytes();
        Self(u16::from_le_bytes([low, high]))
    }
}

const _: () = assert!(2 * WHEEL_SECONDS < 1 << 16);

#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    buckets: Vec<Vec<Slot>>,
    /// The first second that was not drained to its end.
    second: u32,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            buckets: vec![Vec::new(); WHEEL_SECONDS],
            second: 0,
        }
    }
}

impl Wheel {
    /// Queues a key. What it was queued for before is void from now on, if the caller keeps the
    /// answer and compares it with what [`Self::drain`] says.
    pub(crate) fn push(&mut self, slot: Slot, due: LogTime) -> QueuedAt {
        let span = u32::try_from(WHEEL_SECONDS - 1).unwrap_or(u32::MAX);
        let last = self.second.saturating_add(span);
        let second = to_second(due).clamp(self.second, last);
        self.buckets[second as usize % WHEEL_SECONDS].push(slot);
        QueuedAt::of(second)
    }

    /// Takes out everything that was queued for `now` or before.
    pub(crate) fn drain(&mut self, now: LogTime) -> Vec<(QueuedAt, Slot)> {
        let to = to_second(now).max(self.second);
        let span = u32::try_from(WHEEL_SECONDS - 1).unwrap_or(u32::MAX);
        let mut drained = Vec::new();
        for second in self.second..=to.min(self.second.saturating_add(span)) {
            let bucket = std::mem::take(&mut self.buckets[second as usize % WHEEL_SECONDS]);
            let queued_at = QueuedAt::of(second);
            drained.extend(bucket.into_iter().map(|slot| (queued_at, slot)));
        }
        self.second = to;
        drained
    }
}

fn to_second(time: LogTime) -> u32 {
    u32::try_from(time.0.max(0) / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_at_their_second_whatever_the_jump() {
        let mut wheel = Wheel::default();
        let slots: Vec<_> = (0..4).map(Slot::mk).collect();
        let queued: Vec<_> = [1_500, 29_999, 30_000, 10_000_000]
            .iter()
            .zip(&slots)
            .map(|(due, slot)| (wheel.push(*slot, LogTime(*due)), *slot))
            .collect();
        assert_eq!(wheel.drain(LogTime(900)), []);
        assert_eq!(wheel.drain(LogTime(1_000)), queued[..1]);
        assert_eq!(wheel.drain(LogTime(29_000)), queued[1..2]);
        let far = wheel.drain(LogTime(50_000_000));
        assert_eq!(
            far,
            queued[2..],
            "the last one before its time, at the wheel's end"
        );
        let again = wheel.push(slots[0], LogTime(0));
        assert_eq!(wheel.drain(LogTime(50_000_000)), [(again, slots[0])]);
    }
}
