//! Clients: one connection and one delta ADS stream each, subscribed to a few clusters' endpoints.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use waypost_testkit::wait::eventually;

use super::instances::{Changes, cluster_name, find_cluster};

const CLA: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// Acknowledgements that wait to be written: a client has one answer in flight for each type.
const REQUESTS_MAX: usize = 4;

/// Open streams and what they were sent.
pub(crate) struct Streams {
    tasks: Vec<JoinHandle<()>>,
    received: Arc<Received>,
}

/// What all streams were sent.
#[derive(Debug, Default)]
struct Received {
    deliveries: AtomicU64,
    propagation: Mutex<Vec<Duration>>,
}

impl Streams {
    /// Opens `count` streams of `names` names each and waits until each name was delivered once.
    pub(crate) async fn open(
        server: SocketAddr,
        count: usize,
        names: usize,
        clusters: usize,
        changes: &Arc<Changes>,
    ) -> anyhow::Result<Self> {
        let received = Arc::new(Received::default());
        let mut tasks = Vec::with_capacity(count);
        for stream in 0..count {
            // Neighbours overlap, so that every cluster has the same number of subscribers.
            let subscribed =
                (0..names).map(|index| cluster_name((stream * names + index) % clusters));
            let subscribed = subscribed.collect();
            let (received, changes) = (Arc::clone(&received), Arc::clone(changes));
            tasks.push(follow(server, stream, subscribed, received, changes).await?);
        }
        let streams = Self { tasks, received };
        let wanted = u64::try_from(count * names)?;
        eventually(
            "every name is delivered",
            Duration::from_secs(120),
            || async {
                let found = streams.deliveries();
                ensure!(found >= wanted, "{found} of {wanted}");
                Ok(())
            },
        )
        .await?;
        Ok(streams)
    }

    /// Resources received so far.
    pub(crate) fn deliveries(&self) -> u64 {
        self.received.deliveries.load(Ordering::Relaxed)
    }

    /// Takes the times from a change to its receipt that were seen since the last call, sorted.
    pub(crate) fn take_propagation(&self) -> Vec<Duration> {
        let mut times = std::mem::take(&mut *self.received.lock());
        times.sort_unstable();
        times
    }

    /// Fails if a stream has ended.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let ended = self.tasks.iter().filter(|task| task.is_finished()).count();
        ensure!(ended == 0, "{ended} streams ended");
        Ok(())
    }
}

impl Received {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Duration>> {
        self.propagation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Opens one stream and follows it until it ends or the task is aborted.
async fn follow(
    server: SocketAddr,
    number: usize,
    names: Vec<String>,
    received: Arc<Received>,
    changes: Arc<Changes>,
) -> anyhow::Result<JoinHandle<()>> {
    let channel = Endpoint::from_shared(format!("http://{server}"))?
        .connect()
        .await?;
    let (requests_tx, requests_rx) = mpsc::channel(REQUESTS_MAX);
    let subscribe = DeltaDiscoveryRequest {
        node: Some(Node {
            id: format!("bench-{number}"),
            ..Node::default()
        }),
        type_url: CLA.to_owned(),
        resource_names_subscribe: names,
        ..DeltaDiscoveryRequest::default()
    };
    requests_tx.send(subscribe).await?;
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let answers = client
        .delta_aggregated_resources(ReceiverStream::new(requests_rx))
        .await;
    let mut answers = answers.context("the stream does not open")?.into_inner();
    Ok(tokio::spawn(async move {
        while let Ok(Some(answer)) = answers.message().await {
            let ages = answer
                .resources
                .iter()
                .filter_map(|resource| changes.find_age(find_cluster(&resource.name)?));
            received.lock().extend(ages);
            let count = u64::try_from(answer.resources.len()).unwrap_or(0);
            received.deliveries.fetch_add(count, Ordering::Relaxed);
            let ack = DeltaDiscoveryRequest {
                type_url: CLA.to_owned(),
                response_nonce: answer.nonce,
                ..DeltaDiscoveryRequest::default()
            };
            if requests_tx.send(ack).await.is_err() {
                break;
            }
        }
    }))
}
