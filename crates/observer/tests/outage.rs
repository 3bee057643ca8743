//! An Observer never takes data away because it lost an input.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::time::Duration;

use waypost_admin_api::{Page, SourceState, Status, UriView};
use waypost_core::ResourceType;
use waypost_log::memory::Pause;

use common::xds::Delta;
use common::{Life, eventually, get, get_json, metric, mk_announcement, mk_log};

#[tokio::test(flavor = "multi_thread")]
async fn while_the_log_is_away_everything_is_served_and_said_to_be_stale() {
    let log = mk_log(2);
    let observer = common::start(&log).await;
    let mut life = Life::new(&log, 1, mk_announcement("greeter", 1));
    life.announce().await;
    let mut stream = Delta::open(&observer).await.unwrap();
    stream
        .subscribe(ResourceType::D2UriMap, &["/d2/uris/greeter"])
        .await;
    while stream.next().await.resources.is_empty() {}

    log.pause(Pause::Refuse("no broker answers".to_owned()));
    eventually("it says that it is stale", || async {
        let (status, text) = get(&observer, "/ready?fresh").await;
        (status == 503 && text.contains("no broker answers")).then_some(())
    })
    .await;
    assert_eq!(get(&observer, "/ready").await.0, 200);
    eventually("the metric says so", || async {
        (metric(&observer, "observer_stale").await == 1.0).then_some(())
    })
    .await;
    let status: Status = get_json(&observer, "/api/v1/status").await;
    assert!(status.ready && status.stale, "{status:?}");
    assert_eq!(status.sources[0].state, SourceState::Unavailable);
    assert!(status.stale_reasons[0].contains("no broker"), "{status:?}");
    // Open streams hear nothing, new ones are served.
    stream.expect_quiet().await;
    let mut late = Delta::open(&observer).await.unwrap();
    late.subscribe(ResourceType::D2UriMap, &["/d2/uris/greeter"])
        .await;
    assert_eq!(late.next().await.resources.len(), 1);

    log.resume();
    life.change(|a| a.weights = [(0, 0.5)].into()).await;
    assert_eq!(stream.next().await.resources.len(), 1);
    eventually("it is fresh again", || async {
        log.clock().advance(Duration::from_millis(100));
        (get(&observer, "/ready?fresh").await.0 == 200).then_some(())
    })
    .await;
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    assert_eq!(page.items[0].weights[&0], 0.5);
    assert!(
        metric(
            &observer,
            "ingest_read_errors_total{topic=\"announcements\"}"
        )
        .await
            >= 1.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_is_told_to_stop_ends_its_streams_and_frees_its_ports() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    Life::new(&log, 1, mk_announcement("greeter", 1))
        .announce()
        .await;
    let mut stream = Delta::open(&observer).await.unwrap();
    stream
        .subscribe(ResourceType::D2UriMap, &["/d2/uris/greeter"])
        .await;
    stream.next().await;
    let (grpc, admin) = (observer.grpc_address(), observer.admin_address());
    tokio::time::timeout(common::DEADLINE, observer.shutdown())
        .await
        .expect("stops");
    for address in [grpc, admin] {
        std::net::TcpListener::bind(address).expect("the port is free");
    }
}
