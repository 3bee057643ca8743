//! Listener, `RouteConfiguration` and Cluster, as proxyless gRPC and Envoy read them.
//!
//! None of them depends on instances, so a change of endpoints never changes one (a changed Listener
//! drains connections).

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, SelfConfigSource,
};
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf;
use envoy_types::util::pack_any;
use waypost_core::Timestamp;
use waypost_store::{ClusterOutline, ServiceState};

use super::{Rendered, names};

/// How long a client tries to connect to an endpoint before it takes another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The service's Listener: gRPC's way in (gRFC A27). Routes come separately, under the same name.
/// `None` for a service of a symlink cluster, which these clients cannot follow.
#[must_use]
pub fn listener(name: &str, service: &ServiceState) -> Option<Rendered> {
    find_cluster(service)?;
    let manager = hcm::HttpConnectionManager {
        stat_prefix: name.to_owned(),
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(
            hcm::Rds {
                config_source: Some(ads()),
                route_config_name: name.to_owned(),
            },
        )),
        // The last filter must be terminal and is the only one needed (gRFC A39).
        http_filters: vec![hcm::HttpFilter {
            name: "envoy.filters.http.router".to_owned(),
            config_type: Some(hcm::http_filter::ConfigType::TypedConfig(pack_any(
                Router::default(),
            ))),
            ..hcm::HttpFilter::default()
        }],
        ..hcm::HttpConnectionManager::default()
    };
    let message = listener::Listener {
        name: name.to_owned(),
        api_listener: Some(listener::ApiListener {
            api_listener: Some(pack_any(manager)),
        }),
        ..listener::Listener::default()
    };
    Some(Rendered::new(&message, origin(service)))
}

/// The service's routes: everything to its cluster, whatever authority the client asks for.
#[must_use]
pub fn route_configuration(name: &str, service: &ServiceState) -> Option<Rendered> {
    let cluster = find_cluster(service)?;
    let to_cluster = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            cluster.to_owned(),
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

/// The Cluster called `name` (a cluster, or `NAME#P`): endpoints from the same stream under the
/// same name. D2 properties that mean something here are to be added in this function.
#[must_use]
pub fn cluster(name: &str, outline: &ClusterOutline) -> Rendered {
    let modified = outline.definition.as_ref().map(|(_, d)| d.stat.modified);
    let message = cluster::Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
            cluster::cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(cluster::cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            ..cluster::cluster::EdsClusterConfig::default()
        }),
        connect_timeout: Some(protobuf::Duration {
            seconds: i64::try_from(CONNECT_TIMEOUT.as_secs()).unwrap_or(i64::MAX),
            nanos: 0,
        }),
        lb_policy: cluster::cluster::LbPolicy::RoundRobin.into(),
        lrs_server: wants_load_reports(outline).then(same_server),
        ..cluster::Cluster::default()
    };
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
        config_source_specifier: Some(ConfigSourceSpecifier::Self_(SelfConfigSource::default())),
        ..ConfigSource::default()
    }
}

/// The cluster that a service's routes lead to, if these clients can follow it.
fn find_cluster(service: &ServiceState) -> Option<&str> {
    let cluster = match service {
        ServiceState::Defined { definition, .. } => definition.cluster.as_str(),
        ServiceState::Implicit { cluster } => cluster.as_str(),
    };
    (!names::is_symlink(cluster)).then_some(cluster)
}

fn origin(service: &ServiceState) -> Timestamp {
    match service {
        ServiceState::Defined { definition, .. } => definition.stat.modified,
        ServiceState::Implicit { .. } => Timestamp::default(),
    }
}

/// "From this very stream", the only source that gRPC accepts (gRFC A27).
fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    }
}
