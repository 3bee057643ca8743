//! One stream over tonic.

use std::error::Error as _;
use std::fmt;
use std::task::{Context, Poll, ready};

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::limits::REQUESTS_QUEUED_MAX;
use crate::link::{LinkId, Request};
use crate::machine::Response;
use crate::policy::{Policy, XdsVariant};

/// What a stream has to say.
pub(super) enum IoEvent {
    /// There is room for one request.
    Room,
    /// The server has accepted the stream.
    Up,
    /// A response came.
    Response(Response),
    /// It ended, for this reason.
    Ended(String),
}

/// One stream.
pub(super) struct LinkIo {
    pub(super) id: LinkId,
    requests_tx: Requests,
    responses: Responses,
}

enum Requests {
    Delta(PollSender<DeltaDiscoveryRequest>),
    Sotw(PollSender<DiscoveryRequest>),
}

enum Responses {
    Opening(BoxFuture<'static, Result<Self, Status>>),
    Delta(Streaming<DeltaDiscoveryResponse>),
    Sotw(Streaming<DiscoveryResponse>),
}

impl LinkIo {
    /// Opens a stream on a channel of its own, so that a name is resolved anew and nothing is left
    /// of a connection that is half dead. Requests are sent while the server has not accepted it yet:
    /// some accept only after the first one.
    pub(super) fn open(id: LinkId, channel: Channel, policy: &Policy) -> Self {
        let client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(policy.response_bytes_max);
        let (requests_tx, responses) = match policy.variant {
            XdsVariant::Delta => open_delta(client),
            XdsVariant::Sotw => open_sotw(client),
        };
        Self {
            id,
            requests_tx,
            responses,
        }
    }

    /// What comes next. A stream that wants to send is not read until it could.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, wants_to_send: bool) -> Poll<IoEvent> {
        if wants_to_send && self.requests_tx.poll_room(cx).is_ready() {
            return Poll::Ready(IoEvent::Room);
        }
        match &mut self.responses {
            Responses::Opening(opening) => {
                let event = match ready!(opening.poll_unpin(cx)) {
                    Ok(responses) => {
                        self.responses = responses;
                        IoEvent::Up
                    }
                    Err(status) => IoEvent::Ended(explain(&status)),
                };
                Poll::Ready(event)
            }
            _ if wants_to_send => Poll::Pending,
            Responses::Delta(responses) => {
                let message = ready!(responses.poll_next_unpin(cx));
                Poll::Ready(to_event(message, Response::Delta))
            }
            Responses::Sotw(responses) => {
                let message = ready!(responses.poll_next_unpin(cx));
                Poll::Ready(to_event(message, Response::Sotw))
            }
        }
    }

    /// Sends a request, for which there was room.
    pub(super) fn send(&mut self, request: Request) {
        // A stream that has ended says so to whoever reads it.
        match (&mut self.requests_tx, request) {
            (Requests::Delta(requests_tx), Request::Delta(request)) => {
                let _ = requests_tx.send_item(request);
            }
            (Requests::Sotw(requests_tx), Request::Sotw(request)) => {
                let _ = requests_tx.send_item(request);
            }
            (Requests::Delta(_), Request::Sotw(_)) | (Requests::Sotw(_), Request::Delta(_)) => {}
        }
    }
}

impl Requests {
    /// Ready once there is room, or the stream has ended.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Delta(requests_tx) => requests_tx.poll_reserve(cx).map(drop),
            Self::Sotw(requests_tx) => requests_tx.poll_reserve(cx).map(drop),
        }
    }
}

fn open_delta(mut client: AggregatedDiscoveryServiceClient<Channel>) -> (Requests, Responses) {
    let (requests_tx, requests_rx) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let opening = async move {
        let requests = ReceiverStream::new(requests_rx);
        let response = client.delta_aggregated_resources(requests).await?;
        Ok(Responses::Delta(response.into_inner()))
    };
    let requests_tx = Requests::Delta(PollSender::new(requests_tx));
    (requests_tx, Responses::Opening(opening.boxed()))
}

fn open_sotw(mut client: AggregatedDiscoveryServiceClient<Channel>) -> (Requests, Responses) {
    let (requests_tx, requests_rx) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let opening = async move {
        let requests = ReceiverStream::new(requests_rx);
        let response = client.stream_aggregated_resources(requests).await?;
        Ok(Responses::Sotw(response.into_inner()))
    };
    let requests_tx = Requests::Sotw(PollSender::new(requests_tx));
    (requests_tx, Responses::Opening(opening.boxed()))
}

fn to_event<M>(
    message: Option<Result<M, Status>>,
    to_response: impl FnOnce(M) -> Response,
) -> IoEvent {
    match message {
        Some(Ok(message)) => IoEvent::Response(to_response(message)),
        Some(Err(status)) => IoEvent::Ended(explain(&status)),
        None => IoEvent::Ended("the server ended the stream".to_owned()),
    }
}

/// The text of a status with the cause that transports hide behind it.
fn explain(status: &Status) -> String {
    let mut cause = status.source();
    while let Some(deeper) = cause.and_then(|c| c.source()) {
        cause = Some(deeper);
    }
    let code = status.code();
    match cause {
        Some(cause) => format!("{code:?}: {}: {cause}", status.message()),
        None => format!("{code:?}: {}", status.message()),
    }
}

impl fmt::Debug for LinkIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkIo")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
