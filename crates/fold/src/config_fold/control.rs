//! The fold of the control topic.

use waypost_core::{Offset, PartitionId, Record, Topic};

use crate::event::{FoldEvent, Outcome, RejectReason};
use crate::lane::Sameness;
use crate::topic_clock::{TopicClock, reject};

/// The control topic. This release reads its ticks and identity; the rest is left to later ones.
#[derive(Clone, Debug)]
pub struct ControlFold {
    clock: TopicClock,
}

impl Default for ControlFold {
    fn default() -> Self {
        Self::new()
    }
}

impl ControlFold {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: TopicClock::new(Topic::Control),
        }
    }

    /// Positions, ticks and identity.
    #[must_use]
    pub fn clock(&self) -> &TopicClock {
        &self.clock
    }

    pub(crate) fn clock_mut(&mut self) -> &mut TopicClock {
        &mut self.clock
    }

    /// Nothing of this topic is served yet, so a replay leaves nothing behind.
    #[expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        reason = "as the other folds"
    )]
    pub(crate) fn adopt_missing(&mut self, _: &Self, _: Sameness, _: &mut Vec<FoldEvent>) {}

    /// The topic has `count` partitions now.
    pub fn set_partitions(&mut self, count: u32) {
        self.clock.set_partitions(count);
    }

    /// The reader stands at `position`; what lay before and was not delivered was compacted.
    pub fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.clock.advance_to(partition, position);
    }

    /// Reads one record.
    pub fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        if !self.clock.enter(record) {
            return Outcome::AlreadyRead;
        }
        let reason = match (&record.headers, &record.key) {
            (Err(e), _) => RejectReason::Header(e.clone()),
            (Ok(_), None) => RejectReason::NoKey,
            (Ok(headers), Some(key)) => {
                return self.clock.apply_reserved(record, key, headers.kind, events);
            }
        };
        reject(Topic::Control, record, reason, events)
    }
}
