//! An Envoy's wildcards: what it named, kept up to date, each thing before what refers to it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use common::xds::{Delta, Sotw, mk_envoy};
use common::{Life, eventually, gateway, get_json, mk_announcement, mk_log};
use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterMessage;
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use envoy_types::pb::google::protobuf::{Value, value::Kind};
use prost::Message as _;
use waypost_admin_api::{ClusterView, Page, ScopeView, StreamView};
use waypost_core::ResourceType::{Cluster, Listener, RouteConfiguration};
use waypost_core::{Announcement, InstanceUri, ResourceType};
use waypost_log::MemoryLog;
use waypost_observer::RunningObserver;
use waypost_proto::v1 as pb;

const OUTBOUND: &str = "waypost/outbound";

async fn announce(log: &MemoryLog, clusters: &[&str]) {
    for (id, cluster) in (1..).zip(clusters) {
        let life = Life::new(log, id, mk_announcement(cluster, 1000));
        life.announce().await;
    }
}

/// Lets the service `s` lead to a cluster.
async fn lead(observer: &RunningObserver, cluster: &str) {
    let request = pb::ApplyRequest {
        definitions: vec![pb::DefinitionInput {
            kind: pb::definition_input::Kind::Service.into(),
            name: "s".to_owned(),
            cluster: cluster.to_owned(),
            path: "/s".to_owned(),
            properties_json: "{}".to_owned(),
            ..pb::DefinitionInput::default()
        }],
        author: "ann@ops1".to_owned(),
    };
    gateway(observer).await.apply(request).await.unwrap();
}

/// Says what an application calls.
async fn call(observer: &RunningObserver, application: &str, services: &[&str]) {
    let request = pb::ApplyRequest {
        definitions: vec![pb::DefinitionInput {
            kind: pb::definition_input::Kind::Callees.into(),
            name: application.to_owned(),
            services: services.iter().map(ToString::to_string).collect(),
            ..pb::DefinitionInput::default()
        }],
        author: "ann@ops1".to_owned(),
    };
    gateway(observer).await.apply(request).await.unwrap();
}

