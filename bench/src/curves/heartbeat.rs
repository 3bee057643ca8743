//! What a heartbeat costs as the fleet grows.

use super::Curve;
use crate::scenario::Setup;
use crate::server::Server;

/// Instances of a cluster, on average: as in the fleet of 3 million.
const INSTANCES_PER_CLUSTER: u32 = 100;

/// Heartbeats at each size, at least.
const BEATS: u32 = 2_000_000;

pub(super) const FLEET_SIZE: Curve = Curve {
    name: "heartbeat-fleet-size",
    title: "CPU per heartbeat, from a log in memory",
    columns: ["instances", "CPU per heartbeat (µs)"],
    full: &[10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000],
    short: &[500, 1_000],
    is_line: false,
    measure,
};

fn measure(setup: &Setup<'_>, instances: u32) -> anyhow::Result<f64> {
    let clusters = instances.div_ceil(INSTANCES_PER_CLUSTER);
    let server = Server::start_fleet(setup.side, setup.server_cores, clusters, instances)?;
    let rounds = if setup.is_short() {
        1
    } else {
        BEATS.div_ceil(instances)
    };
    // The first round makes the records.
    server.beat(1)?;
    let before = server.cpu_time()?;
    server.beat(rounds)?;
    let cpu = server.cpu_time()?.saturating_sub(before);
    Ok(cpu.as_secs_f64() * 1e6 / (f64::from(rounds) * f64::from(instances)))
}
