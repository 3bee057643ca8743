//! What the scanner sees in messages that a real encoder wrote, and in none.

use envoy_types::pb::envoy::config::core::v3::Locality;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    Resource as DeltaResource,
};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message as _;

use super::super::plan::Kind;
use super::super::request::{Names, put_ack, put_first};
use super::*;

fn assignment(localities: &[&[u32]]) -> ClusterLoadAssignment {
    let endpoint = |weight: &u32| LbEndpoint {
        load_balancing_weight: Some(UInt32Value { value: *weight }),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            hostname: "host".to_owned(),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    };
    let locality = |weights: &&[u32]| LocalityLbEndpoints {
        locality: Some(Locality {
            zone: "zone".to_owned(),
            ..Locality::default()
        }),
        lb_endpoints: weights.iter().map(endpoint).collect(),
        load_balancing_weight: Some(UInt32Value {
            value: weights.iter().sum(),
        }),
        ..LocalityLbEndpoints::default()
    };
    ClusterLoadAssignment {
        cluster_name: "cluster-1".to_owned(),
        endpoints: localities.iter().map(locality).collect(),
        ..ClusterLoadAssignment::default()
    }
}

fn any(value: Vec<u8>) -> Any {
    Any {
        type_url: Kind::Endpoints.type_url().to_owned(),
        value,
    }
}

#[test]
fn the_stamp_of_endpoints_is_the_weight_that_is_not_plain() {
    let cases: &[(&[&[u32]], Option<u64>)] = &[
        (&[], None),
        (&[&[]], None),
        (&[&[100, 100, 100]], None),
        (&[&[101, 100, 100]], Some(101)),
        (&[&[100, 1_073_741_823, 100]], Some(1_073_741_823)),
        (&[&[100, 100], &[100, 777_000]], Some(777_000)),
    ];
    for (localities, stamp) in cases {
        let encoded = assignment(localities).encode_to_vec();
        assert_eq!(find_endpoint_stamp(&encoded), *stamp, "{localities:?}");
    }
}

#[test]
fn the_stamp_of_a_uri_is_its_time_of_modification() {
    let uri = waypost_proto::indis::D2uri {
        version: 7,
        modified_time: Some(prost_timestamp(1_700_000_000, 123_456_789)),
        uri: "grpc://10.0.0.1:8080".to_owned(),
        ..waypost_proto::indis::D2uri::default()
    };
    let micros = 1_700_000_000_u64 * 1_000_000 + 123_456;
    let stamp = find_uri_stamp(&uri.encode_to_vec());
    assert_eq!(stamp, Some(micros % STAMP_MODULUS));
    let unset = waypost_proto::indis::D2uri::default();
    assert_eq!(find_uri_stamp(&unset.encode_to_vec()), None);
}

fn prost_timestamp(seconds: i64, nanos: i32) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos }
}

#[test]
fn a_delta_response_shows_every_resource_with_name_and_version() {
    let encoded = DeltaDiscoveryResponse {
        system_version_info: "s".to_owned(),
        nonce: "nonce-9".to_owned(),
        type_url: Kind::Endpoints.type_url().to_owned(),
        resources: ["a", "b"].map(delta_resource_of).to_vec(),
        removed_resources: vec!["c".to_owned()],
        ..DeltaDiscoveryResponse::default()
    }
    .encode_to_vec();
    let mut seen = Vec::new();
    let response = scan(Variant::Delta, &encoded, |resource| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        seen.push([resource.name, resource.version, resource.body].map(text));
    });
    let response = response.unwrap();
    assert_eq!(response.nonce, b"nonce-9");
    assert_eq!((response.resources, response.removed), (2, 1));
    assert_eq!(seen, [["a", "va", "body of a"], ["b", "vb", "body of b"]]);
}

fn delta_resource_of(name: &str) -> DeltaResource {
    DeltaResource {
        name: name.to_owned(),
        version: format!("v{name}"),
        resource: Some(any(format!("body of {name}").into_bytes())),
        ..DeltaResource::default()
    }
}

