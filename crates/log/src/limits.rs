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
