//! Clusters and endpoint lists as servers send them, good and bad.

use envoy_types::pb::envoy::config::cluster::v3::cluster::EdsClusterConfig;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::Endpoint as Host;
use envoy_types::pb::google::protobuf::UInt32Value;

use super::*;

fn mk_endpoint(address: &str, port: u32, weight: Option<u32>) -> LbEndpoint {
    let address = core::Address {
        address: Some(AddressKind::SocketAddress(core::SocketAddress {
            address: address.to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(port)),
            ..core::SocketAddress::default()
        })),
    };
    LbEndpoint {
        load_balancing_weight: weight.map(|value| UInt32Value { value }),
        host_identifier: Some(HostIdentifier::Endpoint(Host {
            address: Some(address),
            ..Host::default()
        })),
        ..LbEndpoint::default()
    }
}

fn mk_group(zone: &str, weight: Option<u32>, endpoints: Vec<LbEndpoint>) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: Some(core::Locality {
            zone: zone.to_owned(),
            ..core::Locality::default()
        }),
        load_balancing_weight: weight.map(|value| UInt32Value { value }),
        lb_endpoints: endpoints,
        ..LocalityLbEndpoints::default()
    }
}

fn decode(groups: Vec<LocalityLbEndpoints>) -> Result<Arc<Assignment>, Rejection> {
    let load = ClusterLoadAssignment {
        endpoints: groups,
        ..ClusterLoadAssignment::default()
    };
    let type_url = TypeUrl::from(ResourceType::ClusterLoadAssignment);
    match ListCodec.decode(&type_url, "c", &load.encode_to_vec().into())? {
        Content::Assignment(assignment) => Ok(assignment),
        Content::Cluster(_) => panic!("not a cluster"),
    }
}

#[test]
fn localities_share_by_their_weight_and_endpoints_within_them() {
    let near = vec![
        mk_endpoint("10.0.0.1", 1, Some(100)),
        mk_endpoint("10.0.0.2", 1, Some(300)),
    ];
    let far = vec![mk_endpoint("2001:db8::1", 1, None)];
    let assignment = decode(vec![
        mk_group("near", Some(8), near),
        mk_group("far", Some(2), far),
    ]);
    let assignment = assignment.unwrap();
    let list = crate::EndpointList {
        assignment,
        ..crate::EndpointList::awaited(&"c".into())
    };
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..10_000 {
        let ip = list.pick().unwrap().address().ip().to_string();
        *counts.entry(ip).or_insert(0_u32) += 1;
    }
    for (ip, expected) in [
        ("10.0.0.1", 2_000),
        ("10.0.0.2", 6_000),
        ("2001:db8::1", 2_000),
    ] {
        assert!(counts[ip].abs_diff(expected) < 300, "{ip}: {counts:?}");
    }
    assert_eq!(list.endpoints()[0].locality().zone, "near");
}

#[test]
fn one_bad_endpoint_refuses_the_list_with_its_reason() {
    let named = LbEndpoint::default();
    for (endpoints, reason) in [
        (vec![named], "an endpoint has no address of its own"),
        (
            vec![mk_endpoint("host.example", 1, None)],
            "\"host.example\" is no IP address with a port",
        ),
        (
            vec![mk_endpoint("10.0.0.1", 70_000, None)],
            "\"10.0.0.1\" is no IP address with a port",
        ),
        (
            vec![
                mk_endpoint("10.0.0.1", 1, None),
                mk_endpoint("10.0.0.1", 1, None),
            ],
            "10.0.0.1:1 is in it twice",
        ),
    ] {
        let error = decode(vec![mk_group("z", None, endpoints)]).unwrap_err();
        assert_eq!(error.to_string(), reason);
    }
    assert!(
        decode(Vec::new()).unwrap().endpoints.is_empty(),
        "empty is a statement"
    );
}

#[test]
fn a_cluster_leads_to_its_endpoints_by_name() {
    let type_url = TypeUrl::from(ResourceType::Cluster);
    let decode = |kind: DiscoveryType, service_name: &str| {
        let cluster = Cluster {
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind.into())),
            eds_cluster_config: Some(EdsClusterConfig {
                service_name: service_name.to_owned(),
                ..EdsClusterConfig::default()
            }),
            ..Cluster::default()
        };
        match ListCodec.decode(&type_url, "c", &cluster.encode_to_vec().into()) {
            Ok(Content::Cluster(name)) => name.to_string(),
            Ok(Content::Assignment(_)) => panic!("not endpoints"),
            Err(reason) => reason.to_string(),
        }
    };
    assert_eq!(decode(DiscoveryType::Eds, ""), "c");
    assert_eq!(decode(DiscoveryType::Eds, "other"), "other");
    let refused = "only clusters of type EDS can be used";
    assert_eq!(decode(DiscoveryType::LogicalDns, ""), refused);
}
