//! How much can be offered before versions are skipped or come late.

use std::time::Duration;

use super::steady::{OPEN_MAX, streams};
use super::{Bound, Figure, Peers, Scenario, Setup, Size, Values, Window, wait, window};
use crate::clients::Clients;
use crate::load::plan::subscribers_of_each;
use crate::load::response::Variant;
use crate::server::Server;

const HIGHEST: &str = "highest rate that holds";
const P99: &str = "age at receipt at that rate, p99";
const CORE: &str = "server CPU at that rate";

/// Deliveries a second that are offered, one after the other.
const OFFERED: &[u64] = &[
    1_000, 2_500, 5_000, 7_500, 10_000, 15_000, 20_000, 25_000, 30_000, 33_000, 36_000, 40_000,
    45_000, 50_000, 55_000, 60_000, 70_000, 80_000,
];

/// So many levels that do not hold, one after the other, end the search: one may have had bad luck.
const FAILURES_MAX: usize = 2;

/// A rate holds while this share of all versions arrive, and 99 of 100 within [`AGE_MAX`].
const ARRIVED_MIN: f64 = 0.95;
const AGE_MAX: Duration = Duration::from_millis(250);

/// How long a server that fell behind may take to catch up before the next level begins.
const DRAIN_MAX: Duration = Duration::from_secs(10);

pub(crate) const CAPACITY: Scenario = Scenario {
    name: "capacity",
    what: "10,000 delta streams on 2,000 connections, 10 of 1,000 clusters of 20 each; the highest \
           offered rate at which 95 % of all versions arrive, with p99 below 250 ms",
    peers: Peers::Compared,
    figures: &[
        Figure::new(HIGHEST, "deliveries/s")
            .judged(Bound::AtLeast(33_000.0))
            .reference(5_000.0),
        Figure::new(P99, "ms"),
        Figure::new(CORE, "% of a core"),
    ],
    run,
};

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let (offered, settle, time) = match setup.size {
        Size::Full => (OFFERED, Duration::from_secs(2), Duration::from_secs(4)),
        Size::Short => (
            &[20, 50][..],
            Duration::from_millis(200),
            Duration::from_secs(1),
        ),
    };
    let (streams, endpoints) = streams(setup.size, Variant::Delta);
    let subscribers = subscribers_of_each(streams.streams, streams.names, streams.clusters);
    let server = setup.server(streams.clusters, endpoints)?;
    let mut clients = setup.clients(&server, &streams)?;
    clients.open(streams.streams, OPEN_MAX)?;
    wait(settle)?;
    let mut values = Values::default();
    let mut failures = 0;
    let mut best = [0.0, f64::NAN, f64::NAN];
    for deliveries in offered {
        let rate = (*deliveries as f64 / subscribers).ceil();
        let level = offer(&server, &mut clients, rate as u64, time)?;
        let expected = (level.changes as f64 * subscribers).max(1.0);
        let arrived = level.window.report.counts.resources as f64 / expected;
        // A server that makes fewer changes than it was told to has not held the rate either.
        let made = level.changes as f64 / (rate * time.as_secs_f64());
        let age = level.window.report.ages.quantile(0.99);
        if arrived.min(made) >= ARRIVED_MIN && age < AGE_MAX {
            failures = 0;
            best = [
                rate * subscribers,
                level.window.age_ms(0.99),
                100.0 * level.window.surroundings().server,
            ];
            values.add_surroundings(&level.window);
        } else {
            failures += 1;
        }
        if failures >= FAILURES_MAX {
            break;
        }
    }
    values.set(HIGHEST, best[0]);
    values.set(P99, best[1]);
    values.set(CORE, best[2]);
    Ok(values)
}

/// What happened at one rate.
struct Level {
    window: Window,
    changes: u64,
}

fn offer(
    server: &Server,
    clients: &mut Clients,
    rate: u64,
    time: Duration,
) -> anyhow::Result<Level> {
    let mut changes = 0;
    let window = window(server, clients, |clients| {
        server.start_changes(rate)?;
        wait(time)?;
        changes = server.stop_changes()?;
        drain(clients)
    })?;
    Ok(Level { window, changes })
}

/// Waits until nothing arrives any more.
fn drain(clients: &mut Clients) -> anyhow::Result<()> {
    const QUIET: Duration = Duration::from_millis(200);
    let mut seen = clients.report()?.counts.resources;
    for _ in 0..DRAIN_MAX.as_millis() / QUIET.as_millis() {
        wait(QUIET)?;
        let now = clients.report()?.counts.resources;
        if now == seen {
            break;
        }
        seen = now;
    }
    Ok(())
}
