//! What is served: clusters, services and the instances of a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::operator::{EvictionView, OverrideView};

/// One row of `GET /api/v1/clusters`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterSummary {
    /// Its name.
    pub name: String,
    /// Whether it is served without a definition, because instances announce it.
    pub implicit: bool,
    /// Services that point at it.
    pub services: Vec<String>,
    /// Its instances.
    pub instances: HealthCounts,
    /// Whether so few instances are healthy that health is ignored.
    pub health_ignored: bool,
    /// How many times its definition was changed; `null` when implicit.
    pub revision: Option<u32>,
    /// The cluster that it leads to, of a symlink; `null` of others.
    #[serde(default)]
    pub symlink_to: Option<String>,
}

/// How many instances, by health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCounts {
    /// All of them.
    pub total: u64,
    /// Taking traffic.
    pub healthy: u64,
    /// About to leave.
    pub draining: u64,
    /// Failing their own health check.
    pub unhealthy: u64,
}

/// `GET /api/v1/clusters/{name}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The row of the list.
    pub summary: ClusterSummary,
    /// Its definition; `null` when implicit.
    pub definition: Option<DefinitionView>,
    /// Where facts about it come from, in order of priority; the first is served.
    pub sources: Vec<String>,
    /// Share of instances below which health is ignored, percent; 0 is never.
    pub min_healthy_percent: u32,
    /// The D2 partitions that its instances announce.
    pub d2_partitions: Vec<i32>,
    /// Instances without an address that could be served to gRPC and Envoy.
    pub unresolved_uris: Vec<String>,
    /// Instances that have an IPv6 address and no IPv4 one: clients that use IPv4 alone are not told of
    /// them.
    #[serde(default)]
    pub ipv6_only_uris: Vec<String>,
    /// How many have an IPv4 address and no IPv6 one: clients that use IPv6 alone are not told of them.
    #[serde(default)]
    pub ipv4_only: u64,
    /// Resources made from it: type label to version, for the default variant.
    pub versions: BTreeMap<String, String>,
    /// What clients report of the load that they send it; `null` where none ever did.
    #[serde(default)]
    pub load: Option<LoadView>,
}

/// What clients report of the load that they send to a cluster (LRS).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadView {
    /// Clients that report it now.
    pub reporters: u64,
    /// The load of now where they send it: sums over the last report of each client.
    pub localities: Vec<LocalityLoadView>,
    /// Requests that clients drop on purpose, a second.
    pub dropped_per_second: f64,
    /// Requests that succeeded since this Observer started.
    pub succeeded: u64,
    /// Requests that failed, likewise.
    pub failed: u64,
    /// Requests that clients dropped on purpose, likewise.
    pub dropped: u64,
    /// How long ago the last report came, milliseconds.
    pub age_ms: u64,
}

/// The load of one locality.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalityLoadView {
    /// The fabric; empty when unknown.
    pub fabric: String,
    /// The zone within the fabric; empty when unknown.
    pub zone: String,
    /// Requests begun a second.
    pub requests_per_second: f64,
    /// Requests that failed a second.
    pub failures_per_second: f64,
    /// Requests without an answer when the report was made.
    pub in_progress: u64,
}

/// `GET /api/v1/services/{name}`, also a row of `GET /api/v1/services`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// The cluster that serves it.
    pub cluster: String,
    /// The path that D2 appends to an instance's URI.
    pub path: String,
    /// Whether it is served without a definition, because its cluster is announced.
    pub implicit: bool,
    /// Its definition; `null` when implicit and in rows of the list.
    pub definition: Option<DefinitionView>,
    /// Where facts about it come from, in order of priority; the first is served.
    pub sources: Vec<String>,
}

/// A definition as it was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefinitionView {
    /// The D2 properties document.
    pub properties: Value,
    /// When it was first written.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub modified_at_ms: i64,
    /// How many times it was changed.
    pub revision: u32,
    /// Who wrote it last; empty when unknown.
    #[serde(default)]
    pub author: String,
    /// Whether the log lost it and this Observer keeps it.
    #[serde(default)]
    pub orphaned: bool,
    /// Who overwrote whom with it without having seen the other's; `null` where nobody did.
    #[serde(default)]
    pub conflict: Option<String>,
    /// Properties that gRPC and Envoy clients would be told of, and are not (docs/d2-properties.md).
    #[serde(default)]
    pub left_out: Vec<LeftOutView>,
}

