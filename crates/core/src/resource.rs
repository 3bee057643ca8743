//! Resources: what is served over xDS, under which name and version, in which variant.

use std::fmt;
use std::sync::Arc;

/// The name of a resource exactly as clients spell it. Interned by whoever serves it.
pub type ResourceName = Arc<str>;

/// The types that are served. The order is make before break on an aggregated stream: clusters,
/// their endpoints, listeners, their routes (xDS protocol, "Eventual consistency considerations"),
/// then the D2 types in the order of the rest.li client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// CDS.
    Cluster,
    /// EDS.
    ClusterLoadAssignment,
    /// LDS.
    Listener,
    /// RDS.
    RouteConfiguration,
    /// `indis.Node`: a cluster or service document.
    D2Node,
    /// `indis.D2URIMap`: all instances of a cluster.
    D2UriMap,
    /// `indis.D2URI`: one instance, by glob collection or by its own name.
    D2Uri,
    /// `indis.D2ClusterOrServiceName`: the directory of names.
    D2ClusterOrServiceName,
    /// `indis.D2CalleeServices`: the services that an application calls.
    D2CalleeServices,
}

impl ResourceType {
    /// All types in the order in which they are sent.
    pub const ALL: [Self; 9] = [
        Self::Cluster,
        Self::ClusterLoadAssignment,
        Self::Listener,
        Self::RouteConfiguration,
        Self::D2Node,
        Self::D2UriMap,
        Self::D2Uri,
        Self::D2ClusterOrServiceName,
        Self::D2CalleeServices,
    ];

    /// The type URL on the wire.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::ClusterLoadAssignment => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::RouteConfiguration => {
                "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
            }
            Self::D2Node => "type.googleapis.com/indis.Node",
            Self::D2UriMap => "type.googleapis.com/indis.D2URIMap",
            Self::D2Uri => "type.googleapis.com/indis.D2URI",
            Self::D2ClusterOrServiceName => "type.googleapis.com/indis.D2ClusterOrServiceName",
            Self::D2CalleeServices => "type.googleapis.com/indis.D2CalleeServices",
        }
    }

    /// The type of a URL, where it is one that is served.
    #[must_use]
    pub fn from_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.type_url() == type_url)
    }

    /// Whether a `SotW` response must hold everything that is subscribed (LDS and CDS), since what
    /// is missing is deleted by the client (xDS protocol, "Grouping resources into responses").
    #[must_use]
    pub fn is_complete_in_sotw(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Whether a name that does not exist is left unanswered in the incremental variant too, unless the
    /// client holds something under it. A D2 client takes the removal of its list of callees for an
    /// empty list and warms up nobody; on silence it falls back to the list of its own (rest.li
    /// `IndisBasedDownstreamServicesFetcher`).
    #[must_use]
    pub fn is_silent_about_absence(self) -> bool {
        self == Self::D2CalleeServices
    }

    /// The closed label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Cluster => "cds",
            Self::ClusterLoadAssignment => "eds",
            Self::Listener => "lds",
            Self::RouteConfiguration => "rds",
            Self::D2Node => "d2_node",
            Self::D2UriMap => "d2_uri_map",
            Self::D2Uri => "d2_uri",
            Self::D2ClusterOrServiceName => "d2_name",
            Self::D2CalleeServices => "d2_callees",
        }
    }
}

/// The version of a resource: a digest of the bytes served, equal on every replica, never empty on
/// the wire (16 hexadecimal digits).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ResourceVersion {
    /// Reads the text form; `None` for a version that no Waypost Observer ever wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 16 {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

/// Which addresses an asker can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both, IPv4 first.
    #[default]
    Both,
}

/// What kind of client asks, as far as answers differ by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientKind {
    /// Proxyless gRPC and anything that is not recognised: unhealthy instances are left out.
    #[default]
    Grpc,
    /// Envoy: unhealthy instances are marked.
    Envoy,
    /// rest.li D2.
    D2,
}

/// Over which kind of stream a client gets its resources. A resource that refers to others says that
/// they come the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// One stream for all types (ADS).
    #[default]
    Aggregated,
    /// A stream for each type, state of the world.
    PerTypeSotw,
    /// A stream for each type, incremental.
    PerTypeDelta,
}

/// The fabric that an asker is in, by the number that the locator gave it; the default where it named none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FabricId(pub u16);

/// What a proxy has for TLS to instances: secrets are its own, by names that were agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpstreamTls {
    /// Nothing: it speaks to all instances in plain text.
    #[default]
    None,
    /// Certificates of authorities that instances are verified with.
    Server,
    /// Those, and a certificate of its own.
    Mutual,
}

/// What an answer depends on besides its name: a small closed key, computed once per stream from
/// its node. Resources that do not differ by a part of it share one encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Which addresses the asker can use.
    pub addresses: AddressFamily,
    /// What kind of client it is.
    pub client: ClientKind,
    /// How it gets its resources.
    pub delivery: Delivery,
    /// Where it is: instances near to it come first.
    pub fabric: FabricId,
    /// How it can speak to instances that want TLS.
    pub upstream_tls: UpstreamTls,
}
