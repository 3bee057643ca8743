//! Who is connected and what they hold.

use serde::{Deserialize, Serialize};

/// One row of `GET /api/v1/streams`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamView {
    /// Its number in this Observer process; also the cursor of the page.
    pub id: u64,
    /// The client's address.
    pub peer: String,
    /// The protocol variant.
    pub protocol: Protocol,
    /// `Node.id` as the client sent it; empty when it sent none.
    pub node_id: String,
    /// `Node.cluster`; empty when it sent none.
    pub node_cluster: String,
    /// `Node.user_agent_name`; empty when it sent none.
    pub user_agent: String,
    /// What kind of client it was taken for.
    pub client: ClientKindName,
    /// Which addresses it said that it can use: it is not told of instances that have no such one.
    #[serde(default)]
    pub address_families: AddressFamilies,
    /// The fabric that it is in; empty when it did not say. Instances of that one come first.
    #[serde(default)]
    pub fabric: String,
    /// What "everything" is to it; `null` for what everybody has.
    #[serde(default)]
    pub scope: Option<ScopeView>,
    /// How long the stream has been open.
    pub open_ms: u64,
    /// How long changes have been waiting for the client to read; `null` if none wait.
    pub backlog_ms: Option<u64>,
    /// The types that it asked for.
    pub types: Vec<StreamType>,
}

/// What a proxy named in its node (docs/resources.md, "What an Envoy is served").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeView {
    /// The services that it calls. None: those that its application is said to call.
    pub services: Vec<String>,
    /// The application, of one that names no services; `null` where it names none either: it is told of
    /// nothing but what it asks for by name.
    #[serde(default)]
    pub application: Option<String>,
    /// Where it listens for calls to them; `null` for nowhere.
    pub outbound: Option<String>,
}

/// The protocol variant of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// State of the world.
    Sotw,
    /// Incremental.
    Delta,
}

/// Addresses that a client can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressFamilies {
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
    /// Both, or it did not say.
    #[default]
    Both,
}

/// What kind of client a stream belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientKindName {
    /// Proxyless gRPC, or not recognised.
    Grpc,
    /// Envoy.
    Envoy,
    /// rest.li D2.
    D2,
}

/// One type on one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamType {
    /// The type URL.
    pub type_url: String,
    /// Names and globs subscribed, the first few in name order; `*` is everything.
    pub names: Vec<String>,
    /// How many names and globs are subscribed.
    pub names_total: u64,
    /// Responses written.
    pub responses: u64,
    /// Responses that the client refused.
    pub nacks: u64,
    /// The client's own words at its last refusal; `null` if there was none.
    pub last_nack: Option<String>,
    /// Nonce of the newest response; `null` before the first.
    pub nonce_sent: Option<String>,
    /// Nonce of the newest response that the client accepted; `null` if it accepted none.
    pub nonce_acked: Option<String>,
}
