//! A client that subscribes to the endpoints of every cluster, and counts them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use prost::Message as _;
use tokio::task::JoinHandle;
use waypost_testkit::probe::{DeltaProbe, connect, mk_node};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::Server;

use super::crowd::Plan;

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Longer than any proof.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The client; its stream ends when this is dropped.
pub(super) struct Watcher {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    endpoints_by_cluster: BTreeMap<String, usize>,
    responses: usize,
    /// Why the stream ended.
    ended: Option<String>,
}

impl Watcher {
    /// Opens a stream of its own.
    pub(super) async fn start(dev: &Server, plan: Plan) -> anyhow::Result<Self> {
        let channel = connect(&dev.listen().to_string()).await?;
        let mut probe = DeltaProbe::open(channel, mk_node("envoy")).await?;
        let clusters: Vec<_> = plan.clusters().collect();
        let names: Vec<_> = clusters.iter().map(String::as_str).collect();
        probe.subscribe(ENDPOINTS, &names).await?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(watch(probe, Arc::clone(&seen)));
        Ok(Self { seen, task })
    }

    /// Responses so far.
    pub(super) fn responses(&self) -> usize {
        self.look(|seen| seen.responses)
    }

    /// Waits until the client has so many endpoints.
    pub(super) async fn reaches(&self, endpoints: usize, within: Duration) -> anyhow::Result<()> {
        eventually("endpoints of a client", within, || async {
            let (has, ended) = self.look(|seen| {
                let has: usize = seen.endpoints_by_cluster.values().sum();
                (has, seen.ended.clone())
            });
            ensure!(ended.is_none(), "its stream ended: {ended:?}");
            ensure!(has == endpoints, "{has} instead of {endpoints}");
            Ok(())
        })
        .await
    }

    fn look<T>(&self, what: impl FnOnce(&Seen) -> T) -> T {
        what(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(mut probe: DeltaProbe, seen: Arc<Mutex<Seen>>) {
    let ended = loop {
        let response = match probe.receive(FOR_EVER).await {
            Ok(response) => response,
            Err(error) => break error,
        };
        if let Err(error) = probe.ack(&response).await {
            break error;
        }
        if let Err(error) = take(
            &response,
            &mut seen.lock().unwrap_or_else(PoisonError::into_inner),
        ) {
            break error;
        }
    };
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.ended = Some(format!("{ended:#}"));
}

fn take(response: &DeltaDiscoveryResponse, seen: &mut Seen) -> anyhow::Result<()> {
    seen.responses += 1;
    for resource in &response.resources {
        let body = resource.resource.as_ref().map_or(&[][..], |any| &any.value);
        let assignment = ClusterLoadAssignment::decode(body)?;
        let localities = assignment.endpoints.iter();
        let endpoints = localities.map(|locality| locality.lb_endpoints.len()).sum();
        seen.endpoints_by_cluster
            .insert(resource.name.clone(), endpoints);
    }
    for name in &response.removed_resources {
        seen.endpoints_by_cluster.remove(name);
    }
    Ok(())
}
