//! A look at the bytes of a request without decoding them. Nearly every request is a bare
//! acknowledgement: its nonce is looked at, and for `SotW`, which repeats all names in each request,
//! whether the names are the bytes of the request before. Everything else is decoded.
//!
//! Sources: data-plane-api `discovery.proto`; protobuf encoding, "Message Structure".

use std::num::NonZero;

use prost::encoding::decode_varint;
use xxhash_rust::xxh3::xxh3_64;

use crate::events::Transport;

/// What a request holds, as far as an acknowledgement is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Glance<'a> {
    pub(crate) type_url: &'a [u8],
    pub(crate) response_nonce: &'a [u8],
    pub(crate) has_node: bool,
    /// The `SotW` names with their tags and lengths; empty if there are none.
    names: &'a [u8],
}

/// Fields of `DeltaDiscoveryRequest` and of `DiscoveryRequest`.
struct FieldNumbers {
    node: u64,
    type_url: u64,
    response_nonce: u64,
    /// Repeated with every `SotW` request; in delta names are news.
    names: Option<u64>,
    /// Said by clients that hold what they confirm; nothing follows from it.
    version_info: Option<u64>,
}

const DELTA: FieldNumbers = FieldNumbers {
    node: 1,
    type_url: 2,
    response_nonce: 6,
    names: None,
    version_info: None,
};

const SOTW: FieldNumbers = FieldNumbers {
    node: 2,
    type_url: 4,
    response_nonce: 5,
    names: Some(3),
    version_info: Some(1),
};

impl<'a> Glance<'a> {
    /// `None` for a request that says more than an acknowledgement can, that is malformed, or whose
    /// names do not stand together.
    pub(crate) fn at(transport: Transport, message: &'a [u8]) -> Option<Self> {
        let numbers = match transport {
            Transport::Delta => DELTA,
            Transport::Sotw => SOTW,
        };
        let mut glance = Self::default();
        let mut rest = message;
        while !rest.is_empty() {
            let before = rest;
            let (number, payload) = take_field(&mut rest)?;
            if number == numbers.type_url {
                glance.type_url = payload;
            } else if number == numbers.response_nonce {
                glance.response_nonce = payload;
            } else if Some(number) == numbers.names {
                let field = before.get(..before.len() - rest.len())?;
                glance.names = joined(message, glance.names, field)?;
            } else if number == numbers.node {
                glance.has_node = true;
            } else if Some(number) != numbers.version_info {
                return None;
            }
        }
        Some(glance)
    }

    /// Stands for the names: two requests with equal ones name the same.
    pub(crate) fn names_digest(&self) -> NonZero<u64> {
        NonZero::new(xxh3_64(self.names)).unwrap_or(NonZero::<u64>::MIN)
    }
}

/// Takes the next field, which must be a string, bytes or a message: its number and payload.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    const LENGTH_DELIMITED: u64 = 2;
    let key = decode_varint(rest).ok()?;
    if key & 7 != LENGTH_DELIMITED {
        return None;
    }
    let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (payload, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((key >> 3, payload))
}

/// `first` and, right after it, `second`, both parts of `whole`.
fn joined<'a>(whole: &'a [u8], first: &'a [u8], second: &'a [u8]) -> Option<&'a [u8]> {
    if first.is_empty() {
        return Some(second);
    }
    let start = first.as_ptr().addr() - whole.as_ptr().addr();
    let joined = whole.get(start..start + first.len() + second.len())?;
    (joined.get(first.len()..)?.as_ptr() == second.as_ptr()).then_some(joined)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::Node;
    use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
    use envoy_types::pb::google::rpc::Status;
    use prost::Message as _;

    use super::*;

    fn mk_ack() -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: "t".into(),
            response_nonce: "n".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_bare_acknowledgement_is_seen_and_nothing_else_is_taken_for_one() {
        let node = Some(Node {
            id: "x".into(),
            ..Default::default()
        });
        let bare = mk_ack().encode_to_vec();
        let glance = Glance::at(Transport::Delta, &bare).unwrap();
        assert_eq!(
            (glance.type_url, glance.response_nonce),
            (&b"t"[..], &b"n"[..])
        );
        assert!(!glance.has_node);
        let with_node = DeltaDiscoveryRequest { node, ..mk_ack() }.encode_to_vec();
        assert!(Glance::at(Transport::Delta, &with_node).unwrap().has_node);

        let more = [
            DeltaDiscoveryRequest {
                resource_names_subscribe: vec!["a".into()],
                ..mk_ack()
            },
            DeltaDiscoveryRequest {
                resource_names_unsubscribe: vec!["a".into()],
                ..mk_ack()
            },
            DeltaDiscoveryRequest {
                initial_resource_versions: [("a".into(), "1".into())].into(),
                ..mk_ack()
            },
            DeltaDiscoveryRequest {
                error_detail: Some(Status::default()),
                ..mk_ack()
            },
        ];
        for request in more {
            assert_eq!(Glance::at(Transport::Delta, &request.encode_to_vec()), None);
        }
        assert_eq!(Glance::at(Transport::Delta, &bare[..2]), None);
        assert_eq!(Glance::at(Transport::Delta, &[0x08, 1]), None);
    }

    #[test]
    fn names_of_sotw_requests_are_compared_as_they_are_written() {
        let digest = |names: &[&str], version: &str| {
            let request = DiscoveryRequest {
                version_info: version.into(),
                resource_names: names.iter().map(|&name| name.into()).collect(),
                type_url: "t".into(),
                ..Default::default()
            };
            Glance::at(Transport::Sotw, &request.encode_to_vec())
                .unwrap()
                .names_digest()
        };
        assert_eq!(digest(&["a", "b"], "1"), digest(&["a", "b"], "2"));
        assert_ne!(digest(&["a", "b"], "1"), digest(&["b", "a"], "1"));
        assert_ne!(digest(&["ab"], "1"), digest(&["a", "b"], "1"));
        assert_ne!(digest(&[], ""), digest(&[""], ""));
        // Names on both sides of another field.
        assert_eq!(
            Glance::at(Transport::Sotw, b"\x1a\x01a\x22\x01t\x1a\x01b"),
            None
        );
        let nack = DiscoveryRequest {
            error_detail: Some(Status::default()),
            ..Default::default()
        };
        assert_eq!(Glance::at(Transport::Sotw, &nack.encode_to_vec()), None);
    }
}
