//! A fleet as records of any announcement log: N instances in C clusters, the same for the same
//! [`FleetSpec`], in as little memory as changes since the beginning take.
//!
//! | module | part |
//! |---|---|
//! | [`sizes`] | how many instances each cluster has: a heavy-tailed distribution |
//! | [`content`] | what an instance says of itself |
//! | [`record`] | that, as a record of the log with its order data |
//! | [`activity`] | what goes on all the time: heartbeats, changes, deploys |
//! | [`write`](mod@write) | all of it into a log, once |
//! | [`work`] | the activity into a log, at a pace |
//!
//! Instances are numbered by **slot**: a place that one process after another takes. A deploy puts the
//! next process into a slot; its host, address and life are others.

pub(crate) mod activity;
mod content;
pub(crate) mod record;
mod sizes;
pub(crate) mod work;
pub(crate) mod write;

use std::collections::HashMap;
use std::time::Duration;

use waypost_core::record::{Delivery, LifeId};
use waypost_core::{NewRecord, PartitionWeights, Timestamp};

use content::Content;
use record::Life;

/// When the first process of every slot was born: a fixed moment, so that equal fleets are equal bytes.
const BORN: Timestamp = Timestamp(1_700_000_000_000);

/// Weight units on the wire of a D2 weight of 1 (docs/resources.md).
const UNITS_PER_WEIGHT: f64 = 100.0;

/// Which clusters are the large ones.
const SEED: u64 = 1;

/// A stamp fits this many bits, so that the weights of a whole list fit 32.
const STAMP_BITS: u32 = 30;

/// What a fleet is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FleetSpec {
    /// How many clusters: `cluster-0`, `cluster-1`, and so on.
    pub(crate) clusters: u32,
    /// How many instances they have.
    pub(crate) shape: Shape,
    /// How often each instance is announced again.
    pub(crate) heartbeat: Duration,
    /// After how much silence it expires.
    pub(crate) ttl: Duration,
}

/// How many instances the clusters have, and how much each says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As many in each cluster; they say where they are and nothing else, so that what is served is as
    /// large as what other servers are given.
    Even {
        /// Instances of each cluster.
        endpoints: u32,
    },
    /// A few clusters of thousands and thousands of a few, whose instances say as much as those of a
    /// large site.
    Tailed {
        /// Instances of all clusters, at least one for each.
        instances: u32,
    },
}

/// The fleet as it is announced now.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    spec: FleetSpec,
    /// The first slot of each cluster, and the number of all slots.
    first_slots: Vec<u32>,
    /// Slots that are not as they were at the beginning.
    changed: HashMap<u32, Slot>,
}

/// Who is in a slot, and what it says that its content does not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slot {
    /// How many processes were here before.
    generation: u32,
    birth: Timestamp,
    changes: u64,
    weight: f64,
    origin: Timestamp,
}

impl Slot {
    const FIRST: Self = Self {
        generation: 0,
        birth: BORN,
        changes: 0,
        weight: 1.0,
        origin: BORN,
    };
}

impl Fleet {
    /// The fleet before anything has changed.
    pub(crate) fn new(spec: FleetSpec) -> Self {
        let mut first_slots = vec![0];
        let mut next = 0;
        let sizes = match spec.shape {
            Shape::Even { endpoints } => vec![endpoints; spec.clusters as usize],
            Shape::Tailed { instances } => sizes::draw(instances, spec.clusters, SEED),
        };
        for size in sizes {
            next += size;
            first_slots.push(next);
        }
        Self {
            spec,
            first_slots,
            changed: HashMap::new(),
        }
    }

    /// Heartbeats a second.
    pub(crate) fn beats_per_second(&self) -> f64 {
        f64::from(self.slot_count()) / self.spec.heartbeat.as_secs_f64()
    }

    /// Slots, from 0.
    pub(crate) fn slot_count(&self) -> u32 {
        self.first_slots.last().copied().unwrap_or(0)
    }