/// A property that cannot be read, or that some client would refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutView {
    /// Where in the document it stands, keys joined by slashes; empty for the whole document.
    pub property: String,
    /// What is wrong with it.
    pub why: String,
}

/// One row of `GET /api/v1/uris/{cluster}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UriView {
    /// Its cluster.
    pub cluster: String,
    /// The URI as announced.
    pub uri: String,
    /// Its host name; empty when the announcer did not say.
    pub hostname: String,
    /// Addresses as gRPC and Envoy clients are told (`10.0.0.7:8080`).
    pub addresses: Vec<String>,
    /// Why there is no address; `null` when there is one.
    pub unresolved: Option<String>,
    /// How it judges itself, or what an operator set.
    pub health: UriHealth,
    /// Weight by D2 partition, as it announces it or as an operator set it.
    pub weights: BTreeMap<i32, f64>,
    /// What an operator set above what it announces; `null` where nothing is set.
    #[serde(default)]
    pub overridden: Option<OverrideView>,
    /// What it announces below that; `null` where nothing is set.
    #[serde(default)]
    pub announced: Option<AnnouncedView>,
    /// Who evicted it last, where that is remembered: it announced itself again since.
    #[serde(default)]
    pub evicted: Option<EvictionView>,
    /// Its free metadata, a JSON object.
    pub metadata: Value,
    /// The fabric that it runs in; empty when unknown.
    pub fabric: String,
    /// The zone within the fabric; empty when unknown.
    pub zone: String,
    /// The application that announces; empty when unknown.
    pub application: String,
    /// Identifies this announcement in traces.
    pub tracing_id: String,
    /// When the change was made, by the announcer's clock.
    pub origin_at_ms: i64,
    /// How often it says that it beats.
    pub heartbeat_ms: u64,
    /// After how much silence it may expire.
    pub ttl_ms: u64,
    /// Where it comes from, in order of priority; the first is served.
    pub sources: Vec<SourceView>,
    /// Announcements for this URI that the log's rules refused, the last few.
    pub refused: Vec<RefusedNote>,
}

/// What an instance announces while something else is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnnouncedView {
    /// How it judges itself.
    pub health: UriHealth,
    /// Weight by D2 partition.
    pub weights: BTreeMap<i32, f64>,
}

/// How an instance judges itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UriHealth {
    /// Takes traffic.
    Healthy,
    /// Is about to leave.
    Draining,
    /// Its own health check fails.
    Unhealthy,
}

impl UriHealth {
    /// The word, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// One source that knows an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// `log`, `zookeeper`, …
    pub name: String,
    /// Whether this source's value is the one served.
    pub served: bool,
    /// What the log says; `null` for other sources.
    pub log: Option<LogFacts>,
}

/// What the log knows of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogFacts {
    /// The partition that its records stand in.
    pub partition: u32,
    /// Whether its key belongs into another partition.
    pub wrong_partition: bool,
    /// Where its last accepted record stands.
    pub offset: i64,
    /// When the log took that record, by the log's clock.
    pub appended_at_ms: i64,
    /// How long ago it announced itself last, heartbeats included, on the log's clock.
    pub heartbeat_age_ms: u64,
    /// The process's life (16 hexadecimal digits); `null` under the simple contract.
    pub life_id: Option<String>,
    /// When that life began, by the log's clock.
    pub born_at_ms: i64,
    /// How many changes it has made.
    pub seq: u64,
    /// Whether its expiry is held.
    pub held: bool,
    /// Whether it is kept from another or longer log and was not announced again yet.
    pub unconfirmed: bool,
}

/// An announcement that the log's rules refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedNote {
    /// Why, for example `older than the one that stands`.
    pub reason: String,
    /// The process that announced (16 hexadecimal digits); `null` under the simple contract.
    pub life_id: Option<String>,
    /// Its host name; empty when it did not say.
    pub hostname: String,
    /// Where the record stands.
    pub offset: i64,
    /// How long ago the log took it.
    pub age_ms: u64,
}
