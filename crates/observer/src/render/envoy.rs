//! Listener and `RouteConfiguration`, as proxyless gRPC reads them. What an Envoy listens on and routes
//! with is in [`outbound`](super::outbound).
//!
//! None of them depends on instances, so a change of endpoints never changes one (a changed Listener
//! drains connections).

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::api_config_source::ApiType;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{ApiVersion, ConfigSource};
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf;
use envoy_types::util::pack_any;
use waypost_core::{ClusterName, Delivery, Timestamp};
use waypost_store::ServiceState;

use super::properties::ServiceProperties;
use super::{Rendered, names};

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
    let properties = ServiceProperties::of(service);
    let to_cluster = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            cluster.to_string(),
        )),
        max_stream_duration: properties.request_timeout.map(max_stream_duration),
        // Paths are names of methods here and tell no requests apart.
        hash_policy: properties
            .hash_keys
            .header
            .iter()
            .map(|h| by_header(h))
            .collect(),
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

/// The longest that a call may take, whatever deadline of its own it has (gRFC A31).
fn max_stream_duration(max: Duration) -> route::route_action::MaxStreamDuration {
    route::route_action::MaxStreamDuration {
        max_stream_duration: Some(to_wire(max)),
        ..route::route_action::MaxStreamDuration::default()
    }
}

/// Requests go by the value of a header (gRFC A42); those without it by what comes next.
pub(super) fn by_header(name: &str) -> route::route_action::HashPolicy {
    use route::route_action::hash_policy::{Header, PolicySpecifier};
    route::route_action::HashPolicy {
        terminal: true,
        policy_specifier: Some(PolicySpecifier::Header(Header {
            header_name: name.to_owned(),
            regex_rewrite: None,
        })),
    }
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
pub(super) fn config_source(delivery: Delivery) -> ConfigSource {
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
