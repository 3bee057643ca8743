//! Rendered resources, decoded back.

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use prost::Message as _;
use waypost_core::definition::DefinitionStat;
use waypost_core::{
    AddressFamily, Announcement, ClientKind, ClusterName, Health, InstanceValue, PartitionWeights,
    ResourceType, SourceSlot, Timestamp,
};
use waypost_proto::indis;
use waypost_store::{ClusterFacts, ClusterSnapshot, ServedInstance, Stamp};

use super::endpoints::Asker;
use super::testing::mk_announcement;
use super::{Rendered, checker, d2, endpoints};

const ORIGIN: Timestamp = Timestamp(1_700_000_000_123);

fn mk_instance(announcement: &Announcement) -> ServedInstance {
    ServedInstance {
        uri: announcement.uri.clone(),
        value: InstanceValue::new(
            &announcement.uri,
            &waypost_proto::announcement::encode(announcement),
        ),
        health: announcement.health,
        source: SourceSlot::Log,
        overridden: None,
    }
}

fn mk_snapshot(announcements: &[Announcement]) -> ClusterSnapshot {
    let mut instances: Vec<_> = announcements.iter().map(mk_instance).collect();
    instances.sort_by(|a, b| a.uri.cmp(&b.uri));
    ClusterSnapshot {
        name: ClusterName::parse("c").unwrap(),
        definition: None,
        facts: ClusterFacts::default(),
        instances,
        fail_open: false,
        d2_partitions: Vec::new(),
        stamp: Stamp::default(),
    }
}

fn mk_at(address: &str) -> Announcement {
    mk_announcement("c", &format!("grpc://{address}"))
}

/// Every endpoint as `[PRIORITY ]REGION/ZONE ADDRESS[+ADDRESS] WEIGHT [HEALTH]`, after the check that gRPC
/// would accept the whole.
fn assignment(snapshot: &ClusterSnapshot, d2_partition: i32, asker: Asker<'_>) -> Vec<String> {
    let rendered = endpoints::load_assignment("c", snapshot, d2_partition, asker);
    let resource_type = ResourceType::ClusterLoadAssignment;
    assert_eq!(checker::refusal(resource_type, "c", &rendered.value), None);
    let message = endpoint::ClusterLoadAssignment::decode(&rendered.value[..]).unwrap();
    let groups = message.endpoints.into_iter();
    groups
        .flat_map(|group| {
            let locality = group.locality.unwrap();
            let place = format!("{}/{}", locality.region, locality.zone);
            let place = match group.priority {
                0 => place,
                priority => format!("{priority} {place}"),
            };
            let lines = group
                .lb_endpoints
                .iter()
                .map(|lb| format!("{place} {}", show(lb)));
            lines.collect::<Vec<_>>()
        })
        .collect()
}

fn show(lb: &endpoint::LbEndpoint) -> String {
    let Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)) = &lb.host_identifier
    else {
        panic!("no endpoint");
    };
    let socket = |address: &core::Address| match &address.address {
        Some(core::address::Address::SocketAddress(socket)) => {
            let Some(core::socket_address::PortSpecifier::PortValue(port)) = socket.port_specifier
            else {
                panic!("no port");
            };
            format!("{}|{port}", socket.address)
        }
        other => panic!("{other:?}"),
    };
    let others = endpoint.additional_addresses.iter();
    let mut addresses = vec![socket(endpoint.address.as_ref().unwrap())];
    addresses.extend(others.map(|other| socket(other.address.as_ref().unwrap())));
    let weight = lb.load_balancing_weight.unwrap().value;
    let health = match lb.health_status() {
        core::HealthStatus::Unknown => String::new(),
        other => format!(" {}", other.as_str_name()),
    };
    format!("{} {weight}{health}", addresses.join("+"))
}

fn envoy() -> Asker<'static> {
    Asker {
        client: ClientKind::Envoy,
        ..Asker::default()
    }
}

