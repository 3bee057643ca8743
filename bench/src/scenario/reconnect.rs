//! An Observer dies and all its clients come to another at once, with what they hold: nothing that
//! they hold is sent again.

use std::time::Duration;

use super::steady::OPEN_MAX;
use super::{Bound, Figure, Peers, Scenario, Setup, Size, Streams, UnitCost, Values, wait, window};
use crate::load::LoadOptions;
use crate::load::command::Counted;
use crate::load::plan::Kind;
use crate::load::response::Variant;

const SENT: &str = "resources sent again";
const TOLD_GONE: &str = "names wrongly said to be gone";
const UNANSWERED: &str = "streams not answered";
const ALL: &str = "all answered after";
const HALF: &str = "half answered after";
const CPU: &str = "CPU of the other Observer";

/// Nobody may wait longer; those who do are counted.
const ANSWER_MAX: Duration = Duration::from_secs(15);

pub(crate) const RECONNECT: Scenario = Scenario {
    name: "reconnect",
    what: "20,000 delta streams on 5,000 connections, half of indis.D2URIMap, half of D2URI globs, 5 of \
           1,000 clusters of 20 each; their Observer is killed and all come to another of the same state",
    peers: Peers::None,
    figures: &[
        Figure::new(SENT, "resources").judged(Bound::AtMost(0.0)),
        Figure::new(TOLD_GONE, "names").judged(Bound::AtMost(0.0)),
        Figure::new(UNANSWERED, "streams").judged(Bound::AtMost(0.0)),
        Figure::new(ALL, "s").shown(Bound::AtMost(5.0)),
        Figure::new(HALF, "s"),
        Figure::new(CPU, "s").unit_cost(UnitCost::CpuTime),
    ],
    run,
};

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let full = Streams {
        streams: 20_000,
        connections: 5_000,
        names: 5,
        clusters: 1_000,
        kind: Kind::UriMapAndGlob,
        variant: Variant::Delta,
    };
    let (streams, endpoints, settle) = match setup.size {
        Size::Full => (full, 20, Duration::from_secs(2)),
        Size::Short => (full.shrunk(200), 5, Duration::from_millis(200)),
    };
    let mut first = setup.server(streams.clusters, endpoints)?;
    let other = setup.server(streams.clusters, endpoints)?;
    let options = LoadOptions {
        then: Some(other.grpc()),
        ..streams.options(&first)
    };
    let mut clients = setup.clients_by(&options, streams.streams)?;
    clients.open(streams.streams, OPEN_MAX)?;
    wait(settle)?;
    let count = streams.streams as u64;
    let window = window(&other, &mut clients, |clients| {
        first.kill()?;
        clients.wait_until(Counted::Answered, count, ANSWER_MAX)?;
        // What would be sent late would be seen.
        wait(settle)
    })?;
    let report = &window.report;

    let mut values = Values::default();
    values.add_surroundings(&window);
    values.set(SENT, report.counts.resources as f64);
    // Each stream is told once that the name does not exist that nothing has.
    let told = report.counts.removed.abs_diff(count);
    values.set(TOLD_GONE, told as f64);
    let unanswered = count.saturating_sub(report.counts.answered);
    values.set(UNANSWERED, unanswered as f64);
    values.set(ALL, report.answers.longest().as_secs_f64());
    values.set(HALF, report.answers.quantile(0.5).as_secs_f64());
    values.set(CPU, window.cpu.as_secs_f64());
    Ok(values)
}
