//! Unhealthy is not gone: health never empties a list that clients hold.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::Message as _;
use waypost_admin_api::ClusterView;
use waypost_core::{Health, ResourceType};
use waypost_log::MemoryLog;
use waypost_observer::RunningObserver;
use waypost_proto::v1::{ApplyRequest, DefinitionInput, definition_input};

use common::xds::{Delta, Sotw};
use common::{Life, eventually, get_json, metric, mk_announcement, mk_log};

/// Instances of `cluster`, served.
async fn fleet(log: &MemoryLog, cluster: &str, count: u16) -> Vec<Life> {
    let lives: Vec<_> = (1..=count)
        .map(|port| Life::new(log, port.into(), mk_announcement(cluster, port)))
        .collect();
    for life in &lives {
        life.announce().await;
    }
    lives
}

async fn describe(observer: &RunningObserver, cluster: &str) -> ClusterView {
    get_json(observer, &waypost_admin_api::path::cluster(cluster)).await
}

/// Waits until so many instances judge themselves healthy, as the Observer has read it.
async fn until_healthy(observer: &RunningObserver, cluster: &str, healthy: u64) -> ClusterView {
    eventually("the Observer has read it", || async {
        let (status, _) = common::get(observer, &waypost_admin_api::path::cluster(cluster)).await;
        if status != 200 {
            return None;
        }
        let view = describe(observer, cluster).await;
        (view.summary.instances.healthy == healthy).then_some(view)
    })
    .await
}

/// How many endpoints the next answer about a cluster has.
async fn next_endpoints(stream: &mut Sotw) -> usize {
    let response = stream.next().await;
    let [resource] = &response.resources[..] else {
        panic!("{response:?}");
    };
    let assignment = ClusterLoadAssignment::decode(resource.value.as_ref()).unwrap();
    let localities = assignment.endpoints.iter();
    localities.map(|l| l.lb_endpoints.len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_dependency_that_fails_empties_no_list() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    let mut lives = fleet(&log, "greeter", 4).await;
    until_healthy(&observer, "greeter", 4).await;
    let mut grpc = Sotw::open(&observer).await.unwrap();
    grpc.subscribe(ResourceType::ClusterLoadAssignment, &["greeter"])
        .await;
    assert_eq!(next_endpoints(&mut grpc).await, 4);
    let mut d2 = Delta::open(&observer).await.unwrap();
    let glob = "xdstp:///indis.D2URI/greeter/*";
    d2.subscribe(ResourceType::D2Uri, &[glob]).await;
    assert_eq!(d2.next().await.resources.len(), 4);

    // Half of them may be missing: health counts.
    for (life, health) in lives.iter_mut().zip([Health::Unhealthy, Health::Draining]) {
        life.change(|a| a.health = health).await;
    }
    let view = until_healthy(&observer, "greeter", 2).await;
    assert!(!view.summary.health_ignored);
    let mut endpoints = 4;
    while endpoints > 2 {
        endpoints = next_endpoints(&mut grpc).await;
    }
    let mut removed = Vec::new();
    while removed.len() < 2 {
        removed.extend(d2.next().await.removed_resources);
    }
    assert!(!removed.iter().any(|name| name == glob), "{removed:?}");

    // A third one would leave less than half: all four are back, and stay.
    lives[2].change(|a| a.health = Health::Unhealthy).await;
    assert_eq!(next_endpoints(&mut grpc).await, 4);
    let mut back = 0;
    while back < 2 {
        let response = d2.next().await;
        assert!(response.removed_resources.is_empty(), "{response:?}");
        back += response.resources.len();
    }
    let view = until_healthy(&observer, "greeter", 1).await;
    assert!(view.summary.health_ignored);
    assert_eq!(view.min_healthy_percent, 50);
    lives[3].change(|a| a.health = Health::Unhealthy).await;
    let view = until_healthy(&observer, "greeter", 0).await;
    assert!(view.summary.health_ignored && view.summary.instances.total == 4);
    assert_eq!(
        metric(&observer, "observer_health_ignored_clusters").await,
        1.0
    );

    // It works again.
    for life in &mut lives {
        life.change(|a| a.health = Health::Healthy).await;
    }
    until_healthy(&observer, "greeter", 4).await;
    assert_eq!(
        metric(&observer, "observer_health_ignored_clusters").await,
        0.0
    );
    let mut late = Sotw::open(&observer).await.unwrap();
    late.subscribe(ResourceType::ClusterLoadAssignment, &["greeter"])
        .await;
    assert_eq!(next_endpoints(&mut late).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_can_ask_that_health_counts_whatever_is_left() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let request = ApplyRequest {
        definitions: vec![DefinitionInput {
            kind: definition_input::Kind::Cluster.into(),
            name: "strict".to_owned(),
            properties_json: r#"{"min_healthy_percent": 0}"#.to_owned(),
            ..DefinitionInput::default()
        }],
        ..ApplyRequest::default()
    };
    common::gateway(&observer)
        .await
        .apply(request)
        .await
        .unwrap();
    let mut lives = fleet(&log, "strict", 2).await;
    until_healthy(&observer, "strict", 2).await;
    for life in &mut lives {
        life.change(|a| a.health = Health::Unhealthy).await;
    }
    let view = until_healthy(&observer, "strict", 0).await;
    assert_eq!(
        (view.min_healthy_percent, view.summary.health_ignored),
        (0, false)
    );
    let mut grpc = Sotw::open(&observer).await.unwrap();
    grpc.subscribe(ResourceType::ClusterLoadAssignment, &["strict"])
        .await;
    assert_eq!(next_endpoints(&mut grpc).await, 0);
}
