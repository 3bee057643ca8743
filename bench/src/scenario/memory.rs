//! What a stream costs that only waits, and what it costs to get there.

use std::time::Duration;

use super::steady::OPEN_MAX;
use super::{Bound, Figure, Peers, Scenario, Setup, Size, Streams, UnitCost, Values, wait, window};
use crate::load::plan::Kind;
use crate::load::response::Variant;

const KIB: &str = "resident KiB a stream";
const CPU: &str = "CPU to open all";
const WALL: &str = "time to open all";

pub(crate) const ONE_EACH: Scenario = Scenario {
    name: "memory-1",
    what: "10,000 idle delta streams on as many connections, 10 of 1,000 clusters of 20 each",
    peers: Peers::Compared,
    figures: &[
        Figure::new(KIB, "KiB")
            .judged(Bound::AtMost(22.0))
            .reference(43.5),
        Figure::new(CPU, "s").reference(5.0),
    ],
    run: |setup| {
        run(
            setup,
            &Streams {
                streams: 10_000,
                connections: 10_000,
                ..STREAMS
            },
        )
    },
};

pub(crate) const EIGHT_EACH: Scenario = Scenario {
    name: "memory-8",
    what: "40,000 idle delta streams on 5,000 connections, 10 of 1,000 clusters of 20 each",
    figures: &[
        Figure::new(KIB, "KiB")
            .judged(Bound::AtMost(5.0))
            .reference(25.0),
        Figure::new(CPU, "s").reference(12.4),
    ],
    run: |setup| run(setup, &STREAMS),
    ..ONE_EACH
};

pub(crate) const JOIN: Scenario = Scenario {
    name: "join",
    what: "40,000 delta streams on 5,000 connections, from nothing to their first answers",
    figures: &[
        Figure::new(CPU, "s")
            .judged(Bound::AtMost(3.0))
            .unit_cost(UnitCost::CpuTime)
            .reference(11.8),
        Figure::new(WALL, "s").reference(12.0),
        Figure::new(KIB, "KiB").reference(25.0),
    ],
    run: |setup| run(setup, &STREAMS),
    ..ONE_EACH
};

const STREAMS: Streams = Streams {
    streams: 40_000,
    connections: 5_000,
    names: 10,
    clusters: 1_000,
    kind: Kind::Endpoints,
    variant: Variant::Delta,
};

fn run(setup: &Setup<'_>, full: &Streams) -> anyhow::Result<Values> {
    let (streams, endpoints, settle) = match setup.size {
        Size::Full => (*full, 20, Duration::from_secs(3)),
        Size::Short => (full.shrunk(400), 5, Duration::from_millis(200)),
    };
    let server = setup.server(streams.clusters, endpoints)?;
    let mut clients = setup.clients(&server, &streams)?;
    wait(settle)?;
    let empty = server.resident_bytes()?;
    let window = window(&server, &mut clients, |clients| {
        clients.open(streams.streams, OPEN_MAX).map(drop)
    })?;
    wait(settle)?;
    let bytes = server.resident_bytes()?.saturating_sub(empty);

    let mut values = Values::default();
    values.add_surroundings(&window);
    values.set(KIB, bytes as f64 / 1024.0 / streams.streams as f64);
    values.set(CPU, window.cpu.as_secs_f64());
    values.set(WALL, window.wall.as_secs_f64());
    Ok(values)
}
