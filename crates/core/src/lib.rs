//! The waist of Waypost: names, announcements, log records, resource keys and the ports between
//! the parts.
//!
//! Nothing here does I/O, reads a clock, knows an async runtime or a serialisation format. Every
//! other crate may depend on this one; this one depends on none of ours.

pub mod announcement;
pub mod config;
pub mod definition;
pub mod limits;
pub mod locator;
pub mod name;
pub mod partition;
pub mod port;
pub mod record;
pub mod resource;
mod shared;
pub mod source;
pub mod time;

pub use announcement::{Announcement, Health, PartitionWeights};
pub use config::{ConfigKey, ConfigValue, Override, ReleaseScope, Replaces, Revision};
pub use definition::{
    CalleesDefinition, ClusterDefinition, Definition, DefinitionKey, ServiceDefinition,
};
pub use locator::{
    EncodedResource, Interest, ResourceLocator, Scope, Subscriber, SubscriptionToken,
};
pub use name::{
    ApplicationName, ClusterName, InstanceKey, InstanceUri, NameError, ServiceName, UriParts,
};
pub use partition::PartitionId;
pub use port::{AnnouncementLog, LogError, LogReader, ReadEvent};
pub use record::{Headers, LifeId, NewRecord, Offset, Record, RecordKind, Topic};
pub use resource::{
    AddressFamily, ClientKind, Delivery, FabricId, ResourceName, ResourceType, ResourceVersion,
    UpstreamTls, Variant,
};
pub use shared::InstanceValue;
pub use source::{SourceSlot, StoreInput};
pub use time::{LogTime, Timestamp};