    pub(crate) fn cluster_count(&self) -> u32 {
        u32::try_from(self.first_slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// The slots of a cluster.
    pub(crate) fn slots_of(&self, cluster: u32) -> std::ops::Range<u32> {
        let cluster = cluster as usize;
        self.first_slots[cluster]..self.first_slots[cluster + 1]
    }

    /// What a slot says of itself now: at first, or as its heartbeat.
    pub(crate) fn announce(&self, slot: u32, delivery: Delivery) -> anyhow::Result<NewRecord> {
        let state = self.slot(slot);
        let mut announcement = self.content(slot, state).announcement(&self.spec)?;
        announcement.weights = PartitionWeights::from([(0, state.weight)]);
        announcement.origin = state.origin;
        Ok(record::announce(&announcement, life(slot, state), delivery))
    }

    /// Changes the first instance of a cluster: its weight becomes the stamp of `now_micros`, which
    /// clients read, and its time of origin `now_micros` in milliseconds.
    pub(crate) fn stamp(&mut self, cluster: u32, now_micros: u64) -> anyhow::Result<NewRecord> {
        let slot = self.slots_of(cluster).start;
        let before = self.slot(slot);
        let stamped = Slot {
            changes: before.changes + 1,
            weight: stamp_weight(now_micros),
            origin: to_timestamp(now_micros),
            ..before
        };
        self.changed.insert(slot, stamped);
        self.announce(slot, Delivery::Change)
    }

    /// Puts the next process into a slot: the one before withdraws, then the new one announces.
    pub(crate) fn replace(&mut self, slot: u32, now_micros: u64) -> anyhow::Result<[NewRecord; 2]> {
        let before = self.slot(slot);
        let leaving = Life {
            seq: before.changes + 2,
            ..life(slot, before)
        };
        let key = self.content(slot, before).key(self.spec.shape)?;
        let born = to_timestamp(now_micros);
        let next = Slot {
            generation: before.generation + 1,
            birth: born,
            origin: born,
            ..Slot::FIRST
        };
        self.changed.insert(slot, next);
        let arriving = self.announce(slot, Delivery::Change)?;
        Ok([record::withdraw(&key, leaving), arriving])
    }

    fn slot(&self, slot: u32) -> Slot {
        self.changed.get(&slot).copied().unwrap_or(Slot::FIRST)
    }

    fn content(&self, slot: u32, state: Slot) -> Content {
        let after = self.first_slots.partition_point(|first| *first <= slot);
        let cluster = after - 1;
        Content {
            cluster: u32::try_from(cluster).unwrap_or(u32::MAX),
            index: slot - self.first_slots[cluster],
            generation: state.generation,
        }
    }
}

/// The weight that is served as `now_micros` modulo 2^30 units; never 0, which would be no traffic.
pub(crate) fn stamp_weight(now_micros: u64) -> f64 {
    let stamp = u32::try_from(now_micros % (1 << STAMP_BITS)).unwrap_or(u32::MAX);
    f64::from(stamp.max(1)) / UNITS_PER_WEIGHT
}

pub(crate) fn to_timestamp(micros: u64) -> Timestamp {
    Timestamp(i64::try_from(micros / 1000).unwrap_or(i64::MAX))
}

fn life(slot: u32, state: Slot) -> Life {
    Life {
        // Unique, and not 0.
        id: LifeId((u64::from(state.generation) << 32) | (u64::from(slot) + 1)),
        birth: state.birth,
        seq: state.changes + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: FleetSpec = FleetSpec {
        clusters: 30,
        shape: Shape::Tailed { instances: 1_000 },
        heartbeat: Duration::from_secs(10),
        ttl: Duration::from_secs(30),
    };

    #[test]
    fn a_stamp_survives_the_way_into_units_and_back() {
        for micros in [
            0,
            1,
            2,
            99,
            100,
            1_234_567,
            (1 << 30) - 1,
            1_700_000_000_123_457,
        ] {
            let stamp = (micros % (1 << 30)).max(1);
            let units = (stamp_weight(micros) * UNITS_PER_WEIGHT).round();
            assert_eq!(units, f64::from(u32::try_from(stamp).unwrap()), "{micros}");
        }
    }

    #[test]
    fn equal_specs_make_equal_fleets_of_distinct_instances() {
        let all = |fleet: &Fleet| {
            let slots = 0..fleet.slot_count();
            let records = slots.map(|slot| fleet.announce(slot, Delivery::Change));
            records.collect::<anyhow::Result<Vec<_>>>().unwrap()
        };
        let fleet = all(&Fleet::new(SPEC));
        assert_eq!(fleet, all(&Fleet::new(SPEC)));
        assert_eq!(fleet.len(), 1_000);
        let keys: std::collections::HashSet<_> = fleet.iter().map(|r| r.key.clone()).collect();
        assert_eq!(keys.len(), 1_000);
        let bytes = fleet
            .iter()
            .map(|r| r.value.as_ref().map_or(0, |v| v.len()));
        let mean = bytes.sum::<usize>() / fleet.len();
        assert!((250..450).contains(&mean), "{mean} bytes an announcement");
    }

    #[test]
    fn a_heartbeat_is_the_last_announcement_byte_for_byte() {
        let mut fleet = Fleet::new(SPEC);
        let stamped = fleet.stamp(3, 1_800_000_000_000_001).unwrap();
        let beat = fleet
            .announce(fleet.slots_of(3).start, Delivery::Change)
            .unwrap();
        assert_eq!(beat, stamped);
    }

    #[test]
    fn who_is_replaced_withdraws_its_own_key_and_another_life_comes_after_it() {
        let mut fleet = Fleet::new(SPEC);
        let before = fleet.announce(5, Delivery::Change).unwrap();
        let [leaving, arriving] = fleet.replace(5, 1_800_000_000_000_001).unwrap();
        assert_eq!(leaving.key, before.key);
        assert_eq!(leaving.headers.id, before.headers.id);
        assert!(leaving.headers.seq > before.headers.seq);
        assert_ne!(arriving.key, before.key, "it runs on another host");
        assert_ne!(arriving.headers.id, before.headers.id);
        assert!(arriving.headers.birth > before.headers.birth);
    }
}
