//! Following a cluster as a client sees it.

use serde::{Deserialize, Serialize};

use crate::UriView;

/// One line of `GET /api/v1/watch/{cluster}`.
///
/// First one `present` for each instance of the moment, then `synced`, then `up`, `changed`, `down`
/// as they happen. Heartbeats are no changes. A reader that is slow misses steps, never the latest
/// state: as for every client, the latest wins. `idle` comes after some seconds without a change, so
/// that a dead connection is noticed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// What happened.
    pub event: WatchEventKind,
    /// The instance's URI; `null` where the event is about none.
    pub uri: Option<String>,
    /// The instance as it is now, or as it was last for `down`; `null` where the event is about
    /// none.
    pub instance: Option<Box<UriView>>,
    /// From the change's time of origin to this line, by two machines' clocks; `null` where that
    /// makes no sense.
    pub propagation_ms: Option<i64>,
    /// How many instances there are now.
    pub instances: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchEventKind {
    /// The instance was there when the watch began.
    Present,
    /// All `present` lines were sent.
    Synced,
    /// An instance appeared.
    Up,
    /// An instance changed.
    Changed,
    /// An instance is gone.
    Down,
    /// Nothing happened for a while; the connection lives.
    Idle,
}
