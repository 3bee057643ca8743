//! A client of one Observer that misses nothing: every answer about the cluster is noted.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use prost::Message as _;
use tokio::task::JoinHandle;
use waypost_core::ResourceType;
use waypost_testkit::probe::{DeltaProbe, connect, mk_node};

use crate::fleet::CLUSTER;

/// Pause before another connection is tried.
const RETRY: Duration = Duration::from_millis(100);
/// A stream that says nothing for so long is asked nothing: silence is what most of this is about.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What one Observer said since the witness began.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Answers about the cluster.
    pub(super) responses: usize,
    /// Streams that were answered; the first answer of each is the whole state again.
    pub(super) streams: usize,
    /// Instances that must always be there and were not, by `HOST:PORT`.
    pub(super) lost: BTreeSet<String>,
    /// The fewest instances in one answer.
    pub(super) fewest: Option<usize>,
}

/// The witness; ends when dropped.
#[derive(Debug)]
pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Witness {
    /// Follows the Observer at `address`. `always` must be in every answer.
    pub(super) fn start(address: SocketAddr, always: &BTreeSet<String>) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let (noted, always) = (Arc::clone(&seen), always.clone());
        let task = tokio::spawn(async move {
            loop {
                // A stream that ends is what this proof causes; the next one tells what it did.
                let _ = follow(address, &noted, &always).await;
                tokio::time::sleep(RETRY).await;
            }
        });
        Self { seen, task }
    }

    /// What it has seen so far.
    pub(super) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    address: SocketAddr,
    seen: &Mutex<Seen>,
    always: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let channel = connect(&address.to_string()).await?;
    let mut probe = DeltaProbe::open(channel, mk_node("witness")).await?;
    let endpoints = ResourceType::ClusterLoadAssignment.type_url();
    probe.subscribe(endpoints, &[CLUSTER]).await?;
    let mut is_first = true;
    loop {
        let response = probe.receive(PATIENCE).await?;
        let resource = response.resources.iter().find(|r| r.name == CLUSTER);
        let served = match resource.and_then(|resource| resource.resource.as_ref()) {
            Some(any) => addresses(&any.value)?,
            // Removed: nothing is served any more.
            None => BTreeSet::new(),
        };
        {
            let mut seen = lock(seen);
            seen.responses += 1;
            seen.streams += usize::from(std::mem::take(&mut is_first));
            seen.fewest = Some(seen.fewest.unwrap_or(usize::MAX).min(served.len()));
            seen.lost.extend(always.difference(&served).cloned());
        }
        probe.ack(&response).await?;
    }
}

/// `HOST:PORT` of every endpoint.
fn addresses(assignment: &[u8]) -> anyhow::Result<BTreeSet<String>> {
    let assignment = ClusterLoadAssignment::decode(assignment)?;
    let endpoints = assignment.endpoints.iter().flat_map(|l| &l.lb_endpoints);
    endpoints
        .map(|endpoint| {
            let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
                anyhow::bail!("an endpoint of another kind");
            };
            let address = endpoint.address.as_ref().context("no address")?;
            let Some(Address::SocketAddress(socket)) = &address.address else {
                anyhow::bail!("an address of another kind");
            };
            let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else {
                anyhow::bail!("a port of another kind");
            };
            Ok(format!("{}:{port}", socket.address))
        })
        .collect()
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
