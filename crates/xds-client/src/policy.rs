//! Where real clients differ. Each point is an enum, so that a client which is not ours can be put
//! together from them and a reader sees what it does.

use std::time::Duration;

use crate::limits::{
    FALL_BACK_EVERY, GRPC_RESPONSE_BYTES_MAX, RESOURCE_TIMER, RESPONSE_BYTES_MAX, RETURN_SPREAD,
};

/// Which of the two methods of the aggregated service is spoken (xDS protocol, "Variants").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdsVariant {
    /// `StreamAggregatedResources`: each request names everything that is wanted.
    Sotw,
    /// `DeltaAggregatedResources`: requests and responses say what changed.
    Delta,
}

/// Which requests carry the node. A server may rely on the first one only (xDS protocol, "Basic
/// protocol overview").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeIn {
    /// The first of each stream.
    FirstRequest,
    /// Every one, as rest.li's client does.
    EveryRequest,
}

/// How new delta subscriptions are put into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// All that wait, in one request.
    Together,
    /// One name a request but for a reconnect, as rest.li's client does.
    OneNameARequest,
}

/// Whether the server hears of what is no longer watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unsubscribing {
    /// It does.
    Sent,
    /// Never: a name that was watched stays subscribed, as with rest.li's client.
    Never,
}

/// Whether a delta client that returns says which versions it holds (`initial_resource_versions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KnownVersions {
    /// It does, and gets only what differs.
    Told,
    /// It does not, and gets everything.
    Omitted,
}

/// Of what a delta client that returns says the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionTable {
    /// Of what it holds: what was refused has to come again.
    Held,
    /// Of what came last, whether it could be used or not, until its removal is read: rest.li's client.
    Received,
}

/// How a delta client asks for everything again on a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconnectRequests {
    /// One request a type.
    OnePerType,
    /// The same, but for `indis.D2URI`: its collections in one request and single names in another,
    /// each with the whole table of versions of the type. rest.li's client, which has these two as
    /// types of their own.
    UriCollectionsApart,
}

/// What the removal of a resource that is watched by its name does to what is held of it. Members of
/// collections are always removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removals {
    /// It is dropped.
    Clear,
    /// It stays, marked [`Mark::Gone`](crate::Mark::Gone): availability comes before consistency (gRFC A53
    /// `ignore_resource_deletion`, A88 default; rest.li's client).
    Keep,
}

/// What becomes of a resource that nothing watched covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Untracked {
    /// It is ignored (xDS protocol: servers may send more than was asked for).
    Ignored,
    /// An `indis.D2URI` is an error of the response, and so is the removal of one; other types are
    /// ignored. rest.li's client.
    UrisRejected,
}

/// How the end of the first answer to a collection is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndOfSnapshot {
    /// The first response is all of it.
    FirstResponse,
    /// The nonce counts the messages that are still to come (bytes 8 to 11 of its hexadecimal form);
    /// a nonce of another form counts none. So do Waypost, linkedin/diderot and rest.li's client.
    CountedInNonce,
}

/// When the next stream is opened after one that had answered ended. One that had not costs a growing
/// pause in any case (gRFC A57).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryAfterResponse {
    /// Without any pause, as rest.li's client and gRPC C++ do.
    AtOnce,
    /// At a random moment of this span, so that the clients of a server that died do not return in
    /// one instant.
    Spread(Duration),
}

/// In which order servers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerOrder {
    /// As listed: the first is preferred (gRFC A71).
    AsListed,
    /// Shuffled once for each client, so that clients spread over the servers.
    Shuffled,
}

/// What a client does that is not with its first server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FallBack {
    /// It stays.
    Stay,
    /// It tries the first one on a second stream this often and moves when that answers (gRFC A71).
    ToFirst(Duration),
}

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// See [`XdsVariant`].
    pub variant: XdsVariant,
    /// See [`NodeIn`].
    pub node_in: NodeIn,
    /// See [`Naming`].
    pub naming: Naming,
    /// See [`Unsubscribing`].
    pub unsubscribing: Unsubscribing,
    /// See [`KnownVersions`].
    pub known_versions: KnownVersions,
    /// See [`VersionTable`].
    pub version_table: VersionTable,
    /// See [`ReconnectRequests`].
    pub reconnect_requests: ReconnectRequests,
    /// See [`Removals`].
    pub removals: Removals,
    /// See [`Untracked`].
    pub untracked: Untracked,
    /// See [`EndOfSnapshot`].
    pub end_of_snapshot: EndOfSnapshot,
    /// See [`RetryAfterResponse`].
    pub retry_after_response: RetryAfterResponse,
    /// After how long silence about a resource is told (gRFC A57: 15 s; A88: 30 s).
    pub resource_timer: Duration,
    /// See [`ServerOrder`].
    pub server_order: ServerOrder,
    /// See [`FallBack`].
    pub fall_back: FallBack,
    /// Bytes of the largest response that is read.
    pub response_bytes_max: usize,
}

impl Policy {
    /// Our own client: delta, versions told, the last good content kept, servers shuffled.
    #[must_use]
    pub fn waypost() -> Self {
        Self {
            variant: XdsVariant::Delta,
            node_in: NodeIn::FirstRequest,
            naming: Naming::Together,
            unsubscribing: Unsubscribing::Sent,
            known_versions: KnownVersions::Told,
            version_table: VersionTable::Held,
            reconnect_requests: ReconnectRequests::OnePerType,
            removals: Removals::Keep,
            untracked: Untracked::Ignored,
            end_of_snapshot: EndOfSnapshot::CountedInNonce,
            retry_after_response: RetryAfterResponse::Spread(RETURN_SPREAD),
            resource_timer: RESOURCE_TIMER,
            server_order: ServerOrder::Shuffled,
            fall_back: FallBack::Stay,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }

    /// As proxyless gRPC does: state of the world, servers in order of preference.
    #[must_use]
    pub fn grpc() -> Self {
        Self {
            variant: XdsVariant::Sotw,
            removals: Removals::Clear,
            end_of_snapshot: EndOfSnapshot::FirstResponse,
            retry_after_response: RetryAfterResponse::AtOnce,
            server_order: ServerOrder::AsListed,
            fall_back: FallBack::ToFirst(FALL_BACK_EVERY),
            response_bytes_max: GRPC_RESPONSE_BYTES_MAX,
            ..Self::waypost()
        }
    }

    /// As the D2 client of rest.li does, with or without versions on reconnect. Two of its habits are not
    /// copied: it waits for a stream that is never accepted, and for answers that never come, for ever.
    #[must_use]
    pub fn d2(known_versions: KnownVersions) -> Self {
        Self {
            node_in: NodeIn::EveryRequest,
            naming: Naming::OneNameARequest,
            unsubscribing: Unsubscribing::Never,
            known_versions,
            version_table: VersionTable::Received,
            reconnect_requests: ReconnectRequests::UriCollectionsApart,
            untracked: Untracked::UrisRejected,
            retry_after_response: RetryAfterResponse::AtOnce,
            response_bytes_max: GRPC_RESPONSE_BYTES_MAX,
            ..Self::waypost()
        }
    }
}
