//! Who gets calls, and how many.

use std::collections::BTreeMap;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::EndpointHealth::{Degraded, Draining, Healthy, Unhealthy};
use super::*;

/// Endpoints by port: health, priority, share.
fn mk_list(endpoints: &[(u16, EndpointHealth, u32, f64)]) -> EndpointList {
    let shares: Vec<f64> = endpoints.iter().map(|(.., share)| *share).collect();
    let endpoints = endpoints.iter().map(|(port, health, priority, _)| {
        Arc::new(Endpoint {
            addresses: vec![([127, 0, 0, 1], *port).into()],
            health: *health,
            weight: 1,
            priority: *priority,
            locality: Arc::default(),
        })
    });
    EndpointList {
        assignment: Arc::new(Assignment::new(endpoints.collect(), &shares)),
        standing: Standing::Fresh,
        ..EndpointList::awaited(&"c".into())
    }
}

/// How many of 10,000 choices fall on each port.
fn count(list: &EndpointList) -> BTreeMap<u16, u32> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut counts = BTreeMap::new();
    for _ in 0..10_000 {
        if let Some(endpoint) = list.pick_with(&mut rng) {
            *counts.entry(endpoint.address().port()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn only_the_best_that_there_are_get_calls() {
    let one = 1.0;
    for (what, endpoints, expected) in [
        ("none", &[][..], &[][..]),
        (
            "the first priority",
            &[(1, Healthy, 0, one), (2, Healthy, 1, one)],
            &[1],
        ),
        (
            "not what drains or is unhealthy",
            &[
                (1, Draining, 0, one),
                (2, Unhealthy, 0, one),
                (3, Healthy, 0, one),
            ],
            &[3],
        ),
        (
            "a healthy one of a later priority before a degraded one",
            &[(1, Degraded, 0, one), (2, Healthy, 1, one)],
            &[2],
        ),
        (
            "a degraded one before none",
            &[(1, Unhealthy, 0, one), (2, Degraded, 1, one)],
            &[2],
        ),
        (
            "health never makes a list empty",
            &[
                (1, Unhealthy, 0, one),
                (2, Draining, 0, one),
                (3, Unhealthy, 1, one),
            ],
            &[1, 2],
        ),
        (
            "nothing without weight",
            &[(1, Healthy, 0, 0.0), (2, Healthy, 0, one)],
            &[2],
        ),
    ] {
        let chosen: Vec<u16> = count(&mk_list(endpoints)).into_keys().collect();
        assert_eq!(chosen, expected, "{what}");
    }
}

#[test]
fn choices_fall_by_weight() {
    let counts = count(&mk_list(&[
        (1, Healthy, 0, 1.0),
        (2, Healthy, 0, 3.0),
        (3, Healthy, 0, 6.0),
    ]));
    for (port, expected) in [(1, 1_000), (2, 3_000), (3, 6_000)] {
        let count = counts[&port];
        assert!(count.abs_diff(expected) < 200, "{port}: {count}");
    }
}

#[test]
fn what_the_caller_cannot_use_is_passed_over_as_long_as_there_is_another() {
    let list = mk_list(&[
        (1, Healthy, 0, 1.0),
        (2, Healthy, 0, 1_000_000.0),
        (3, Healthy, 1, 1.0),
    ]);
    let not = |ports: &'static [u16]| {
        move |endpoint: &Endpoint| !ports.contains(&endpoint.address().port())
    };
    for _ in 0..100 {
        let pick = |ports| list.pick_usable(not(ports)).unwrap().address().port();
        assert_eq!(pick(&[2]), 1);
        assert_eq!(pick(&[1, 2]), 3, "of a later priority before none");
        assert!(
            [1, 2].contains(&pick(&[1, 2, 3])),
            "one that it cannot use before none"
        );
    }
}
