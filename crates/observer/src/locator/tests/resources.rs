//! Which resources there are, and what is in them.

use proptest::prelude::*;
use prost::Message as _;
use waypost_core::ResourceType::{
    Cluster, ClusterLoadAssignment, D2ClusterOrServiceName, D2Node, D2Uri, D2UriMap, Listener,
    RouteConfiguration,
};
use waypost_core::{
    AddressFamily, Announcement, ClientKind, Health, PartitionWeights, ResourceLocator as _,
    ResourceType, StoreInput, Variant,
};
use waypost_proto::indis;

use super::super::Locator;
use super::{NOW, announce, define_cluster, define_service, down, mk_locator, up};
use crate::render::checker;
use crate::render::testing::mk_announcement;

/// The message's bytes, out of the encoded resource.
fn value(locator: &Locator, resource_type: ResourceType, name: &str) -> Option<Vec<u8>> {
    value_for(locator, resource_type, name, Variant::default())
}

fn value_for(
    locator: &Locator,
    resource_type: ResourceType,
    name: &str,
    variant: Variant,
) -> Option<Vec<u8>> {
    use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
    let encoded = locator.find(resource_type, name, variant)?;
    let mut response = DeltaDiscoveryResponse::decode(encoded.delta()).unwrap();
    let resource = response.resources.remove(0);
    assert_eq!(resource.name, name);
    assert_eq!(resource.version, encoded.version().to_string());
    Some(resource.resource.unwrap().value)
}

fn members(locator: &Locator, resource_type: ResourceType, prefix: Option<&str>) -> Vec<String> {
    let names = locator.members(resource_type, prefix, Variant::default());
    names.iter().map(ToString::to_string).collect()
}

fn variants() -> Vec<Variant> {
    let families = [AddressFamily::V4, AddressFamily::V6, AddressFamily::Both];
    let clients = [ClientKind::Grpc, ClientKind::Envoy, ClientKind::D2];
    families
        .into_iter()
        .flat_map(|addresses| {
            clients.map(|client| Variant {
                addresses,
                client,
                ..Variant::default()
            })
        })
        .collect()
}

/// Everything that is served, with its version: what a replica is compared by.
fn served(locator: &Locator) -> Vec<(ResourceType, String, Variant, String)> {
    let mut served = Vec::new();
    for resource_type in ResourceType::ALL {
        for name in members(locator, resource_type, None) {
            for variant in variants() {
                let encoded = locator.find(resource_type, &name, variant).unwrap();
                let version = encoded.version().to_string();
                served.push((resource_type, name.clone(), variant, version));
            }
        }
    }
    served
}

#[test]
fn names_are_complete_and_in_order() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        [
            up("b", "http://10.0.0.1:1/~x"),
            up("b", "http://10.0.0.1:1/-x"),
            up("b-2", "http://10.0.0.2:1"),
            define_cluster("a", Some("{}")),
            define_cluster("$aMaster", Some("/d2/clusters/a")),
            define_service("s", Some("a")),
            define_service("t", Some("$aMaster")),
        ],
    );
    let documents = &[
        "/d2/clusters/$aMaster",
        "/d2/clusters/a",
        "/d2/clusters/b",
        "/d2/clusters/b-2",
        "/d2/services/b",
        "/d2/services/b-2",
        "/d2/services/s",
        "/d2/services/t",
    ];
    let uris = &[
        "xdstp:///indis.D2URI/b-2/http%3A%2F%2F10.0.0.2%3A1",
        "xdstp:///indis.D2URI/b/http%3A%2F%2F10.0.0.1%3A1%2F%7Ex",
        "xdstp:///indis.D2URI/b/http%3A%2F%2F10.0.0.1%3A1%2F-x",
    ];
    let cases: [(ResourceType, &[&str]); 8] = [
        (Cluster, &["a", "b", "b-2"]),
        (ClusterLoadAssignment, &["a", "b", "b-2"]),
        (Listener, &["b", "b-2", "s"]),
        (RouteConfiguration, &["b", "b-2", "s"]),
        (D2Node, documents),
        (D2UriMap, &["/d2/uris/a", "/d2/uris/b", "/d2/uris/b-2"]),
        (D2Uri, uris),
        (D2ClusterOrServiceName, documents),
    ];
    for (resource_type, expected) in cases {
        let names = members(&locator, resource_type, None);
        assert_eq!(names, expected);
        for name in names {
            assert!(value(&locator, resource_type, &name).is_some(), "{name}");
        }
    }
    let b = members(&locator, D2Uri, Some("xdstp:///indis.D2URI/b/"));
    assert_eq!(b.len(), 2);
    assert_eq!(
        members(&locator, D2Uri, Some("xdstp:///other/b/")),
        Vec::<String>::new()
    );
    assert_eq!(
        members(&locator, Listener, Some("xdstp:///x/")),
        Vec::<String>::new()
    );
}

