//! Raw xDS clients: they say what a test tells them to and hide nothing. They check of each response
//! what the protocol demands of every response, and remember what a client would hold.
//!
//! They speak to any server of the aggregated discovery service by its address.

mod delta;
mod sotw;

use std::time::Duration;

use anyhow::{Context as _, bail};
use envoy_types::pb::envoy::config::core::v3::{ControlPlane, Node};
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

pub use delta::DeltaProbe;
pub use sotw::SotwProbe;

/// How long a response may take before a test fails. Generous: it is no measurement.
pub const RESPONSE_MAX: Duration = Duration::from_secs(20);

/// Requests that wait for the connection.
const REQUESTS_MAX: usize = 1024;

/// A node as a client of this kind sends it: `envoy`, `rest.li`, or anything else.
#[must_use]
pub fn mk_node(user_agent: &str) -> Node {
    Node {
        id: format!("probe~{user_agent}"),
        cluster: "probe".to_owned(),
        user_agent_name: user_agent.to_owned(),
        ..Node::default()
    }
}

/// Opens a connection that several probes may share.
///
/// # Errors
/// Nobody accepts it.
pub async fn connect(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    endpoint
        .connect()
        .await
        .with_context(|| format!("connect to {address}"))
}

/// Chunks that are still to come of the answer that a response belongs to, out of its nonce.
///
/// # Errors
/// The nonce is not 24 hexadecimal digits.
pub fn remaining_chunks(nonce: &str) -> anyhow::Result<u32> {
    let digits = nonce.len() == 24 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
    anyhow::ensure!(digits, "nonce {nonce:?} is not 24 hexadecimal digits");
    Ok(u32::from_str_radix(&nonce[16..], 16)?)
}

/// One open stream of requests and responses.
struct Exchange<Q, R> {
    requests_tx: mpsc::Sender<Q>,
    responses: Streaming<R>,
    sent: usize,
    nonces: Vec<String>,
    control_plane: Option<String>,
}

impl<Q, R> Exchange<Q, R> {
    fn new(requests_tx: mpsc::Sender<Q>, responses: Streaming<R>) -> Self {
        Self {
            requests_tx,
            responses,
            sent: 0,
            nonces: Vec::new(),
            control_plane: None,
        }
    }

    async fn send(&mut self, request: Q) -> anyhow::Result<()> {
        self.sent += 1;
        let sent = self.requests_tx.send(request).await;
        sent.map_err(|_| anyhow::anyhow!("the stream has ended"))
    }

    async fn next(&mut self, within: Duration) -> anyhow::Result<R> {
        let message = tokio::time::timeout(within, self.responses.message())
            .await
            .with_context(|| format!("no response within {within:?}"))?;
        match message {
            Ok(Some(response)) => Ok(response),
            Ok(None) => bail!("the stream ended: OK"),
            Err(status) => Err(status).context("the stream ended"),
        }
    }

    /// The status with which the server ends the stream.
    async fn end(&mut self) -> anyhow::Result<tonic::Status> {
        let message = tokio::time::timeout(RESPONSE_MAX, self.responses.message())
            .await
            .with_context(|| format!("the stream did not end within {RESPONSE_MAX:?}"))?;
        match message {
            Ok(Some(_)) => bail!("a response instead of the end of the stream"),
            Ok(None) => Ok(tonic::Status::ok("")),
            Err(status) => Ok(status),
        }
    }

    /// What holds for every response of every type.
    fn check(
        &mut self,
        type_url: &str,
        nonce: &str,
        control_plane: Option<&ControlPlane>,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(!type_url.is_empty(), "a response without a type");
        remaining_chunks(nonce)?;
        let again = self.nonces.iter().any(|seen| seen == nonce);
        anyhow::ensure!(!again, "nonce {nonce} came twice on one stream");
        self.nonces.push(nonce.to_owned());
        let identifier = control_plane
            .map(|c| c.identifier.clone())
            .unwrap_or_default();
        anyhow::ensure!(
            !identifier.is_empty(),
            "control_plane.identifier is missing"
        );
        let first = self.control_plane.get_or_insert_with(|| identifier.clone());
        anyhow::ensure!(*first == identifier, "control_plane.identifier changed");
        Ok(())
    }
}

/// Opens a stream of requests; `call` makes the RPC of it.
macro_rules! open_exchange {
    ($channel:expr, $method:ident) => {{
        let (requests_tx, requests_rx) = tokio::sync::mpsc::channel($crate::probe::REQUESTS_MAX);
        let requests = futures::stream::unfold(requests_rx, |mut requests_rx| async {
            requests_rx
                .recv()
                .await
                .map(|request| (request, requests_rx))
        });
        let mut client = AggregatedDiscoveryServiceClient::new($channel);
        let response = client.$method(requests).await?;
        $crate::probe::Exchange::new(requests_tx, response.into_inner())
    }};
}
use open_exchange;
