//! How the Observer itself is doing.

use serde::{Deserialize, Serialize};

/// `GET /api/v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Who answers.
    pub observer: ObserverInfo,
    /// Whether clients are served. Once true, it stays true (stale is not unloaded).
    pub ready: bool,
    /// What is still awaited, by name; empty when ready.
    pub pending: Vec<Pending>,
    /// Whether an input is behind or away, so that what is served may be out of date.
    pub stale: bool,
    /// Why, one line for each reason; empty unless stale.
    pub stale_reasons: Vec<String>,
    /// Every source of facts and how far behind it is.
    pub sources: Vec<SourceStatus>,
    /// The announcement log in detail.
    pub log: LogStatus,
    /// Who keeps the log's time.
    pub keeper: KeeperStatus,
    /// Sizes.
    pub counts: Counts,
    /// Topics that are being read again from their beginning while what was known is served.
    #[serde(default)]
    pub replaying: Vec<String>,
    /// Clusters whose mass expiry is held until an operator releases it.
    pub holding_clusters: Vec<String>,
    /// What is held, the fleet first, then clusters by name.
    #[serde(default)]
    pub holding: Vec<HoldingScope>,
    /// What the config topic no longer holds and is kept until an operator decides: the first
    /// thousand, [`Counts::orphaned`] says how many there are.
    pub orphaned: Vec<OrphanedDefinition>,
    /// Records of the config topic that are refused as they stand, the last few.
    pub refused_definitions: Vec<RefusedDefinition>,
    /// Clusters to which several symlinks lead, by name.
    #[serde(default)]
    pub shared_symlinks: Vec<SharedSymlinks>,
}

/// Symlinks that lead to one cluster. D2 clients follow only the first of them that they meet, so calls
/// through the others fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSymlinks {
    /// The cluster.
    pub cluster: String,
    /// Those that lead to it, in name order.
    pub symlinks: Vec<String>,
}

/// Which Observer answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserverInfo {
    /// Its name in `control_plane.identifier` of every xDS answer.
    pub identifier: String,
    /// The release.
    pub version: String,
    /// The fabric that it runs in; empty when not set.
    pub fabric: String,
    /// The zone that it runs in; empty when not set.
    pub zone: String,
    /// Whether it writes nothing to the log.
    pub read_only: bool,
    /// Where xDS, the gateway, health and reflection are served.
    pub grpc_address: String,
    /// Where this API is served.
    pub admin_address: String,
    /// How long it has been running.
    pub uptime_ms: u64,
}

/// Something that readiness waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// What, for example `announcements/3`.
    pub name: String,
    /// Why it is not there yet, for example `at 120 of 4,000`.
    pub reason: String,
}

/// One source of facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// `log`, `zookeeper`, …
    pub name: String,
    /// Its state.
    pub state: SourceState,
    /// Records known to exist that were not read yet, over all partitions.
    pub lag_records: u64,
    /// Age of the youngest record read: this machine's clock less the log's time of it; `null` before
    /// the first.
    pub last_record_age_ms: Option<u64>,
    /// What is wrong, where something is.
    pub detail: Option<String>,
}

/// The state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// Not all that existed at start was read yet.
    Loading,
    /// Read to its end.
    Live,
    /// Readable, but behind.
    Lagging,
    /// Cannot be read at present; what was read is served.
    Unavailable,
}

/// The announcement log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Which implementation.
    pub kind: LogKind,
    /// Which log it is (16 hexadecimal digits); `null` until read.
    pub identity: Option<String>,
    /// Its topics.
    pub topics: Vec<TopicStatus>,
}

/// Which implementation of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// Apache Kafka.
    Kafka,
    /// The embedded log of one machine.
    Embedded,
    /// In memory; forgotten when the process ends.
    Memory,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicStatus {
    /// `announcements`, `config` or `control`.
    pub name: String,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionStatus>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its number.
    pub partition: u32,
    /// The offset of the next record to be read.
    pub position: i64,
    /// The offset that the log's next record will get; `null` until the log said.
    pub end: Option<i64>,
    /// `end - position`, never below 0; `null` until the log said its end.
    pub lag_records: Option<u64>,
    /// Whether everything that existed at start was read.
    pub loaded: bool,
    /// The partition's age as the ticks count it; `null` where none were read or none are kept.
    pub log_time_ms: Option<i64>,
    /// Digest of the state of this partition at `position` (16 hexadecimal digits): equal on every
    /// Observer that stands there. `null` where none is kept.
    pub digest: Option<String>,
}

/// Who keeps the log's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperStatus {
    /// What this Observer is.
    pub role: KeeperRole,
    /// This Observer's id as a keeper (16 hexadecimal digits); `null` when read-only.
    pub own_id: Option<String>,
    /// The id of the keeper whose tick was read last in partition 0; `null` before the first.
    pub current_id: Option<String>,
}

/// What an Observer is to the log's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeeperRole {
    /// Its ticks are the log's time; it writes expires.
    Keeper,
    /// Takes over when the keeper falls silent.
    Standby,
    /// Writes nothing.
    ReadOnly,
}

/// Sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Clusters, implicit ones included.
    pub clusters: u64,
    /// Services, implicit ones included.
    pub services: u64,
    /// Announced instances.
    pub instances: u64,
    /// Open xDS streams.
    pub streams: u64,
    /// Instances whose expiry is held.
    pub held_instances: u64,
    /// Instances kept from another or longer log, not announced again yet.
    pub unconfirmed_instances: u64,
    /// Records of the config topic kept from another or longer log.
    #[serde(default)]
    pub orphaned: u64,
}

/// A cluster, or the whole fleet, in which so many instances fell silent at once that they are
/// served on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingScope {
    /// The cluster; `null` is the whole fleet.
    pub cluster: Option<String>,
    /// When it began, on the log's clock.
    pub since_at_ms: i64,
    /// How long it has lasted, by log time.
    pub lasts_ms: u64,
    /// Instances that are served.
    pub live: u32,
    /// Of those, the ones that nobody announced for their time-to-live.
    pub overdue: u32,
    /// How many may expire within a minute; it ends by itself once fewer than these are overdue.
    pub cap: u32,
}

/// A record of the config topic that the log no longer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanedDefinition {
    /// `cluster`, `service`, `override`, `eviction` or `journal`.
    pub kind: String,
    /// Its name; of an override or eviction, the cluster.
    pub name: String,
    /// Of an override or eviction, the instance.
    #[serde(default)]
    pub uri: Option<String>,
}

/// A record of the config topic that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDefinition {
    /// The partition of the config topic.
    pub partition: u32,
    /// Where the record stands.
    pub offset: i64,
    /// What is wrong with it.
    pub reason: String,
}
