//! Bounds of the logs, each with its reason.

use std::time::Duration;

use waypost_core::limits::{ANNOUNCEMENT_BYTES_MAX, DEFINITION_BYTES_MAX, TTL_MAX};
use waypost_core::record::Topic;

/// What a record may hold beside its value, bytes: a key (a cluster name and a URI of the longest
/// kind, or a kind and a name), its headers, and framing.
pub const RECORD_OVERHEAD_BYTES_MAX: usize = 4 * 1024;

/// How long a record is kept although a newer one of its key exists: Kafka's
/// `min.compaction.lag.ms`. Three of the longest time-to-live, so that whoever judges a record still
/// finds what it was based on (docs/announcement-log.md, "Compaction").
pub const COMPACTION_LAG: Duration = Duration::from_secs(15 * 60);

/// How long a tombstone is kept: Kafka's `delete.retention.ms`. A reader that was away longer than
/// half of it reads everything again.
pub const DELETE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a reader reports where its partitions begin and end. A keeper writes no expire on
/// bounds older than 10 s.
pub const BOUNDS_INTERVAL: Duration = Duration::from_secs(2);

/// Records that one [`ReadEvent::Records`](waypost_core::ReadEvent::Records) holds at most: enough
/// to make the cost of a wake-up vanish, few enough to keep a reader's memory small.
pub const READ_RECORDS_MAX: usize = 512;

/// Keys and values of records that share one allocation, bytes: about a batch of heartbeats. What outlives
/// its batch (a new announcement) is copied by whoever keeps it.
pub const COPIES_CHUNK_BYTES: usize = 256 * 1024;

/// Requests that wait for the embedded log's writer. Each holds one record that its caller would
/// hold anyway; beyond it callers wait for their turn.
pub const EMBEDDED_REQUESTS_MAX: usize = 4096;

/// Requests that one commit of the embedded log takes at most, so that those who came first are not
/// kept waiting by those who still come.
pub const EMBEDDED_BATCH_MAX: usize = 1024;

/// How long a heartbeat or tick may stay in memory only. What a crash costs of them; a change never
/// waits for it.
pub const EMBEDDED_FLUSH_INTERVAL: Duration = Duration::from_secs(2);

/// Records in memory only, at most: three seconds of 11,000 heartbeats.
pub const EMBEDDED_PENDING_MAX: usize = 32 * 1024;

/// Bytes of records in memory only, at most.
pub const EMBEDDED_PENDING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Offsets that a commit sets aside in each partition. After a crash the log goes on above them, so
/// that no offset which a caller was told of or a reader saw is ever given to another record.
pub const EMBEDDED_RESERVE: i64 = 64 * 1024;

/// Records of each partition that stay in memory for readers near the end: two seconds of heartbeats
/// of a partition at 2,000 a second.
pub const EMBEDDED_TAIL_MAX: usize = 4096;

/// Bytes of those, at most.
pub const EMBEDDED_TAIL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of records that a reader takes from the store at once.
pub const EMBEDDED_READ_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Records that one commit removes at most, so that a day's backlog does not hold up a change.
pub const EMBEDDED_CLEAN_MAX: usize = 16 * 1024;

/// The store's page cache, bytes: the working set of a hundred thousand instances.
pub const EMBEDDED_CACHE_BYTES: usize = 64 * 1024 * 1024;

/// How long the embedded log waits before it opens a file again that could not be written.
pub const EMBEDDED_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Partitions of the announcements in a new embedded log: as in a fabric more than one, so that what
/// is developed against it meets the same order; each costs one tick a second.
pub const EMBEDDED_PARTITIONS: u32 = 4;

/// Partitions that an embedded log may have.
pub const EMBEDDED_PARTITIONS_MAX: u32 = 256;

/// Largest record (key, headers and value) that `topic` takes, bytes.
#[must_use]
pub const fn record_bytes_max(topic: Topic) -> usize {
    let value = match topic {
        Topic::Announcements => ANNOUNCEMENT_BYTES_MAX,
        Topic::Config | Topic::Control => DEFINITION_BYTES_MAX,
    };
    value + RECORD_OVERHEAD_BYTES_MAX
}

const _: () = assert!(COMPACTION_LAG.as_secs() >= 3 * TTL_MAX.as_secs());
const _: () = assert!(DELETE_RETENTION.as_secs() > COMPACTION_LAG.as_secs());
const _: () = assert!((EMBEDDED_PENDING_MAX + EMBEDDED_BATCH_MAX) < EMBEDDED_RESERVE as usize);
