//! Encodes a resource once, in the one form from which both xDS variants are cut.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};
use waypost_core::{EncodedResource, ResourceType, ResourceVersion, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

/// Tag of a length-delimited field 1, 2 and 3.
const FIELD_1: u8 = 0x0a;
const FIELD_2: u8 = 0x12;
const FIELD_3: u8 = 0x1a;

/// Encodes `value` (the bytes of a message of `resource_type`, maps in key order) under `name`.
/// The version is the digest of `value`.
///
/// Layout (`envoy.service.discovery.v3`): `DeltaDiscoveryResponse.resources` is field 2 and holds a
/// `Resource` with version = 1, resource = 2 (`Any`: type URL = 1, value = 2) and name = 3. Fields
/// may stand in any order, so the `Any` goes last and doubles as `DiscoveryResponse.resources`.
#[must_use]
pub fn encode_resource(
    resource_type: ResourceType,
    name: &str,
    value: &[u8],
    origin: Timestamp,
) -> EncodedResource {
    let version = ResourceVersion(xxh3_64(value));
    let version_text = version.to_string();
    let type_url = resource_type.type_url();

    let any_len = field_len(type_url.len()) + field_len(value.len());
    let head_len = field_len(name.len()) + field_len(version_text.len());
    let resource_len = head_len + field_len(any_len);

    let mut out = BytesMut::with_capacity(field_len(resource_len));
    put_tag(&mut out, FIELD_2, resource_len);
    put_field(&mut out, FIELD_3, name.as_bytes());
    put_field(&mut out, FIELD_1, version_text.as_bytes());
    let sotw_start = out.len();
    put_tag(&mut out, FIELD_2, any_len);
    put_field(&mut out, FIELD_1, type_url.as_bytes());
    put_field(&mut out, FIELD_2, value);
    let sotw_start = u32::try_from(sotw_start).unwrap_or(u32::MAX);
    EncodedResource::new(version, Bytes::from(out), sotw_start, origin)
}

fn field_len(payload: usize) -> usize {
    1 + encoded_len_varint(payload as u64) + payload
}

fn put_tag(out: &mut BytesMut, tag: u8, len: usize) {
    out.put_u8(tag);
    encode_varint(len as u64, out);
}

fn put_field(out: &mut BytesMut, tag: u8, payload: &[u8]) {
    put_tag(out, tag, payload.len());
    out.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, DiscoveryResponse,
    };
    use prost::Message as _;

    use super::*;

    #[test]
    fn one_encoding_reads_as_an_entry_of_both_kinds_of_response() {
        for size in [0, 1, 127, 128, 20_000] {
            let value = vec![7; size];
            let encoded = encode_resource(ResourceType::D2Uri, "xdstp:///n", &value, Timestamp(5));
            let delta = DeltaDiscoveryResponse::decode(encoded.delta()).unwrap();
            let sotw = DiscoveryResponse::decode(encoded.sotw()).unwrap();
            let [resource] = &delta.resources[..] else {
                panic!("one resource expected")
            };
            assert_eq!(resource.name, "xdstp:///n");
            assert_eq!(resource.version, encoded.version().to_string());
            assert_eq!(resource.resource.as_ref(), sotw.resources.first());
            assert_eq!(sotw.resources[0].type_url, ResourceType::D2Uri.type_url());
            assert_eq!(sotw.resources[0].value, value);
        }
    }
}