#[test]
fn addresses_fit_what_the_asker_can_use_and_are_never_invented() {
    let mut both = mk_at("host.example:50051");
    both.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 1));
    both.ipv6 = Some(Ipv6Addr::LOCALHOST);
    let mut over_literal = mk_at("192.0.2.9:1");
    over_literal.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 2));
    let mut mixed = mk_at("192.0.2.9:1");
    mixed.ipv6 = Some(Ipv6Addr::LOCALHOST);
    let cases = [
        (
            both,
            [
                "10.0.0.1:50051",
                "[::1]:50051",
                "10.0.0.1:50051 [::1]:50051",
            ],
        ),
        (over_literal, ["10.0.0.2:1", "", "10.0.0.2:1"]),
        (mixed, ["192.0.2.9:1", "[::1]:1", "192.0.2.9:1 [::1]:1"]),
        (
            mk_at("[2001:db8::5]:8080"),
            ["", "[2001:db8::5]:8080", "[2001:db8::5]:8080"],
        ),
        (
            mk_announcement("c", "https://10.0.0.3/x"),
            ["10.0.0.3:443", "", "10.0.0.3:443"],
        ),
        (mk_at("host.example:1"), ["", "", ""]),
        (mk_at("0.0.0.0:1"), ["", "", ""]),
    ];
    for (announcement, expected) in cases {
        let families = [AddressFamily::V4, AddressFamily::V6, AddressFamily::Both];
        let shown = families.map(|family| {
            let addresses = endpoints::addresses(&announcement, family);
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            addresses.join(" ")
        });
        assert_eq!(shown, expected, "{}", announcement.uri);
    }
}

#[test]
fn endpoints_are_grouped_by_fabric_and_zone_in_an_order_of_their_own() {
    let place = |address: &str, fabric: &str, zone: &str| Announcement {
        fabric: fabric.to_owned(),
        zone: zone.to_owned(),
        ..mk_at(address)
    };
    let snapshot = mk_snapshot(&[
        place("10.0.0.4:1", "west", "b"),
        place("10.0.0.3:1", "east", "a"),
        place("10.0.0.2:1", "west", "b"),
        place("10.0.0.1:1", "", ""),
    ]);
    let expected = [
        "/ 10.0.0.1|1 100",
        "east/a 10.0.0.3|1 100",
        "west/b 10.0.0.2|1 100",
        "west/b 10.0.0.4|1 100",
    ];
    assert_eq!(assignment(&snapshot, 0, Asker::default()), expected);
}

#[test]
fn every_kind_of_client_is_told_of_the_addresses_that_it_can_use_and_no_others() {
    let mut both = mk_at("10.0.0.1:1");
    both.ipv6 = Some(Ipv6Addr::LOCALHOST);
    let snapshot = mk_snapshot(&[both, mk_at("10.0.0.2:1"), mk_at("[2001:db8::3]:1")]);
    for (addresses, expected) in [
        (AddressFamily::V4, &["10.0.0.1|1", "10.0.0.2|1"][..]),
        (AddressFamily::V6, &["::1|1", "2001:db8::3|1"]),
        (
            AddressFamily::Both,
            &["10.0.0.1|1+::1|1", "10.0.0.2|1", "2001:db8::3|1"],
        ),
    ] {
        for (client, health) in [(ClientKind::Grpc, ""), (ClientKind::Envoy, " HEALTHY")] {
            let asker = Asker {
                client,
                addresses,
                fabric: None,
            };
            let expected: Vec<_> = expected
                .iter()
                .map(|address| format!("/ {address} 100{health}"))
                .collect();
            assert_eq!(assignment(&snapshot, 0, asker), expected, "{asker:?}");
        }
    }
}

#[test]
fn the_askers_own_fabric_comes_first_and_where_it_has_nothing_there_is_no_order() {
    let at = |address: &str, fabric: &str| Announcement {
        fabric: fabric.to_owned(),
        ..mk_at(address)
    };
    let snapshot = mk_snapshot(&[
        at("10.0.0.1:1", "east"),
        at("10.0.0.2:1", "west"),
        at("10.0.0.3:1", ""),
    ]);
    for (fabric, expected) in [
        (
            Some("east"),
            [
                "/ 10.0.0.3|1 100",
                "east/ 10.0.0.1|1 100",
                "1 west/ 10.0.0.2|1 100",
            ],
        ),
        (
            Some("west"),
            [
                "/ 10.0.0.3|1 100",
                "1 east/ 10.0.0.1|1 100",
                "west/ 10.0.0.2|1 100",
            ],
        ),
        (
            Some("north"),
            [
                "/ 10.0.0.3|1 100",
                "east/ 10.0.0.1|1 100",
                "west/ 10.0.0.2|1 100",
            ],
        ),
        (
            None,
            [
                "/ 10.0.0.3|1 100",
                "east/ 10.0.0.1|1 100",
                "west/ 10.0.0.2|1 100",
            ],
        ),
    ] {
        let asker = Asker {
            fabric,
            ..Asker::default()
        };
        assert_eq!(assignment(&snapshot, 0, asker), expected, "{fabric:?}");
    }
}

