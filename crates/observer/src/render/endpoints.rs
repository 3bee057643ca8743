//! `ClusterLoadAssignment`: the instances of a cluster, or of one of its D2 partitions, that have
//! an address of a family which the asker can use.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::google::protobuf::UInt32Value;
use waypost_core::{AddressFamily, Announcement, ClientKind, Health, Timestamp};
use waypost_store::ClusterSnapshot;

use super::{Rendered, read_announcement, tls};

/// Weight units for a D2 weight of 1: as many as D2's own strategies give points to it (rest.li
/// `DegraderLoadBalancerStrategyConfig`, points per weight).
const UNITS_PER_WEIGHT: f64 = 100.0;

/// Who asks, as far as endpoints differ by it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker<'a> {
    /// What kind of client it is.
    pub client: ClientKind,
    /// Which addresses it can use.
    pub addresses: AddressFamily,
    /// Where it is, if it said so.
    pub fabric: Option<&'a str>,
}

/// Renders the resource `name` of `cluster`. The plain name of a cluster stands for D2 partition 0,
/// as D2's own clients take that one when they cannot tell.
#[must_use]
pub fn load_assignment(
    name: &str,
    cluster: &ClusterSnapshot,
    d2_partition: i32,
    asker: Asker<'_>,
) -> Rendered {
    let mut by_locality: BTreeMap<(String, String), Vec<Endpoint>> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut newest = Timestamp::default();
    for instance in &cluster.instances {
        let is_hidden = asker.client != ClientKind::Envoy && !cluster.is_visible(instance);
        if is_hidden || cluster.facts.is_banned(instance.uri.as_str()) {
            continue;
        }
        let Some(announcement) = read_announcement(instance) else {
            continue;
        };
        newest = newest.max(announcement.origin);
        let health = if cluster.fail_open {
            Health::Healthy
        } else {
            announcement.health
        };
        if let Some(endpoint) = Endpoint::of(&announcement, health, d2_partition, asker, &mut seen)
        {
            by_locality
                .entry((announcement.fabric, announcement.zone))
                .or_default()
                .push(endpoint);
        }
    }
    scale(&mut by_locality);
    // Where nothing is near there is nothing to be preferred, and priorities have no gaps.
    let near = asker.fabric.filter(|near| {
        let mut fabrics = by_locality.keys().map(|(fabric, _)| fabric);
        fabrics.any(|fabric| fabric == near)
    });
    let message = endpoint::ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: by_locality
            .into_iter()
            .map(
                |((fabric, zone), endpoints)| endpoint::LocalityLbEndpoints {
                    priority: priority(&fabric, near),
                    ..locality(fabric, zone, endpoints, asker.client)
                },
            )
            .collect(),
        ..endpoint::ClusterLoadAssignment::default()
    };
    Rendered::new(&message, newest)
}

/// The addresses at which clients of this kind are told to reach an instance, the preferred one
/// first; empty when it announces a host name only. An address that the announcement names wins
/// over one in its URI.
#[must_use]
pub fn addresses(announcement: &Announcement, family: AddressFamily) -> Vec<SocketAddr> {
    let parts = announcement.uri.parts();
    let literal: Option<IpAddr> = parts.host.parse().ok();
    let v4 = announcement.ipv4.map(IpAddr::V4);
    let v4 = v4.or(literal.filter(IpAddr::is_ipv4));
    let v6 = announcement.ipv6.map(IpAddr::V6);
    let v6 = v6.or(literal.filter(IpAddr::is_ipv6));
    let usable = match family {
        AddressFamily::V4 => [v4, None],
        AddressFamily::V6 => [None, v6],
        AddressFamily::Both => [v4, v6],
    };
    usable
        .into_iter()
        .flatten()
        .filter(|ip| !ip.is_unspecified())
        .map(|ip| SocketAddr::new(ip, parts.port_or_default()))
        .collect()
}

/// One entry of the list before weights of the whole list are known.
struct Endpoint {
    addresses: Vec<SocketAddr>,
    units: u64,
    health: Health,
    /// For Envoy: how it wants to be spoken to.
    metadata: Option<core::Metadata>,
    /// For Envoy, where that is over TLS: the name that it serves as.
    hostname: String,
}

