//! Bounds of the store. Each has a name, a unit and a reason.

use std::time::Duration;

/// How long a name that left is remembered, and how long an implicit cluster outlives its last
/// instance: longer than any outage of a client that then comes back with what it still holds.
pub const REMEMBER: Duration = Duration::from_hours(12);

/// Names of instances that left which one cluster remembers. A cluster that replaces itself whole
/// several times within [`REMEMBER`] still fits; the oldest go first.
pub const REMOVED_PER_CLUSTER_MAX: usize = 4096;

/// Names of instances that left which all clusters together remember: at about 150 bytes each a
/// bound of 150 MB, whatever churns.
pub const REMOVED_INSTANCES_MAX: usize = 1_000_000;

/// Names of clusters, and of services, that left and are remembered.
pub const REMOVED_NAMES_MAX: usize = 16_384;

/// Instances of a cluster that are held in one piece: what a new one may move is 6 KiB, and a piece is
/// worth its own allocation.
pub(crate) const INSTANCES_PER_PIECE: usize = 256;

/// Maps are cut into this many parts, each with its own lock, so that readers on every core seldom
/// meet. A power of two.
pub const SHARDS: usize = 64;

/// Subscribers that are copied out of a set under its lock before they are called without it.
pub const NOTIFY_CHUNK: usize = 256;

/// Share of healthy instances, percent, below which health is ignored for a cluster whose
/// definition does not say (DESIGN invariant 15).
pub const MIN_HEALTHY_PERCENT_DEFAULT: u8 = 50;

const _: () = assert!(SHARDS.is_power_of_two());
const _: () = assert!(REMOVED_PER_CLUSTER_MAX <= REMOVED_INSTANCES_MAX);
