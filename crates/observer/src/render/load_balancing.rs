//! How a cluster's clients choose among its instances and when they stop, as each kind of client is told.
//!
//! D2 has most of it of a service, the others of a cluster, and services share clusters. So a cluster's own
//! definition comes first; where it is silent, what its services say is put together such that none of them
//! gets less than it asked for (docs/d2-properties.md, "A cluster of several services").

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::{Thresholds, thresholds};
use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy as Entry;
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, LoadBalancingPolicy};
use envoy_types::pb::envoy::config::core::v3::{RuntimeDouble, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::common::v3::{
    ConsistentHashingLbConfig, SlowStartConfig,
};
use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use envoy_types::pb::envoy::extensions::load_balancing_policies::random::v3::Random;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::{
    RingHash, ring_hash,
};
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::{UInt32Value, UInt64Value};
use envoy_types::util::pack_any;
use prost::{Message, Name};
use waypost_core::ClientKind;

use super::envoy::to_wire;
use super::properties::{ClusterProperties, Policy, Ring, ServiceProperties, SlowStart, Strategy};

/// Entries that an Envoy's ring has at least: as many as D2 gives to 160 instances of weight 1 (100 each).
/// Envoy's own default of 1,024 is two or three for each instance of a large cluster.
const RING_SIZE_MIN: u32 = 16_384;

/// Retries at once that an Envoy permits itself: a share of the requests in flight (rest.li's own bound,
/// `http.maxClientRequestRetryRatio`), and so many in any case.
const RETRY_RATIO: f64 = 0.2;
const RETRIES_AT_ONCE_MIN: u32 = 10;

/// What an operator of the Envoy may set in place of the aggression that is sent.
const AGGRESSION_KEY: &str = "waypost.slow_start_aggression";

/// The policy, in the words of `client`; `None` for round robin, which every client knows by the older
/// field (`lb_policy`).
///
/// gRPC takes the first entry that it knows (gRFC A52), so each list ends with what all know.
pub(super) fn policy(
    cluster: &ClusterProperties,
    services: &[ServiceProperties],
    client: ClientKind,
) -> Option<LoadBalancingPolicy> {
    let stated = cluster.policy(client);
    let policy = stated.unwrap_or_else(|| together(services, client));
    match client {
        ClientKind::Envoy => for_envoy(policy, cluster.slow_start),
        ClientKind::Grpc | ClientKind::D2 => for_grpc(policy),
    }
}

/// A ring if any service tells requests apart, since that takes nothing from the others: requests without
/// a key go anywhere. Else what watches instances before what does not.
fn together(services: &[ServiceProperties], client: ClientKind) -> Policy {
    let has_key = |service: &&ServiceProperties| {
        let keys = &service.hash_keys;
        // Paths of gRPC are names of methods and tell nothing apart.
        keys.header.is_some() || (client == ClientKind::Envoy && keys.path.is_some())
    };
    if let Some(first) = services.iter().find(has_key) {
        return Policy::RingHash(Ring {
            load_max_percent: first.ring_load_max_percent,
            ..Ring::default()
        });
    }
    let has = |strategy| services.iter().any(|s| s.strategy == Some(strategy));
    if has(Strategy::Relative) || has(Strategy::Degrader) {
        Policy::Adaptive
    } else if has(Strategy::Random) {
        Policy::Random
    } else {
        Policy::RoundRobin
    }
}

fn for_envoy(policy: Policy, slow_start: Option<SlowStart>) -> Option<LoadBalancingPolicy> {
    let slow_start_config = slow_start.map(to_slow_start);
    let entry = match policy {
        Policy::RoundRobin if slow_start.is_none() => return None,
        Policy::RoundRobin => entry(RoundRobin {
            slow_start_config,
            ..RoundRobin::default()
        }),
        Policy::Random => entry(Random::default()),
        Policy::Adaptive | Policy::LeastRequest { .. } => entry(LeastRequest {
            choice_count: match policy {
                Policy::LeastRequest { choices } => choices.map(to_u32),
                _ => None,
            },
            slow_start_config,
            ..LeastRequest::default()
        }),
        Policy::RingHash(ring) => {
            // The smallest size must not be over the largest.
            let size_max = ring.size_max.unwrap_or(u32::MAX);
            let size_min = ring.size_min.unwrap_or(RING_SIZE_MIN.min(size_max));
            entry(RingHash {
                consistent_hashing_lb_config: ring.load_max_percent.map(|percent| {
                    ConsistentHashingLbConfig {
                        hash_balance_factor: Some(to_u32(percent)),
                        ..ConsistentHashingLbConfig::default()
                    }
                }),
                ..to_ring(Some(size_min), ring.size_max)
            })
        }
    };
    Some(list([entry]))
}

fn for_grpc(policy: Policy) -> Option<LoadBalancingPolicy> {
    let round_robin = || entry(RoundRobin::default());
    match policy {
        Policy::RoundRobin | Policy::Random => None,
        Policy::Adaptive => {
            let by_report = entry(ClientSideWeightedRoundRobin::default());
            Some(list([in_localities([by_report, round_robin()])]))
        }
        Policy::LeastRequest { choices } => {
            let least = entry(LeastRequest {
                choice_count: choices.map(to_u32),
                ..LeastRequest::default()
            });
            Some(list([in_localities([least, round_robin()])]))
        }
        Policy::RingHash(ring) => Some(list([
            entry(to_ring(ring.size_min, ring.size_max)),
            in_localities([round_robin()]),
        ])),
    }
}

/// Bounds on what a client does at once. No bound of the client's own, whatever the size of the cluster: the
/// defaults of Envoy (1,024 connections and requests, 3 retries at once) and gRPC (1,024 requests, gRFC
/// A32) fail requests to large ones. A bound that the services state holds for all of them together, so the
/// largest does, and none while one of them has none.
pub(super) fn circuit_breakers(
    services: &[ServiceProperties],
    client: ClientKind,
) -> CircuitBreakers {
    let bound = |of: fn(&ServiceProperties) -> Option<u32>| {
        let all: Option<Vec<u32>> = services.iter().map(of).collect();
        all.and_then(|all| all.into_iter().max())
    };
    let or_none = |bound: Option<u32>| Some(to_u32(bound.unwrap_or(u32::MAX)));
    let requests_max = bound(|service| service.requests_max);
    let of_all = Thresholds {
        max_requests: or_none(requests_max),
        ..Thresholds::default()
    };
    if client != ClientKind::Envoy {
        return CircuitBreakers {
            thresholds: vec![of_all],
            ..CircuitBreakers::default()
        };
    }
    let ratios = services.iter().map(|service| service.retry_ratio);
    let ratio = ratios.map(|ratio| ratio.unwrap_or(RETRY_RATIO));
    let ratio = ratio.reduce(f64::max).unwrap_or(RETRY_RATIO);
    let retries = thresholds::RetryBudget {
        budget_percent: Some(Percent {
            value: ratio * 100.0,
        }),
        min_retry_concurrency: Some(to_u32(RETRIES_AT_ONCE_MIN)),
        ..thresholds::RetryBudget::default()
    };
    let per_instance = bound(|service| service.connections_per_instance_max);
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: or_none(requests_max),
            max_pending_requests: or_none(bound(|service| service.waiting_max)),
            retry_budget: Some(retries),
            ..of_all
        }],
        per_host_thresholds: per_instance
            .map(|connections| Thresholds {
                max_connections: Some(to_u32(connections)),
                ..Thresholds::default()
            })
            .into_iter()
            .collect(),
    }
}

