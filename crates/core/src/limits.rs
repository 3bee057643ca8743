//! Bounds that more than one crate relies on. Each has a name, a unit and a reason.

use std::time::Duration;

/// Longest cluster or service name, bytes. D2 names are znode components; 255 leaves room for
/// `#PARTITION` and path prefixes within every file system that caches them by name.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest announced URI, bytes: what common HTTP servers accept as a request line.
pub const URI_BYTES_MAX: usize = 2048;

/// Largest announcement value, bytes. A cluster of 1,000 such instances still fits the 4 MiB that a
/// gRPC client accepts in one message with room to spare for typical (300 byte) ones.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 64 * 1024;

/// Largest definition (service or cluster properties), bytes: ZooKeeper's own limit for a znode.
pub const DEFINITION_BYTES_MAX: usize = 1024 * 1024;

/// Services that one application can be said to call. Large ones call some hundreds.
pub const CALLEES_MAX: usize = 1_000;

/// Largest value of any other record of the config topic, bytes: two names, a URI, a reason, a detail.
pub const CONFIG_BYTES_MAX: usize = 16 * 1024;

/// Longest reason of an operator's statement, bytes: a line or two, and the number of a ticket.
pub const REASON_BYTES_MAX: usize = 1024;

/// Longest name of whoever states something, bytes: a user and a fully qualified host name.
pub const AUTHOR_BYTES_MAX: usize = 320;

/// D2 partitions that one announcement may name. Real clusters use tens.
pub const D2_PARTITIONS_MAX: usize = 4096;

/// Time-to-live of an announcement that names none.
pub const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// Heartbeat interval of an announcer that is given none: a third of the default time-to-live.
pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(10);

/// Shortest time-to-live: below it one lost produce request would cost an instance.
pub const TTL_MIN: Duration = Duration::from_secs(10);

/// Longest time-to-live. `min.compaction.lag.ms` (15 min) must be three of them.
pub const TTL_MAX: Duration = Duration::from_secs(300);

/// A time-to-live must hold at least this many heartbeat intervals.
pub const HEARTBEATS_PER_TTL_MIN: u32 = 3;

const _: () = assert!(TTL_MIN.as_secs() < TTL_DEFAULT.as_secs());
const _: () = assert!(TTL_DEFAULT.as_secs() < TTL_MAX.as_secs());
const _: () = assert!(HEARTBEAT_DEFAULT.as_secs() * 3 <= TTL_DEFAULT.as_secs());
