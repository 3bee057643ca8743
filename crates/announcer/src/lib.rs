//! Announces instances to a Waypost log, and writes service and cluster definitions.
//!
//! An *instance* is one URI of one cluster. A server links this crate, hands an `Announcement` to
//! the pool and changes it through the announcer it gets back: mark up, mark
//! down, weight, health, metadata. Everything that the log's rules ask of an announcer is done here:
//! order data, heartbeats spread over their interval, retries with jitter, bounded memory while the
//! log is away (docs/announcement-log.md, "Records" and "Order within a key").
//!
//! Where records go is a sink: one writes to the log itself, another to the
//! gateway of an Observer, for those who cannot reach Kafka.

pub mod definitions;
pub mod limits;

pub use waypost_core::{Announcement, Health, PartitionWeights};
