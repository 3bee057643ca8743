//! What one batch of statements changed, in the terms of the domain.

use std::collections::{BTreeMap, BTreeSet};

use waypost_core::{ApplicationName, ClusterName, InstanceUri, ServiceName};

/// Hears of every batch that changed something, after the change is visible and with no lock held.
pub trait ChangeListener: Send + Sync {
    /// Must be quick and must not write to the store: it runs on the ingest path.
    fn changed(&self, changes: &ChangeSet);

    /// Whether anybody would hear of a change that is visible by now. If not, it need not be told.
    fn is_heard(&self) -> bool {
        true
    }
}

/// Everything that a batch changed, each thing once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// Clusters of which something changed.
    pub clusters: BTreeMap<ClusterName, ClusterChange>,
    /// Services whose definition changed, or whose implicit form came or went.
    pub services: BTreeSet<ServiceName>,
    /// Applications whose callees changed, came or went.
    pub applications: BTreeSet<ApplicationName>,
}

impl ChangeSet {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.services.is_empty() && self.applications.is_empty()
    }
}

/// What changed of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChange {
    /// It came or went, became implicit or ceased to be, or its D2 partitions are others.
    pub existence: bool,
    /// Its definition changed.
    pub definition: bool,
    /// A service that leads to it came, went or is defined otherwise.
    pub services: bool,
    /// Its instances as every kind of client together sees them changed.
    pub instances: bool,
    /// Instances that came, went or changed as seen by clients that see no unhealthy ones: by an
    /// announcement, or because their health is now ignored or no longer.
    pub visible: BTreeSet<InstanceUri>,
    /// D2 partitions of a partitioned cluster whose instances, definition or services changed.
    pub d2_partitions: BTreeSet<i32>,
}

impl ClusterChange {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.existence
            && !self.definition
            && !self.services
            && !self.instances
            && self.visible.is_empty()
            && self.d2_partitions.is_empty()
    }
}
