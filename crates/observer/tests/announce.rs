//! Announce, be found, over both variants; what changes nothing sends nothing; bad records cost
//! themselves alone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::Message as _;
use waypost_core::{Health, ResourceType};
use waypost_proto::indis;

use common::xds::{Delta, Sotw};
use common::{Life, append_raw, eventually, metric, mk_announcement, mk_log};

/// The ports in the map of a delta response that holds one `D2URIMap`.
async fn next_uri_map(stream: &mut Delta) -> BTreeSet<String> {
    let response = stream.next().await;
    let [resource] = &response.resources[..] else {
        panic!("one map: {response:?}");
    };
    assert!(!resource.version.is_empty() && !resource.name.is_empty());
    let map = resource.resource.as_ref().unwrap();
    let map = indis::D2uriMap::decode(map.value.as_slice()).unwrap();
    map.uris.into_keys().collect()
}

/// The ports in a response that holds one `ClusterLoadAssignment`.
async fn next_ports(stream: &mut Sotw) -> BTreeSet<u32> {
    let response = stream.next().await;
    let [resource] = &response.resources[..] else {
        panic!("one assignment: {response:?}");
    };
    let load = ClusterLoadAssignment::decode(resource.value.as_slice()).unwrap();
    let endpoints = load.endpoints.iter().flat_map(|l| &l.lb_endpoints);
    endpoints
        .map(|endpoint| format!("{endpoint:?}"))
        .map(|text| {
            let (_, port) = text.split_once("PortValue(").expect("a port");
            port[..port.find(')').unwrap()].parse().unwrap()
        })
        .collect()
}

fn uris(ports: &[u16]) -> BTreeSet<String> {
    let uris = ports.iter().map(|port| format!("grpc://127.0.0.1:{port}"));
    uris.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_found_over_both_variants_from_mark_up_to_mark_down() {
    let log = mk_log(4);
    let observer = common::start(&log).await;
    let mut first = Life::new(&log, 1, mk_announcement("greeter", 1));
    first.announce().await;
    eventually("the first is served", || async {
        (metric(&observer, "observer_instances").await > 0.0).then_some(())
    })
    .await;

    let mut delta = Delta::open(&observer).await.unwrap();
    delta
        .subscribe(ResourceType::D2UriMap, &["/d2/uris/greeter"])
        .await;
    assert_eq!(next_uri_map(&mut delta).await, uris(&[1]));
    let mut sotw = Sotw::open(&observer).await.unwrap();
    sotw.subscribe(ResourceType::ClusterLoadAssignment, &["greeter"])
        .await;
    assert_eq!(next_ports(&mut sotw).await, BTreeSet::from([1]));

    let mut second = Life::new(&log, 2, mk_announcement("greeter", 2));
    second.announce().await;
    assert_eq!(next_uri_map(&mut delta).await, uris(&[1, 2]));
    assert_eq!(next_ports(&mut sotw).await, BTreeSet::from([1, 2]));

    second.change(|a| a.health = Health::Draining).await;
    assert_eq!(next_uri_map(&mut delta).await, uris(&[1]));
    assert_eq!(next_ports(&mut sotw).await, BTreeSet::from([1]));

    first.withdraw().await;
    second.change(|a| a.health = Health::Healthy).await;
    // The latest wins: whether the two changes come in one response or two is open.
    while next_uri_map(&mut delta).await != uris(&[2]) {}
    while next_ports(&mut sotw).await != BTreeSet::from([2]) {}
    second.withdraw().await;
    assert_eq!(next_uri_map(&mut delta).await, uris(&[]));
    assert_eq!(next_ports(&mut sotw).await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_send_nothing() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let life = Life::new(&log, 1, mk_announcement("greeter", 1));
    life.announce().await;
    let mut delta = Delta::open(&observer).await.unwrap();
    delta
        .subscribe(ResourceType::D2Uri, &["xdstp:///indis.D2URI/greeter/*"])
        .await;
    while delta.next().await.resources.is_empty() {}
    let mut sotw = Sotw::open(&observer).await.unwrap();
    sotw.subscribe(ResourceType::ClusterLoadAssignment, &["greeter"])
        .await;
    next_ports(&mut sotw).await;
    for _ in 0..50 {
        life.announce().await;
    }
    eventually("all beats were read", || async {
        let unchanged = metric(
            &observer,
            "ingest_records_total{topic=\"announcements\",outcome=\"unchanged\"}",
        );
        (unchanged.await >= 50.0).then_some(())
    })
    .await;
    delta.expect_quiet().await;
    sotw.expect_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_records_are_counted_and_the_rest_flows() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let good = mk_announcement("greeter", 1);
    let good_value = waypost_proto::announcement::encode(&good);
    append_raw(&log, None, Some(b"x"), "");
    append_raw(&log, Some(b"no zero byte"), Some(b"x"), "");
    append_raw(
        &log,
        Some(b"greeter\0grpc://127.0.0.1:1"),
        Some(b"\xff"),
        "",
    );
    append_raw(
        &log,
        Some(b"greeter\0grpc://127.0.0.1:9"),
        Some(&good_value),
        "",
    );
    append_raw(
        &log,
        Some(b"greeter\0grpc://127.0.0.1:1"),
        Some(&good_value),
        "shout",
    );
    append_raw(
        &log,
        Some(b"greeter\0grpc://127.0.0.1:1"),
        Some(&good_value),
        "",
    );
    eventually("the good one is served", || async {
        (metric(&observer, "observer_instances").await >= 1.0).then_some(())
    })
    .await;
    for reason in ["no_key", "key", "announcement", "other_instance", "header"] {
        let name = format!("ingest_rejected_total{{reason=\"{reason}\"}}");
        assert_eq!(metric(&observer, &name).await, 1.0, "{reason}");
    }
    let rejected = "ingest_records_total{topic=\"announcements\",outcome=\"rejected\"}";
    assert_eq!(metric(&observer, rejected).await, 5.0);
    let mut delta = Delta::open(&observer).await.unwrap();
    delta
        .subscribe(ResourceType::D2UriMap, &["/d2/uris/greeter"])
        .await;
    assert_eq!(next_uri_map(&mut delta).await, uris(&[1]));
}
