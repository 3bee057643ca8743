//! The admin port: JSON as documented, names of metrics, closed labels, watching.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::collections::BTreeSet;

use futures::StreamExt as _;
use waypost_admin_api::{
    ClusterSummary, ClusterView, ErrorBody, Page, ServiceView, Status, StreamView, UriHealth,
    UriView, WatchEvent, WatchEventKind,
};
use waypost_core::{Health, ResourceType};
use waypost_observer::RunningObserver;

use common::xds::Delta;
use common::{DEADLINE, Life, POLL, eventually, get, get_json, mk_announcement, mk_log};

async fn until_served(observer: &RunningObserver, cluster: &str, instances: usize) {
    eventually("the instances are served", || async {
        let (status, text) = get(observer, &waypost_admin_api::path::uris(cluster)).await;
        let page: Page<UriView> = (status == 200).then(|| serde_json::from_str(&text).unwrap())?;
        (page.items.len() == instances).then_some(())
    })
    .await;
}

/// Waits until `/metrics` has all of these lines; gives the text that has.
async fn until_metrics_show(observer: &RunningObserver, wanted: &[String]) -> String {
    let mut seen = String::new();
    let shown = async {
        loop {
            (_, seen) = get(observer, "/metrics").await;
            let lines: BTreeSet<&str> = seen.lines().collect();
            if wanted.iter().all(|line| lines.contains(&line[..])) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(DEADLINE, shown).await.is_err() {
        let missing = wanted
            .iter()
            .filter(|line| !seen.lines().any(|l| l == *line));
        panic!("{:?} not in\n{seen}", missing.collect::<Vec<_>>());
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_about_an_implicit_cluster_is_shown() {
    let log = mk_log(4);
    let observer = common::start(&log).await;
    let mut announcement = mk_announcement("greeter", 1);
    announcement.metadata = r#"{"exact":12345678901234567890.125}"#.to_owned();
    announcement.weights = [(0, 2.5)].into();
    announcement.zone = "a".to_owned();
    Life::new(&log, 0xabc, announcement).announce().await;
    let mut by_name = mk_announcement("greeter", 2);
    by_name.uri = waypost_core::InstanceUri::parse("grpc://host.example:2").unwrap();
    by_name.health = Health::Unhealthy;
    Life::new(&log, 0xdef, by_name).announce().await;
    until_served(&observer, "greeter", 2).await;

    let page: Page<ClusterSummary> = get_json(&observer, "/api/v1/clusters").await;
    let [cluster] = &page.items[..] else {
        panic!("{page:?}");
    };
    assert!(cluster.implicit && cluster.name == "greeter");
    assert_eq!(cluster.services, ["greeter"]);
    assert_eq!((cluster.instances.total, cluster.instances.healthy), (2, 1));
    let view: ClusterView = get_json(&observer, "/api/v1/clusters/greeter").await;
    assert_eq!(view.unresolved_uris, ["grpc://host.example:2"]);
    assert!(view.versions.contains_key("eds"), "{view:?}");
    let service: ServiceView = get_json(&observer, "/api/v1/services/greeter").await;
    assert!(service.implicit && service.cluster == "greeter");
    let page: Page<ServiceView> = get_json(&observer, "/api/v1/services").await;
    assert_eq!(page.items.len(), 1);

    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    let [near, far] = &page.items[..] else {
        panic!("{page:?}");
    };
    assert_eq!(near.addresses, ["127.0.0.1:1"]);
    assert_eq!((near.weights[&0], near.zone.as_str()), (2.5, "a"));
    assert_eq!(
        near.metadata.to_string(),
        r#"{"exact":12345678901234567890.125}"#
    );
    assert!(near.sources[0].served && near.sources[0].name == "log");
    let facts = near.sources[0].log.as_ref().unwrap();
    assert_eq!(facts.life_id.as_deref(), Some("0000000000000abc"));
    assert_eq!((facts.seq, facts.appended_at_ms), (1, common::START.0));
    assert!(!facts.wrong_partition && near.unresolved.is_none());
    assert_eq!(far.health, UriHealth::Unhealthy);
    assert!(far.unresolved.as_ref().unwrap().contains("no address"));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_streams_name_who_is_connected() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    Life::new(&log, 1, mk_announcement("greeter", 1))
        .announce()
        .await;
    until_served(&observer, "greeter", 1).await;
    let mut stream = Delta::open(&observer).await.unwrap();
    stream
        .subscribe(ResourceType::D2UriMap, &["/d2/uris/greeter"])
        .await;
    stream.next().await;
    let page: Page<StreamView> = get_json(&observer, "/api/v1/streams").await;
    let [view] = &page.items[..] else {
        panic!("{page:?}");
    };
    assert_eq!(view.node_id, "probe");
    assert_eq!(view.types[0].type_url, ResourceType::D2UriMap.type_url());
    assert_eq!(view.types[0].names, ["/d2/uris/greeter"]);
    let status: Status = get_json(&observer, "/api/v1/status").await;
    assert!(status.ready && !status.stale && status.pending.is_empty());
    assert_eq!((status.counts.streams, status.counts.instances), (1, 1));
    assert_eq!(
        status.observer.grpc_address,
        observer.grpc_address().to_string()
    );
    assert_eq!(status.log.identity.as_deref(), Some("0000000000000007"));
    let topics: Vec<_> = status
        .log
        .topics
        .iter()
        .map(|t| (t.name.as_str(), t.partitions.len()))
        .collect();
    assert_eq!(
        topics,
        [("announcements", 2), ("config", 1), ("control", 1)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_an_error_of_one_line() {
    let observer = common::start(&mk_log(1)).await;
    let cases = [
        ("/api/v1/clusters/none", 404, "no cluster \"none\""),
        ("/api/v1/services/none", 404, "no service \"none\""),
        ("/api/v1/uris/none", 404, "no cluster \"none\""),
        ("/api/v1/nothing", 404, "there is nothing at"),
        ("/api/v1/clusters?limit=x", 400, "limit=x"),
        ("/config_dump?type=x", 400, "type=x is none of cds"),
    ];
    for (path, expected, text) in cases {
        let (status, body) = get(&observer, path).await;
        assert_eq!(status, expected, "{path}: {body}");
        let error: ErrorBody = serde_json::from_str(&body).unwrap();
        assert!(error.error.contains(text), "{path}: {error:?}");
        assert_eq!(error.error.lines().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_what_is_there_and_then_each_change_once() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut first = Life::new(&log, 1, mk_announcement("greeter", 1));
    first.announce().await;
    until_served(&observer, "greeter", 1).await;
    let url = format!("http://{}/api/v1/watch/greeter", observer.admin_address());
    let body = reqwest::get(url).await.unwrap().bytes_stream();
    let mut chunks = Box::pin(body);
    let mut buffer = Vec::new();
    let mut next = async || {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: WatchEvent = serde_json::from_slice(&line).unwrap();
                if event.event != WatchEventKind::Idle {
                    return (event.event, event.uri.unwrap_or_default(), event.instances);
                }
            } else {
                let chunk = tokio::time::timeout(common::DEADLINE, chunks.next()).await;
                buffer.extend(chunk.expect("a line").unwrap().unwrap());
            }
        }
    };
    let one = || "grpc://127.0.0.1:1".to_owned();
    let two = || "grpc://127.0.0.1:2".to_owned();
    assert_eq!(next().await, (WatchEventKind::Present, one(), 1));
    assert_eq!(next().await, (WatchEventKind::Synced, String::new(), 1));
    first.announce().await; // a heartbeat is no change
    let mut second = Life::new(&log, 2, mk_announcement("greeter", 2));
    second.announce().await;
    assert_eq!(next().await, (WatchEventKind::Up, two(), 2));
    first.change(|a| a.health = Health::Draining).await;
    assert_eq!(next().await, (WatchEventKind::Changed, one(), 2));
    second.withdraw().await;
    assert_eq!(next().await, (WatchEventKind::Down, two(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_agreed_names_and_closed_labels() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    let life = Life::new(&log, 1, mk_announcement("secret-cluster-name", 1));
    life.announce().await;
    until_served(&observer, "secret-cluster-name", 1).await;
    let mut stream = Delta::open(&observer).await.unwrap();
    stream
        .subscribe(ResourceType::D2UriMap, &["/d2/uris/secret-cluster-name"])
        .await;
    stream.next().await;
    Life::new(&log, 2, mk_announcement("secret-cluster-name", 2))
        .announce()
        .await;
    stream.next().await;
    let url = ResourceType::D2UriMap.type_url();
    let wanted = [
        "observer_streams{transport=\"delta\"} 1".to_owned(),
        format!("observer_pushes_total{{type_url=\"{url}\"}} 2"),
        format!("observer_nacks_total{{type_url=\"{url}\"}} 0"),
        format!("observer_propagation_delay_seconds_count{{type_url=\"{url}\"}} 1"),
        "ingest_lag_records{topic=\"announcements\",partition=\"0\"} 0".to_owned(),
        "observer_instances 2".to_owned(),
        "observer_ready 1".to_owned(),
        "observer_stale 0".to_owned(),
        "observer_holding_clusters 0".to_owned(),
        "observer_holding_fleet 0".to_owned(),
        "observer_held_instances 0".to_owned(),
        "observer_unconfirmed_instances 0".to_owned(),
        "observer_orphaned_records 0".to_owned(),
        "ingest_replaying{topic=\"announcements\"} 0".to_owned(),
    ];
    // Gauges follow what they show by a tick, counters of a stream by its write.
    let text = until_metrics_show(&observer, &wanted).await;
    assert!(
        !text.contains("secret") && !text.contains("probe"),
        "{text}"
    );
    let allowed = BTreeSet::from([
        "transport",
        "type_url",
        "topic",
        "partition",
        "outcome",
        "reason",
        "kind",
        "result",
        "method",
        "le",
    ]);
    for label in labels(&text) {
        assert!(allowed.contains(label.as_str()), "label {label}");
    }
}

/// The names of all labels in an OpenMetrics text.
fn labels(text: &str) -> BTreeSet<String> {
    let sets = text.lines().filter(|l| !l.starts_with('#'));
    let sets = sets.filter_map(|l| Some(l.split_once('{')?.1.rsplit_once('}')?.0));
    sets.flat_map(|set| set.split("\","))
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .collect()
}
