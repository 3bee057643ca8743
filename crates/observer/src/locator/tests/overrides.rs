//! What an operator set, in every form that is served.

use std::sync::Arc;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use prost::Message as _;
use waypost_core::config::{OverrideEffect, Weight};
use waypost_core::{
    ClientKind, Health, Interest, ResourceLocator as _, ResourceType, StoreInput, Timestamp,
    Variant,
};
use waypost_proto::indis;

use super::{Marks, NOW, mk_locator, up};
use crate::locator::Locator;
use crate::render::report;
use crate::render::testing::mk_override;

const A: &str = "http://10.0.0.1:1";
const B: &str = "http://10.0.0.2:1";
const C: &str = "http://10.0.0.3:1";
/// After the time of origin of what is announced.
const SET_AT: Timestamp = Timestamp(1_800_000_000_000);

fn set(effect: OverrideEffect) -> StoreInput {
    let value = mk_override("c", A, effect, SET_AT);
    StoreInput::Override {
        key: value.instance.clone(),
        value: Some(value),
    }
}

fn clear() -> StoreInput {
    StoreInput::Override {
        key: mk_override("c", A, OverrideEffect::Drain, SET_AT).instance,
        value: None,
    }
}

fn find<M: prost::Message + Default>(
    locator: &Locator,
    resource_type: ResourceType,
    name: &str,
    client: ClientKind,
) -> Option<M> {
    let variant = Variant {
        client,
        ..Variant::default()
    };
    let resource = locator.find(resource_type, name, variant)?;
    let mut response = DeltaDiscoveryResponse::decode(resource.delta()).unwrap();
    let entry = response.resources.remove(0);
    Some(M::decode(&entry.resource.unwrap().value[..]).unwrap())
}

/// What each form says of the instance: its weight in the map and alone, its weight for gRPC, and its
/// weight and health for Envoy. 0 is not there.
fn seen(locator: &Locator) -> (f64, f64, u32, (u32, i32)) {
    use ResourceType::{ClusterLoadAssignment as Eds, D2Uri, D2UriMap};
    let weight = |uri: Option<&indis::D2uri>| uri.map_or(0.0, |uri| uri.partition_desc[&0]);
    let map: indis::D2uriMap = find(locator, D2UriMap, "/d2/uris/c", ClientKind::D2).unwrap();
    let name = "xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.1%3A1";
    let alone: Option<indis::D2uri> = find(locator, D2Uri, name, ClientKind::D2);
    let endpoint = |client| {
        let found: ClusterLoadAssignment = find(locator, Eds, "c", client).unwrap();
        let mut endpoints = found.endpoints.into_iter().flat_map(|l| l.lb_endpoints);
        let is_it = |e: &envoy_types::pb::envoy::config::endpoint::v3::LbEndpoint| {
            format!("{e:?}").contains("10.0.0.1")
        };
        endpoints.find(is_it).map_or((0, 0), |e| {
            (e.load_balancing_weight.unwrap().value, e.health_status)
        })
    };
    (
        weight(map.uris.get(A)),
        weight(alone.as_ref()),
        endpoint(ClientKind::Grpc).0,
        endpoint(ClientKind::Envoy),
    )
}

#[test]
fn every_form_serves_what_was_set_and_the_announced_bytes_again_once_it_is_cleared() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", A), up("c", B), up("c", C)]);
    let versions = || {
        let names = [
            (ResourceType::D2UriMap, "/d2/uris/c"),
            (ResourceType::ClusterLoadAssignment, "c"),
        ];
        names.map(|(t, name)| locator.find(t, name, Variant::default()).unwrap().version())
    };
    let before = versions();
    let announced = (1.0, 1.0, 100, (100, 1));
    assert_eq!(seen(&locator), announced);
    let cases = [
        (
            OverrideEffect::Weight(Weight::new(0.25).unwrap()),
            (0.25, 0.25, 25, (25, 1)),
        ),
        (
            OverrideEffect::Weight(Weight::new(0.0).unwrap()),
            (0.0, 0.0, 0, (0, 0)),
        ),
        (OverrideEffect::Drain, (0.0, 0.0, 0, (100, 3))),
    ];
    for (effect, expected) in cases {
        writer.apply(NOW, [set(effect)]);
        assert_eq!(seen(&locator), expected, "{effect:?}");
        assert_ne!(versions(), before);
    }
    writer.apply(NOW, [clear()]);
    assert_eq!(seen(&locator), announced);
    assert_eq!(versions(), before);
}

#[test]
fn setting_one_marks_that_instance_alone_and_encodes_what_is_asked_for_once() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", A), up("c", B), up("d", A)]);
    let marks = Arc::new(Marks::default());
    for resource_type in ResourceType::ALL {
        locator.subscribe(resource_type, &Interest::Wildcard, marks.clone());
    }
    let half = OverrideEffect::Weight(Weight::new(0.5).unwrap());
    writer.apply(NOW, [set(half)]);
    let expected = [
        "d2_uri xdstp:///indis.D2URI/c/http%3A%2F%2F10.0.0.1%3A1",
        "d2_uri_map /d2/uris/c",
        "eds c",
    ];
    assert_eq!(marks.take(), expected);
    let before = locator.encodes();
    for _ in 0..10 {
        let _ = locator.find(ResourceType::D2UriMap, "/d2/uris/c", Variant::default());
    }
    assert_eq!(locator.encodes() - before, 1);
    writer.apply(NOW, [set(half), up("c", A)]);
    assert_eq!(marks.take(), [""; 0]);
}

#[test]
fn it_is_reported_beside_what_the_instance_announces() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", A), up("c", B), set(OverrideEffect::Drain)]);
    let found = report::find_cluster(locator.store(), "c").unwrap();
    let [a, b] = &found.instances[..] else {
        panic!("{found:?}")
    };
    assert_eq!(b.overridden, None);
    assert_eq!(a.announcement.health, Health::Draining);
    let overridden = a.overridden.as_ref().unwrap();
    assert_eq!(overridden.announced.health, Health::Healthy);
    assert_eq!(&*overridden.above.signed.author, "ann@ops1");
}