#[test]
fn what_is_not_there_is_not_made_up() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        [
            up("c", "http://10.0.0.1:1"),
            define_cluster("$m", Some("/d2/clusters/c")),
        ],
    );
    for (resource_type, name) in [
        (Cluster, "d"),
        (Cluster, "c#0"),
        (Cluster, "$m"),
        (ClusterLoadAssignment, "d"),
        (ClusterLoadAssignment, "c#1"),
        (ClusterLoadAssignment, "/d2/uris/c"),
        (Listener, "d"),
        (RouteConfiguration, "$m"),
        (D2Node, "/d2/clusters/NonExistentCluster"),
        (D2Node, "/d2/uris/$m"),
        (D2Node, "c"),
        (D2UriMap, "/d2/uris/d"),
        (D2UriMap, "/d2/uris/$m"),
        (D2Uri, "xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.2%3A1"),
        (D2Uri, "xdstp:///indis.D2URI/d/http%3A%2F%2F10.0.0.1%3A1"),
        (D2ClusterOrServiceName, "/d2/services/d"),
    ] {
        assert_eq!(value(&locator, resource_type, name), None, "{name}");
    }
    assert!(locator.is_glob_empty(D2Uri, "xdstp:///indis.D2URI/d/", Variant::default()));
    assert!(!locator.is_glob_empty(D2Uri, "xdstp:///indis.D2URI/c/", Variant::default()));
}

#[test]
fn documents_are_served_byte_for_byte() {
    let (locator, mut writer) = mk_locator();
    let odd = "{ \"n\" : 1.0 ,\"m\":9007199254740993, \"e\":1e3}";
    writer.apply(
        NOW,
        [
            define_cluster("c", Some(odd)),
            define_cluster("$cMaster", Some("/d2/clusters/c")),
            define_cluster("broken", Some("\u{1}not json")),
        ],
    );
    for (name, document) in [
        ("/d2/clusters/c", odd),
        ("/d2/clusters/$cMaster", "/d2/clusters/c"),
        ("/d2/clusters/broken", "\u{1}not json"),
    ] {
        let node = indis::Node::decode(&value(&locator, D2Node, name).unwrap()[..]).unwrap();
        assert_eq!(node.data, document, "{name}");
        assert!(node.stat.is_some());
    }
}

#[test]
fn an_announced_cluster_without_definitions_can_be_used_by_every_kind_of_client() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("greeter", "grpc://127.0.0.1:50051")]);
    let text = |name| {
        let node = indis::Node::decode(&value(&locator, D2Node, name).unwrap()[..]).unwrap();
        String::from_utf8(node.data.to_vec()).unwrap()
    };
    assert_eq!(text("/d2/clusters/greeter"), r#"{"clusterName":"greeter"}"#);
    assert_eq!(
        text("/d2/services/greeter"),
        concat!(
            r#"{"serviceName":"greeter","clusterName":"greeter","path":"","#,
            r#""loadBalancerStrategyList":["relative","degrader"],"#,
            r#""prioritizedSchemes":["https","http"]}"#
        )
    );
    for resource_type in [Listener, RouteConfiguration, Cluster, ClusterLoadAssignment] {
        let value = value(&locator, resource_type, "greeter").unwrap();
        assert_eq!(checker::refusal(resource_type, "greeter", &value), None);
    }
}

#[test]
fn a_grpc_server_has_its_listener_before_it_is_announced_and_only_by_name() {
    let (locator, mut writer) = mk_locator();
    let name = "grpc/server?xds.resource.listening_address=[::]:50051";
    let before = value(&locator, Listener, name);
    let refusal = checker::refusal(Listener, name, before.as_ref().unwrap());
    assert_eq!(refusal, None);
    writer.apply(NOW, [up("c", "grpc://127.0.0.1:50051")]);
    assert_eq!(value(&locator, Listener, name), before);
    assert_eq!(members(&locator, Listener, None), ["c"]);
    assert!(!locator.is_member(Listener, name, Variant::default()));
    assert!(locator.is_member(Listener, "c", Variant::default()));
    for (resource_type, name) in [
        (RouteConfiguration, name),
        (Listener, "grpc/server?xds.resource.listening_address=h:1"),
        (
            Listener,
            "grpc/server?udpa.resource.listening_address=[::]:50051",
        ),
    ] {
        assert_eq!(value(&locator, resource_type, name), None, "{name}");
    }
}

