//! What a test can make the log suffer.

use waypost_core::partition::PartitionId;
use waypost_core::record::{Offset, Topic};

use super::MemoryLog;
use super::topic::{PartitionState, TopicState};

/// How a paused log behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Appends fail with `Unavailable` and this reason; readers report it once.
    Refuse(String),
    /// Appends wait, readers see nothing: a broker that accepts connections and does not answer.
    Hang,
}

/// Whether callers are told of the records that they wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledgements {
    /// They are.
    #[default]
    Sent,
    /// Records are written, and their callers get `Unavailable`.
    Lost,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    appends: Flow,
    reads: Flow,
    acknowledgements: Acknowledgements,
    duplicates: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Flow {
    #[default]
    Running,
    Refusing(String),
    Hanging,
}

impl From<Pause> for Flow {
    fn from(pause: Pause) -> Self {
        match pause {
            Pause::Refuse(reason) => Self::Refusing(reason),
            Pause::Hang => Self::Hanging,
        }
    }
}

impl Faults {
    pub(super) fn append_flow(&self) -> &Flow {
        &self.appends
    }

    pub(super) fn read_flow(&self) -> &Flow {
        &self.reads
    }

    pub(super) fn loses_acknowledgements(&self) -> bool {
        self.acknowledgements == Acknowledgements::Lost
    }

    pub(super) fn take_duplicate(&mut self) -> bool {
        let due = self.duplicates > 0;
        self.duplicates = self.duplicates.saturating_sub(1);
        due
    }
}

impl MemoryLog {
    /// Stops appends and reads until [`Self::resume`].
    pub fn pause(&self, pause: Pause) {
        self.pause_reads(pause.clone());
        self.pause_appends(pause);
    }

    /// Stops appends only: too few in-sync replicas.
    pub fn pause_appends(&self, pause: Pause) {
        self.change(|state, _| state.faults.appends = pause.into());
    }

    /// Stops reads only.
    pub fn pause_reads(&self, pause: Pause) {
        self.change(|state, _| state.faults.reads = pause.into());
    }

    /// Ends every pause. Appends that hang are taken now.
    pub fn resume(&self) {
        self.change(|state, _| {
            state.faults.appends = Flow::Running;
            state.faults.reads = Flow::Running;
        });
    }

    /// Whether callers are told of what they write from now on.
    pub fn set_acknowledgements(&self, acknowledgements: Acknowledgements) {
        self.change(|state, _| state.faults.acknowledgements = acknowledgements);
    }

    /// Writes each of the next `appends` records twice: a producer that is not idempotent and tries
    /// again.
    pub fn duplicate_next(&self, appends: u32) {
        self.change(|state, _| state.faults.duplicates = appends);
    }

    /// Forgets everything at or above `end`, and no leader's epoch tells: a broker whose disk was put
    /// back. Readers that stand above the end when they look are out of range; others notice nothing.
    pub fn truncate(&self, topic: Topic, partition: PartitionId, end: Offset) {
        self.change_partition(topic, partition, |state| state.truncate(end));
    }

    /// Forgets everything at or above `end`: an unclean leader election. Readers that stand above it
    /// are out of range, however much was appended before they look, since the new leader's epoch
    /// began below them.
    pub fn elect_uncleanly(&self, topic: Topic, partition: PartitionId, end: Offset) {
        self.change_partition(topic, partition, |state| {
            state.truncate(end);
            state.epochs.push(state.end);
        });
    }

    /// Deletes everything below `start`: an operator's `DeleteRecords`.
    pub fn delete_below(&self, topic: Topic, partition: PartitionId, start: Offset) {
        self.change_partition(topic, partition, |state| {
            let start = start.min(state.end);
            state.records_by_offset = state.records_by_offset.split_off(&start);
            state.horizons_by_offset = state.horizons_by_offset.split_off(&start);
            state.start = state.start.max(start);
        });
    }

    /// Deletes `topic` and makes it anew, empty, with `partitions` partitions and no identity.
    /// Readers keep their positions, as Kafka's consumers do.
    pub fn recreate(&self, topic: Topic, partitions: u32) {
        self.change(|state, _| *state.topic_mut(topic) = TopicState::new(partitions));
    }

    /// The leader of a partition is from now on a broker whose clock is `ahead_ms` ahead of the log's
    /// (behind it, if negative): append times jump there and back.
    pub fn move_leader(&self, topic: Topic, partition: PartitionId, ahead_ms: i64) {
        self.change_partition(topic, partition, |state| state.leader_ahead_ms = ahead_ms);
    }

    /// Grows `topic` to `partitions` partitions. Keys of the old ones stay where they are.
    pub fn add_partitions(&self, topic: Topic, partitions: u32) {
        self.change(|state, _| state.topic_mut(topic).grow(partitions));
    }

    fn change_partition(
        &self,
        topic: Topic,
        partition: PartitionId,
        change: impl FnOnce(&mut PartitionState),
    ) {
        self.change(|state, _| {
            if let Some(partition) = state.topic_mut(topic).partition_mut(partition) {
                change(partition);
            }
        });
    }
}

impl PartitionState {
    fn truncate(&mut self, end: Offset) {
        self.records_by_offset.split_off(&end);
        self.horizons_by_offset.split_off(&end);
        self.end = self.end.min(end);
    }
}