/// A locality by its weight, an instance within it by the first of `policies` that the client knows.
fn in_localities<const N: usize>(policies: [Entry; N]) -> Entry {
    entry(WrrLocality {
        endpoint_picking_policy: Some(list(policies)),
    })
}

fn list<const N: usize>(policies: [Entry; N]) -> LoadBalancingPolicy {
    LoadBalancingPolicy {
        policies: policies.into(),
    }
}

/// An extension is told apart by the type of its configuration; its name is for people.
fn entry<T: Message + Name>(config: T) -> Entry {
    let package = T::PACKAGE.trim_end_matches(".v3");
    Entry {
        typed_extension_config: Some(TypedExtensionConfig {
            name: package.replace("envoy.extensions.", "envoy."),
            typed_config: Some(pack_any(config)),
        }),
    }
}

fn to_ring(size_min: Option<u32>, size_max: Option<u32>) -> RingHash {
    let to_u64 = |value: u32| UInt64Value {
        value: value.into(),
    };
    RingHash {
        // gRPC refuses anything else (gRFC A42).
        hash_function: ring_hash::HashFunction::XxHash.into(),
        minimum_ring_size: size_min.map(to_u64),
        maximum_ring_size: size_max.map(to_u64),
        ..RingHash::default()
    }
}

fn to_slow_start(slow_start: SlowStart) -> SlowStartConfig {
    SlowStartConfig {
        slow_start_window: Some(to_wire(slow_start.window)),
        aggression: Some(RuntimeDouble {
            default_value: slow_start.aggression,
            runtime_key: AGGRESSION_KEY.to_owned(),
        }),
        min_weight_percent: Some(Percent {
            value: slow_start.min_weight_percent,
        }),
    }
}

fn to_u32(value: u32) -> UInt32Value {
    UInt32Value { value }
}
