//! Clusters and instances at one moment, as readers get them.

use std::sync::Arc;

use waypost_core::{
    ClusterDefinition, ClusterName, Health, InstanceUri, InstanceValue, Override, SourceSlot,
};

use crate::inspect::ClusterFacts;

/// Says which state of a cluster something was made from. Equal stamps of one cluster mean equal
/// content; numbers are never used twice in a process and mean nothing outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Of the definition and of the set of D2 partitions.
    pub definition: u64,
    /// Of the instances.
    pub instances: u64,
    /// Of the definitions of the services that lead to it.
    pub services: u64,
}

/// An instance as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedInstance {
    /// Its URI.
    pub uri: InstanceUri,
    /// Its announcement as it is served, as the bytes of the protobuf message.
    pub value: InstanceValue,
    /// Its health in it, as the [`Inspector`](crate::Inspector) read it.
    pub health: Health,
    /// Where the announcement comes from.
    pub source: SourceSlot,
    /// What an operator set; value and health are what follows from it.
    pub overridden: Option<Arc<Override>>,
}

/// A cluster without its instances.
#[derive(Clone, Debug)]
pub struct ClusterOutline {
    /// Its name.
    pub name: ClusterName,
    /// Its definition, and whose it is. `None`: implicit.
    pub definition: Option<(SourceSlot, Arc<ClusterDefinition>)>,
    /// What the definition says that matters here.
    pub facts: ClusterFacts,
    /// Which state this is.
    pub stamp: Stamp,
}

/// A cluster at one moment. Instances are in the order of their URIs.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    /// Its name.
    pub name: ClusterName,
    /// Its definition, and whose it is. `None`: implicit.
    pub definition: Option<(SourceSlot, Arc<ClusterDefinition>)>,
    /// What the definition says that matters here.
    pub facts: ClusterFacts,
    /// Its instances.
    pub instances: Vec<ServedInstance>,
    /// Fewer than `min_healthy_percent` are healthy, so health is ignored (DESIGN invariant 15).
    pub fail_open: bool,
    /// Its D2 partitions in order; empty for a cluster that is not partitioned.
    pub d2_partitions: Vec<i32>,
    /// Which state this is.
    pub stamp: Stamp,
}

impl ClusterSnapshot {
    /// Whether clients that see no unhealthy instances see this one.
    #[must_use]
    pub fn is_visible(&self, instance: &ServedInstance) -> bool {
        self.fail_open || instance.health == Health::Healthy
    }
}
