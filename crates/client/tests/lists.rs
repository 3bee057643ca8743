//! Lists from Observers in this process and from the file.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::time::Duration;

use common::{World, client, eventually, ports, soon, until_ports};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use waypost_client::{Client, Cluster, PickError, Stale, Standing, StreamState};
use waypost_core::PartitionWeights;

/// The page that explains each metric.
const PAGE: &str = include_str!("../../../docs/client.md");

#[tokio::test]
async fn a_cluster_is_followed_as_its_instances_come_and_go() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let greeter = client.cluster("greeter").unwrap();
    let list = soon("the first list", greeter.ready()).await;
    assert_eq!(ports(&list), [1001]);
    assert_eq!(list.standing(), Standing::Fresh);
    assert_eq!(greeter.pick().unwrap().address().port(), 1001);

    world.announce("greeter", 1002).await;
    until_ports(&greeter, &[1001, 1002]).await;
    world.withdraw("greeter", 1001).await;
    until_ports(&greeter, &[1002]).await;
    // The last one goes: that is a statement and is believed.
    world.withdraw("greeter", 1002).await;
    let empty = until_ports(&greeter, &[]).await;
    assert_eq!(empty.standing(), Standing::Fresh);
    assert_eq!(greeter.pick(), Err(PickError::Empty("greeter".to_owned())));

    let health = client.health();
    assert_eq!(health.stream, StreamState::Connected);
    assert!(
        health.is_fresh() && health.last_response.is_some(),
        "{health:?}"
    );
    assert_eq!(health.server, Some(observer.grpc_address().to_string()));
    observer.shutdown().await;
}

#[tokio::test]
async fn weights_of_a_partition_decide_and_a_cluster_that_is_not_there_is_told_when_it_is() {
    let world = World::new();
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let partition = client.cluster("store#2").unwrap();
    let list = soon("an answer", partition.ready()).await;
    assert_eq!(list.standing(), Standing::Missing);
    assert_eq!(
        partition.pick(),
        Err(PickError::Missing("store#2".to_owned()))
    );

    for (port, weight) in [(1001, 1.0), (1002, 4.0)] {
        let weights = PartitionWeights::from([(2, weight)]);
        world
            .announce_with("store", port, |a| a.weights = weights)
            .await;
    }
    let list = until_ports(&partition, &[1001, 1002]).await;
    let weights: Vec<u32> = list.endpoints().iter().map(|e| e.weight()).collect();
    assert_eq!(weights, [100, 400]);
    let heavy = (0..1000).filter(|_| partition.pick().unwrap().address().port() == 1002);
    let heavy = heavy.count();
    assert!((700..900).contains(&heavy), "{heavy} of 1000");
    observer.shutdown().await;
}

#[tokio::test]
async fn a_lost_observer_takes_nothing_away_and_its_return_is_noticed() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let address = observer.grpc_address();
    let client = client(&[&observer]);
    let mut greeter = client.cluster("greeter").unwrap();
    until_ports(&greeter, &[1001]).await;
    greeter.changed().await;

    observer.shutdown().await;
    until_standing(&greeter, Standing::Stale(Stale::Disconnected)).await;
    assert_eq!(ports(&greeter.endpoints()), [1001]);
    assert!(client.health().last_error.is_some());
    world.announce("greeter", 1002).await;

    let observer = world.observer_at(Some(address)).await;
    let list = soon("the next change", greeter.changed()).await;
    assert_eq!(ports(&list), [1001, 1002], "no empty list in between");
    assert_eq!(list.standing(), Standing::Fresh);
    let metrics = client.metrics();
    assert!(
        metrics.streams_lost >= 1 && metrics.connected == 1,
        "{metrics:?}"
    );
    observer.shutdown().await;
}

#[tokio::test]
async fn an_observer_that_knows_no_such_cluster_empties_no_list() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let address = observer.grpc_address();
    let client = client(&[&observer]);
    let greeter = client.cluster("greeter").unwrap();
    until_ports(&greeter, &[1001]).await;
    observer.shutdown().await;

    // Somebody starts one over another log at its place, and later the right one again.
    let other = World::new().observer_at(Some(address)).await;
    until_standing(&greeter, Standing::Stale(Stale::Removed)).await;
    assert_eq!(ports(&greeter.endpoints()), [1001]);
    assert_eq!(greeter.pick().unwrap().address().port(), 1001);
    assert!(client.metrics().resources_absent > 0);
    other.shutdown().await;
    let observer = world.observer_at(Some(address)).await;
    until_standing(&greeter, Standing::Fresh).await;
    assert_eq!(ports(&greeter.endpoints()), [1001]);
    observer.shutdown().await;
}

#[tokio::test]
async fn with_several_observers_the_next_one_takes_over() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    let (first, second) = (world.observer().await, world.observer().await);
    let client = client(&[&first, &second]);
    let greeter = client.cluster("greeter").unwrap();
    until_ports(&greeter, &[1001]).await;
    let used = client.health().server.unwrap();
    let (used, other) = if used == first.grpc_address().to_string() {
        (first, second)
    } else {
        (second, first)
    };
    used.shutdown().await;
    world.announce("greeter", 1002).await;
    until_ports(&greeter, &[1001, 1002]).await;
    assert_eq!(
        client.health().server,
        Some(other.grpc_address().to_string())
    );
    other.shutdown().await;
}

