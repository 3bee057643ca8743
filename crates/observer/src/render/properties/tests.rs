//! What becomes of D2 properties: a row of docs/d2-properties.md each, as gRPC and as Envoy are told.

mod routes;

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::RingHash;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::google::protobuf::UInt32Value;
use prost::{Message as _, Name as _};
use serde_json::{Value, json};
use waypost_core::definition::DefinitionStat;
use waypost_core::{ClientKind, ClusterName, ResourceType, SourceSlot, Variant};
use waypost_store::{ClusterFacts, ClusterOutline, Stamp};

use super::{ClusterProperties, ServiceProperties};
use crate::render::checker;
use crate::render::cluster::{self as rendered, Properties};
use crate::render::testing::{mk_cluster, mk_service};

/// The Cluster for a kind of client, of which gRPC accepts its own.
fn cluster(document: &Value, services: &[Value], client: ClientKind) -> cluster::Cluster {
    let definition = mk_cluster("c", &document.to_string(), DefinitionStat::default());
    let outline = ClusterOutline {
        name: ClusterName::parse("c").unwrap(),
        definition: Some((SourceSlot::Log, Arc::new(definition))),
        facts: ClusterFacts::default(),
        stamp: Stamp::default(),
    };
    let service = |(n, document): (usize, &Value)| {
        Arc::new(mk_service(&format!("s{n}"), "c", &document.to_string()))
    };
    let services: Vec<_> = services.iter().enumerate().map(service).collect();
    let variant = Variant {
        client,
        ..Variant::default()
    };
    let properties = Properties::read(&outline, &services);
    let value = rendered::cluster("c", &properties, variant).value;
    if client == ClientKind::Grpc {
        let refusal = checker::refusal(ResourceType::Cluster, "c", &value);
        assert_eq!(refusal, None, "{document} {services:?}");
    }
    cluster::Cluster::decode(&value[..]).unwrap()
}

