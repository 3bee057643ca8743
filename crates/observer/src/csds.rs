//! `envoy.service.status.v3.ClientStatusDiscoveryService`: what each stream was told, from the Observer's side.
//! Clients of gRPC and Envoy have the same service for their own side, so that the two can be compared.
//!
//! `docs/xds-rules.md` says what each field holds and what it cannot say.

mod matchers;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;

use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryService;
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use envoy_types::pb::google::protobuf;
use futures::Stream;
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};
use waypost_core::{EncodedResource, Timestamp};
use waypost_xds::{
    AckView, Inventory, NodeInfo, ResourceState, ResourceStatus, StreamRegistry, StreamView,
};

use crate::limits::{CSDS_BYTES_MAX, CSDS_QUESTIONS_MAX, CSDS_RESOURCES_MAX};
use matchers::NodeMatchers;

/// The service. It reads what streams keep for themselves; nothing waits for it.
#[derive(Clone)]
pub struct ClientStatus {
    streams: StreamRegistry,
    permits: Arc<Semaphore>,
}

/// What an answer is made for.
struct Question {
    matchers: NodeMatchers,
    with_contents: bool,
}

impl ClientStatus {
    /// Answers about `streams`.
    #[must_use]
    pub fn new(streams: StreamRegistry) -> Self {
        Self {
            streams,
            permits: Arc::new(Semaphore::new(CSDS_QUESTIONS_MAX)),
        }
    }

    async fn answer(&self, request: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        let question = Question {
            matchers: NodeMatchers::read(&request.node_matchers)?,
            with_contents: !request.exclude_resource_contents,
        };
        // Threads that serve streams must not be the ones that make it.
        let _permit = self.permits.acquire().await;
        let streams = self.streams.clone();
        let answered = tokio::task::spawn_blocking(move || question.answer(&streams)).await;
        answered.map_err(|died| Status::internal(died.to_string()))?
    }
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for ClientStatus {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;

    /// One answer for each request.
    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let state = (self.clone(), request.into_inner());
        let answers = futures::stream::try_unfold(state, |(service, mut requests)| async {
            let Some(request) = requests.message().await? else {
                return Ok(None);
            };
            let answer = service.answer(request).await?;
            Ok(Some((answer, (service, requests))))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        Ok(Response::new(self.answer(request.into_inner()).await?))
    }
}

impl Question {
    /// # Errors
    /// The answer would be too large. A part of it would look like all of it.
    fn answer(&self, streams: &StreamRegistry) -> Result<ClientStatusResponse, Status> {
        let mut answer = ClientStatusResponse::default();
        let (mut bytes, mut resources) = (0, 0);
        let wants =
            |node: Option<&NodeInfo>| self.matchers.matches(node.map_or("", |node| &node.id));
        for inventory in streams.inventories(wants, CSDS_RESOURCES_MAX) {
            let config = self.client_config(&inventory);
            let is_cut = inventory.types.iter().any(|of_type| of_type.is_cut);
            resources += config.generic_xds_configs.len();
            bytes += config.encoded_len();
            answer.config.push(config);
            if is_cut || resources > CSDS_RESOURCES_MAX || bytes > CSDS_BYTES_MAX {
                return Err(Status::resource_exhausted(format!(
                    "the answer has more than {CSDS_RESOURCES_MAX} resources or {CSDS_BYTES_MAX} bytes; \
                     ask for fewer clients by node_matchers, or leave contents out \
                     (exclude_resource_contents)"
                )));
            }
        }
        Ok(answer)
    }

    fn client_config(&self, inventory: &Inventory) -> ClientConfig {
        let types = inventory.types.iter();
        let configs = types.flat_map(|of_type| {
            let resources = of_type.resources.iter();
            resources.map(|status| self.config(inventory, &of_type.acks, status))
        });
        ClientConfig {
            node: Some(node(&inventory.stream)),
            generic_xds_configs: configs.collect(),
            client_scope: scope(&inventory.stream),
            ..ClientConfig::default()
        }
    }

    fn config(
        &self,
        inventory: &Inventory,
        acks: &AckView,
        status: &ResourceStatus,
    ) -> GenericXdsConfig {
        let resource_type = acks.resource_type;
        let sent = inventory.find_sent(resource_type, status);
        let version = status
            .version
            .map_or_else(String::new, |version| version.to_string());
        let exists = || inventory.exists(resource_type, &status.name);
        let (config_status, client_status) = statuses(status.state, exists);
        let rejected = status.state == ResourceState::Doubtful;
        GenericXdsConfig {
            type_url: resource_type.type_url().to_owned(),
            name: status.name.to_string(),
            version_info: version.clone(),
            xds_config: sent
                .as_ref()
                .filter(|_| self.with_contents)
                .and_then(contents),
            last_updated: sent.as_ref().and_then(|sent| to_time(sent.origin())),
            config_status: config_status.into(),
            client_status: client_status.into(),
            error_state: rejected.then(|| UpdateFailureState {
                details: acks.last_error.clone().unwrap_or_default(),
                version_info: version,
                ..UpdateFailureState::default()
            }),
            is_static_resource: false,
        }
    }
}

/// What the Observer says of it, and what the client can be taken to say.
fn statuses(
    state: ResourceState,
    exists: impl FnOnce() -> bool,
) -> (ConfigStatus, ClientResourceStatus) {
    match state {
        // State of the world has no word for what does not exist; its clients find out by waiting.
        ResourceState::NotSent if exists() => {
            (ConfigStatus::NotSent, ClientResourceStatus::Requested)
        }
        ResourceState::NotSent => (ConfigStatus::NotSent, ClientResourceStatus::DoesNotExist),
        ResourceState::Absent => (ConfigStatus::Synced, ClientResourceStatus::DoesNotExist),
        ResourceState::Sent => (ConfigStatus::Stale, ClientResourceStatus::Unknown),
        ResourceState::Acked => (ConfigStatus::Synced, ClientResourceStatus::Acked),
        ResourceState::Doubtful => (ConfigStatus::Error, ClientResourceStatus::Nacked),
    }
}

/// The message as it was sent.
fn contents(sent: &EncodedResource) -> Option<protobuf::Any> {
    // The encoding is the entry of a response.
    let response = DiscoveryResponse::decode(sent.sotw()).ok()?;
    response.resources.into_iter().next()
}

/// Two clients may have one node id; their streams tell them apart.
fn scope(stream: &StreamView) -> String {
    let transport = stream.transport.label();
    format!("stream {} ({transport}) from {}", stream.id.0, stream.peer)
}

fn node(stream: &StreamView) -> Node {
    let node = stream.node.clone().unwrap_or_default();
    Node {
        id: node.id,
        cluster: node.cluster,
        user_agent_name: node.user_agent,
        ..Node::default()
    }
}

/// `None` where it is not known.
fn to_time(time: Timestamp) -> Option<protobuf::Timestamp> {
    let nanos = i32::try_from(time.0.rem_euclid(1000)).ok()? * 1_000_000;
    (time != Timestamp::default()).then(|| protobuf::Timestamp {
        seconds: time.0.div_euclid(1000),
        nanos,
    })
}
