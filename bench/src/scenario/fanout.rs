//! One change that concerns everybody: how soon all have it.

use std::time::Duration;

use super::steady::OPEN_MAX;
use super::{
    Bound, Figure, Peers, Scenario, Setup, Size, Streams, UnitCost, Values, ms, wait, window,
};
use crate::clients::Clients;
use crate::load::command::Counted;
use crate::load::plan::Kind;
use crate::load::response::Variant;
use crate::server::Server;

const ALL_HAVE_IT: &str = "all have it after";
const FIRST_HAS_IT: &str = "half have it after";
const CPU: &str = "CPU";
const MISSING: &str = "streams without it";
const ALL_40K_HAVE_IT: &str = "all of 40,000 have it after";
const CPU_40K: &str = "CPU for 40,000";

/// How long a change may take to reach everybody before those without it are counted.
const FAN_OUT_MAX: Duration = Duration::from_secs(20);

/// How long the last ACKs may take to cost what they cost.
const ACKS: Duration = Duration::from_millis(300);

pub(crate) const WIDE: Scenario = Scenario {
    name: "wide",
    what: "one cluster of 1,000 endpoints (25 KB), 10,000 delta streams on 5,000 connections; one \
           endpoint changes",
    peers: Peers::Compared,
    figures: &[
        Figure::new(CPU, "s")
            .judged(Bound::AtMost(0.25))
            .unit_cost(UnitCost::CpuTime)
            .reference(1.1),
        Figure::new(MISSING, "streams").judged(Bound::AtMost(0.0)),
        Figure::new(ALL_HAVE_IT, "ms")
            .shown(Bound::AtMost(300.0))
            .reference(909.0),
        Figure::new(FIRST_HAS_IT, "ms"),
    ],
    run: |setup| run(setup, Kind::Endpoints, &[10_000]),
};

pub(crate) const GLOB: Scenario = Scenario {
    name: "glob",
    what: "10,000, then 40,000 delta subscribers of the indis.D2URI collection of 1,000 instances on \
           5,000 connections; one instance changes",
    peers: Peers::None,
    figures: &[
        Figure::new(MISSING, "streams").judged(Bound::AtMost(0.0)),
        Figure::new(CPU, "s")
            .unit_cost(UnitCost::CpuTime)
            .reference(0.9),
        Figure::new(ALL_HAVE_IT, "ms")
            .shown(Bound::AtMost(250.0))
            .reference(710.0),
        Figure::new(CPU_40K, "s"),
        Figure::new(ALL_40K_HAVE_IT, "ms").shown(Bound::AtMost(1_000.0)),
    ],
    run: |setup| run(setup, Kind::UriGlob, &[10_000, 40_000]),
};

/// Changes that are made one after the other; the figures are their medians.
const ROUNDS: usize = 4;

fn run(setup: &Setup<'_>, kind: Kind, steps: &[usize]) -> anyhow::Result<Values> {
    let full = Streams {
        streams: steps.last().copied().unwrap_or(0),
        connections: 5_000,
        names: 1,
        clusters: 1,
        kind,
        variant: Variant::Delta,
    };
    let (streams, endpoints, shrink, settle) = match setup.size {
        Size::Full => (full, 1_000, 1, Duration::from_secs(2)),
        Size::Short => (full.shrunk(500), 50, 500, Duration::from_millis(200)),
    };
    let server = setup.server(streams.clusters, endpoints)?;
    let mut clients = setup.clients(&server, &streams)?;
    let mut values = Values::default();
    let mut missing = 0;
    for (index, step) in steps.iter().enumerate() {
        let subscribers = step / shrink;
        clients.open(subscribers, OPEN_MAX)?;
        wait(settle)?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let round = change_once(&server, &mut clients, subscribers as u64, &mut values)?;
            missing += round.missing;
            rounds.push(round);
        }
        let median = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
        if index == 0 {
            values.set(CPU, median(|round| round.cpu_seconds));
            values.set(ALL_HAVE_IT, median(|round| round.all_ms));
            values.set(FIRST_HAS_IT, median(|round| round.half_ms));
        } else {
            values.set(CPU_40K, median(|round| round.cpu_seconds));
            values.set(ALL_40K_HAVE_IT, median(|round| round.all_ms));
        }
    }
    values.set(MISSING, missing as f64);
    Ok(values)
}

/// What one change cost.
struct Round {
    cpu_seconds: f64,
    all_ms: f64,
    half_ms: f64,
    missing: u64,
}

fn change_once(
    server: &Server,
    clients: &mut Clients,
    subscribers: u64,
    values: &mut Values,
) -> anyhow::Result<Round> {
    let window = window(server, clients, |clients| {
        server.change_once(0)?;
        clients.wait_until(Counted::Resources, subscribers, FAN_OUT_MAX)?;
        wait(ACKS)
    })?;
    values.add_surroundings(&window);
    let report = &window.report;
    Ok(Round {
        cpu_seconds: window.cpu.as_secs_f64(),
        all_ms: ms(report.ages.longest()),
        half_ms: window.age_ms(0.5),
        missing: subscribers.saturating_sub(report.counts.resources),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(values.len().saturating_sub(1) / 2), at(values.len() / 2))
}
