//! What goes on in a fleet all the time. Which record is next follows from how many there were, so that a
//! fleet behaves the same every time.

use anyhow::Result;
use waypost_core::NewRecord;
use waypost_core::record::Delivery;

use super::Fleet;

/// Heartbeat number n is of slot `n * STRIDE` modulo their number, and so with changes and clusters: a
/// prime, so that everybody has a turn before anybody has another, and neighbours in time are no
/// neighbours in the fleet.
const STRIDE: u64 = 7_919;

/// The part of a cluster that is replaced at a time.
const WAVE_PERCENT: u32 = 5;

/// A fleet at work.
#[derive(Debug)]
pub(crate) struct Activity {
    fleet: Fleet,
    beats: u64,
    changes: u64,
    deploy: Deploy,
}

/// Where the deploy that is under way has come.
#[derive(Debug, Default)]
struct Deploy {
    /// Counts clusters that were deployed.
    number: u64,
    /// Slots of the cluster that run the new build.
    done: u32,
}

impl Activity {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self {
            fleet,
            beats: 0,
            changes: 0,
            deploy: Deploy::default(),
        }
    }

    /// The next heartbeat: over one interval each slot has one, evenly spread.
    pub(crate) fn beat(&mut self) -> Result<NewRecord> {
        let slot = nth(self.beats, self.fleet.slot_count());
        self.beats += 1;
        self.fleet.announce(slot, Delivery::Heartbeat)
    }

    /// Stamps the next cluster with an even number.
    pub(crate) fn change(&mut self, now_micros: u64) -> Result<NewRecord> {
        let cluster = 2 * nth(self.changes, self.fleet.cluster_count().div_ceil(2));
        self.changes += 1;
        self.fleet.stamp(cluster, now_micros)
    }

    /// The next wave of the deploy that is under way: a twentieth of the cluster, at least one, withdraws
    /// and comes back as other processes. After the last wave of a cluster another one is deployed, all of
    /// them with odd numbers: a stamp would be old when one of these changes makes it travel again.
    pub(crate) fn deploy_wave(&mut self, now_micros: u64) -> Result<Vec<NewRecord>> {
        let clusters = self.fleet.cluster_count();
        let odd = 1 + 2 * nth(self.deploy.number, clusters / 2);
        let cluster = odd.min(clusters - 1);
        let slots = self.fleet.slots_of(cluster);
        let size = slots.end - slots.start;
        let wave = (size * WAVE_PERCENT).div_ceil(100).max(1);
        let first = slots.start + self.deploy.done;
        let last = first.saturating_add(wave).min(slots.end);
        let mut records = Vec::new();
        for slot in first..last {
            records.extend(self.fleet.replace(slot, now_micros)?);
        }
        self.deploy.done += wave;
        if self.deploy.done >= size {
            self.deploy = Deploy {
                number: self.deploy.number + 1,
                done: 0,
            };
        }
        Ok(records)
    }
}

/// The `n`-th of `count` in that order.
pub(crate) fn nth(n: u64, count: u32) -> u32 {
    let count = u64::from(count.max(1));
    u32::try_from((n % count) * STRIDE % count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use waypost_core::RecordKind;

    use super::*;
    use crate::fleet::{FleetSpec, Shape};

    fn mk_activity() -> Activity {
        Activity::new(Fleet::new(FleetSpec {
            clusters: 10,
            shape: Shape::Tailed { instances: 1_000 },
            heartbeat: Duration::from_secs(10),
            ttl: Duration::from_secs(30),
        }))
    }

    #[test]
    fn everybody_beats_once_before_anybody_beats_twice() {
        let mut activity = mk_activity();
        let keys: HashSet<_> = (0..1_000).map(|_| activity.beat().unwrap().key).collect();
        assert_eq!(keys.len(), 1_000);
        assert!(keys.contains(&activity.beat().unwrap().key));
    }

    #[test]
    fn a_deploy_replaces_a_twentieth_of_a_cluster_at_a_time_and_all_of_it_in_the_end() {
        let mut activity = mk_activity();
        let slots = activity.fleet.slots_of(1);
        let size = (slots.end - slots.start) as usize;
        let mut left = HashSet::new();
        while left.len() < size {
            let wave = activity.deploy_wave(1_800_000_000_000_000).unwrap();
            assert!(
                wave.len() <= 2 * size.div_ceil(20),
                "{} records",
                wave.len()
            );
            let leaving = wave
                .into_iter()
                .filter(|r| r.headers.kind == RecordKind::Withdraw);
            left.extend(leaving.map(|record| record.key));
        }
        assert_eq!(left.len(), size);
    }
}
