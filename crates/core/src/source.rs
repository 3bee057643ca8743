//! What sources say to the store, and which source is believed first.

use crate::config::Override;
use crate::definition::{CalleesDefinition, ClusterDefinition, ServiceDefinition};
use crate::name::{ApplicationName, ClusterName, InstanceKey, ServiceName};
use crate::shared::InstanceValue;

/// Where a fact comes from. The order is the priority: of several slots of one name the first
/// filled one is served, so that a URI from the log stands above the same URI from ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceSlot {
    /// The announcement log (Kafka, or the embedded log of one machine).
    Log,
    /// A ZooKeeper ensemble with a D2 tree.
    ZooKeeper,
    /// Anything else.
    Other,
}

impl SourceSlot {
    /// Highest priority first.
    pub const ALL: [Self; 3] = [Self::Log, Self::ZooKeeper, Self::Other];

    /// The word shown to people and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::ZooKeeper => "zookeeper",
            Self::Other => "other",
        }
    }
}

/// One statement of one source. `None` is a removal: a statement, never the absence of data
/// (DESIGN invariant 10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreInput {
    /// An instance's announcement, as the bytes of its protobuf value.
    Instance {
        /// Which instance.
        key: InstanceKey,
        /// Its announcement, or gone.
        value: Option<InstanceValue>,
    },
    /// A cluster's definition.
    Cluster {
        /// Which cluster.
        name: ClusterName,
        /// Its definition, or deleted.
        value: Option<ClusterDefinition>,
    },
    /// A service's definition.
    Service {
        /// Which service.
        name: ServiceName,
        /// Its definition, or deleted.
        value: Option<ServiceDefinition>,
    },
    /// The services that an application calls.
    Callees {
        /// Which application.
        application: ApplicationName,
        /// What it calls, or deleted.
        value: Option<CalleesDefinition>,
    },
    /// What stands above an instance's announcements.
    Override {
        /// Which instance; it need not exist.
        key: InstanceKey,
        /// What was set, or cleared.
        value: Option<Override>,
    },
}
