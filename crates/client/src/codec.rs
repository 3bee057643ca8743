//! `Cluster` and `ClusterLoadAssignment`: what is read of them and what is refused.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use prost::Message as _;
use waypost_core::ResourceType;
use waypost_xds_client::{Codec, Rejection, TypeUrl};

use crate::endpoints::{Assignment, Endpoint, EndpointHealth, Locality};
use crate::limits::ENDPOINTS_MAX;

/// What is kept of a resource.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A `Cluster`: the name of its `ClusterLoadAssignment`.
    Cluster(Arc<str>),
    /// A `ClusterLoadAssignment`.
    Assignment(Arc<Assignment>),
}

/// Reads the two types that the client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListCodec;

impl Codec for ListCodec {
    type Value = Content;

    fn decode(&self, type_url: &TypeUrl, name: &str, body: &Bytes) -> Result<Content, Rejection> {
        let unreadable = |e: prost::DecodeError| Rejection::new(format!("it cannot be read: {e}"));
        match type_url.resource_type() {
            Some(ResourceType::Cluster) => {
                let cluster = Cluster::decode(body.clone()).map_err(unreadable)?;
                read_cluster(name, cluster).map(Content::Cluster)
            }
            Some(ResourceType::ClusterLoadAssignment) => {
                let load = ClusterLoadAssignment::decode(body.clone()).map_err(unreadable)?;
                let assignment = read_assignment(load)?;
                Ok(Content::Assignment(Arc::new(assignment)))
            }
            _ => Err(Rejection::new(format!("{type_url} is not asked for"))),
        }
    }
}

/// The name under which the endpoints of a cluster are found (gRFC A27: `service_name`, else the
/// cluster's own).
fn read_cluster(name: &str, cluster: Cluster) -> Result<Arc<str>, Rejection> {
    let kind = cluster.cluster_discovery_type;
    let is_eds =
        matches!(kind, Some(ClusterDiscoveryType::Type(t)) if t == DiscoveryType::Eds as i32);
    if !is_eds {
        return Err(Rejection::new("only clusters of type EDS can be used"));
    }
    let service_name = cluster.eds_cluster_config.map(|eds| eds.service_name);
    Ok(match service_name {
        Some(service_name) if !service_name.is_empty() => service_name.into(),
        _ => name.into(),
    })
}

fn read_assignment(load: ClusterLoadAssignment) -> Result<Assignment, Rejection> {
    let mut endpoints = Vec::new();
    let mut shares = Vec::new();
    let mut seen = HashSet::new();
    for group in load.endpoints {
        let first = endpoints.len();
        let weight = read_group(group, &mut endpoints, &mut seen)?;
        // A locality's weight is divided among its endpoints by theirs. Without one it is their sum.
        let group = &endpoints[first..];
        let sum: f64 = group
            .iter()
            .map(|e: &Arc<Endpoint>| f64::from(e.weight))
            .sum();
        let whole = weight.map_or(sum, f64::from);
        shares.extend(group.iter().map(|e| whole * f64::from(e.weight) / sum));
    }
    Ok(Assignment::new(endpoints, &shares))
}

/// Adds the endpoints of one locality; its weight, if it has one.
fn read_group(
    group: LocalityLbEndpoints,
    endpoints: &mut Vec<Arc<Endpoint>>,
    seen: &mut HashSet<SocketAddr>,
) -> Result<Option<u32>, Rejection> {
    let locality = group.locality.unwrap_or_default();
    let locality = Arc::new(Locality {
        region: locality.region,
        zone: locality.zone,
        sub_zone: locality.sub_zone,
    });
    if endpoints.len() + group.lb_endpoints.len() > ENDPOINTS_MAX {
        return Err(Rejection::new(format!(
            "it has more than {ENDPOINTS_MAX} endpoints"
        )));
    }
    for endpoint in group.lb_endpoints {
        let endpoint = read_endpoint(endpoint, group.priority, &locality)?;
        if !seen.insert(endpoint.address()) {
            let address = endpoint.address();
            return Err(Rejection::new(format!("{address} is in it twice")));
        }
        endpoints.push(Arc::new(endpoint));
    }
    Ok(group.load_balancing_weight.map(|weight| weight.value))
}

fn read_endpoint(
    endpoint: LbEndpoint,
    priority: u32,
    locality: &Arc<Locality>,
) -> Result<Endpoint, Rejection> {
    let health = match HealthStatus::try_from(endpoint.health_status) {
        Ok(HealthStatus::Unknown | HealthStatus::Healthy) => EndpointHealth::Healthy,
        Ok(HealthStatus::Degraded) => EndpointHealth::Degraded,
        Ok(HealthStatus::Draining) => EndpointHealth::Draining,
        Ok(HealthStatus::Unhealthy | HealthStatus::Timeout) | Err(_) => EndpointHealth::Unhealthy,
    };
    let Some(HostIdentifier::Endpoint(host)) = endpoint.host_identifier else {
        return Err(Rejection::new("an endpoint has no address of its own"));
    };
    let more = host
        .additional_addresses
        .into_iter()
        .map(|more| more.address);
    let addresses = std::iter::once(host.address).chain(more).map(read_address);
    Ok(Endpoint {
        addresses: addresses.collect::<Result<_, _>>()?,
        health,
        // 0 cannot be said and absent means 1 (data-plane-api, endpoint_components.proto).
        weight: endpoint
            .load_balancing_weight
            .map_or(1, |weight| weight.value.max(1)),
        priority,
        locality: Arc::clone(locality),
    })
}

/// Addresses are numeric, with a port (gRFC A27).
fn read_address(address: Option<Address>) -> Result<SocketAddr, Rejection> {
    let Some(AddressKind::SocketAddress(socket)) = address.and_then(|a| a.address) else {
        return Err(Rejection::new("an endpoint has no socket address"));
    };
    let port = match socket.port_specifier {
        Some(PortSpecifier::PortValue(port)) => u16::try_from(port).ok(),
        _ => None,
    };
    let ip: Option<IpAddr> = socket.address.parse().ok();
    match (ip, port) {
        (Some(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
        _ => Err(Rejection::new(format!(
            "{:?} is no IP address with a port",
            socket.address
        ))),
    }
}

#[cfg(test)]
mod tests;
