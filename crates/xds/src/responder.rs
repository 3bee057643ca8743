//! Answers: what is to be said about one type at one moment, cut into messages that fit, and their
//! encoding. A message is a private head (type, nonce, removals) and the shared bytes of resources.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};
use waypost_core::{EncodedResource, ResourceName, ResourceType};

use crate::ack::{Nonce, hex};
use crate::buf::MessageBuf;
use crate::events::Transport;
use crate::framing::PREFIX_BYTES;
use crate::subscription::parent;

/// One thing that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: ResourceName,
    pub(crate) content: Content,
    /// Whether it is said because of a change, not because it was asked for.
    pub(crate) is_change: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The resource is this.
    Resource(EncodedResource),
    /// The resource does not exist.
    Removal,
    /// The collection of this URL has no member.
    EmptyGlob,
}

impl Entry {
    /// Bytes that the entry takes in a response.
    pub(crate) fn len(&self, transport: Transport) -> usize {
        match (&self.content, transport) {
            (Content::Resource(resource), Transport::Delta) => resource.len(),
            (Content::Resource(resource), Transport::Sotw) => resource.sotw().len(),
            (Content::Removal | Content::EmptyGlob, _) => field_len(self.name.len()),
        }
    }
}

/// The type of an answer as it stands on the wire.
#[derive(Clone, Debug)]
pub(crate) enum AnswerType {
    Known(ResourceType),
    /// One that is not served.
    Unknown(Box<str>),
}

impl AnswerType {
    pub(crate) fn type_url(&self) -> &str {
        match self {
            Self::Known(resource_type) => resource_type.type_url(),
            Self::Unknown(type_url) => type_url,
        }
    }

    pub(crate) fn resource_type(&self) -> Option<ResourceType> {
        match self {
            Self::Known(resource_type) => Some(*resource_type),
            Self::Unknown(_) => None,
        }
    }
}

/// An answer, as the messages that it is sent in.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) of: AnswerType,
    /// `version_info` of each message, `SotW` only.
    pub(crate) version: u64,
    /// The entries of the next message.
    pub(crate) next: Vec<Entry>,
    /// Those of the messages after it.
    pub(crate) rest: std::vec::IntoIter<Vec<Entry>>,
}

/// The constant parts of every response of a server.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    transport: Transport,
    /// The `ControlPlane` message.
    control_plane: Bytes,
    response_bytes_max: usize,
}

const TYPE_URL_TAG: u8 = 0x22;
const NONCE_TAG: u8 = 0x2a;
const SOTW_VERSION_TAG: u8 = 0x0a;
const SOTW_CONTROL_PLANE_TAG: u8 = 0x32;
const DELTA_REMOVED_TAG: u8 = 0x32;
const DELTA_CONTROL_PLANE_TAG: u8 = 0x3a;
/// Digits of a `SotW` version.
const VERSION_BYTES: usize = 16;

impl Responder {
    pub(crate) fn new(
        transport: Transport,
        control_plane_identifier: &str,
        response_bytes_max: usize,
    ) -> Self {
        let mut control_plane = BytesMut::new();
        if !control_plane_identifier.is_empty() {
            put_field(
                &mut control_plane,
                0x0a,
                control_plane_identifier.as_bytes(),
            );
        }
        Self {
            transport,
            control_plane: control_plane.freeze(),
            response_bytes_max,
        }
    }

    /// Bytes that the entries of one message may take.
    pub(crate) fn entries_bytes_max(&self, type_url: &str) -> usize {
        self.response_bytes_max
            .saturating_sub(self.head_len(type_url))
    }

    /// Bytes that `entry` takes in a message.
    pub(crate) fn entry_len(&self, entry: &Entry) -> usize {
        entry.len(self.transport)
    }

