//! What a delivery costs where all is calm: every change reaches a hundred streams.

use std::time::Duration;

use super::{Bound, Figure, Peers, Scenario, Setup, Size, Streams, UnitCost, Values, wait, window};
use crate::load::plan::{Kind, subscribers_of_each};
use crate::load::response::Variant;

const PER_CPU_SECOND: &str = "deliveries per CPU-second";
const RESPONSES: &str = "responses per CPU-second";
const CORE: &str = "server CPU";
const P50: &str = "age at receipt, p50";
const P99: &str = "age at receipt, p99";
const ARRIVED: &str = "versions that arrive";

pub(crate) const DELTA: Scenario = Scenario {
    name: "steady",
    what: "10,000 delta streams on 2,000 connections, 10 of 1,000 clusters of 20 each; 100 changes/s, \
           10,000 deliveries/s",
    peers: Peers::Compared,
    figures: &[
        Figure::new(PER_CPU_SECOND, "/s")
            .judged(Bound::AtLeast(27_000.0))
            .unit_cost(UnitCost::PerCpuSecond)
            .reference(10_400.0),
        Figure::new(RESPONSES, "/s").reference(9_861.0),
        Figure::new(CORE, "% of a core").reference(99.0),
        Figure::new(P50, "ms").reference(60.0),
        Figure::new(P99, "ms")
            .shown(Bound::AtMost(20.0))
            .against_peer(Bound::AtMost(0.1))
            .reference(774.0),
        Figure::new(ARRIVED, "%"),
    ],
    run: |setup| run(setup, Variant::Delta),
};

pub(crate) const SOTW: Scenario = Scenario {
    name: "steady-sotw",
    what: "10,000 streams in state of the world on 2,000 connections, 10 of 1,000 clusters of 20 each; \
           100 changes/s, 10,000 deliveries/s",
    figures: &[
        Figure::new(PER_CPU_SECOND, "/s")
            .judged(Bound::AtLeast(22_000.0))
            .unit_cost(UnitCost::PerCpuSecond)
            .reference(10_081.0),
        Figure::new(RESPONSES, "/s").reference(9_215.0),
        Figure::new(CORE, "% of a core").reference(99.0),
        Figure::new(P50, "ms").reference(132.0),
        Figure::new(P99, "ms")
            .shown(Bound::AtMost(20.0))
            .against_peer(Bound::AtMost(0.1))
            .reference(1_426.0),
        Figure::new(ARRIVED, "%"),
    ],
    run: |setup| run(setup, Variant::Sotw),
    ..DELTA
};

/// The streams of this scenario and of all that say "the same streams"; endpoints of a cluster.
pub(super) fn streams(size: Size, variant: Variant) -> (Streams, usize) {
    let full = Streams {
        streams: 10_000,
        connections: 2_000,
        names: 10,
        clusters: 1_000,
        kind: Kind::Endpoints,
        variant,
    };
    match size {
        Size::Full => (full, 20),
        Size::Short => (full.shrunk(200), 5),
    }
}

/// How long streams may take to open: peers need 5 s.
pub(super) const OPEN_MAX: Duration = Duration::from_secs(120);

fn run(setup: &Setup<'_>, variant: Variant) -> anyhow::Result<Values> {
    let (rate, settle, time) = match setup.size {
        Size::Full => (100, Duration::from_secs(2), Duration::from_secs(10)),
        Size::Short => (20, Duration::from_millis(200), Duration::from_secs(1)),
    };
    let (streams, endpoints) = streams(setup.size, variant);
    let server = setup.server(streams.clusters, endpoints)?;
    let mut clients = setup.clients(&server, &streams)?;
    clients.open(streams.streams, OPEN_MAX)?;
    wait(settle)?;
    server.start_changes(rate)?;
    wait(settle)?;
    let before = server.count_changes()?;
    let window = window(&server, &mut clients, |_| wait(time))?;
    let changes = server.count_changes()? - before;
    let counts = window.report.counts;
    let expected =
        changes as f64 * subscribers_of_each(streams.streams, streams.names, streams.clusters);

    let mut values = Values::default();
    values.add_surroundings(&window);
    values.set(PER_CPU_SECOND, window.per_cpu_second(counts.resources));
    values.set(RESPONSES, window.per_cpu_second(counts.responses));
    values.set(CORE, 100.0 * values.surroundings.server);
    values.set(P50, window.age_ms(0.5));
    values.set(P99, window.age_ms(0.99));
    values.set(ARRIVED, 100.0 * counts.resources as f64 / expected.max(1.0));
    Ok(values)
}
