//! The incremental variant.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use envoy_types::pb::google::rpc::Status as ErrorDetail;
use tonic::transport::Channel;

use super::{Exchange, RESPONSE_MAX, open_exchange};

/// Name to version, by type URL.
type Versions = BTreeMap<String, BTreeMap<String, String>>;

/// A delta client.
pub struct DeltaProbe {
    channel: Channel,
    node: Node,
    exchange: Exchange<DeltaDiscoveryRequest, DeltaDiscoveryResponse>,
    held: Versions,
    subscribed: BTreeMap<String, BTreeSet<String>>,
}

impl DeltaProbe {
    /// Opens a stream.
    ///
    /// # Errors
    /// The server refuses it; the error is the `tonic::Status`.
    pub async fn open(channel: Channel, node: Node) -> anyhow::Result<Self> {
        let exchange = open_exchange!(channel.clone(), delta_aggregated_resources);
        Ok(Self {
            channel,
            node,
            exchange,
            held: BTreeMap::new(),
            subscribed: BTreeMap::new(),
        })
    }

    /// Sends a request as it is, but for the node, which the first one of a stream gets.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&mut self, mut request: DeltaDiscoveryRequest) -> anyhow::Result<()> {
        if self.exchange.sent == 0 && request.node.is_none() {
            request.node = Some(self.node.clone());
        }
        let names = self.subscribed.entry(request.type_url.clone()).or_default();
        names.extend(request.resource_names_subscribe.iter().cloned());
        for name in &request.resource_names_unsubscribe {
            names.remove(name);
        }
        self.exchange.send(request).await
    }

    /// Subscribes to names.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn subscribe(&mut self, type_url: &str, names: &[&str]) -> anyhow::Result<()> {
        self.send(DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names_subscribe: names.iter().map(|&name| name.to_owned()).collect(),
            ..DeltaDiscoveryRequest::default()
        })
        .await
    }

    /// Unsubscribes from names and drops what is held of them.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn unsubscribe(&mut self, type_url: &str, names: &[&str]) -> anyhow::Result<()> {
        if let Some(held) = self.held.get_mut(type_url) {
            held.retain(|name, _| !names.contains(&name.as_str()));
        }
        self.send(DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names_unsubscribe: names.iter().map(|&name| name.to_owned()).collect(),
            ..DeltaDiscoveryRequest::default()
        })
        .await
    }

    /// Confirms a response.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn ack(&mut self, response: &DeltaDiscoveryResponse) -> anyhow::Result<()> {
        self.answer(response, None).await
    }

    /// Rejects a response.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn nack(
        &mut self,
        response: &DeltaDiscoveryResponse,
        message: &str,
    ) -> anyhow::Result<()> {
        let error = ErrorDetail {
            code: tonic::Code::InvalidArgument as i32,
            message: message.to_owned(),
            details: Vec::new(),
        };
        self.answer(response, Some(error)).await
    }

    /// The next response, checked and remembered but not answered.
    ///
    /// # Errors
    /// None came in time, the stream ended, or the response breaks a rule that holds for all.
    pub async fn receive(&mut self, within: Duration) -> anyhow::Result<DeltaDiscoveryResponse> {
        let response = self.exchange.next(within).await?;
        let control_plane = response.control_plane.as_ref();
        self.exchange
            .check(&response.type_url, &response.nonce, control_plane)?;
        check(&response)?;
        let held = self.held.entry(response.type_url.clone()).or_default();
        for resource in &response.resources {
            held.insert(resource.name.clone(), resource.version.clone());
        }
        for name in &response.removed_resources {
            held.remove(name);
        }
        Ok(response)
    }

    /// Reads and confirms responses until one holds the resource.
    ///
    /// # Errors
    /// It did not come in time, or any response is wrong.
    pub async fn expect_update(&mut self, type_url: &str, name: &str) -> anyhow::Result<Resource> {
        let response = self
            .until(|r| r.type_url == type_url && r.resources.iter().any(|r| r.name == name))
            .await?;
        let found = response.resources.into_iter().find(|r| r.name == name);
        found.ok_or_else(|| anyhow::anyhow!("{name} vanished"))
    }

    /// Reads and confirms responses until one removes the name.
    ///
    /// # Errors
    /// It did not come in time, or any response is wrong.
    pub async fn expect_removed(&mut self, type_url: &str, name: &str) -> anyhow::Result<()> {
        let is_removed = |r: &DeltaDiscoveryResponse| {
            r.type_url == type_url && r.removed_resources.iter().any(|removed| removed == name)
        };
        self.until(is_removed).await.map(drop)
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

    /// Ends the stream and opens another on `channel` (`None`: the same connection). What is held
    /// stays, nothing is subscribed.
    ///
    /// # Errors
    /// The server refuses the stream.
    pub async fn reopen(&mut self, channel: Option<Channel>) -> anyhow::Result<()> {
        if let Some(channel) = channel {
            self.channel = channel;
        }
        self.subscribed.clear();
        self.exchange = open_exchange!(self.channel.clone(), delta_aggregated_resources);
        Ok(())
    }

    /// As `reopen`, and subscribes to everything again as a client does that comes back, with the
    /// versions that it holds if `with_versions`.
    ///
    /// # Errors
    /// The server refuses the stream.
    pub async fn reconnect(
        &mut self,
        channel: Option<Channel>,
        with_versions: bool,
    ) -> anyhow::Result<()> {
        let subscribed = self.subscribed.clone();
        self.reopen(channel).await?;
        for (type_url, names) in subscribed {
            let held = self.held.get(&type_url).cloned().unwrap_or_default();
            let versions = if with_versions { held } else { BTreeMap::new() };
            self.send(DeltaDiscoveryRequest {
                type_url,
                resource_names_subscribe: names.into_iter().collect(),
                initial_resource_versions: versions.into_iter().collect(),
                ..DeltaDiscoveryRequest::default()
            })
            .await?;
        }
        Ok(())
    }

    /// What a client would hold of a type: version by name.
    #[must_use]
    pub fn held(&self, type_url: &str) -> BTreeMap<String, String> {
        self.held.get(type_url).cloned().unwrap_or_default()
    }

    async fn answer(
        &mut self,
        response: &DeltaDiscoveryResponse,
        error_detail: Option<ErrorDetail>,
    ) -> anyhow::Result<()> {
        self.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail,
            ..DeltaDiscoveryRequest::default()
        })
        .await
    }

    async fn until(
        &mut self,
        done: impl Fn(&DeltaDiscoveryResponse) -> bool,
    ) -> anyhow::Result<DeltaDiscoveryResponse> {
        let end = tokio::time::Instant::now() + RESPONSE_MAX;
        loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            let response = self.receive(left).await?;
            self.ack(&response).await?;
            if done(&response) {
                return Ok(response);
            }
        }
    }
}

/// What holds for every delta response (xDS protocol, "Incremental xDS"; `discovery.proto`).
fn check(response: &DeltaDiscoveryResponse) -> anyhow::Result<()> {
    let mut names = BTreeSet::new();
    for resource in &response.resources {
        let name = &resource.name;
        anyhow::ensure!(!name.is_empty(), "a resource without a name");
        anyhow::ensure!(!resource.version.is_empty(), "{name} has no version");
        anyhow::ensure!(names.insert(name), "{name} is in one response twice");
        // A resource with a time-to-live would vanish with its Observer.
        anyhow::ensure!(resource.ttl.is_none(), "{name} has a time-to-live");
        let type_url = resource.resource.as_ref().map(|any| any.type_url.as_str());
        anyhow::ensure!(
            type_url == Some(&response.type_url),
            "{name} is a {type_url:?} in a response of {}",
            response.type_url
        );
    }
    for name in &response.removed_resources {
        anyhow::ensure!(names.insert(name), "{name} is in one response twice");
    }
    Ok(())
}