impl Endpoint {
    /// `None` for an instance without traffic on this partition or without an address of its own:
    /// clients refuse the whole resource if one address is in it twice (gRFC A27), so of several
    /// instances at one address the first in the order of URIs stands.
    fn of(
        announcement: &Announcement,
        health: Health,
        d2_partition: i32,
        asker: Asker<'_>,
        seen: &mut HashSet<SocketAddr>,
    ) -> Option<Self> {
        let units = to_units(announcement.weights.get(&d2_partition).copied()?)?;
        let mut addresses = addresses(announcement, asker.addresses);
        if seen.contains(addresses.first()?) {
            return None;
        }
        addresses.retain(|address| seen.insert(*address));
        let metadata = match asker.client {
            ClientKind::Envoy => tls::endpoint_metadata(&announcement.uri.parts()),
            ClientKind::Grpc | ClientKind::D2 => None,
        };
        Some(Self {
            addresses,
            units,
            health,
            hostname: match metadata {
                Some(_) => announcement.hostname.clone(),
                None => String::new(),
            },
            metadata,
        })
    }
}

/// Whole units of at least 1, since 0 is "not set" on the wire; `None` for no traffic.
fn to_units(weight: f64) -> Option<u64> {
    if weight <= 0.0 {
        return None;
    }
    let units = (weight * UNITS_PER_WEIGHT).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, which is what is wanted of an absurdly large weight"
    )]
    let units = units.min(f64::from(u32::MAX)) as u64;
    Some(units.max(1))
}

/// Divides all weights by one number if their sum would not fit 32 bits (gRFC A27).
fn scale(by_locality: &mut BTreeMap<(String, String), Vec<Endpoint>>) {
    let total: u64 = by_locality.values().flatten().map(|e| e.units).sum();
    let count: u64 = by_locality.values().flatten().map(|_| 1).sum();
    // Each weight that would become 0 is raised to 1: room for as many as there are endpoints.
    let room = u64::from(u32::MAX).saturating_sub(count).max(1);
    let divisor = total.div_ceil(room);
    if divisor > 1 {
        for endpoint in by_locality.values_mut().flatten() {
            endpoint.units = (endpoint.units / divisor).max(1);
        }
    }
}

/// The asker's own fabric and what may be in it come first, other fabrics when those fail.
fn priority(fabric: &str, near: Option<&str>) -> u32 {
    let is_far = near.is_some_and(|near| !fabric.is_empty() && fabric != near);
    u32::from(is_far)
}

fn locality(
    fabric: String,
    zone: String,
    endpoints: Vec<Endpoint>,
    client: ClientKind,
) -> endpoint::LocalityLbEndpoints {
    let total = endpoints.iter().map(|e| e.units).sum();
    endpoint::LocalityLbEndpoints {
        // Always there, even if empty: gRPC wants the field.
        locality: Some(core::Locality {
            region: fabric,
            zone,
            ..core::Locality::default()
        }),
        lb_endpoints: endpoints
            .into_iter()
            .map(|e| lb_endpoint(e, client))
            .collect(),
        // gRPC skips a locality without weight.
        load_balancing_weight: Some(to_wire(total)),
        ..endpoint::LocalityLbEndpoints::default()
    }
}

fn lb_endpoint(endpoint: Endpoint, client: ClientKind) -> endpoint::LbEndpoint {
    let mut addresses = endpoint.addresses.into_iter().map(to_address);
    let health = match (client, endpoint.health) {
        (ClientKind::Grpc | ClientKind::D2, _) => core::HealthStatus::Unknown,
        (ClientKind::Envoy, Health::Healthy) => core::HealthStatus::Healthy,
        (ClientKind::Envoy, Health::Draining) => core::HealthStatus::Draining,
        (ClientKind::Envoy, Health::Unhealthy) => core::HealthStatus::Unhealthy,
    };
    endpoint::LbEndpoint {
        health_status: health.into(),
        metadata: endpoint.metadata,
        load_balancing_weight: Some(to_wire(endpoint.units)),
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(
            endpoint::Endpoint {
                address: addresses.next(),
                hostname: endpoint.hostname,
                additional_addresses: addresses
                    .map(|address| endpoint::endpoint::AdditionalAddress {
                        address: Some(address),
                    })
                    .collect(),
                ..endpoint::Endpoint::default()
            },
        )),
    }
}

pub(super) fn to_address(address: SocketAddr) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: address.ip().to_string(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
                address.port().into(),
            )),
            ..core::SocketAddress::default()
        })),
    }
}

fn to_wire(units: u64) -> UInt32Value {
    UInt32Value {
        value: u32::try_from(units).unwrap_or(u32::MAX),
    }
}
