//! What an instance says about itself.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::limits::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use crate::name::{ClusterName, InstanceUri};
use crate::time::Timestamp;

/// Weight by D2 partition. A weight is finite and at least 0; 0 means announced without traffic.
pub type PartitionWeights = BTreeMap<i32, f64>;

/// How an instance judges itself. Unhealthy is not gone (DESIGN invariant 15): it is absent for D2
/// and gRPC, marked for Envoy, and ignored where too few would be left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Health {
    /// Takes traffic.
    #[default]
    Healthy,
    /// Is about to leave; takes no new traffic.
    Draining,
    /// Its own health check fails.
    Unhealthy,
}

impl Health {
    /// The word used on the command line and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// The content of an announcement. Order (whose it is, how old, which change) is not in here: it
/// travels in record headers, so that equal content is equal bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// The cluster that the instance belongs to.
    pub cluster: ClusterName,
    /// Where it is reached. Unique within the cluster.
    pub uri: InstanceUri,
    /// Its host name, empty when the announcer did not say.
    pub hostname: String,
    /// Its IPv4 address as the announcer resolved it at mark-up.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address as the announcer resolved it at mark-up.
    pub ipv6: Option<Ipv6Addr>,
    /// The instance's certificate names its IPv4 address (`D2URI.is_ipv4_in_san`).
    pub ipv4_in_san: bool,
    /// The instance's certificate names its IPv6 address (`D2URI.is_ipv6_in_san`).
    pub ipv6_in_san: bool,
    /// Weight by D2 partition; never empty (`{0: 1.0}` by default).
    pub weights: PartitionWeights,
    /// How the instance judges itself.
    pub health: Health,
    /// Free metadata: a JSON object as text, `{}` when there is none. Kept as text so that numbers
    /// survive exactly; keys are D2's `uriSpecificProperties`.
    pub metadata: String,
    /// The fabric (data centre) it runs in, empty when unknown.
    pub fabric: String,
    /// The zone within the fabric, empty when unknown.
    pub zone: String,
    /// The application that announces, empty when unknown.
    pub application: String,
    /// Identifies this announcement in traces; unique for every change.
    pub tracing_id: String,
    /// How often it is announced again.
    pub heartbeat: Duration,
    /// After how much silence the log may say that it is gone.
    pub ttl: Duration,
    /// When the change that this announcement states was made, by the announcer's clock. Never used
    /// for order: only for measuring propagation and as D2's version and modified time.
    pub origin: Timestamp,
}

impl Announcement {
    /// A healthy instance of weight 1 on partition 0 with defaults everywhere else.
    #[must_use]
    pub fn new(cluster: ClusterName, uri: InstanceUri, origin: Timestamp) -> Self {
        Self {
            cluster,
            uri,
            hostname: String::new(),
            ipv4: None,
            ipv6: None,
            ipv4_in_san: false,
            ipv6_in_san: false,
            weights: PartitionWeights::from([(0, 1.0)]),
            health: Health::Healthy,
            metadata: "{}".to_owned(),
            fabric: String::new(),
            zone: String::new(),
            application: String::new(),
            tracing_id: String::new(),
            heartbeat: crate::limits::HEARTBEAT_DEFAULT,
            ttl: TTL_DEFAULT,
            origin,
        }
    }
}

/// The time-to-live that the log's rules use for an announcement that says `ttl`: absent (zero) is
/// the default, anything else is clamped (docs/announcement-log.md, "Records").
#[must_use]
pub fn effective_ttl(ttl: Duration) -> Duration {
    if ttl.is_zero() {
        TTL_DEFAULT
    } else {
        ttl.clamp(TTL_MIN, TTL_MAX)
    }
}
