//! Instances that left before anybody here looked.

use waypost_core::InstanceUri;

use super::{ClusterState, Outline, WriteContext};
use crate::change::ClusterChange;
use crate::limits::REMOVED_PER_CLUSTER_MAX;

impl ClusterState {
    /// `uri` left at `cx.now`, says somebody who was there. Nothing changes of what is served, but a
    /// cluster of which this is the last that is known is served empty for a while, as by everybody
    /// who saw it leave.
    pub(crate) fn remember_absent(
        &mut self,
        cx: WriteContext,
        uri: &InstanceUri,
        change: &mut ClusterChange,
    ) {
        if self.instances.find(uri.as_bytes()).is_some() || self.removed.contains(uri) {
            return;
        }
        let before = Outline::of(self);
        self.removed
            .remember(uri.clone().without_value(), cx.now, REMOVED_PER_CLUSTER_MAX);
        if self.instances.is_empty() {
            let emptied_at = self.emptied_at.map_or(cx.now, |at| at.max(cx.now));
            self.emptied_at = Some(emptied_at);
        }
        before.compare(self, cx, change);
    }
}
