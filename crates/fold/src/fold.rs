//! The fold of the announcements topic.

use std::time::Duration;

use waypost_core::limits::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use waypost_core::{InstanceKey, Offset, PartitionId, Record, Topic};

use crate::event::{FoldEvent, Outcome};
use crate::topic_clock::TopicClock;
use crate::view::{Counters, InstanceView, PartitionView};

/// What the fold goes by besides the records. Equal in all Observers of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldSettings {
    /// Time-to-live of an announcement that states none.
    pub ttl_default: Duration,
    /// Shorter ones count as this.
    pub ttl_min: Duration,
    /// Longer ones count as this.
    pub ttl_max: Duration,
}

impl Default for FoldSettings {
    fn default() -> Self {
        Self {
            ttl_default: TTL_DEFAULT,
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
        }
    }
}

/// The state of every instance, as a function of the records read and of nothing else.
#[derive(Clone, Debug)]
pub struct Fold {
    clock: TopicClock,
    counters: Counters,
}

impl Fold {
    /// Nothing read yet.
    #[must_use]
    pub fn new(_settings: FoldSettings) -> Self {
        Self {
            clock: TopicClock::new(Topic::Announcements),
            counters: Counters::default(),
        }
    }

    /// The topic has `count` partitions now: which partition is a key's own depends on it.
    pub fn set_partitions(&mut self, count: u32) {
        self.clock.set_partitions(count);
    }

    /// The reader stands at `position`; what lay before and was not delivered was compacted.
    pub fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.clock.advance_to(partition, position);
    }

    /// Reads one record, appends what happened to `events` and says what became of the record.
    pub fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        let _ = (record, events);
        Outcome::Ignored
    }

    /// Positions, ticks and identity.
    #[must_use]
    pub fn clock(&self) -> &TopicClock {
        &self.clock
    }

    /// A live instance.
    #[must_use]
    pub fn find(&self, _key: &InstanceKey) -> Option<InstanceView> {
        None
    }

    /// Every live instance, in no order.
    pub fn iter(&self) -> impl Iterator<Item = InstanceView> {
        std::iter::empty()
    }

    /// Live instances.
    #[must_use]
    pub fn live_count(&self) -> usize {
        0
    }

    /// Keys that were announced in a partition that is not their own, with where.
    pub fn wrong_partitions(&self) -> impl Iterator<Item = (&InstanceKey, PartitionId)> {
        std::iter::empty()
    }

    /// One partition.
    #[must_use]
    pub fn find_partition(&self, _partition: PartitionId) -> Option<PartitionView> {
        None
    }

    /// All partitions in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView> {
        std::iter::empty()
    }

    /// How many records had which outcome.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
