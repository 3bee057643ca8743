//! The state-of-the-world variant.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::rpc::Status as ErrorDetail;
use tonic::transport::Channel;

use super::{Exchange, RESPONSE_MAX, open_exchange};

/// What a `SotW` client keeps of a type.
#[derive(Clone, Debug, Default)]
struct TypeState {
    names: BTreeSet<String>,
    /// Newest nonce of this stream.
    nonce: String,
    /// Version last accepted, of whichever stream.
    version: String,
}

/// A `SotW` client.
pub struct SotwProbe {
    channel: Channel,
    node: Node,
    exchange: Exchange<DiscoveryRequest, DiscoveryResponse>,
    types: BTreeMap<String, TypeState>,
}

impl SotwProbe {
    /// Opens a stream.
    ///
    /// # Errors
    /// The server refuses it; the error is the `tonic::Status`.
    pub async fn open(channel: Channel, node: Node) -> anyhow::Result<Self> {
        let exchange = open_exchange!(channel.clone(), stream_aggregated_resources);
        Ok(Self {
            channel,
            node,
            exchange,
            types: BTreeMap::new(),
        })
    }

    /// Sends a request as it is, but for the node, which the first one of a stream gets.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&mut self, mut request: DiscoveryRequest) -> anyhow::Result<()> {
        if self.exchange.sent == 0 && request.node.is_none() {
            request.node = Some(self.node.clone());
        }
        let state = self.types.entry(request.type_url.clone()).or_default();
        state.names = request.resource_names.iter().cloned().collect();
        self.exchange.send(request).await
    }

    /// Subscribes to names in addition to those of the type so far.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn subscribe(&mut self, type_url: &str, names: &[&str]) -> anyhow::Result<()> {
        let state = self.types.entry(type_url.to_owned()).or_default();
        state
            .names
            .extend(names.iter().map(|&name| name.to_owned()));
        let request = self.request(type_url);
        self.send(request).await
    }

    /// Unsubscribes from names.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn unsubscribe(&mut self, type_url: &str, names: &[&str]) -> anyhow::Result<()> {
        let state = self.types.entry(type_url.to_owned()).or_default();
        state.names.retain(|name| !names.contains(&name.as_str()));
        let request = self.request(type_url);
        self.send(request).await
    }

    /// Confirms a response: it becomes the version in use.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn ack(&mut self, response: &DiscoveryResponse) -> anyhow::Result<()> {
        let state = self.types.entry(response.type_url.clone()).or_default();
        state.version.clone_from(&response.version_info);
        let request = DiscoveryRequest {
            response_nonce: response.nonce.clone(),
            ..self.request(&response.type_url)
        };
        self.send(request).await
    }

    /// Rejects a response; the version in use stays.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn nack(
        &mut self,
        response: &DiscoveryResponse,
        message: &str,
    ) -> anyhow::Result<()> {
        let request = DiscoveryRequest {
            response_nonce: response.nonce.clone(),
            error_detail: Some(ErrorDetail {
                code: tonic::Code::InvalidArgument as i32,
                message: message.to_owned(),
                details: Vec::new(),
            }),
            ..self.request(&response.type_url)
        };
        self.send(request).await
    }

    /// A request with the names, the newest nonce and the version in use of a type.
    #[must_use]
    pub fn request(&self, type_url: &str) -> DiscoveryRequest {
        let state = self.types.get(type_url).cloned().unwrap_or_default();
        DiscoveryRequest {
            version_info: state.version,
            resource_names: state.names.into_iter().collect(),
            type_url: type_url.to_owned(),
            response_nonce: state.nonce,
            ..DiscoveryRequest::default()
        }
    }

    /// The next response, checked and remembered but not answered.
    ///
    /// # Errors
    /// None came in time, the stream ended, or the response breaks a rule that holds for all.
    pub async fn receive(&mut self, within: Duration) -> anyhow::Result<DiscoveryResponse> {
        let response = self.exchange.next(within).await?;
        let control_plane = response.control_plane.as_ref();
        self.exchange
            .check(&response.type_url, &response.nonce, control_plane)?;
        anyhow::ensure!(
            !response.version_info.is_empty(),
            "a response without a version"
        );
        for any in &response.resources {
            anyhow::ensure!(
                any.type_url == response.type_url,
                "a {} in a response of {}",
                any.type_url,
                response.type_url
            );
        }
        let state = self.types.entry(response.type_url.clone()).or_default();
        state.nonce.clone_from(&response.nonce);
        Ok(response)
    }

    /// Reads and confirms responses until `done` says so of one.
    ///
    /// # Errors
    /// None such came in time, or any response is wrong.
    pub async fn expect_update(
        &mut self,
        type_url: &str,
        done: impl Fn(&DiscoveryResponse) -> bool,
    ) -> anyhow::Result<DiscoveryResponse> {
        let end = tokio::time::Instant::now() + RESPONSE_MAX;
        loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            let response = self.receive(left).await?;
            self.ack(&response).await?;
            if response.type_url == type_url && done(&response) {
                return Ok(response);
            }
        }
    }

    /// Nothing may come for `window`.
    ///
    /// # Errors
    /// Something came, or the stream ended.
    pub async fn expect_quiet(&mut self, window: Duration) -> anyhow::Result<()> {
        match tokio::time::timeout(window, self.exchange.responses.message()).await {
            Err(_) => Ok(()),
            Ok(Ok(Some(response))) => bail!("a response within the quiet time: {response:?}"),
            Ok(Ok(None)) => bail!("the stream ended within the quiet time"),
            Ok(Err(status)) => bail!("the stream ended within the quiet time: {status}"),
        }
    }

    /// The status with which the server ends the stream.
    ///
    /// # Errors
    /// A response came, or no end in time.
    pub async fn expect_end(&mut self) -> anyhow::Result<tonic::Status> {
        self.exchange.end().await
    }

    /// Ends the stream and opens another on `channel` (`None`: the same connection). The versions
    /// in use stay; names and nonces go.
    ///
    /// # Errors
    /// The server refuses the stream.
    pub async fn reopen(&mut self, channel: Option<Channel>) -> anyhow::Result<()> {
        if let Some(channel) = channel {
            self.channel = channel;
        }
        for state in self.types.values_mut() {
            state.names.clear();
            state.nonce.clear();
        }
        self.exchange = open_exchange!(self.channel.clone(), stream_aggregated_resources);
        Ok(())
    }

    /// As `reopen`, and asks for all names of each type again, with the version in use.
    ///
    /// # Errors
    /// The server refuses the stream.
    pub async fn reconnect(&mut self, channel: Option<Channel>) -> anyhow::Result<()> {
        let types = self.types.clone();
        self.reopen(channel).await?;
        for (type_url, before) in types {
            let state = self.types.entry(type_url.clone()).or_default();
            state.names = before.names;
            let request = self.request(&type_url);
            self.send(request).await?;
        }
        Ok(())
    }
}
