//! What operators state with their own hand.

use serde::{Deserialize, Serialize};

/// `GET /api/v1/operator`, with `?cluster=NAME` for what concerns one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorView {
    /// What is set above announcements, by cluster and URI; also for instances that do not exist.
    pub overrides: Vec<OverrideView>,
    /// Who evicted which instance last, youngest first.
    pub evictions: Vec<EvictionView>,
    /// Who released held expiries last, youngest first.
    pub releases: Vec<ReleaseView>,
    /// Records that overwrote what their writers had not seen, youngest first.
    pub conflicts: Vec<ConflictView>,
    /// Records that the log lost and this Observer keeps, by kind and name.
    pub orphaned: Vec<OrphanView>,
    /// What was done, youngest first.
    pub journal: Vec<JournalView>,
}

/// What an operator set for one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverrideView {
    /// The instance's cluster.
    pub cluster: String,
    /// The instance's URI.
    pub uri: String,
    /// The weight that is served; `null` where it drains.
    pub weight: Option<f64>,
    /// Whether it is served as draining.
    pub drain: bool,
    /// Who set it.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When, by the author's clock.
    pub set_at_ms: i64,
    /// Whether anybody announces the instance.
    pub announced: bool,
}

/// An operator's removal of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionView {
    /// The instance's cluster.
    pub cluster: String,
    /// The instance's URI.
    pub uri: String,
    /// Who evicted it.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When, by the author's clock.
    pub evicted_at_ms: i64,
}

/// An operator's word that held expiries are true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseView {
    /// The cluster; `null` for all.
    pub cluster: Option<String>,
    /// Who released.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When, by the author's clock.
    pub released_at_ms: i64,
}

/// A record that overwrote what its writer had not seen. The last one stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictView {
    /// `cluster`, `service`, `override`, …
    pub kind: String,
    /// Which record, for people.
    pub name: String,
    /// Who overwrote whom; one line.
    pub text: String,
    /// When the log took the record that stands.
    pub appended_at_ms: i64,
}

/// A record that the log lost and this Observer keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanView {
    /// `cluster`, `service`, `override`, …
    pub kind: String,
    /// Which record, for people.
    pub name: String,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalView {
    /// When, by the author's clock.
    pub at_ms: i64,
    /// `deleted`, `set`, `cleared`, `evicted`, `released`, `restored`, `forgotten`, `conflict`.
    pub action: String,
    /// To which record, for people.
    pub subject: String,
    /// More of it; may be empty.
    pub detail: String,
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
}
