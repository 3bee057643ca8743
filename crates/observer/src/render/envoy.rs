//! Listener, `RouteConfiguration` and Cluster, as proxyless gRPC and Envoy read them. What an Envoy
//! listens on and routes with is in [`outbound`](super::outbound).
//!
//! None of them depends on instances, so a change of endpoints never changes one (a changed Listener
//! drains connections).

use std::collections::HashMap;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::api_config_source::ApiType;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{ApiVersion, ConfigSource};
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as upstreams;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::{self, Any};
use envoy_types::util::pack_any;
use waypost_core::{ClientKind, ClusterName, Delivery, Timestamp, Variant};
use waypost_store::{ClusterOutline, ServiceState};

use super::{Rendered, names};

/// How long a client tries to connect to an endpoint before it takes another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Retries at once that an Envoy permits itself: a share of the requests in flight (rest.li's own bound,
/// `http.maxClientRequestRetryRatio`), and so many in any case.
const RETRIES_PERCENT_MAX: f64 = 20.0;
const RETRIES_AT_ONCE_MIN: u32 = 10;

/// The cluster of an Envoy's bootstrap file that stands for all Observers, as `waypost bootstrap
/// envoy` calls it. Its slash keeps it apart from every cluster that anybody announces.
pub const OBSERVERS: &str = "waypost/observers";

/// What its streams to Observers carry as `:authority`.
const AUTHORITY: &str = "waypost";

/// How long an Envoy waits before it opens a stream again that ended: from, and at most.
const STREAM_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The service's Listener: gRPC's way in (gRFC A27). Routes come separately, under the same name.
/// `None` for a service of a symlink cluster, which these clients cannot follow.
#[must_use]
pub fn listener(name: &str, service: &ServiceState) -> Option<Rendered> {
    find_cluster(service)?;
    let manager = connection_manager(name, name, Delivery::Aggregated);
    let message = listener::Listener {
        name: name.to_owned(),
        api_listener: Some(listener::ApiListener {
            api_listener: Some(pack_any(manager)),
        }),
        ..listener::Listener::default()
    };
    Some(Rendered::new(&message, origin(service)))
}

/// What takes requests and routes them as the `RouteConfiguration` called `routes` says.
pub(super) fn connection_manager(
    stat_prefix: &str,
    routes: &str,
    delivery: Delivery,
) -> hcm::HttpConnectionManager {
    hcm::HttpConnectionManager {
        stat_prefix: stat_prefix.to_owned(),
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(
            hcm::Rds {
                config_source: Some(config_source(delivery)),
                route_config_name: routes.to_owned(),
            },
        )),
        http_filters: vec![router_filter()],
        ..hcm::HttpConnectionManager::default()
    }
}

/// The only filter needed: the last one must be terminal (gRFC A39).
pub(super) fn router_filter() -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(pack_any(
            Router::default(),
        ))),
        ..hcm::HttpFilter::default()
    }
}

/// The service's routes: everything to its cluster, whatever authority the client asks for.
#[must_use]
pub fn route_configuration(name: &str, service: &ServiceState) -> Option<Rendered> {
    let cluster = find_cluster(service)?;
    let to_cluster = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            cluster.to_string(),
        )),
        ..route::RouteAction::default()
    };
    let everything = route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix(String::new())),
        ..route::RouteMatch::default()
    };
    let message = route::RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: vec![route::VirtualHost {
            name: name.to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![route::Route {
                r#match: Some(everything),
                action: Some(route::route::Action::Route(to_cluster)),
                ..route::Route::default()
            }],
            ..route::VirtualHost::default()
        }],
        ..route::RouteConfiguration::default()
    };
    Some(Rendered::new(&message, origin(service)))
}

/// The Cluster called `name` (a cluster, or `NAME#P`): endpoints come as the cluster did, under the
/// same name. D2 properties that mean something here are to be added in this function.
#[must_use]
pub fn cluster(name: &str, outline: &ClusterOutline, variant: Variant) -> Rendered {
    let modified = outline.definition.as_ref().map(|(_, d)| d.stat.modified);
    let mut message = cluster::Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
            cluster::cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(cluster::cluster::EdsClusterConfig {
            eds_config: Some(config_source(variant.delivery)),
            ..cluster::cluster::EdsClusterConfig::default()
        }),
        connect_timeout: Some(to_wire(CONNECT_TIMEOUT)),
        lb_policy: cluster::cluster::LbPolicy::RoundRobin.into(),
        lrs_server: wants_load_reports(outline).then(same_server),
        ..cluster::Cluster::default()
    };
    if variant.client == ClientKind::Envoy {
        message.typed_extension_protocol_options = as_downstream();
        // From how few healthy instances on health is ignored was decided when the endpoints were
        // made (`min_healthy_percent`); a second threshold at the client would contradict it.
        message.common_lb_config = Some(cluster::cluster::CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value: 0.0 }),
            ..cluster::cluster::CommonLbConfig::default()
        });
        message.circuit_breakers = Some(circuit_breakers());
    }
    Rendered::new(&message, modified.unwrap_or_default())
}

