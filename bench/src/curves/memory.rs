//! Memory as streams and instances grow: lines.

use std::time::Duration;

use super::Curve;
use crate::load::plan::Kind;
use crate::load::response::Variant;
use crate::scenario::{Setup, Streams, wait};
use crate::server::Server;

pub(super) const STREAMS: Curve = Curve {
    name: "memory-streams",
    title: "Resident memory: 1,000 clusters of 20 endpoints, delta streams of 10 names, 8 on a connection",
    columns: ["streams", "resident memory (KiB)"],
    full: &[2_000, 5_000, 10_000, 20_000, 40_000],
    short: &[16, 32],
    is_line: true,
    measure: of_streams,
};

pub(super) const INSTANCES: Curve = Curve {
    name: "memory-instances",
    title: "Resident memory: described instances in clusters of very different sizes, 100 on average",
    columns: ["instances", "resident memory (KiB)"],
    full: &[10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000],
    short: &[500, 1_000],
    is_line: true,
    measure: of_instances,
};

/// How long streams may take to be opened.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// How long freed memory takes to be given back: the allocator's decay time.
const SETTLED: Duration = Duration::from_secs(11);

fn of_streams(setup: &Setup<'_>, count: u32) -> anyhow::Result<f64> {
    let streams = Streams {
        streams: count as usize,
        connections: count.div_ceil(8) as usize,
        names: 10,
        clusters: if setup.is_short() { 50 } else { 1_000 },
        kind: Kind::Endpoints,
        variant: Variant::Delta,
    };
    let server = setup.server(streams.clusters, 20)?;
    let mut clients = setup.clients(&server, &streams)?;
    clients.open(streams.streams, OPEN_WITHIN)?;
    kib(setup, &server)
}

fn of_instances(setup: &Setup<'_>, instances: u32) -> anyhow::Result<f64> {
    let clusters = instances.div_ceil(100);
    let server = Server::start_fleet(setup.side, setup.server_cores, clusters, instances)?;
    kib(setup, &server)
}

fn kib(setup: &Setup<'_>, server: &Server) -> anyhow::Result<f64> {
    if !setup.is_short() {
        wait(SETTLED)?;
    }
    Ok(server.resident_bytes()? as f64 / 1024.0)
}