/// `LABEL +ADDED -REMOVED`.
fn show(response: &DeltaDiscoveryResponse) -> String {
    let label = response.type_url.rsplit('.').next().unwrap_or_default();
    let added = response.resources.iter().map(|r| format!(" +{}", r.name));
    let removed = response.removed_resources.iter();
    let removed = removed.map(|name| format!(" -{name}"));
    added
        .chain(removed)
        .fold(label.to_owned(), |line, word| line + &word)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_leads_elsewhere_brings_the_new_cluster_first_and_takes_the_old_one_last() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    announce(&log, &["c", "d", "other"]).await;
    lead(&observer, "c").await;
    for path in ["clusters/c", "clusters/d", "services/s"] {
        let is_served = async || {
            let (status, _) = common::get(&observer, &format!("/api/v1/{path}")).await;
            (status == 200).then_some(())
        };
        eventually(path, is_served).await;
    }

    let node = mk_envoy(&["s"], 10_000);
    let mut stream = Delta::open_as(&observer, node).await.unwrap();
    stream.subscribe(Cluster, &["*"]).await;
    assert_eq!(show(&stream.next().await), "Cluster +c");
    stream.subscribe(Listener, &["*"]).await;
    assert_eq!(show(&stream.next().await), format!("Listener +{OUTBOUND}"));
    stream.subscribe(RouteConfiguration, &[OUTBOUND]).await;
    let routes = format!("RouteConfiguration +{OUTBOUND}");
    assert_eq!(show(&stream.next().await), routes);

    lead(&observer, "d").await;
    assert_eq!(show(&stream.next().await), "Cluster +d");
    assert_eq!(show(&stream.next().await), routes);
    assert_eq!(show(&stream.next().await), "Cluster -c");
    announce(&log, &["new"]).await;
    stream.expect_quiet().await;

    let streams: Page<StreamView> = get_json(&observer, "/api/v1/streams").await;
    let scope = ScopeView {
        services: vec!["s".to_owned()],
        application: None,
        outbound: Some("127.0.0.1:10000".to_owned()),
    };
    assert_eq!(streams.items[0].scope, Some(scope));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_that_names_no_services_sees_what_its_application_calls() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    announce(&log, &["c", "d", "other"]).await;
    for path in ["clusters/c", "clusters/d", "clusters/other"] {
        let is_served = async || {
            let (status, _) = common::get(&observer, &format!("/api/v1/{path}")).await;
            (status == 200).then_some(())
        };
        eventually(path, is_served).await;
    }
    let mut node = mk_envoy(&[], 10_000);
    node.cluster = "app".to_owned();
    let mut stream = Delta::open_as(&observer, node).await.unwrap();
    stream.subscribe(Cluster, &["*"]).await;
    assert_eq!(show(&stream.next().await), "Cluster");
    stream.subscribe(RouteConfiguration, &[OUTBOUND]).await;
    let routes = format!("RouteConfiguration +{OUTBOUND}");
    assert_eq!(show(&stream.next().await), routes);

    call(&observer, "app", &["c"]).await;
    assert_eq!(show(&stream.next().await), "Cluster +c");
    assert_eq!(show(&stream.next().await), routes);
    call(&observer, "another", &["other"]).await;
    call(&observer, "app", &["d"]).await;
    assert_eq!(show(&stream.next().await), "Cluster +d");
    assert_eq!(show(&stream.next().await), routes);
    assert_eq!(show(&stream.next().await), "Cluster -c");
    stream.expect_quiet().await;

    let streams: Page<StreamView> = get_json(&observer, "/api/v1/streams").await;
    let scope = streams.items[0].scope.clone().unwrap();
    assert_eq!(scope.application.as_deref(), Some("app"));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_state_of_the_world_everything_is_what_was_named_too() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    announce(&log, &["a", "b"]).await;
    let mut stream = Sotw::open_as(&observer, mk_envoy(&["a", "late"], 0))
        .await
        .unwrap();
    let names = |resources: &[envoy_types::pb::google::protobuf::Any]| -> BTreeSet<String> {
        let read = |any: &envoy_types::pb::google::protobuf::Any| {
            ClusterMessage::decode(&*any.value).unwrap().name
        };
        resources.iter().map(read).collect()
    };
    stream.subscribe(Cluster, &[]).await;
    loop {
        // The announcements may be read after the first answer.
        let found = names(&stream.next().await.resources);
        if found == BTreeSet::from(["a".to_owned()]) {
            break;
        }
        assert!(found.is_empty(), "{found:?}");
    }
    announce(&log, &["other", "late"]).await;
    let found = names(&stream.next().await.resources);
    assert_eq!(found, BTreeSet::from(["a".to_owned(), "late".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_that_cannot_be_meant_ends_the_stream_and_says_which() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut node = mk_envoy(&["a"], 1);
    let metadata = node.metadata.as_mut().unwrap();
    let mut port = metadata
        .fields
        .remove(waypost_xds::OUTBOUND_PORT_KEY)
        .unwrap();
    port.kind = None;
    let key = waypost_xds::OUTBOUND_PORT_KEY.to_owned();
    metadata.fields.insert(key.clone(), port);
    let mut stream = Delta::open_as(&observer, node).await.unwrap();
    stream.subscribe(Cluster, &["*"]).await;
    let status = stream.end().await;
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains(&key), "{status}");
}

/// Every address of an assignment, by priority.
fn addresses(response: &DeltaDiscoveryResponse) -> Vec<(u32, Vec<String>)> {
    use envoy_types::pb::envoy::config::core::v3::address::Address;
    use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
    let any = response.resources[0].resource.as_ref().unwrap();
    let assignment = ClusterLoadAssignment::decode(&any.value[..]).unwrap();
    let of_endpoint = |host: Option<HostIdentifier>| {
        let Some(HostIdentifier::Endpoint(endpoint)) = host else {
            panic!("{host:?}");
        };
        let others = endpoint.additional_addresses.into_iter();
        let all = endpoint
            .address
            .into_iter()
            .chain(others.filter_map(|a| a.address));
        let text = all.filter_map(|address| match address.address? {
            Address::SocketAddress(socket) => Some(socket.address),
            other => panic!("{other:?}"),
        });
        text.collect()
    };
    let localities = assignment.endpoints.into_iter();
    let all = localities.flat_map(|locality| {
        let hosts = locality.lb_endpoints.into_iter();
        hosts.map(move |lb| (locality.priority, of_endpoint(lb.host_identifier)))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all
}

/// An Envoy that can use these addresses and is in this fabric.
fn mk_asker(families: &str, fabric: &str) -> Node {
    let mut node = mk_envoy(&["c"], 0);
    let value = Value {
        kind: Some(Kind::StringValue(families.to_owned())),
    };
    let key = waypost_xds::ADDRESS_FAMILIES_KEY.to_owned();
    node.metadata.as_mut().unwrap().fields.insert(key, value);
    node.locality = Some(Locality {
        region: fabric.to_owned(),
        ..Locality::default()
    });
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_cannot_reach_or_is_far_from_is_left_out_or_last_and_people_are_told() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let of_both = Announcement {
        ipv6: Some(Ipv6Addr::LOCALHOST),
        fabric: "west".to_owned(),
        ..mk_announcement("c", 1)
    };
    let of_ipv6 = Announcement {
        uri: InstanceUri::parse("grpc://[2001:db8::1]:1").unwrap(),
        fabric: "east".to_owned(),
        ..mk_announcement("c", 1)
    };
    let of_ipv4 = mk_announcement("c", 2);
    for (id, announcement) in (1..).zip([of_both, of_ipv6, of_ipv4]) {
        Life::new(&log, id, announcement).announce().await;
    }
    eventually("all are served", async || {
        let (status, text) = common::get(&observer, "/api/v1/clusters/c").await;
        (status == 200 && text.contains("\"total\":3")).then_some(())
    })
    .await;

    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    for (families, fabric, expected) in [
        (
            "both",
            "",
            vec![
                (0, list(&["127.0.0.1"])),
                (0, list(&["127.0.0.1", "::1"])),
                (0, list(&["2001:db8::1"])),
            ],
        ),
        (
            "ipv4",
            "",
            vec![(0, list(&["127.0.0.1"])), (0, list(&["127.0.0.1"]))],
        ),
        (
            "ipv6",
            "east",
            vec![(0, list(&["2001:db8::1"])), (1, list(&["::1"]))],
        ),
        (
            "ipv4",
            "east",
            vec![(0, list(&["127.0.0.1"])), (0, list(&["127.0.0.1"]))],
        ),
    ] {
        let node = mk_asker(families, fabric);
        let mut stream = Delta::open_as(&observer, node).await.unwrap();
        stream
            .subscribe(ResourceType::ClusterLoadAssignment, &["c"])
            .await;
        let told = addresses(&stream.next().await);
        assert_eq!(told, expected, "{families} {fabric}");
        let streams: Page<StreamView> = get_json(&observer, "/api/v1/streams").await;
        let said = serde_json::to_value(streams.items.last().unwrap()).unwrap();
        assert_eq!(said["address_families"], families);
        assert_eq!(said["fabric"], fabric);
    }
    let view: ClusterView = get_json(&observer, "/api/v1/clusters/c").await;
    assert_eq!(view.ipv6_only_uris, ["grpc://[2001:db8::1]:1"]);
    assert_eq!(view.ipv4_only, 1);
}
