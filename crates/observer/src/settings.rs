//! What a caller must decide before an Observer starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

pub use waypost_admin_api::LogKind;

/// The settings of one Observer. There is no default for the whole: `waypost dev` and `waypost
/// observer` differ in nearly every line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where xDS, the gateway, health and reflection are served; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the admin port is served; port 0 takes a free one.
    pub admin: SocketAddr,
    /// Which implementation of the log is behind it, for `status`.
    pub log_kind: LogKind,
    /// Whether it keeps the log's time and expires instances, or only reads.
    pub log_writes: LogWrites,
    /// Log time under which the log counts as newborn, so that nothing is answered yet: running
    /// announcers need one heartbeat interval to be in it. Zero exempts a log that this process has
    /// just made.
    pub newborn_grace: Duration,
    /// For how long an expire counts against what may expire at once
    /// (docs/announcement-log.md, "Cap and holding"). The same in every Observer of a fabric.
    pub expiry_window: Duration,
    /// Over how long the clients are sent to other Observers when this one is told to stop.
    pub drain: Duration,
    /// The fabric that it runs in; empty when not set.
    pub fabric: String,
    /// The zone that it runs in; empty when not set.
    pub zone: String,
    /// Shown at `/config_dump`, names as on the command line; no secrets.
    pub shown: BTreeMap<String, String>,
}

/// Whether an Observer writes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogWrites {
    /// Ticks when it is its turn, writes expires and burials; its gateway writes for others.
    Keep,
    /// Reads only (`--read-only`: another fabric's log). Its gateway refuses.
    ReadOnly,
}