#[tokio::test]
async fn the_file_serves_at_once_and_until_an_observer_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists");
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let address = observer.grpc_address();
    let mk_client = || {
        let builder = Client::builder().server(address.to_string());
        builder.cache_file(&path).build().unwrap()
    };
    let first = mk_client();
    let greeter = first.cluster("greeter").unwrap();
    until_ports(&greeter, &[1001]).await;
    observer.shutdown().await;
    drop(greeter);
    first.close().await;

    // No Observer anywhere.
    let second = mk_client();
    assert_eq!(second.health().file_problem, None);
    let greeter = second.cluster("greeter").unwrap();
    let list = greeter.endpoints();
    assert_eq!(ports(&list), [1001], "without waiting");
    assert_eq!(list.standing(), Standing::Stale(Stale::FromFile));
    eventually("it has tried", || {
        (second.metrics().streams_failed > 0).then_some(())
    })
    .await;
    assert_eq!(
        greeter.endpoints().standing(),
        Standing::Stale(Stale::FromFile)
    );

    // It is used until an Observer is back, which says the same: no change, and no doubt any more.
    let observer = world.observer_at(Some(address)).await;
    until_standing(&greeter, Standing::Fresh).await;
    assert_eq!(ports(&greeter.endpoints()), [1001]);
    observer.shutdown().await;
}

#[tokio::test]
async fn a_broken_file_is_reported_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lists");
    std::fs::write(&path, "somebody else's").unwrap();
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let builder = Client::builder().server(observer.grpc_address().to_string());
    let client = builder.cache_file(&path).build().unwrap();
    let problem = client.health().file_problem;
    assert_eq!(problem.as_deref(), Some("it is not a file of lists"));
    assert_eq!(client.metrics().file_read_failures, 1);
    let greeter = client.cluster("greeter").unwrap();
    until_ports(&greeter, &[1001]).await;
    eventually("the file is written", || {
        (client.metrics().file_writes > 0).then_some(())
    })
    .await;
    assert_eq!(client.health().file_problem, None);
    let written = std::fs::read(&path).unwrap();
    assert!(written.starts_with(b"waypost-client-lists 1\n"));
    observer.shutdown().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_written_costs_nothing_but_itself() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let builder = Client::builder().server(observer.grpc_address().to_string());
    let client = builder
        .cache_file(folder.path().join("no/such/folder"))
        .build()
        .unwrap();
    let greeter = client.cluster("greeter").unwrap();
    until_ports(&greeter, &[1001]).await;
    eventually("the failure is counted", || {
        (client.metrics().file_write_failures > 0).then_some(())
    })
    .await;
    assert!(client.health().file_problem.is_some());
    world.announce("greeter", 1002).await;
    until_ports(&greeter, &[1001, 1002]).await;
    observer.shutdown().await;
}

#[tokio::test]
async fn what_nobody_watches_is_no_longer_asked_for() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    world.announce("other", 1001).await;
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let greeter = client.cluster("greeter").unwrap();
    let other = client.cluster("other").unwrap();
    until_ports(&greeter, &[1001]).await;
    until_ports(&other, &[1001]).await;
    drop(greeter);
    world.announce("greeter", 1002).await;
    world.announce("other", 1002).await;
    until_ports(&other, &[1001, 1002]).await;
    let again = client.cluster("greeter").unwrap();
    until_ports(&again, &[1001, 1002]).await;
    let counts = client.health().clusters;
    assert_eq!((counts.fresh, counts.stale + counts.missing), (2, 0));
    drop((again, other));
    tokio::time::timeout(Duration::from_secs(20), client.close())
        .await
        .unwrap();
    observer.shutdown().await;
}

#[tokio::test]
async fn every_metric_is_in_the_registry_under_the_name_that_the_page_explains() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(client.metrics_collector()));
    assert_eq!(client.health().stream, StreamState::Idle);
    let greeter = client.cluster("greeter").unwrap();
    until_standing(&greeter, Standing::Fresh).await;
    until_ports(&greeter, &[1001]).await;
    greeter.pick().unwrap();

    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "waypost_client_connected 1",
        "waypost_client_clusters_fresh 1",
        "waypost_client_picks_total 1",
        "waypost_client_streams_opened_total 1",
        "waypost_client_responses_refused_total 0",
    ] {
        assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
    }
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("waypost_client_"));
    let names: Vec<_> = names.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.len(), 20);
    for name in names {
        assert!(
            PAGE.contains(&format!("_{name}`")),
            "docs/client.md: {name}"
        );
    }
    observer.shutdown().await;
}

/// Waits for what the list rests on: whoever waits for changes is not told of that.
async fn until_standing(cluster: &Cluster, standing: Standing) {
    let what = format!("{} is {standing:?}", cluster.name());
    eventually(&what, || {
        (cluster.endpoints().standing() == standing).then_some(())
    })
    .await;
}