#[test]
fn a_response_in_state_of_the_world_shows_bodies_and_its_own_version() {
    let encoded = DiscoveryResponse {
        version_info: "v5".to_owned(),
        nonce: "n".to_owned(),
        type_url: Kind::Endpoints.type_url().to_owned(),
        resources: vec![any(b"one".to_vec()), any(b"two".to_vec())],
        ..DiscoveryResponse::default()
    }
    .encode_to_vec();
    let mut bodies = Vec::new();
    let response = scan(Variant::Sotw, &encoded, |one| {
        bodies.push(one.body.to_vec())
    })
    .unwrap();
    assert_eq!((response.version, response.nonce), (&b"v5"[..], &b"n"[..]));
    assert_eq!((response.resources, response.removed), (2, 0));
    assert_eq!(bodies, [b"one", b"two"]);
}

#[test]
fn what_is_cut_off_or_no_message_is_no_response() {
    let whole = DeltaDiscoveryResponse {
        nonce: "nonce".to_owned(),
        resources: vec![delta_resource_of("a")],
        ..DeltaDiscoveryResponse::default()
    }
    .encode_to_vec();
    let cut = |length: usize| scan(Variant::Delta, &whole[..length], |_| ());
    assert!(cut(whole.len()).is_some());
    assert!(cut(whole.len() - 1).is_none());
    assert!(cut(1).is_none());
    assert!(scan(Variant::Delta, &[0xff; 20], |_| ()).is_none());
}

#[test]
fn an_age_is_the_time_since_a_stamp_across_the_modulus() {
    let cases = [
        (0, 0, 0),
        (10, 25, 15),
        (STAMP_MODULUS - 5, STAMP_MODULUS + 10, 15),
        (7, 5 * STAMP_MODULUS + 9, 2),
        // From the future: a clock was set.
        (30, 25, 0),
    ];
    for (stamp, now, expected) in cases {
        assert_eq!(age(stamp, now), expected, "{stamp} {now}");
    }
}

#[test]
fn requests_are_what_a_real_decoder_expects() {
    let names = Names::new(Kind::Endpoints, 4, 2);
    let wanted = ["cluster-2", "cluster-3"].map(str::to_owned);
    let response = Response {
        nonce: b"n1",
        version: b"v1",
        ..Response::default()
    };

    let mut bytes = Vec::new();
    let held = [("name", "version")].into_iter();
    put_first(&mut bytes, Variant::Delta, &names, 1, held);
    let first = DeltaDiscoveryRequest::decode(&bytes[..]).unwrap();
    assert_eq!(first.resource_names_subscribe, wanted);
    assert_eq!(first.initial_resource_versions["name"], "version");
    assert_eq!(first.type_url, Kind::Endpoints.type_url());
    assert_eq!(first.node.unwrap().id, "load-1");

    bytes.clear();
    put_ack(&mut bytes, Variant::Delta, &names, 1, &response);
    let ack = DeltaDiscoveryRequest::decode(&bytes[..]).unwrap();
    let expected = DeltaDiscoveryRequest {
        type_url: Kind::Endpoints.type_url().to_owned(),
        response_nonce: "n1".to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    assert_eq!(ack, expected);

    bytes.clear();
    put_first(&mut bytes, Variant::Sotw, &names, 1, std::iter::empty());
    let first = DiscoveryRequest::decode(&bytes[..]).unwrap();
    assert_eq!(first.resource_names, wanted);
    assert_eq!(first.node.unwrap().id, "load-1");

    bytes.clear();
    put_ack(&mut bytes, Variant::Sotw, &names, 1, &response);
    let ack = DiscoveryRequest::decode(&bytes[..]).unwrap();
    let expected = DiscoveryRequest {
        version_info: "v1".to_owned(),
        resource_names: wanted.to_vec(),
        type_url: Kind::Endpoints.type_url().to_owned(),
        response_nonce: "n1".to_owned(),
        ..DiscoveryRequest::default()
    };
    assert_eq!(ack, expected);
}
