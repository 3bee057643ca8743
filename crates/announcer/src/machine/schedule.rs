//! When an instance writes next: heartbeats spread over the interval, pauses that grow.

use std::time::Duration;

use crate::limits::{HEARTBEAT_JITTER_PERCENT, RETRY_FIRST, RETRY_MAX};

/// The times of one instance.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    /// Hash of the key: instances of one process beat at different moments, and every process that
    /// announces a key beats at its own.
    phase: u64,
    random: SplitMix,
    failures: u32,
    due: Option<Duration>,
}

impl Schedule {
    pub(super) fn new(record_key: &[u8], interval: Duration, seed: u64) -> Self {
        Self {
            interval,
            phase: fnv1a(record_key),
            random: SplitMix(seed),
            failures: 0,
            due: None,
        }
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    pub(super) fn at_once(&mut self, now: Duration) {
        self.due = Some(now);
    }

    pub(super) fn stop(&mut self) {
        self.due = None;
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The next slot of this instance, or a little later. (Not earlier: the slot would still lie ahead.)
    pub(super) fn beat_after(&mut self, now: Duration) {
        let interval = nanos(self.interval).max(1);
        let phase = self.phase % interval;
        let elapsed = nanos(now);
        // The first time after `now` that is `phase` beyond a whole number of intervals.
        let into = (elapsed % interval + interval - phase) % interval;
        let late = self
            .random
            .below(interval / 100 * u64::from(HEARTBEAT_JITTER_PERCENT));
        let wait = interval - into + late;
        self.due = Some(now + Duration::from_nanos(wait));
    }

    /// A pause that doubles with every failure, of which a random half is left out. Never longer than
    /// what lies between two heartbeats: when the log is back its time runs on for everybody, and who
    /// comes later than a heartbeat would may be taken for dead.
    pub(super) fn retry_after(&mut self, now: Duration) {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1).min(31);
        let longest = RETRY_FIRST.saturating_mul(factor);
        let longest = longest.min(RETRY_MAX).min(self.interval);
        self.due = Some(now + self.jittered(longest));
    }

    /// The longest pause, for what somebody has to mend first.
    pub(super) fn retry_slowly_after(&mut self, now: Duration) {
        self.due = Some(now + self.jittered(RETRY_MAX.min(self.interval)));
    }

    fn jittered(&mut self, longest: Duration) -> Duration {
        let half = nanos(longest) / 2;
        Duration::from_nanos(half + self.random.below(half + 1))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// FNV-1a, 64 bits: spreads keys, keeps no secret.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// SplitMix64: eight bytes of state for each of ten thousand instances.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    /// A number below `bound`, or 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn a_beat_comes_within_an_interval_and_its_jitter_and_instances_are_spread() {
        let mut by_second = [0; 10];
        for i in 0..1000_u64 {
            let mut schedule = Schedule::new(format!("key-{i}").as_bytes(), INTERVAL, i);
            let mut now = Duration::from_millis(123_456);
            for _ in 0..20 {
                schedule.beat_after(now);
                let due = schedule.due().unwrap();
                assert!(
                    due > now && due <= now + INTERVAL * 11 / 10,
                    "{now:?} {due:?}"
                );
                now = due;
            }
            by_second[now.as_secs() as usize % 10] += 1;
        }
        assert!(
            by_second.iter().all(|n| (50..200).contains(n)),
            "{by_second:?}"
        );
    }

    #[test]
    fn beats_keep_a_rate_of_about_one_an_interval() {
        let mut schedule = Schedule::new(b"key", INTERVAL, 7);
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            schedule.beat_after(now);
            now = schedule.due().unwrap();
        }
        let seconds = now.as_secs();
        assert!((980..=1010).contains(&seconds), "100 beats in {seconds} s");
    }

    #[test]
    fn who_beats_often_is_back_soon() {
        let interval = Duration::from_secs(3);
        let mut schedule = Schedule::new(b"key", interval, 7);
        for _ in 0..40 {
            schedule.retry_after(Duration::ZERO);
            assert!(schedule.due().unwrap() <= interval);
        }
    }

    #[test]
    fn pauses_grow_to_their_bound_and_differ_between_instances() {
        let pauses = |seed| {
            let mut schedule = Schedule::new(b"key", INTERVAL, seed);
            (0..40)
                .map(|_| {
                    schedule.retry_after(Duration::ZERO);
                    schedule.due().unwrap()
                })
                .collect::<Vec<_>>()
        };
        let one = pauses(1);
        assert!(one[0] <= RETRY_FIRST && one[0] >= RETRY_FIRST / 2);
        assert!(
            one[10..]
                .iter()
                .all(|p| *p <= RETRY_MAX && *p >= RETRY_MAX / 2)
        );
        assert_ne!(one, pauses(2));
    }
}