/// Whether the definition asks for load reports: `load_reports`, a property of ours. Not by default, since
/// each client opens one more stream for them.
fn wants_load_reports(outline: &ClusterOutline) -> bool {
    let document = outline.definition.as_ref().map(|(_, d)| &d.document[..]);
    let properties = document.and_then(|d| serde_json::from_slice::<serde_json::Value>(d).ok());
    properties.is_some_and(|properties| {
        let value = properties.get("load_reports");
        value.is_some_and(|value| value.as_bool() == Some(true) || value.as_str() == Some("true"))
    })
}

/// "The server that you have this from", the only one that gRPC reports to (gRFC A27).
fn same_server() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Self_(
            core::SelfConfigSource::default(),
        )),
        ..ConfigSource::default()
    }
}

/// No bound of the proxy's own on a cluster, whatever its size: Envoy's defaults (1,024 connections and
/// requests, 3 retries at once, per cluster) fail requests to large ones. Retries are bounded by a share
/// of the requests.
fn circuit_breakers() -> cluster::CircuitBreakers {
    use cluster::circuit_breakers::{Thresholds, thresholds::RetryBudget};
    let unbounded = Some(protobuf::UInt32Value { value: u32::MAX });
    let retries = RetryBudget {
        budget_percent: Some(Percent {
            value: RETRIES_PERCENT_MAX,
        }),
        min_retry_concurrency: Some(protobuf::UInt32Value {
            value: RETRIES_AT_ONCE_MIN,
        }),
        ..RetryBudget::default()
    };
    cluster::CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: unbounded,
            max_pending_requests: unbounded,
            max_requests: unbounded,
            retry_budget: Some(retries),
            ..Thresholds::default()
        }],
        ..cluster::CircuitBreakers::default()
    }
}

/// HTTP/2 to instances for requests that came over HTTP/2 (gRPC), else HTTP/1.1. Without it Envoy
/// speaks HTTP/1.1 only.
fn as_downstream() -> HashMap<String, Any> {
    use upstreams::http_protocol_options::{UpstreamProtocolOptions, UseDownstreamHttpConfig};
    let options = upstreams::HttpProtocolOptions {
        upstream_protocol_options: Some(UpstreamProtocolOptions::UseDownstreamProtocolConfig(
            UseDownstreamHttpConfig {
                http_protocol_options: Some(core::Http1ProtocolOptions::default()),
                http2_protocol_options: Some(core::Http2ProtocolOptions::default()),
                http3_protocol_options: None,
            },
        )),
        ..upstreams::HttpProtocolOptions::default()
    };
    HashMap::from([(
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(),
        pack_any(options),
    )])
}

/// The cluster that a service's routes lead to, if these clients can follow it.
pub(crate) fn find_cluster(service: &ServiceState) -> Option<&ClusterName> {
    let cluster = match service {
        ServiceState::Defined { definition, .. } => &definition.cluster,
        ServiceState::Implicit { cluster } => cluster,
    };
    (!names::is_symlink(cluster.as_str())).then_some(cluster)
}

pub(super) fn origin(service: &ServiceState) -> Timestamp {
    match service {
        ServiceState::Defined { definition, .. } => definition.stat.modified,
        ServiceState::Implicit { .. } => Timestamp::default(),
    }
}

/// Where a client gets what a resource refers to: from this very stream, the only source that gRPC
/// accepts (gRFC A27), or over streams like the one that the resource came on.
fn config_source(delivery: Delivery) -> ConfigSource {
    let specifier = match delivery {
        Delivery::Aggregated => ConfigSourceSpecifier::Ads(core::AggregatedConfigSource {}),
        Delivery::PerTypeSotw => {
            ConfigSourceSpecifier::ApiConfigSource(from_observers(ApiType::Grpc))
        }
        Delivery::PerTypeDelta => {
            ConfigSourceSpecifier::ApiConfigSource(from_observers(ApiType::DeltaGrpc))
        }
    };
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(specifier),
        ..ConfigSource::default()
    }
}

fn from_observers(api_type: ApiType) -> core::ApiConfigSource {
    let (base, max) = STREAM_BACKOFF;
    let service = core::GrpcService {
        target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(
            core::grpc_service::EnvoyGrpc {
                cluster_name: OBSERVERS.to_owned(),
                // Without it the name of the cluster, which no HTTP/2 server takes for one.
                authority: AUTHORITY.to_owned(),
                ..core::grpc_service::EnvoyGrpc::default()
            },
        )),
        retry_policy: Some(core::RetryPolicy {
            retry_back_off: Some(core::BackoffStrategy {
                base_interval: Some(to_wire(base)),
                max_interval: Some(to_wire(max)),
            }),
            ..core::RetryPolicy::default()
        }),
        ..core::GrpcService::default()
    };
    core::ApiConfigSource {
        api_type: api_type.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![service],
        set_node_on_first_message_only: true,
        ..core::ApiConfigSource::default()
    }
}

pub(super) fn to_wire(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}
