//! Clients that stop reading: the others must not notice, the server must not keep what they miss, and
//! when they read again they must end with what is true then.

use std::time::Duration;

use super::steady::{OPEN_MAX, streams};
use super::{Bound, Figure, Peers, Scenario, Setup, Size, Values, wait, window};
use crate::load::LoadOptions;
use crate::load::command::Counted;
use crate::load::plan::slow_before;
use crate::load::response::Variant;

const P99: &str = "age for the others, p99";
const P99_BEFORE: &str = "age before, p99";
const LATER: &str = "p99, times that before";
const GROWTH: &str = "growth of memory by a stream that is not read";
const OUTDATED: &str = "names without the latest version";

/// Of all connections.
const SLOW_PERCENT: usize = 50;

/// How long the latest versions may take to reach those who read again.
const CATCH_UP_MAX: Duration = Duration::from_secs(20);

pub(crate) const SLOW_READER: Scenario = Scenario {
    name: "slow-reader",
    what: "the streams and changes of steady; the clients of half of the connections stop reading, then \
           every cluster changes once, then they read again",
    peers: Peers::Compared,
    figures: &[
        Figure::new(OUTDATED, "names").judged(Bound::AtMost(0.0)),
        Figure::new(GROWTH, "KiB").judged(Bound::AtMost(4.0)),
        Figure::new(LATER, "x").shown(Bound::AtMost(1.5)),
        Figure::new(P99, "ms"),
        Figure::new(P99_BEFORE, "ms"),
    ],
    run,
};

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let (rate, settle, time) = match setup.size {
        Size::Full => (100, Duration::from_secs(2), Duration::from_secs(8)),
        Size::Short => (20, Duration::from_millis(200), Duration::from_secs(1)),
    };
    let (streams, endpoints) = streams(setup.size, Variant::Delta);
    let server = setup.server(streams.clusters, endpoints)?;
    let options = LoadOptions {
        slow_percent: SLOW_PERCENT,
        ..streams.options(&server)
    };
    let mut clients = setup.clients_by(&options, streams.streams)?;
    clients.open(streams.streams, OPEN_MAX)?;
    wait(settle)?;
    server.start_changes(rate)?;
    wait(settle)?;
    let before = window(&server, &mut clients, |_| wait(time))?;
    let bytes_before = server.resident_bytes()?;
    clients.pause()?;
    // What was on its way has arrived.
    wait(settle)?;
    let paused = window(&server, &mut clients, |_| wait(time))?;
    let bytes = server.resident_bytes()?.saturating_sub(bytes_before);

    server.stop_changes()?;
    wait(settle)?;
    let deliveries = (streams.streams * streams.names.min(streams.clusters)) as u64;
    let last = window(&server, &mut clients, |clients| {
        for cluster in 0..streams.clusters {
            server.change_once(cluster)?;
        }
        wait(settle)?;
        clients.resume()?;
        clients.wait_until(Counted::Fresh, deliveries, CATCH_UP_MAX)?;
        Ok(())
    })?;

    let slow =
        slow_before(streams.connections, SLOW_PERCENT) * streams.streams / streams.connections;
    let mut values = Values::default();
    values.add_surroundings(&before);
    values.add_surroundings(&paused);
    let outdated = deliveries.saturating_sub(last.report.counts.fresh);
    values.set(OUTDATED, outdated as f64);
    values.set(GROWTH, bytes as f64 / 1024.0 / slow as f64);
    values.set(LATER, paused.age_ms(0.99) / before.age_ms(0.99).max(1e-3));
    values.set(P99, paused.age_ms(0.99));
    values.set(P99_BEFORE, before.age_ms(0.99));
    Ok(values)
}