#[test]
fn load_reports_are_asked_for_where_the_definition_says_so() {
    use envoy_types::pb::envoy::config::cluster::v3 as cluster;
    let cases = [
        (r#"{"load_reports":true}"#, true),
        (r#"{"load_reports":"true"}"#, true),
        (r#"{"load_reports":false}"#, false),
        (r#"{"load_reports":1}"#, false),
        ("{}", false),
        ("not json", false),
    ];
    for (document, asked) in cases {
        let (locator, mut writer) = mk_locator();
        writer.apply(NOW, [define_cluster("c", Some(document))]);
        let value = value(&locator, Cluster, "c").unwrap();
        assert_eq!(checker::refusal(Cluster, "c", &value), None);
        let decoded = cluster::Cluster::decode(&value[..]).unwrap();
        assert_eq!(decoded.lrs_server.is_some(), asked, "{document}");
    }
}

#[test]
fn a_cluster_that_ran_empty_is_empty_and_one_that_left_is_emptied_for_d2_first() {
    use waypost_store::limits::REMEMBER;
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", "http://10.0.0.1:1")]);
    writer.apply(NOW, [down("c", "http://10.0.0.1:1")]);
    let empty_map = || value(&locator, D2UriMap, "/d2/uris/c");
    let gone = ["xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.1%3A1"];
    let removed = |resource_type, prefix| {
        let names = locator.recently_removed(resource_type, prefix);
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(empty_map(), Some(Vec::new()));
    assert!(value(&locator, ClusterLoadAssignment, "c").is_some());
    assert_eq!(removed(D2Uri, Some("xdstp:///indis.D2URI/c/")), gone);
    assert_eq!(removed(D2Uri, None), gone);

    let later =
        |times| waypost_core::Timestamp(NOW.0 + times * waypost_core::time::millis(REMEMBER));
    writer.forget(later(1));
    assert_eq!(value(&locator, ClusterLoadAssignment, "c"), None);
    assert_eq!(empty_map(), Some(Vec::new()));
    assert_eq!(members(&locator, D2UriMap, None), Vec::<String>::new());
    assert_eq!(removed(D2UriMap, None), ["/d2/uris/c"]);
    assert_eq!(removed(Cluster, None), ["c"]);
    assert_eq!(removed(Listener, None), ["c"]);
    let nodes = ["/d2/clusters/c", "/d2/services/c"];
    assert_eq!(removed(D2Node, None), nodes);
    assert_eq!(removed(D2ClusterOrServiceName, None), nodes);
    writer.forget(later(2));
    assert_eq!(empty_map(), None);
}

#[test]
fn an_instance_that_is_hidden_counts_as_removed_for_those_who_come_back() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        ["1", "2", "3"].map(|n| up("c", &format!("http://10.0.0.{n}:1"))),
    );
    let sick = Announcement {
        health: Health::Unhealthy,
        ..mk_announcement("c", "http://10.0.0.2:1")
    };
    writer.apply(NOW, [announce(&sick)]);
    let name = "xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.2%3A1";
    assert_eq!(value(&locator, D2Uri, name), None);
    let prefix = Some("xdstp:///indis.D2URI/c/");
    assert_eq!(members(&locator, D2Uri, prefix).len(), 2);
    assert_eq!(locator.recently_removed(D2Uri, prefix), [name.into()]);
}

#[test]
fn a_partitioned_cluster_is_served_whole_and_by_partition() {
    let (locator, mut writer) = mk_locator();
    let on = |n: i32| Announcement {
        weights: PartitionWeights::from([(n, 1.0)]),
        ..mk_announcement("c", &format!("http://10.0.0.{n}:1"))
    };
    writer.apply(NOW, [announce(&on(0)), announce(&on(2))]);
    let names = ["c", "c#0", "c#2"];
    for resource_type in [Cluster, ClusterLoadAssignment] {
        assert_eq!(members(&locator, resource_type, None), names);
        for name in names {
            let value = value(&locator, resource_type, name).unwrap();
            assert_eq!(checker::refusal(resource_type, name, &value), None);
        }
    }
    let endpoints = |name| value(&locator, ClusterLoadAssignment, name).unwrap();
    assert!(endpoints("c#0") != endpoints("c#2"));
}

#[test]
fn an_instance_asked_for_in_another_spelling_is_answered_in_that() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", "http://10.0.0.1:1/~a*b")]);
    let own = "xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.1%3A1%2F%7Ea*b";
    let other = "xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.1%3A1%2F~a%2Ab";
    assert_eq!(members(&locator, D2Uri, None), [own]);
    assert_eq!(value(&locator, D2Uri, own), value(&locator, D2Uri, other));
    assert!(value(&locator, D2Uri, own).is_some());
}

/// A few of everything.
fn fleet() -> Vec<StoreInput> {
    let mut inputs = vec![
        define_cluster("a", Some(r#"{"min_healthy_percent":0}"#)),
        define_cluster("p", Some(r#"{"partitionProperties":{"partitionCount":4}}"#)),
        define_cluster("$aMaster", Some("/d2/clusters/a")),
        define_service("reads", Some("a")),
        define_service("master", Some("$aMaster")),
    ];
    for (n, health) in (1..).zip([Health::Healthy, Health::Draining, Health::Unhealthy]) {
        for (cluster, weight) in [("a", 0.5), ("p", 2.0), ("implicit", 0.0), ("sick", 1.0)] {
            inputs.push(announce(&Announcement {
                health: if cluster == "sick" {
                    Health::Unhealthy
                } else {
                    health
                },
                weights: PartitionWeights::from([(0, weight), (n % 2, 1.0)]),
                fabric: format!("f{}", n % 2),
                ipv6: Some(std::net::Ipv6Addr::from(u128::from(n.unsigned_abs()))),
                metadata: r#"{"b":1,"a":[true,null]}"#.to_owned(),
                ..mk_announcement(cluster, &format!("https://10.0.{n}.1:443/{cluster}"))
            }));
        }
        inputs.push(up("named-only", &format!("http://host-{n}.example:80")));
    }
    inputs
}

/// Whoever changes one of these changes what every client is sent again after the upgrade, and says
/// so in the notes of the release.
#[test]
fn served_bytes_are_those_of_the_release_before() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, fleet());
    let cases = [
        (Cluster, "a", "a71ce520d109977a"),
        (ClusterLoadAssignment, "a", "ab2380d594dbb24a"),
        (ClusterLoadAssignment, "p#1", "e028c9828ac7d75f"),
        (Listener, "reads", "e3a59f708353456d"),
        (RouteConfiguration, "reads", "1f234a63c9c39e37"),
        (D2Node, "/d2/clusters/a", "870ec75ff428ee74"),
        (D2Node, "/d2/services/implicit", "a3cfbf1c9de8a8ea"),
        (D2UriMap, "/d2/uris/a", "f996725ddaa66968"),
        (
            D2Uri,
            "xdstp:///indis.D2URI/a/https%3A%2F%2F10.0.1.1%3A443%2Fa",
            "5a3792041ee980fe",
        ),
        (D2ClusterOrServiceName, "/d2/clusters/a", "3716a010c7a345cb"),
        (
            D2ClusterOrServiceName,
            "/d2/services/reads",
            "96b2f0d2efcf3e43",
        ),
    ];
    let changed: Vec<_> = cases
        .into_iter()
        .filter_map(|(resource_type, name, version)| {
            let found = locator
                .find(resource_type, name, Variant::default())
                .unwrap();
            let now = found.version().to_string();
            (now != version).then(|| format!("{name}: {version} is now {now}"))
        })
        .collect();
    assert_eq!(changed, Vec::<String>::new());
}

#[test]
fn grpc_accepts_everything_that_is_served_in_every_variant() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, fleet());
    let served = served(&locator);
    assert!(served.len() > 200, "{}", served.len());
    for (resource_type, name, variant, _) in served {
        let value = value_for(&locator, resource_type, &name, variant).unwrap();
        let refusal = checker::refusal(resource_type, &name, &value);
        assert_eq!(refusal, None, "{name} {variant:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Replicas read the partitions of a log in different order and may have seen states in between.
    #[test]
    fn replicas_that_hold_the_same_facts_serve_the_same_bytes(
        order in Just((0..fleet().len()).collect::<Vec<_>>()).prop_shuffle(),
        cuts in prop::collection::vec(0..fleet().len(), 0..4),
    ) {
        let (one, mut first) = mk_locator();
        first.apply(NOW, fleet());
        let (other, mut second) = mk_locator();
        second.apply(NOW, [down("a", "http://10.9.9.9:1"), define_service("reads", Some("p"))]);
        let inputs = fleet();
        for (position, index) in order.into_iter().enumerate() {
            second.apply(NOW, [inputs[index].clone()]);
            if cuts.contains(&position) {
                served(&other);
            }
        }
        prop_assert_eq!(served(&one), served(&other));
    }
}
