//! Services that lead here.

use super::{ClusterState, WriteContext};
use crate::change::ClusterChange;

impl ClusterState {
    /// A service that leads here came, went or is defined otherwise.
    pub(crate) fn services_changed(&mut self, cx: WriteContext, change: &mut ClusterChange) {
        if self.is_known() {
            self.stamp.services = cx.generation;
            change.services = true;
            change.d2_partitions.extend(self.d2_partitions());
        }
    }
}