#[test]
fn an_address_is_served_once_and_the_first_uri_has_it() {
    let mut named = mk_announcement("c", "zzz://host:1");
    named.ipv4 = Some(Ipv4Addr::new(10, 0, 0, 1));
    let mut shares_v6 = mk_at("10.0.0.2:1");
    shares_v6.ipv6 = Some(Ipv6Addr::LOCALHOST);
    let mut shares_too = mk_at("10.0.0.3:1");
    shares_too.ipv6 = Some(Ipv6Addr::LOCALHOST);
    let snapshot = mk_snapshot(&[named, mk_at("10.0.0.1:1"), shares_too, shares_v6]);
    let expected = [
        "/ 10.0.0.1|1 100",
        "/ 10.0.0.2|1+::1|1 100",
        "/ 10.0.0.3|1 100",
    ];
    assert_eq!(assignment(&snapshot, 0, Asker::default()), expected);
}

#[test]
fn weights_become_whole_numbers_that_any_sum_fits() {
    let cases: [(&[f64], &[u32]); 6] = [
        (&[1.0, 0.5, 2.0], &[100, 50, 200]),
        (&[0.0, 1.0], &[100]),
        (&[0.0001, 0.016], &[1, 2]),
        (&[1e300, 1.0], &[2_147_483_647, 50]),
        (&[f64::from(u32::MAX); 3], &[1_073_741_823; 3]),
        (&[0.0], &[]),
    ];
    for (weights, expected) in cases {
        let weighted = |(n, weight): (usize, &f64)| Announcement {
            weights: PartitionWeights::from([(0, *weight)]),
            ..mk_at(&format!("10.0.0.{n}:1"))
        };
        let announcements: Vec<_> = weights.iter().enumerate().map(weighted).collect();
        let lines = assignment(&mk_snapshot(&announcements), 0, Asker::default());
        let shown: Vec<u32> = lines
            .iter()
            .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
            .collect();
        assert_eq!(shown, expected, "{weights:?}");
    }
}

#[test]
fn a_partition_has_the_instances_that_name_it_with_their_weight_there() {
    let on = |address: &str, weights: &[(i32, f64)]| Announcement {
        weights: PartitionWeights::from_iter(weights.iter().copied()),
        ..mk_at(address)
    };
    let snapshot = mk_snapshot(&[
        on("10.0.0.1:1", &[(0, 1.0), (1, 2.0)]),
        on("10.0.0.2:1", &[(1, 0.0)]),
        on("10.0.0.3:1", &[(1, 1.0)]),
    ]);
    let of = |d2_partition| assignment(&snapshot, d2_partition, Asker::default());
    assert_eq!(of(0), ["/ 10.0.0.1|1 100"]);
    assert_eq!(of(1), ["/ 10.0.0.1|1 200", "/ 10.0.0.3|1 100"]);
    assert_eq!(of(2), Vec::<String>::new());
}

#[test]
fn unhealthy_instances_are_left_out_for_grpc_marked_for_envoy_and_kept_where_health_is_ignored() {
    let mut snapshot = mk_snapshot(&[
        mk_at("10.0.0.1:1"),
        Announcement {
            health: Health::Draining,
            ..mk_at("10.0.0.2:1")
        },
        Announcement {
            health: Health::Unhealthy,
            ..mk_at("10.0.0.3:1")
        },
    ]);
    assert_eq!(
        assignment(&snapshot, 0, Asker::default()),
        ["/ 10.0.0.1|1 100"]
    );
    let marked = [
        "/ 10.0.0.1|1 100 HEALTHY",
        "/ 10.0.0.2|1 100 DRAINING",
        "/ 10.0.0.3|1 100 UNHEALTHY",
    ];
    assert_eq!(assignment(&snapshot, 0, envoy()), marked);
    assert_eq!(uris(&d2::uri_map(&snapshot)), ["grpc://10.0.0.1:1"]);

    snapshot.fail_open = true;
    let all = ["1", "2", "3"].map(|n| format!("/ 10.0.0.{n}|1 100"));
    assert_eq!(assignment(&snapshot, 0, Asker::default()), all);
    let all = all.map(|line| format!("{line} HEALTHY"));
    assert_eq!(assignment(&snapshot, 0, envoy()), all);
    assert_eq!(uris(&d2::uri_map(&snapshot)).len(), 3);
}

#[test]
fn a_banned_instance_is_left_out_for_grpc_and_envoy_and_d2_clients_see_to_it_themselves() {
    let mut snapshot = mk_snapshot(&[mk_at("10.0.0.1:1"), mk_at("10.0.0.2:1")]);
    snapshot.facts.banned_uris = Some(["grpc://10.0.0.1:1".into()].into());
    assert_eq!(
        assignment(&snapshot, 0, Asker::default()),
        ["/ 10.0.0.2|1 100"]
    );
    assert_eq!(
        assignment(&snapshot, 0, envoy()),
        ["/ 10.0.0.2|1 100 HEALTHY"]
    );
    assert_eq!(uris(&d2::uri_map(&snapshot)).len(), 2);
}