    /// Cuts `entries` (each fits) into messages: the entries of one collection stay together where
    /// they fit into a message. Returns the first message's entries and those of the others.
    pub(crate) fn pack(
        &self,
        type_url: &str,
        entries: Vec<Entry>,
    ) -> (Vec<Entry>, Vec<Vec<Entry>>) {
        let max = self.entries_bytes_max(type_url);
        let total: usize = entries.iter().map(|e| e.len(self.transport)).sum();
        if total <= max {
            return (entries, Vec::new());
        }
        let mut chunks = Vec::new();
        let mut chunk: Vec<Entry> = Vec::new();
        let mut chunk_len = 0;
        for group in entries.chunk_by(|a, b| is_same_collection(&a.name, &b.name)) {
            let group_len: usize = group.iter().map(|e| e.len(self.transport)).sum();
            if chunk_len + group_len > max && !chunk.is_empty() {
                chunks.push(std::mem::take(&mut chunk));
                chunk_len = 0;
            }
            for entry in group {
                let len = entry.len(self.transport);
                if chunk_len + len > max && !chunk.is_empty() {
                    chunks.push(std::mem::take(&mut chunk));
                    chunk_len = 0;
                }
                chunk_len += len;
                chunk.push(entry.clone());
            }
        }
        chunks.push(chunk);
        let first = chunks.remove(0);
        (first, chunks)
    }

    /// Encodes one message with its gRPC prefix. Returns it and its size, bytes.
    pub(crate) fn encode(
        &self,
        of: &AnswerType,
        version: u64,
        nonce: Nonce,
        entries: &[Entry],
    ) -> (MessageBuf, usize) {
        let type_url = of.type_url();
        let removals = entries.iter().filter_map(Entry::as_removal);
        let removed_len: usize = removals.clone().map(|name| field_len(name.len())).sum();
        let mut head = BytesMut::with_capacity(self.head_len(type_url) + removed_len);
        head.put_bytes(0, PREFIX_BYTES);
        put_field(&mut head, TYPE_URL_TAG, type_url.as_bytes());
        put_field(&mut head, NONCE_TAG, &nonce.to_text());
        match self.transport {
            Transport::Sotw => {
                put_field(&mut head, SOTW_VERSION_TAG, &hex::<VERSION_BYTES>(version));
                put_field(&mut head, SOTW_CONTROL_PLANE_TAG, &self.control_plane);
            }
            Transport::Delta => {
                put_field(&mut head, DELTA_CONTROL_PLANE_TAG, &self.control_plane);
                for name in removals {
                    put_field(&mut head, DELTA_REMOVED_TAG, name.as_bytes());
                }
            }
        }
        let resources = || {
            entries
                .iter()
                .filter_map(|entry| self.resource_bytes(entry))
        };
        let size = head.len() + resources().map(|bytes| bytes.len()).sum::<usize>();
        let length = u32::try_from(size - PREFIX_BYTES).unwrap_or(u32::MAX);
        if let Some(prefix) = head.get_mut(1..PREFIX_BYTES) {
            prefix.copy_from_slice(&length.to_be_bytes());
        }
        (MessageBuf::new(head.freeze(), resources()), size)
    }

    /// Bytes of a message without entries, with the gRPC prefix.
    fn head_len(&self, type_url: &str) -> usize {
        let version_len = match self.transport {
            Transport::Sotw => field_len(VERSION_BYTES),
            Transport::Delta => 0,
        };
        PREFIX_BYTES
            + field_len(type_url.len())
            + field_len(Nonce::TEXT_BYTES)
            + version_len
            + field_len(self.control_plane.len())
    }

    fn resource_bytes(&self, entry: &Entry) -> Option<Bytes> {
        match (&entry.content, self.transport) {
            (Content::Resource(resource), Transport::Delta) => Some(resource.delta()),
            (Content::Resource(resource), Transport::Sotw) => Some(resource.sotw()),
            (Content::Removal | Content::EmptyGlob, _) => None,
        }
    }
}

impl Entry {
    fn as_removal(&self) -> Option<&str> {
        match self.content {
            Content::Resource(_) => None,
            Content::Removal | Content::EmptyGlob => Some(&self.name),
        }
    }
}

/// Whether two names belong to one collection, the collection's own URL included.
fn is_same_collection(a: &str, b: &str) -> bool {
    let collection = |name| parent(name).or_else(|| waypost_core::locator::glob_prefix(name));
    matches!((collection(a), collection(b)), (Some(a), Some(b)) if a == b)
}

fn field_len(payload: usize) -> usize {
    1 + encoded_len_varint(payload as u64) + payload
}

