//! A raw xDS client for both variants, by tonic. It acknowledges nothing by itself.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};
use envoy_types::pb::google::rpc::Status as RpcStatus;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use waypost_core::ResourceType;
use waypost_observer::RunningObserver;

use super::{DEADLINE, channel};

/// How long nothing may arrive when nothing should.
pub(crate) const QUIET: Duration = Duration::from_millis(700);

pub(crate) fn node() -> Node {
    Node {
        id: "probe".to_owned(),
        user_agent_name: "probe".to_owned(),
        ..Node::default()
    }
}

/// The node of an Envoy that calls these services.
pub(crate) fn mk_envoy(services: &[&str], outbound_port: u16) -> Node {
    let value = |kind| Value { kind: Some(kind) };
    let text = |name: &&str| value(Kind::StringValue((*name).to_owned()));
    let services = ListValue {
        values: services.iter().map(text).collect(),
    };
    let port = Kind::NumberValue(outbound_port.into());
    let fields = [
        (waypost_xds::SERVICES_KEY, Kind::ListValue(services)),
        (waypost_xds::OUTBOUND_PORT_KEY, port),
    ];
    Node {
        user_agent_name: "envoy".to_owned(),
        metadata: Some(Struct {
            fields: fields.map(|(k, kind)| (k.to_owned(), value(kind))).into(),
        }),
        ..node()
    }
}

/// A delta stream.
pub(crate) struct Delta {
    node: Node,
    requests_tx: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Delta {
    pub(crate) async fn open(observer: &RunningObserver) -> Result<Self, Status> {
        Self::open_as(observer, node()).await
    }

    pub(crate) async fn open_as(observer: &RunningObserver, node: Node) -> Result<Self, Status> {
        Self::open_on(channel(observer).await, node).await
    }

    pub(crate) async fn open_on(channel: Channel, node: Node) -> Result<Self, Status> {
        let (requests_tx, requests_rx) = mpsc::channel(16);
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client
            .delta_aggregated_resources(ReceiverStream::new(requests_rx))
            .await?;
        Ok(Self {
            node,
            requests_tx,
            responses: responses.into_inner(),
        })
    }

    pub(crate) async fn subscribe(&mut self, resource_type: ResourceType, names: &[&str]) {
        let request = DeltaDiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        self.requests_tx.send(request).await.unwrap();
    }

    /// The next response, acknowledged.
    pub(crate) async fn next(&mut self) -> DeltaDiscoveryResponse {
        let message = tokio::time::timeout(DEADLINE, self.responses.message());
        let response = message.await.expect("no response").unwrap().unwrap();
        let ack = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        };
        self.requests_tx.send(ack).await.unwrap();
        response
    }

    /// The next response, not answered.
    pub(crate) async fn next_unanswered(&mut self) -> DeltaDiscoveryResponse {
        let message = tokio::time::timeout(DEADLINE, self.responses.message());
        message.await.expect("no response").unwrap().unwrap()
    }

    /// Rejects a response.
    pub(crate) async fn reject(&mut self, response: &DeltaDiscoveryResponse, why: &str) {
        let nack = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(RpcStatus {
                code: 3,
                message: why.to_owned(),
                details: Vec::new(),
            }),
            ..DeltaDiscoveryRequest::default()
        };
        self.requests_tx.send(nack).await.unwrap();
    }

    pub(crate) async fn expect_quiet(&mut self) {
        let message = tokio::time::timeout(QUIET, self.responses.message()).await;
        assert!(message.is_err(), "expected nothing, got {message:?}");
    }

    /// The status with which the server ends the stream.
    pub(crate) async fn end(&mut self) -> Status {
        let message = tokio::time::timeout(DEADLINE, self.responses.message()).await;
        message.expect("the stream does not end").unwrap_err()
    }
}

/// A stream of the state of the world.
pub(crate) struct Sotw {
    node: Node,
    requests_tx: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    names: Vec<String>,
}

impl Sotw {
    pub(crate) async fn open(observer: &RunningObserver) -> Result<Self, Status> {
        Self::open_as(observer, node()).await
    }

    pub(crate) async fn open_as(observer: &RunningObserver, node: Node) -> Result<Self, Status> {
        let (requests_tx, requests_rx) = mpsc::channel(16);
        let mut client = AggregatedDiscoveryServiceClient::new(channel(observer).await);
        let responses = client
            .stream_aggregated_resources(ReceiverStream::new(requests_rx))
            .await?;
        Ok(Self {
            node,
            requests_tx,
            responses: responses.into_inner(),
            names: Vec::new(),
        })
    }

    pub(crate) async fn subscribe(&mut self, resource_type: ResourceType, names: &[&str]) {
        self.names = names.iter().map(ToString::to_string).collect();
        let request = DiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: resource_type.type_url().to_owned(),
            resource_names: self.names.clone(),
            ..DiscoveryRequest::default()
        };
        self.requests_tx.send(request).await.unwrap();
    }

    /// The next response, acknowledged.
    pub(crate) async fn next(&mut self) -> DiscoveryResponse {
        let message = tokio::time::timeout(DEADLINE, self.responses.message());
        let response = message.await.expect("no response").unwrap().unwrap();
        let ack = DiscoveryRequest {
            type_url: response.type_url.clone(),
            resource_names: self.names.clone(),
            version_info: response.version_info.clone(),
            response_nonce: response.nonce.clone(),
            ..DiscoveryRequest::default()
        };
        self.requests_tx.send(ack).await.unwrap();
        response
    }

    pub(crate) async fn expect_quiet(&mut self) {
        let message = tokio::time::timeout(QUIET, self.responses.message()).await;
        assert!(message.is_err(), "expected nothing, got {message:?}");
    }
}
