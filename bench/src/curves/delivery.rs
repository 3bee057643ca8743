//! What a delivery costs as its subscribers or its cluster grow.

use std::time::Duration;

use super::Curve;
use crate::load::command::Counted;
use crate::load::plan::Kind;
use crate::load::response::Variant;
use crate::scenario::{Setup, Streams, wait, window};

pub(super) const SUBSCRIBERS: Curve = Curve {
    name: "delivery-subscribers",
    title: "CPU per delivery: one cluster of 20 endpoints, delta streams on up to 5,000 connections",
    columns: ["subscribers", "CPU per delivery (µs)"],
    full: &[10, 100, 1_000, 10_000, 40_000],
    short: &[5, 10],
    is_line: false,
    measure: |setup, subscribers| measure(setup, subscribers, 20),
};

pub(super) const CLUSTER_SIZE: Curve = Curve {
    name: "delivery-cluster-size",
    title: "CPU per delivery: one cluster, 1,000 delta streams on as many connections",
    columns: ["endpoints", "CPU per delivery (µs)"],
    full: &[1, 10, 100, 1_000, 10_000],
    short: &[1, 10],
    is_line: false,
    measure: |setup, endpoints| {
        let subscribers = if setup.is_short() { 10 } else { 1_000 };
        measure(setup, subscribers, endpoints)
    },
};

/// Connections at most.
const CONNECTIONS_MAX: u32 = 5_000;

/// Deliveries at each size, at least, and changes that make them.
const DELIVERIES: u32 = 40_000;
const CHANGES: std::ops::RangeInclusive<u32> = 3..=1_000;

/// How long streams may take to be opened, and a change to reach everybody.
const WITHIN: Duration = Duration::from_secs(60);

/// Changes follow one another when everybody has the one before: each delivery is one of its own.
fn measure(setup: &Setup<'_>, subscribers: u32, endpoints: u32) -> anyhow::Result<f64> {
    let streams = Streams {
        streams: subscribers as usize,
        connections: subscribers.min(CONNECTIONS_MAX) as usize,
        names: 1,
        clusters: 1,
        kind: Kind::Endpoints,
        variant: Variant::Delta,
    };
    let server = setup.server(1, endpoints as usize)?;
    let mut clients = setup.clients(&server, &streams)?;
    clients.open(streams.streams, WITHIN)?;
    wait(Duration::from_millis(500))?;
    let changes = (DELIVERIES / subscribers).clamp(*CHANGES.start(), *CHANGES.end());
    let changes = if setup.is_short() { 3 } else { changes };
    let window = window(&server, &mut clients, |clients| {
        for change in 1..=u64::from(changes) {
            server.change_once(0)?;
            let expected = change * u64::from(subscribers);
            clients.wait_until(Counted::Resources, expected, WITHIN)?;
        }
        // The last ACKs.
        wait(Duration::from_millis(50))
    })?;
    let delivered = window.report.counts.resources.max(1);
    Ok(window.cpu.as_secs_f64() * 1e6 / delivered as f64)
}
