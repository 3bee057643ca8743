//! Expiry is a statement in the log: the keeper writes it, time passes by ticks alone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::time::Duration;

use waypost_admin_api::{KeeperRole, Page, Status, UriView};
use waypost_core::{RecordKind, Topic};
use waypost_log::MemoryLog;
use waypost_observer::RunningObserver;

use common::{Life, eventually, get, get_json, metric, mk_announcement, mk_log};

/// Instances that are served; a cluster that is not known yet has none.
async fn count(observer: &RunningObserver, cluster: &str) -> usize {
    match get(observer, &format!("/api/v1/uris/{cluster}")).await {
        (404, _) => 0,
        (_, text) => serde_json::from_str::<Page<UriView>>(&text)
            .unwrap()
            .items
            .len(),
    }
}

/// Reads the status until this Observer keeps the log's time.
async fn until_keeper(observer: &RunningObserver) {
    eventually("the Observer keeps the log's time", || async {
        let status: Status = get_json(observer, "/api/v1/status").await;
        (status.keeper.role == KeeperRole::Keeper).then_some(())
    })
    .await;
}

fn expires(log: &MemoryLog) -> usize {
    let records = log.records(Topic::Announcements);
    let kinds = records.iter().map(|r| r.headers.as_ref().unwrap().kind);
    kinds.filter(|kind| *kind == RecordKind::Expire).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_falls_silent_expires_and_who_beats_stays() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    until_keeper(&observer).await;
    let silent = Life::new(&log, 1, mk_announcement("greeter", 1));
    let beating = Life::new(&log, 2, mk_announcement("greeter", 2));
    silent.announce().await;
    beating.announce().await;
    eventually("both are served", || async {
        (count(&observer, "greeter").await == 2).then_some(())
    })
    .await;
    eventually("the silent one expires", || async {
        log.clock().advance(Duration::from_millis(200));
        beating.announce().await;
        (count(&observer, "greeter").await == 1).then_some(())
    })
    .await;
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    assert_eq!(page.items[0].uri, "grpc://127.0.0.1:2");
    assert_eq!(
        metric(&observer, "ingest_gone_total{reason=\"expired\"}").await,
        1.0
    );
    let taken = "keeper_writes_total{kind=\"expire\",result=\"taken\"}";
    assert!(metric(&observer, taken).await >= 1.0);
    // Its next heartbeat brings it back.
    silent.announce().await;
    eventually("it is back", || async {
        (count(&observer, "greeter").await == 2).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_falls_silent_at_once_is_held_and_says_so() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    until_keeper(&observer).await;
    let fleet: Vec<_> = (1..=20)
        .map(|port| Life::new(&log, port.into(), mk_announcement("greeter", port)))
        .collect();
    for life in &fleet {
        life.announce().await;
    }
    eventually("all are served", || async {
        (count(&observer, "greeter").await == 20).then_some(())
    })
    .await;
    let status = eventually("the cluster is held", || async {
        log.clock().advance(Duration::from_millis(200));
        let status: Status = get_json(&observer, "/api/v1/status").await;
        let is_held = status.counts.held_instances > 0 && status.counts.instances == 16;
        (is_held && metric(&observer, "observer_held_instances").await > 0.0).then_some(status)
    })
    .await;
    assert_eq!(status.holding_clusters, ["greeter"]);
    let [holding] = &status.holding[..] else {
        panic!("{status:?}");
    };
    assert_eq!(holding.cluster.as_deref(), Some("greeter"));
    assert_eq!((holding.live, holding.overdue, holding.cap), (16, 16, 4));
    assert!(status.ready && !status.stale);
    assert_eq!(metric(&observer, "observer_holding_clusters").await, 1.0);
    assert_eq!(metric(&observer, "observer_holding_fleet").await, 0.0);
    let (code, text) = common::get(&observer, "/ready?fresh").await;
    assert_eq!(code, 200, "{text}");
    assert!(
        text.contains("notice: holding: 16 instance(s) fell silent at once"),
        "{text}"
    );
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    let held = page.items.iter().filter(|uri| {
        let facts = uri.sources[0].log.as_ref();
        facts.is_some_and(|facts| facts.held)
    });
    assert_eq!(held.count(), 16);

    // Their heartbeats end it.
    for life in &fleet {
        life.announce().await;
    }
    eventually("nothing is held", || async {
        let status: Status = get_json(&observer, "/api/v1/status").await;
        let (_, text) = common::get(&observer, "/ready").await;
        (status.holding.is_empty() && !text.contains("notice")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_stands_still_expires_nobody() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    until_keeper(&observer).await;
    Life::new(&log, 1, mk_announcement("greeter", 1))
        .announce()
        .await;
    eventually("it is served", || async {
        (count(&observer, "greeter").await == 1).then_some(())
    })
    .await;
    let ticks = "keeper_writes_total{kind=\"tick\",result=\"taken\"}";
    let before = metric(&observer, ticks).await;
    eventually("thirty more ticks", || async {
        (metric(&observer, ticks).await >= before + 30.0).then_some(())
    })
    .await;
    assert_eq!(count(&observer, "greeter").await, 1);
    assert_eq!(expires(&log), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_observers_one_keeps_the_time() {
    let log = mk_log(2);
    let first = common::start(&log).await;
    until_keeper(&first).await;
    let second = common::start(&log).await;
    let status: Status = get_json(&second, "/api/v1/status").await;
    let own = status.keeper.own_id.unwrap();
    eventually("the second one knows the first as keeper", || async {
        let status: Status = get_json(&second, "/api/v1/status").await;
        status.keeper.current_id.filter(|id| *id != own)
    })
    .await;
    first.shutdown().await;
    until_keeper(&second).await;
}
