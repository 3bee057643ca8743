//! What left while an Observer was not there: who comes to it is told, as by any other.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use waypost_core::{PartitionId, ResourceType, Topic};
use waypost_log::memory::CompactionRules;
use waypost_observer::RunningObserver;

use common::xds::Delta;
use common::{Life, get, mk_announcement, mk_log};

const GLOB: &str = "xdstp:///indis.D2URI/greeter/*";

/// Names and removals of the first answer to a client that says nothing of what it holds.
async fn first_answer(observer: &RunningObserver) -> (usize, BTreeSet<String>) {
    let mut stream = Delta::open(observer).await.unwrap();
    stream.subscribe(ResourceType::D2Uri, &[GLOB]).await;
    let response = stream.next().await;
    let removed = response.removed_resources.into_iter().collect();
    (response.resources.len(), removed)
}

fn urn(port: u16) -> String {
    format!("xdstp:///indis.D2URI/greeter/grpc%3A%2F%2F127.0.0.1%3A{port}")
}

/// Three instances of one cluster, of which some leave, read by an Observer that starts after the
/// cleaner has left the tombstones alone.
async fn start_after(left: &[u16]) -> RunningObserver {
    let log = mk_log(2);
    let mut lives: Vec<_> = (1..=3)
        .map(|port| Life::new(&log, port.into(), mk_announcement("greeter", port)))
        .collect();
    for life in &lives {
        life.announce().await;
    }
    for port in left {
        lives[usize::from(*port) - 1].withdraw().await;
    }
    log.clock().advance(Duration::from_secs(1));
    let rules = CompactionRules {
        lag: Duration::ZERO,
        ..CompactionRules::STANDARD
    };
    log.compact(Topic::Announcements, rules);
    let announcements = log.records(Topic::Announcements);
    let of_instances = announcements
        .iter()
        .filter(|r| r.key.as_ref().is_some_and(|key| key.first() != Some(&0)));
    assert_eq!(of_instances.count(), 3, "one record a key");
    common::start(&log).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_versions_is_told_of_exactly_what_left_before_the_observer_started() {
    let observer = start_after(&[2]).await;
    let (resources, removed) = first_answer(&observer).await;
    assert_eq!((resources, removed), (2, BTreeSet::from([urn(2)])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_ran_empty_before_the_observer_started_is_empty_and_not_unknown() {
    let observer = start_after(&[1, 2, 3]).await;
    let (resources, removed) = first_answer(&observer).await;
    let all = [urn(1), urn(2), urn(3), GLOB.to_owned()];
    assert_eq!((resources, removed), (0, BTreeSet::from(all)));
    let (status, text) = get(&observer, "/api/v1/clusters/greeter").await;
    assert_eq!(status, 200, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_was_deleted_before_the_observer_started_is_told_to_clients_of_everything()
 {
    let log = mk_log(1);
    for key in ["cluster\0gone", "service\0goneReads"] {
        let key = Bytes::from_static(key.as_bytes());
        log.append_raw(Topic::Config, PartitionId(0), Some(key), None, &[])
            .unwrap();
    }
    let observer = common::start(&log).await;
    let mut stream = Delta::open(&observer).await.unwrap();
    stream
        .subscribe(ResourceType::D2ClusterOrServiceName, &["*"])
        .await;
    let response = stream.next().await;
    let removed: BTreeSet<_> = response.removed_resources.iter().collect();
    let expected = ["/d2/clusters/gone", "/d2/services/goneReads"].map(str::to_owned);
    assert_eq!(removed, expected.iter().collect());
    assert_eq!(response.resources, []);
}