#[test]
fn a_cluster_without_instances_is_an_empty_list_under_its_name() {
    let rendered = endpoints::load_assignment("c#3", &mk_snapshot(&[]), 3, Asker::default());
    let message = endpoint::ClusterLoadAssignment::decode(&rendered.value[..]).unwrap();
    assert_eq!(message.cluster_name, "c#3");
    assert_eq!(message.endpoints, []);
}

fn uris(map: &Rendered) -> Vec<String> {
    let map = indis::D2uriMap::decode(&map.value[..]).unwrap();
    for (key, value) in &map.uris {
        assert_eq!(*key, value.uri);
    }
    map.uris.into_keys().collect()
}

#[test]
fn a_d2_uri_carries_every_field_of_the_announcement() {
    let announcement = Announcement {
        hostname: "h.example".to_owned(),
        ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
        ipv6: Some(Ipv6Addr::LOCALHOST),
        ipv4_in_san: true,
        weights: PartitionWeights::from([(0, 1.0), (7, 0.5)]),
        metadata: r#"{"warm":true}"#.to_owned(),
        tracing_id: "t-1".to_owned(),
        ..mk_announcement("c", "https://h.example:8443/alpha")
    };
    let rendered = d2::uri(&mk_instance(&announcement)).unwrap();
    assert_eq!(rendered.origin, ORIGIN);
    let message = indis::D2uri::decode(&rendered.value[..]).unwrap();
    let warm = prost_types::Value {
        kind: Some(prost_types::value::Kind::BoolValue(true)),
    };
    let expected = indis::D2uri {
        version: ORIGIN.0,
        modified_time: Some(prost_types::Timestamp {
            seconds: 1_700_000_000,
            nanos: 123_000_000,
        }),
        cluster_name: "c".to_owned(),
        uri: "https://h.example:8443/alpha".to_owned(),
        partition_desc: [(0, 1.0), (7, 0.5)].into(),
        uri_specific_properties: Some(prost_types::Struct {
            fields: [("warm".to_owned(), warm)].into(),
        }),
        tracing_id: "t-1".to_owned(),
        hostname: "h.example".to_owned(),
        ipv4_address: Bytes::from_static(&[10, 0, 0, 1]),
        ipv6_address: Bytes::copy_from_slice(&Ipv6Addr::LOCALHOST.octets()),
        is_ipv4_in_san: true,
        is_ipv6_in_san: false,
    };
    assert_eq!(message, expected);
}

#[test]
fn a_version_is_never_negative() {
    let announcement = Announcement {
        origin: Timestamp(-5),
        ..mk_announcement("c", "http://h:1")
    };
    let rendered = d2::uri(&mk_instance(&announcement)).unwrap();
    assert_eq!(
        indis::D2uri::decode(&rendered.value[..]).unwrap().version,
        0
    );
}

#[test]
fn an_announcement_that_cannot_be_read_costs_itself_only() {
    let mut snapshot = mk_snapshot(&[mk_at("10.0.0.1:1"), mk_at("10.0.0.2:1")]);
    let instance = &mut snapshot.instances[0];
    instance.value = InstanceValue::new(&instance.uri, b"\xff");
    assert_eq!(d2::uri(&snapshot.instances[0]), None);
    assert_eq!(uris(&d2::uri_map(&snapshot)), ["grpc://10.0.0.2:1"]);
    assert_eq!(
        assignment(&snapshot, 0, Asker::default()),
        ["/ 10.0.0.2|1 100"]
    );
}

#[test]
fn the_version_of_a_document_grows_with_every_change_whatever_the_clocks_say() {
    // Created, changed by somebody whose clock is behind, changed again, deleted and made anew.
    let history = [
        (1000, 1000, 0),
        (1000, 400, 1),
        (1000, 2000, 2),
        (3000, 3000, 0),
    ];
    let stats = history.map(|(created, modified, revision)| {
        let stat = DefinitionStat {
            created: Timestamp(created),
            modified: Timestamp(modified),
            revision,
        };
        d2::stat(b"{}", stat)
    });
    assert!(stats.is_sorted_by(|a, b| a.mzxid < b.mzxid), "{stats:?}");
    let [_, second, ..] = stats;
    let expected = indis::Stat {
        czxid: 1000,
        mzxid: 1001,
        ctime: 1000,
        mtime: 400,
        version: 1,
        data_length: 2,
        pzxid: 1000,
        ..indis::Stat::default()
    };
    assert_eq!(second, expected);
    let before_the_epoch = DefinitionStat {
        created: Timestamp(-1),
        modified: Timestamp(-1),
        revision: 0,
    };
    assert_eq!(d2::stat(b"", before_the_epoch), indis::Stat::default());
}
