//! Far more changes than can be delivered: the latest must win, and what is delivered must be young.

use std::time::Duration;

use super::steady::{OPEN_MAX, streams};
use super::{Bound, Figure, Peers, Scenario, Setup, Size, UnitCost, Values, wait, window};
use crate::load::response::Variant;

const RESPONSES: &str = "responses per CPU-second";
const RESOURCES: &str = "resources per CPU-second";
const P50: &str = "age at receipt, p50";
const P99: &str = "age at receipt, p99";
const CHANGES: &str = "changes made";

pub(crate) const FLOOD: Scenario = Scenario {
    name: "flood",
    what: "10,000 delta streams on 2,000 connections, 10 of 1,000 clusters of 20 each; 2,000 changes/s, \
           200,000 deliveries/s offered, for each core of the server",
    peers: Peers::Compared,
    figures: &[
        Figure::new(RESPONSES, "/s")
            .judged(Bound::AtLeast(50_000.0))
            .reference(7_447.0),
        Figure::new(RESOURCES, "/s")
            .unit_cost(UnitCost::PerCpuSecond)
            .reference(46_266.0),
        Figure::new(P50, "ms").reference(468.0),
        Figure::new(P99, "ms")
            .shown(Bound::AtMost(400.0))
            .reference(1_502.0),
        Figure::new(CHANGES, "/s"),
    ],
    run,
};

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let (rate, settle, time) = match setup.size {
        Size::Full => (2_000, Duration::from_secs(2), Duration::from_secs(8)),
        Size::Short => (200, Duration::from_millis(200), Duration::from_secs(1)),
    };
    // As much for each core: what costs less because more of it goes in one answer must not be
    // compared with what is answered at once.
    let rate = rate * setup.server_cores.count() as u64;
    let (streams, endpoints) = streams(setup.size, Variant::Delta);
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

    let mut values = Values::default();
    values.add_surroundings(&window);
    values.set(RESPONSES, window.per_cpu_second(counts.responses));
    values.set(RESOURCES, window.per_cpu_second(counts.resources));
    values.set(P50, window.age_ms(0.5));
    values.set(P99, window.age_ms(0.99));
    values.set(CHANGES, window.per_second(changes));
    Ok(values)
}
