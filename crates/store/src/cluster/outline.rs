//! What follows for a whole cluster from a change of one of its parts.

use super::{ClusterState, WriteContext};
use crate::change::ClusterChange;

/// What of a cluster may change as a consequence of a change.
pub(super) struct Outline {
    known: bool,
    announced: bool,
    pub(super) fail_open: bool,
    /// Of partitions that instances name, only ever more are known until the cluster is forgotten,
    /// so how many there are says whether they are the same.
    partitions: (bool, usize, u32),
}

impl Outline {
    pub(super) fn of(state: &ClusterState) -> Self {
        Self {
            known: state.is_known(),
            announced: state.is_announced(),
            fail_open: state.is_fail_open(),
            partitions: partition_shape(state),
        }
    }

    /// Adds the consequences to `change`.
    pub(super) fn compare(
        self,
        state: &mut ClusterState,
        cx: WriteContext,
        change: &mut ClusterChange,
    ) {
        if self.known != state.is_known()
            || self.announced != state.is_announced()
            || self.partitions != partition_shape(state)
        {
            state.stamp.definition = cx.generation;
            change.existence = true;
            change.d2_partitions.extend(state.d2_partitions());
        }
        if self.fail_open != state.is_fail_open() {
            state.stamp.instances = cx.generation;
            change.instances = true;
            change.visible.extend(state.unhealthy());
            change.d2_partitions.extend(state.d2_partitions());
        }
    }
}

fn partition_shape(state: &ClusterState) -> (bool, usize, u32) {
    let named = state.by_partition.len();
    let declared = state.facts.d2_partition_count;
    (state.is_partitioned(), named, declared)
}
