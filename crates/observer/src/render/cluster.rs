//! Cluster, as proxyless gRPC and Envoy read it: where endpoints come from, and what D2's properties of
//! the cluster and of its services become (docs/d2-properties.md).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{ApiVersion, ConfigSource};
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as upstreams;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use waypost_core::{ClientKind, ServiceDefinition, Timestamp, Variant};
use waypost_store::ClusterOutline;

use super::envoy::{config_source, to_wire};
use super::load_balancing::{circuit_breakers, policy};
use super::properties::{ClusterProperties, ServiceProperties, outlier};
use super::{Rendered, tls};

/// How long a client tries to connect to an endpoint before it takes another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a cluster's definition and those of the services that lead to it say.
pub(crate) struct Properties {
    of_cluster: ClusterProperties,
    of_services: Vec<ServiceProperties>,
    /// When the newest of the definitions was changed.
    modified: Timestamp,
}

impl Properties {
    /// Reads them; services in name order.
    pub(crate) fn read(outline: &ClusterOutline, services: &[Arc<ServiceDefinition>]) -> Self {
        let definition = outline.definition.as_ref().map(|(_, d)| &**d);
        let of_services = services.iter().map(|service| &**service);
        let times = definition.iter().map(|d| d.stat.modified);
        let times = times.chain(services.iter().map(|d| d.stat.modified));
        Self {
            of_cluster: ClusterProperties::read(definition),
            of_services: of_services.map(ServiceProperties::read).collect(),
            modified: times.max().unwrap_or_default(),
        }
    }

    /// How many could not be read.
    pub(crate) fn left_out(&self) -> usize {
        let of_services = self.of_services.iter().map(|s| s.left_out.len());
        self.of_cluster.left_out.len() + of_services.sum::<usize>()
    }
}

/// The Cluster called `name` (a cluster, or `NAME#P`). Endpoints come as the cluster did, under the same
/// name.
pub(crate) fn cluster(name: &str, properties: &Properties, variant: Variant) -> Rendered {
    let (of_cluster, of_services) = (&properties.of_cluster, &properties.of_services[..]);
    let outliers = of_cluster.outlier_detection.as_ref();
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
        load_balancing_policy: policy(of_cluster, of_services, variant.client),
        circuit_breakers: Some(circuit_breakers(of_services, variant.client)),
        outlier_detection: match variant.client {
            ClientKind::Envoy => outliers.cloned(),
            ClientKind::Grpc | ClientKind::D2 => outliers.map(outlier::for_grpc),
        },
        lrs_server: of_cluster.load_reports.then(same_server),
        ..cluster::Cluster::default()
    };
    if variant.client == ClientKind::Envoy {
        message.typed_extension_protocol_options = as_downstream();
        message.transport_socket_matches =
            tls::socket_matches(variant.upstream_tls, &of_cluster.peer_names);
        // From how few healthy instances on health is ignored was decided when the endpoints were
        // made (`min_healthy_percent`); a second threshold at the client would contradict it.
        message.common_lb_config = Some(cluster::cluster::CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value: 0.0 }),
            ..cluster::cluster::CommonLbConfig::default()
        });
    }
    Rendered::new(&message, properties.modified)
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
