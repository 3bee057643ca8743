//! What happens on streams, as typed events handed to one handler. The engine picks no metrics
//! backend; labels come from the closed enums here, names and node ids are for logs only.

use std::net::SocketAddr;
use std::time::Duration;

use waypost_core::{ResourceType, Timestamp};

use crate::status::Code;

/// Receives every event, on the thread and in the middle of the stream that it concerns: it must be
/// quick and must not block.
pub trait EventHandler: Send + Sync + 'static {
    /// Something happened.
    fn on_event(&self, event: &Event<'_>);
}

/// Ignores every event.
#[derive(Clone, Copy, Debug)]
pub struct IgnoreEvents;

impl EventHandler for IgnoreEvents {
    fn on_event(&self, _event: &Event<'_>) {}
}

/// Which of the two ways of talking a stream uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Incremental.
    Delta,
    /// State of the world.
    Sotw,
}

impl Transport {
    /// The closed label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Sotw => "sotw",
        }
    }
}

/// What a request was, besides a possible change of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// No answer to a response of this stream.
    Subscribe,
    /// Confirms the response that its nonce names.
    Ack,
    /// Rejects the response that its nonce names.
    Nack,
    /// Carries a nonce that is not the newest of its type.
    Stale,
}

impl RequestKind {
    /// All kinds, each at the place of its number.
    pub const ALL: [Self; 4] = [Self::Subscribe, Self::Ack, Self::Nack, Self::Stale];

    /// The closed label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Stale => "stale",
        }
    }
}

/// Why a stream or connection was refused before anything was sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The Observer has not loaded.
    NotLoaded,
    /// The bound on streams is reached.
    StreamLimit,
    /// The bound on connections is reached.
    ConnectionLimit,
    /// The Observer is going down.
    Draining,
}

impl RefusalReason {
    /// The closed label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotLoaded => "not_loaded",
            Self::StreamLimit => "stream_limit",
            Self::ConnectionLimit => "connection_limit",
            Self::Draining => "draining",
        }
    }
}

/// Why no connection came of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeFailure {
    /// The peer spoke without TLS.
    Plaintext,
    /// The peer speaks TLS, and this listener does not.
    NotServed,
    /// The peer did not finish in time.
    TooSlow,
    /// The peer shows no certificate, or one that is not good.
    ClientCertificate,
    /// The peer does not take this server's certificate, or something else of it.
    RefusedByPeer,
    /// The two have no version, cipher or protocol in common, or it is no TLS.
    Protocol,
}

impl HandshakeFailure {
    /// The closed label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::NotServed => "not_served",
            Self::TooSlow => "too_slow",
            Self::ClientCertificate => "client_certificate",
            Self::RefusedByPeer => "refused_by_peer",
            Self::Protocol => "protocol",
        }
    }
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The client closed or reset the stream, or its connection is gone.
    Client,
    /// No first request in time.
    FirstRequestTimeout,
    /// A request that could not be read, or was over a bound.
    BadRequest(Code),
    /// The client did not read for longer than the bound.
    Stalled,
    /// The Observer is going down.
    Draining,
    /// Its connection has reached its largest age.
    ConnectionAge,
}

impl EndReason {
    /// The closed label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::FirstRequestTimeout => "first_request_timeout",
            Self::BadRequest(_) => "bad_request",
            Self::Stalled => "stalled",
            Self::Draining => "draining",
            Self::ConnectionAge => "connection_age",
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A stream was accepted.
    StreamOpened {
        /// Which way it talks.
        transport: Transport,
    },
    /// A stream or connection was refused.
    Refused {
        /// Why.
        reason: RefusalReason,
    },
    /// A TLS handshake came to nothing; its connection is closed.
    HandshakeFailed {
        /// Where it came from.
        peer: SocketAddr,
        /// Why.
        reason: HandshakeFailure,
        /// The same for people.
        detail: &'a str,
    },
    /// A stream that was opened ended.
    StreamEnded {
        /// Which way it talked.
        transport: Transport,
        /// Why it ended.
        reason: EndReason,
        /// How long it was open.
        age: Duration,
    },
    /// A request was read and applied.
    RequestReceived {
        /// Which way its stream talks.
        transport: Transport,
        /// Its type; `None` for one that is not served.
        resource_type: Option<ResourceType>,
        /// What it was.
        kind: RequestKind,
        /// Size of the message, bytes.
        bytes: usize,
    },
    /// A request was larger than the bound; its stream ends.
    RequestOverMaxSize {
        /// Where it came from.
        peer: SocketAddr,
        /// Size it announced, bytes.
        bytes: usize,
    },
    /// A client rejected a response.
    Rejected {
        /// Type of the response.
        resource_type: ResourceType,
        /// The client's node id.
        node_id: &'a str,
        /// The client's reason, cut to a bound.
        message: &'a str,
    },
    /// A response was handed to the connection.
    ResponseSent {
        /// Which way its stream talks.
        transport: Transport,
        /// Its type; `None` for one that is not served.
        resource_type: Option<ResourceType>,
        /// Resources in it.
        resources: usize,
        /// Removals in it.
        removed: usize,
        /// Size of the message with its frame, bytes.
        bytes: usize,
    },
    /// A response held a change that the client did not ask for again: the moment at which its
    /// propagation ends for this stream.
    ChangeSent {
        /// The type.
        resource_type: ResourceType,
        /// Time of origin of the newest fact in the resource.
        origin: Timestamp,
    },
    /// A resource is too large for any response and was left out; the rest went.
    ResourceOverMaxSize {
        /// The type.
        resource_type: ResourceType,
        /// The resource.
        name: &'a str,
        /// Its size, bytes.
        bytes: usize,
    },
    /// A `SotW` set that must not be split is larger than the bound; it was sent whole.
    SetOverMaxSize {
        /// The type.
        resource_type: ResourceType,
        /// Size of the response, bytes.
        bytes: usize,
    },
    /// A subscription to everything of a type was refused by the settings.
    WildcardRefused {
        /// The type.
        resource_type: ResourceType,
    },
}