/// A list of policies, each by the last part of its package, with what matters of it.
fn show_policies(list: Option<&cluster::LoadBalancingPolicy>) -> String {
    let Some(list) = list else {
        return "-".to_owned();
    };
    let show = |policy: &cluster::load_balancing_policy::Policy| {
        let extension = policy.typed_extension_config.as_ref().unwrap();
        let config = extension.typed_config.as_ref().unwrap();
        let name = extension.name.rsplit('.').next().unwrap();
        let mut said = Vec::new();
        if config.type_url == WrrLocality::type_url() {
            let inner = WrrLocality::decode(&config.value[..]).unwrap();
            said.push(show_policies(inner.endpoint_picking_policy.as_ref()));
        } else if config.type_url == LeastRequest::type_url() {
            let least = LeastRequest::decode(&config.value[..]).unwrap();
            said.extend(least.choice_count.map(|count| count.value.to_string()));
            if let Some(slow) = least.slow_start_config {
                let window = slow.slow_start_window.unwrap().seconds;
                let aggression = slow.aggression.unwrap().default_value;
                let percent = slow.min_weight_percent.unwrap().value;
                said.push(format!("slow {window}s {aggression} {percent}%"));
            }
        } else if config.type_url == RingHash::type_url() {
            let ring = RingHash::decode(&config.value[..]).unwrap();
            let sizes = [ring.minimum_ring_size, ring.maximum_ring_size];
            said.extend(sizes.iter().flatten().map(|size| size.value.to_string()));
            let bounded = ring.consistent_hashing_lb_config;
            let percent = bounded.and_then(|b| b.hash_balance_factor);
            said.extend(percent.map(|percent| format!("{}%", percent.value)));
        } else if !config.value.is_empty() {
            said.push("more".to_owned());
        }
        format!("{name}({})", said.join(" "))
    };
    list.policies.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn strategies(names: &[&str]) -> Value {
    json!({ "loadBalancerStrategyList": names })
}

const ADAPTIVE: &str = "wrr_locality(client_side_weighted_round_robin() round_robin())";

#[test]
fn strategies_become_the_policy_that_each_kind_of_client_has_for_them() {
    let by_path = json!({
        "loadBalancerStrategyList": ["degrader"],
        "loadBalancerStrategyProperties": {
            "http.loadBalancer.hashMethod": "uriRegex",
            "http.loadBalancer.hashConfig": { "regexes": ["[?&]key=([0-9]+)"] },
            "http.loadBalancer.consistentHashBoundedLoadBalancingFactor": "1.25",
        },
    });
    let by_path_relative = json!({
        "loadBalancerStrategyList": ["relative"],
        "relativeStrategyProperties": { "ringProperties": {
            "hashMethod": "uriRegex",
            "hashConfig": { "regexes": ["/profiles/([^/?]+)"] },
            "boundedLoadBalancingFactor": -1,
        } },
    });
    let by_header = json!({ "hash_header": "X-Member", "loadBalancerStrategyList": ["relative"] });
    let random = json!({
        "loadBalancerStrategyList": ["relative"],
        "loadBalancerStrategyProperties": { "http.loadBalancer.hashMethod": "random" },
    });
    let ring = "ring_hash(16384)";
    let grpc_ring = "ring_hash() wrr_locality(round_robin())";
    let cases = [
        (vec![], "-", "-"),
        (vec![json!({})], "-", "-"),
        (
            vec![strategies(&["relative", "degrader"])],
            "least_request()",
            ADAPTIVE,
        ),
        (vec![strategies(&["degrader"])], "least_request()", ADAPTIVE),
        (vec![strategies(&["random"])], "random()", "-"),
        // The first that is known counts.
        (
            vec![strategies(&["newest", "random", "relative"])],
            "random()",
            "-",
        ),
        (vec![strategies(&["newest"])], "-", "-"),
        (vec![random], "least_request()", ADAPTIVE),
        // gRPC's paths tell nothing apart.
        (vec![by_path.clone()], "ring_hash(16384 125%)", ADAPTIVE),
        (vec![by_path_relative.clone()], ring, ADAPTIVE),
        (vec![by_header.clone()], ring, grpc_ring),
        // Of several services none gets less than it asked for.
        (
            vec![strategies(&["random"]), strategies(&["relative"])],
            "least_request()",
            ADAPTIVE,
        ),
        (vec![strategies(&["relative"]), by_header], ring, grpc_ring),
        (vec![by_path_relative, by_path], ring, ADAPTIVE),
    ];
    for (services, of_envoy, of_grpc) in cases {
        let show = |client| {
            let cluster = cluster(&json!({}), &services, client);
            show_policies(cluster.load_balancing_policy.as_ref())
        };
        assert_eq!(show(ClientKind::Envoy), of_envoy, "{services:?}");
        assert_eq!(show(ClientKind::Grpc), of_grpc, "{services:?}");
        assert_eq!(show(ClientKind::D2), of_grpc, "{services:?}");
    }
}

#[test]
fn what_the_cluster_states_comes_before_what_its_services_say() {
    let ring =
        json!({ "ringHashLbConfig": { "minimumRingSize": "64", "maximum_ring_size": 4096 } });
    let least = json!({ "leastRequestLbConfig": { "choiceCount": 3 } });
    let round = json!({ "roundRobinLbConfig": {} });
    let slow = json!({ "disabled": false, "windowDurationSeconds": 60, "aggression": 1.5,
        "minWeightPercent": 10.0 });
    let stated = |entries: &[(&Value, &[&str])]| {
        let entry = |(config, clients): &(&Value, &[&str])| match clients {
            [] => json!({ "config": config }),
            clients => json!({ "config": config, "clientTypes": clients }),
        };
        json!({ "loadBalancingPolicies": entries.iter().map(entry).collect::<Vec<_>>() })
    };
    let grpc_ring = "ring_hash(64 4096) wrr_locality(round_robin())";
    let grpc_least = "wrr_locality(least_request(3) round_robin())";
    let cases = [
        (stated(&[(&ring, &[])]), "ring_hash(64 4096)", grpc_ring),
        (
            stated(&[(&least, &["ENVOY", "GRPC"])]),
            "least_request(3)",
            grpc_least,
        ),
        (stated(&[(&round, &[])]), "-", "-"),
        (
            stated(&[(&ring, &["D2"]), (&least, &["GRPC"]), (&round, &["GRPC"])]),
            "least_request()",
            grpc_least,
        ),
        (
            json!({ "slowStartProperties": slow }),
            "least_request(slow 60s 1.5 10%)",
            ADAPTIVE,
        ),
        (
            json!({ "slowStartProperties": slow,
                "loadBalancingPolicies": [{ "config": round, "clientTypes": ["ENVOY"] }] }),
            "round_robin(more)",
            ADAPTIVE,
        ),
        (
            json!({ "slowStartProperties": { "disabled": true, "windowDurationSeconds": 60,
                "aggression": 1.0, "minWeightPercent": 10.0 } }),
            "least_request()",
            ADAPTIVE,
        ),
    ];
    for (document, of_envoy, of_grpc) in cases {
        let show = |client| {
            let cluster = cluster(&document, &[strategies(&["relative"])], client);
            show_policies(cluster.load_balancing_policy.as_ref())
        };
        assert_eq!(show(ClientKind::Envoy), of_envoy, "{document}");
        assert_eq!(show(ClientKind::Grpc), of_grpc, "{document}");
    }
}

/// `CONNECTIONS PENDING REQUESTS RETRIES% PER-INSTANCE`, a dash for no bound.
fn show_breakers(cluster: &cluster::Cluster) -> String {
    let breakers = cluster.circuit_breakers.as_ref().unwrap();
    let [of_all] = &breakers.thresholds[..] else {
        panic!("{breakers:?}");
    };
    let show = |value: Option<UInt32Value>| match value {
        Some(UInt32Value { value: u32::MAX }) => "-".to_owned(),
        Some(UInt32Value { value }) => value.to_string(),
        None => "default".to_owned(),
    };
    let budget = of_all.retry_budget.as_ref();
    let percent = budget.map_or(0.0, |b| b.budget_percent.unwrap().value);
    let per_instance = match &breakers.per_host_thresholds[..] {
        [] => "-".to_owned(),
        [one] => show(one.max_connections),
        more => panic!("{more:?}"),
    };
    format!(
        "{} {} {} {percent}% {per_instance}",
        show(of_all.max_connections),
        show(of_all.max_pending_requests),
        show(of_all.max_requests),
    )
}

#[test]
fn bounds_of_services_hold_for_all_of_them_together_and_without_them_there_are_none() {
    let transport = |properties: Value| json!({ "transportClientProperties": properties });
    let small = transport(json!({
        "http.maxConcurrentConnections": "50",
        "http.poolWaiterSize": 7,
        "http.poolSize": "20",
        "http.maxClientRequestRetryRatio": 0.05,
    }));
    let large = transport(json!({
        "http.maxConcurrentConnections": 80,
        "http.poolWaiterSize": "2147483647",
        "http.poolSize": 200,
        "http.maxClientRequestRetryRatio": "0.5",
    }));
    let cases = [
        (vec![], "- - - 20% -", "-"),
        (vec![json!({})], "- - - 20% -", "-"),
        (vec![small.clone()], "50 7 50 5% 20", "50"),
        (vec![small.clone(), large], "80 2147483647 80 50% 200", "80"),
        (vec![small, json!({})], "- - - 20% -", "-"),
    ];
    for (services, of_envoy, requests) in cases {
        let shown = show_breakers(&cluster(&json!({}), &services, ClientKind::Envoy));
        assert_eq!(shown, of_envoy, "{services:?}");
        // gRPC reads nothing else (gRFC A32).
        let shown = show_breakers(&cluster(&json!({}), &services, ClientKind::Grpc));
        let of_grpc = format!("default default {requests} 0% -");
        assert_eq!(shown, of_grpc, "{services:?}");
    }
}

#[test]
fn outlier_detection_is_told_in_full_to_envoy_and_to_grpc_what_it_honours() {
    let document = json!({ "outlierDetectionConfig": {
        "consecutive_5xx": 7,
        "enforcingConsecutiveGatewayFailure": "50",
        "interval": "5s",
        "baseEjectionTime": "1.5s",
        "max_ejection_percent": 20,
        "failurePercentageThreshold": 60,
        "enforcing_failure_percentage": 100,
    } });
    let detection = |client| cluster(&document, &[], client).outlier_detection.unwrap();
    let number = |value| Some(UInt32Value { value });
    let of_envoy = detection(ClientKind::Envoy);
    assert_eq!(of_envoy.consecutive_5xx, number(7));
    assert_eq!(of_envoy.enforcing_consecutive_gateway_failure, number(50));
    assert_eq!(of_envoy.interval.unwrap().seconds, 5);
    assert_eq!(of_envoy.base_ejection_time.unwrap().nanos, 500_000_000);
    let expected = cluster::OutlierDetection {
        interval: of_envoy.interval,
        base_ejection_time: of_envoy.base_ejection_time,
        max_ejection_percent: number(20),
        failure_percentage_threshold: number(60),
        enforcing_failure_percentage: number(100),
        ..cluster::OutlierDetection::default()
    };
    assert_eq!(detection(ClientKind::Grpc), expected);
    let without = cluster(&json!({}), &[], ClientKind::Envoy);
    assert_eq!(without.outlier_detection, None);
}

#[test]
fn a_value_that_cannot_be_meant_is_left_out_and_named_and_the_rest_is_served() {
    let document = json!({
        "slowStartProperties": { "disabled": false, "windowDurationSeconds": 60, "aggression": "x",
            "minWeightPercent": 10.0 },
        "outlierDetectionConfig": {
            "interval": 10, "baseEjectionTime": "60s", "maxEjectionTime": "30s",
            "maxEjectionPercent": 101, "consecutive5xx": 3,
        },
        "loadBalancingPolicies": [
            { "config": { "magicLbConfig": {} }, "clientTypes": ["GRPC"] },
            { "config": { "ringHashLbConfig": { "minimumRingSize": 9_000_000 } } },
        ],
        "load_reports": "maybe",
    });
    let definition = mk_cluster("c", &document.to_string(), DefinitionStat::default());
    let of_cluster = ClusterProperties::read(Some(&definition)).left_out;
    let document_of_service = json!({
        "loadBalancerStrategyList": "relative",
        "hash_header": ":path",
        "transportClientProperties": {
            "http.requestTimeout": "1s", "http.poolSize": 0, "http.poolWaiterSize": null,
            "http.maxClientRequestRetryRatio": 2,
        },
    });
    let service = mk_service("s", "c", &document_of_service.to_string());
    let of_service = ServiceProperties::read(&service).left_out;
    let names = |left_out: &[super::LeftOut]| {
        assert!(left_out.iter().all(|l| !l.why.is_empty()));
        let mut names: Vec<_> = left_out.iter().map(|l| l.property.clone()).collect();
        names.sort_unstable();
        names
    };
    let expected = [
        "loadBalancingPolicies/0/config",
        "loadBalancingPolicies/1/config/ringHashLbConfig/minimumRingSize",
        "load_reports",
        "outlierDetectionConfig/interval",
        "outlierDetectionConfig/maxEjectionPercent",
        "outlierDetectionConfig/maxEjectionTime",
        "slowStartProperties/aggression",
    ];
    assert_eq!(names(&of_cluster), expected);
    let expected = [
        "hash_header",
        "loadBalancerStrategyList",
        "transportClientProperties/http.maxClientRequestRetryRatio",
        "transportClientProperties/http.poolSize",
        "transportClientProperties/http.requestTimeout",
    ];
    assert_eq!(names(&of_service), expected);

    let served = cluster(&document, &[document_of_service], ClientKind::Envoy);
    let policies = show_policies(served.load_balancing_policy.as_ref());
    assert_eq!(policies, "ring_hash(16384)");
    let detection = served.outlier_detection.unwrap();
    assert_eq!(detection.consecutive_5xx, Some(UInt32Value { value: 3 }));
    assert_eq!(detection.max_ejection_time, None);
}

#[test]
fn a_document_that_is_none_says_nothing_and_a_symlinks_is_none() {
    let read = |name, document| {
        let definition = mk_cluster(name, document, DefinitionStat::default());
        ClusterProperties::read(Some(&definition)).left_out.len()
    };
    assert_eq!(read("c", "\u{1}not json"), 1);
    assert_eq!(read("c", "[]"), 1);
    assert_eq!(read("c", "{}"), 0);
    assert_eq!(read("$cMaster", "/d2/clusters/c"), 0);
}
