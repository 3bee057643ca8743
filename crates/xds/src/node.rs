//! Who asks: what is read of the node of a stream's first request, and what follows from it.
//!
//! Source: data-plane-api `envoy/config/core/v3/base.proto`; xDS protocol, "Basic protocol overview"
//! (only the first request of a stream is sure to carry the node).

use std::sync::Arc;

use prost::Message as _;
use prost_types::{Struct, Value, value::Kind};
use waypost_core::{AddressFamily, ClientKind, Scope, UpstreamTls};

use crate::limits::NODE_TEXT_BYTES_MAX;
use crate::scope::{read_scope, read_upstream_tls};
use crate::status::{Code, Status};

/// Metadata key by which a client says which addresses it can use: `ipv4`, `ipv6` or `both`, as a
/// string or a list of strings. Without it a client gets both.
pub const ADDRESS_FAMILIES_KEY: &str = "waypost.address_families";

/// What is kept of a node, for people to look at. Ids are not unique: state is never keyed by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// `node.id`.
    pub id: String,
    /// `node.cluster`.
    pub cluster: String,
    /// `node.user_agent_name`.
    pub user_agent: String,
    /// What its wildcards stand for; `None` for everything.
    pub scope: Option<Arc<Scope>>,
}

/// A node, and what answers to it depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadNode {
    pub(crate) info: NodeInfo,
    pub(crate) addresses: AddressFamily,
    pub(crate) client: ClientKind,
    /// `node.locality.region`; empty when unknown.
    pub(crate) region: String,
    pub(crate) upstream_tls: UpstreamTls,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    cluster: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<Struct>,
    #[prost(message, optional, tag = "4")]
    locality: Option<Locality>,
    #[prost(string, tag = "6")]
    user_agent_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Locality {
    #[prost(string, tag = "1")]
    region: String,
}

/// Reads a node. One that cannot be decoded, or says what cannot be meant, ends the stream.
pub(crate) fn read_node(bytes: &[u8]) -> Result<ReadNode, Status> {
    let node = Node::decode(bytes)
        .map_err(|error| Status::new(Code::InvalidArgument, format!("malformed node: {error}")))?;
    let metadata = node.metadata.as_ref();
    let client = client_kind(&node.user_agent_name);
    let (scope, upstream_tls) = match client {
        ClientKind::Envoy => (
            Some(Arc::new(read_scope(metadata, &node.cluster)?)),
            read_upstream_tls(metadata)?,
        ),
        ClientKind::Grpc | ClientKind::D2 => (None, UpstreamTls::None),
    };
    Ok(ReadNode {
        addresses: address_family(metadata),
        client,
        upstream_tls,
        region: node.locality.map(|l| l.region).unwrap_or_default(),
        info: NodeInfo {
            id: cut(node.id, NODE_TEXT_BYTES_MAX),
            cluster: cut(node.cluster, NODE_TEXT_BYTES_MAX),
            user_agent: cut(node.user_agent_name, NODE_TEXT_BYTES_MAX),
            scope,
        },
    })
}

/// `text` without what is over the bound, at a character's boundary.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text.shrink_to_fit();
    text
}

fn client_kind(user_agent: &str) -> ClientKind {
    match user_agent {
        "envoy" => ClientKind::Envoy,
        "rest.li" => ClientKind::D2,
        _ => ClientKind::Grpc,
    }
}

fn address_family(metadata: Option<&Struct>) -> AddressFamily {
    let value = metadata.and_then(|m| m.fields.get(ADDRESS_FAMILIES_KEY));
    let (mut v4, mut v6) = (false, false);
    for word in value.map(words).unwrap_or_default() {
        v4 |= matches!(word, "ipv4" | "both");
        v6 |= matches!(word, "ipv6" | "both");
    }
    match (v4, v6) {
        (true, false) => AddressFamily::V4,
        (false, true) => AddressFamily::V6,
        _ => AddressFamily::Both,
    }
}

/// A string, or the strings of a list.
pub(crate) fn words(value: &Value) -> Vec<&str> {
    match &value.kind {
        Some(Kind::StringValue(text)) => vec![text],
        Some(Kind::ListValue(list)) => list.values.iter().flat_map(words).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_node(user_agent: &str, families: Option<Kind>) -> Vec<u8> {
        let metadata = families.map(|kind| Struct {
            fields: [(ADDRESS_FAMILIES_KEY.to_owned(), Value { kind: Some(kind) })].into(),
        });
        Node {
            id: "n".into(),
            cluster: "c".into(),
            metadata,
            locality: Some(Locality {
                region: "east".into(),
            }),
            user_agent_name: user_agent.into(),
        }
        .encode_to_vec()
    }

    #[test]
    fn the_variant_follows_from_the_first_node() {
        let text = |s: &str| Kind::StringValue(s.into());
        let list = |words: &[&str]| {
            Kind::ListValue(prost_types::ListValue {
                values: words
                    .iter()
                    .map(|w| Value {
                        kind: Some(text(w)),
                    })
                    .collect(),
            })
        };
        let cases = [
            ("envoy", None, ClientKind::Envoy, AddressFamily::Both),
            ("rest.li", None, ClientKind::D2, AddressFamily::Both),
            ("gRPC Go", None, ClientKind::Grpc, AddressFamily::Both),
            ("", Some(text("ipv4")), ClientKind::Grpc, AddressFamily::V4),
            ("", Some(text("ipv6")), ClientKind::Grpc, AddressFamily::V6),
            ("", Some(text("x")), ClientKind::Grpc, AddressFamily::Both),
            (
                "",
                Some(list(&["ipv6", "ipv4"])),
                ClientKind::Grpc,
                AddressFamily::Both,
            ),
            (
                "",
                Some(list(&["ipv6"])),
                ClientKind::Grpc,
                AddressFamily::V6,
            ),
        ];
        for (agent, families, client, addresses) in cases {
            let node = read_node(&mk_node(agent, families)).unwrap();
            assert_eq!(
                (node.addresses, node.client),
                (addresses, client),
                "{agent}"
            );
            assert_eq!(node.info.user_agent, agent);
            assert_eq!(node.region, "east");
            // Only proxies ask for everything and mean what they call.
            assert_eq!(node.info.scope.is_some(), client == ClientKind::Envoy);
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(cut("aé".into(), 2), "a");
        assert_eq!(cut("aé".into(), 3), "aé");
    }
}
