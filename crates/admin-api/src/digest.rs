//! Digests of what an Observer has made of the log, for comparing Observers.
//!
//! A digest covers key, order data and content of every instance that the log holds, not its
//! heartbeats. Observers stand at different positions, so they are compared at the offset of a tick
//! that both have read. What differs is then looked for by bucket and by key.

use serde::{Deserialize, Serialize};

/// Buckets of each partition. A key's bucket is the top six bits of its hash.
pub const DIGEST_BUCKETS: usize = 64;

/// `GET /api/v1/digests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// Which log the digests are of (16 hexadecimal digits); `null` until read. Observers of
    /// different logs cannot be compared.
    pub identity: Option<String>,
    /// Whether everything that existed at start was read.
    pub loaded: bool,
    /// The partitions of the announcements topic, by number.
    pub partitions: Vec<PartitionDigests>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionDigests {
    /// Its number.
    pub partition: u32,
    /// The offset of the next record to be read.
    pub position: i64,
    /// Its last ticks, oldest first.
    pub ticks: Vec<TickDigest>,
}

/// The state right after one tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickDigest {
    /// Where the tick stands.
    pub offset: i64,
    /// The digest (16 hexadecimal digits).
    pub digest: String,
}

/// `GET /api/v1/digests/{partition}?offset=N`: the digest after the tick at that offset, by bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketDigests {
    /// Which partition.
    pub partition: u32,
    /// Where the tick stands.
    pub offset: i64,
    /// [`DIGEST_BUCKETS`] digests (16 hexadecimal digits each).
    pub buckets: Vec<String>,
}

/// `GET /api/v1/digests/{partition}/keys?bucket=B&after=CURSOR&limit=N`: the instances of one
/// bucket, all as they are at `position`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketKeys {
    /// Every record of the partition below this offset was read, and no other.
    pub position: i64,
    /// Instances in the order of their keys' hashes.
    pub items: Vec<DigestedKey>,
    /// Pass this as `?after=` for those that follow; `null` on the last page.
    pub next: Option<String>,
}

/// What of an instance is in the digest, and where it was announced last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestedKey {
    /// Its cluster.
    pub cluster: String,
    /// Its URI.
    pub uri: String,
    /// Order: whose life (16 hexadecimal digits); `null` for a producer without order data.
    pub life_id: Option<String>,
    /// Order: when that life began, on the log's clock.
    pub born_at_ms: Option<i64>,
    /// Order: its count of changes.
    pub seq: u64,
    /// Hash of the announcement's bytes (16 hexadecimal digits).
    pub content: String,
    /// Offset of its last accepted announcement. A heartbeat moves it; it is not in the digest.
    pub offset: i64,
}