fn put_field(out: &mut BytesMut, tag: u8, payload: &[u8]) {
    out.put_u8(tag);
    encode_varint(payload.len() as u64, out);
    out.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use bytes::Buf as _;
    use envoy_types::pb::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, DiscoveryResponse,
    };
    use prost::Message as _;
    use waypost_core::Timestamp;
    use waypost_proto::encoded::encode_resource;

    use super::*;
    use crate::ack::NonceSource;

    fn mk_entry(name: &str, size: usize) -> Entry {
        let value = vec![7; size];
        let resource = encode_resource(ResourceType::D2Uri, name, &value, Timestamp(1));
        Entry {
            name: name.into(),
            content: Content::Resource(resource),
            is_change: false,
        }
    }

    fn mk_removal(name: &str) -> Entry {
        Entry {
            name: name.into(),
            content: Content::Removal,
            is_change: false,
        }
    }

    fn mk_message(transport: Transport, entries: &[Entry]) -> (Bytes, usize) {
        let responder = Responder::new(transport, "observer-1", 4096);
        let nonce = NonceSource::new(9).next(3);
        let of = AnswerType::Known(ResourceType::D2Uri);
        let (mut buf, size) = responder.encode(&of, 0xabc, nonce, entries);
        (buf.copy_to_bytes(buf.remaining()), size)
    }

    #[test]
    fn a_delta_response_reads_as_what_was_said() {
        let entries = [mk_entry("a", 10), mk_removal("b"), mk_entry("c", 0)];
        let (message, size) = mk_message(Transport::Delta, &entries);
        assert_eq!(message.len(), size);
        assert_eq!(message[0], 0);
        assert_eq!(
            message[1..5],
            u32::try_from(size - 5).unwrap().to_be_bytes()
        );
        let response = DeltaDiscoveryResponse::decode(&message[5..]).unwrap();
        assert_eq!(response.type_url, ResourceType::D2Uri.type_url());
        assert_eq!(response.nonce, "000000000000000900000003");
        assert_eq!(response.removed_resources, ["b"]);
        assert_eq!(response.control_plane.unwrap().identifier, "observer-1");
        let names: Vec<_> = response.resources.iter().map(|r| &*r.name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn a_sotw_response_reads_as_what_was_said() {
        let (message, _) = mk_message(Transport::Sotw, &[mk_entry("a", 10)]);
        let response = DiscoveryResponse::decode(&message[5..]).unwrap();
        assert_eq!(response.version_info, "0000000000000abc");
        assert_eq!(response.nonce, "000000000000000900000003");
        assert_eq!(response.resources[0].value, vec![7; 10]);
        assert_eq!(response.control_plane.unwrap().identifier, "observer-1");
    }

    #[test]
    fn chunks_fit_and_keep_a_collection_together_where_it_fits() {
        let of = AnswerType::Known(ResourceType::D2Uri);
        for transport in [Transport::Delta, Transport::Sotw] {
            let responder = Responder::new(transport, "o", 4096);
            let mut entries = Vec::new();
            for cluster in ["a", "b", "c", "d"] {
                let count = if cluster == "c" { 20 } else { 5 };
                for uri in 0..count {
                    entries.push(mk_entry(&format!("xdstp:///t/{cluster}/{uri:02}"), 300));
                }
            }
            let (first, mut chunks) = responder.pack(of.type_url(), entries.clone());
            chunks.insert(0, first);
            let mut homes: std::collections::BTreeMap<String, Vec<usize>> = Default::default();
            for (index, chunk) in chunks.iter().enumerate() {
                let nonce = NonceSource::new(9).next(0);
                let (_, size) = responder.encode(&of, u64::MAX, nonce, chunk);
                assert!(size <= 4096, "{size}");
                for entry in chunk {
                    homes
                        .entry(parent(&entry.name).unwrap().to_owned())
                        .or_default()
                        .push(index);
                }
            }
            for (cluster, mut indexes) in homes {
                indexes.dedup();
                let contiguous = indexes.windows(2).all(|w| w[0] + 1 == w[1]);
                assert!(contiguous, "{cluster}: {indexes:?}");
                if !cluster.contains("/c/") {
                    assert_eq!(indexes.len(), 1, "{cluster}: {indexes:?}");
                }
            }
            let all: Vec<Entry> = chunks.into_iter().flatten().collect();
            assert_eq!(all, entries);
        }
    }
}
