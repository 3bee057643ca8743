//! Clients report their load, and people see it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};
use waypost_admin_api::{ClusterView, LoadView};
use waypost_observer::RunningObserver;

use common::{Life, eventually, mk_announcement, mk_log};

/// A client that reports.
struct Reporter {
    requests_tx: mpsc::Sender<LoadStatsRequest>,
    responses: Streaming<LoadStatsResponse>,
}

impl Reporter {
    /// Opens a stream as clients do: the first message has the node and nothing else.
    async fn open(observer: &RunningObserver) -> (Self, LoadStatsResponse) {
        let address = format!("http://{}", observer.grpc_address());
        let mut client = LoadReportingServiceClient::connect(address).await.unwrap();
        let (requests_tx, requests_rx) = mpsc::channel(4);
        let hello = LoadStatsRequest {
            node: Some(Node {
                id: "a-client".to_owned(),
                ..Node::default()
            }),
            ..LoadStatsRequest::default()
        };
        requests_tx.send(hello).await.unwrap();
        let requests = ReceiverStream::new(requests_rx);
        let mut responses = client
            .stream_load_stats(requests)
            .await
            .unwrap()
            .into_inner();
        let asked = responses.message().await.unwrap().expect("what to report");
        let reporter = Self {
            requests_tx,
            responses,
        };
        (reporter, asked)
    }

    async fn report(&self, stats: ClusterStats) {
        let report = LoadStatsRequest {
            cluster_stats: vec![stats],
            ..LoadStatsRequest::default()
        };
        self.requests_tx.send(report).await.unwrap();
    }
}

fn mk_stats(cluster: &str, succeeded: u64, failed: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.to_owned(),
        load_report_interval: Some(protobuf::Duration {
            seconds: 10,
            nanos: 0,
        }),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: Some(Locality {
                region: "east".to_owned(),
                zone: "a".to_owned(),
                ..Locality::default()
            }),
            total_successful_requests: succeeded,
            total_error_requests: failed,
            total_issued_requests: succeeded + failed,
            ..UpstreamLocalityStats::default()
        }],
        ..ClusterStats::default()
    }
}

/// Waits until the load that people are shown is as wanted.
async fn until_load(observer: &RunningObserver, what: &str, is: impl Fn(&LoadView) -> bool) {
    eventually(what, || async {
        let path = waypost_admin_api::path::cluster("greeter");
        let (status, text) = common::get(observer, &path).await;
        let view: ClusterView = (status == 200).then(|| serde_json::from_str(&text).unwrap())?;
        view.load.filter(|load| is(load)).map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_report_is_shown_while_they_are_there_and_counted_for_good() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    Life::new(&log, 1, mk_announcement("greeter", 1))
        .announce()
        .await;
    let (one, asked) = Reporter::open(&observer).await;
    assert!(asked.send_all_clusters && asked.clusters.is_empty());
    assert!(!asked.report_endpoint_granularity);
    let interval = asked.load_reporting_interval.unwrap();
    assert!(interval.seconds >= 1);

    let (other, _) = Reporter::open(&observer).await;
    one.report(mk_stats("greeter", 90, 10)).await;
    other.report(mk_stats("greeter#1", 100, 0)).await;
    until_load(&observer, "both are counted", |load| {
        load.reporters == 2
            && load.localities.iter().any(|l| {
                (&l.fabric[..], &l.zone[..]) == ("east", "a")
                    && (l.requests_per_second, l.failures_per_second) == (20.0, 1.0)
            })
    })
    .await;
    drop(other);
    until_load(&observer, "who left is not", |load| {
        load.reporters == 1 && (load.succeeded, load.failed) == (190, 10)
    })
    .await;
    let metrics = [
        "load_streams 1",
        "load_reports_total 2",
        "load_requests_total{result=\"failed\"} 10",
    ];
    eventually("the metrics say so", || async {
        let (_, text) = common::get(&observer, "/metrics").await;
        let has = |line: &&str| text.lines().any(|l| l == *line);
        metrics.iter().all(has).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_stops_sends_reporters_away() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let (mut reporter, _) = Reporter::open(&observer).await;
    let stopping = tokio::spawn(observer.stop_within(Duration::from_secs(10)));
    let ended = tokio::time::timeout(common::DEADLINE, reporter.responses.message()).await;
    let status = ended.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    // A connection that is cut at the end of the drain would have the code, too.
    assert!(status.message().contains("report to another"), "{status}");
    drop(reporter);
    stopping.await.unwrap();
}
