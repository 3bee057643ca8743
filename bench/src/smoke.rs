//! The smoke load: a fleet of ten thousand and a thousand clients on one machine.

mod instances;
mod streams;

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;
use waypost_testkit::waypost::ServerConfig;

use crate::kernel::{cpu_time, resident_bytes};
use instances::Instances;
use streams::Streams;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    clusters: usize,
    instances_per_cluster: usize,
    streams: usize,
    names_per_stream: usize,
    /// Changes a second.
    rate: u32,
    /// How long nothing is changed, to know what heartbeats cost; then how long changes are made.
    window: Duration,
}

/// What the figures in RESULTS.md are taken with.
pub(crate) const FULL: Size = Size {
    clusters: 1_000,
    instances_per_cluster: 10,
    streams: 1_000,
    names_per_stream: 10,
    rate: 200,
    window: Duration::from_secs(30),
};

/// Shows that it runs.
pub(crate) const SHORT: Size = Size {
    clusters: 100,
    instances_per_cluster: 10,
    streams: 100,
    names_per_stream: 10,
    rate: 50,
    window: Duration::from_secs(3),
};

/// The heartbeat interval of `waypost announce`.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What a window of time cost the server.
struct Window {
    wall: Duration,
    cpu: Duration,
    deliveries: u64,
    changes: usize,
}

/// Runs the load and prints the figures.
pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await?;
    let pid = server.process.pid();

    let empty = resident_bytes(pid)?;
    let began = Instant::now();
    let gateway = server.listen().to_string();
    let announced = Instances::announce(
        &gateway,
        size.clusters,
        size.instances_per_cluster,
        HEARTBEAT,
    )
    .await?;
    let announcing = began.elapsed();
    let filled = resident_bytes(pid)?;

    let changes = announced.changes();
    let began = Instant::now();
    let streams = Streams::open(
        server.listen(),
        size.streams,
        size.names_per_stream,
        size.clusters,
        &changes,
    )
    .await?;
    let opening = began.elapsed();
    let connected = resident_bytes(pid)?;

    let quiet = window(pid, &streams, async {
        tokio::time::sleep(size.window).await;
        Ok(0)
    })
    .await?;
    streams.take_propagation();
    let busy = window(pid, &streams, announced.change(size.rate, size.window)).await?;
    let propagation = streams.take_propagation();
    streams.check()?;

    let memory = [empty, filled, connected, resident_bytes(pid)?];
    report_sizes(size, [announcing, opening], memory);
    report(&quiet, &busy, &propagation)?;
    let expected =
        u64::try_from(busy.changes * size.streams * size.names_per_stream / size.clusters)?;
    ensure!(busy.deliveries > 0, "nothing was delivered");
    println!("deliveries, had none been merged     {expected}");
    server.stop().await?;
    Ok(())
}

/// What the load is, how long it took to build up, and the memory it takes: empty, with the instances,
/// with the streams, at the end.
fn report_sizes(size: Size, [announcing, opening]: [Duration; 2], memory: [u64; 4]) {
    let [empty, filled, connected, last] = memory;
    let instances = size.clusters * size.instances_per_cluster;
    println!(
        "instances announced                  {instances} in {:.1} s",
        announcing.as_secs_f64()
    );
    println!(
        "streams, names of each               {}, {}",
        size.streams, size.names_per_stream
    );
    println!(
        "streams opened and filled in         {:.1} s",
        opening.as_secs_f64()
    );
    println!(
        "resident bytes per instance          {}",
        per(filled, empty, instances)
    );
    println!(
        "resident bytes per stream            {}",
        per(connected, filled, size.streams)
    );
    println!("resident bytes, all told             {}", last);
}

/// What `work` costs the server.
async fn window(
    pid: u32,
    streams: &Streams,
    work: impl Future<Output = anyhow::Result<usize>>,
) -> anyhow::Result<Window> {
    let (began, cpu, deliveries) = (Instant::now(), cpu_time(pid)?, streams.deliveries());
    let changes = work.await?;
    // What is under way arrives; a fifth of a second is far above the median.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(Window {
        wall: began.elapsed(),
        cpu: cpu_time(pid)?.saturating_sub(cpu),
        deliveries: streams.deliveries() - deliveries,
        changes,
    })
}

fn report(quiet: &Window, busy: &Window, propagation: &[Duration]) -> anyhow::Result<()> {
    let share = |window: &Window| 100.0 * window.cpu.as_secs_f64() / window.wall.as_secs_f64();
    let idle = quiet
        .cpu
        .mul_f64(busy.wall.as_secs_f64() / quiet.wall.as_secs_f64());
    let own = busy.cpu.saturating_sub(idle);
    println!(
        "server CPU, heartbeats alone         {:.1} % of a core",
        share(quiet)
    );
    println!(
        "server CPU, with changes             {:.1} % of a core",
        share(busy)
    );
    println!(
        "changes made                         {} in {:.1} s",
        busy.changes,
        busy.wall.as_secs_f64()
    );
    println!("deliveries                           {}", busy.deliveries);
    println!(
        "deliveries per CPU-second            {}",
        rate(busy.deliveries, busy.cpu)
    );
    println!(
        "  the same without heartbeats' share {}",
        rate(busy.deliveries, own)
    );
    for (name, share) in [("p50", 50), ("p99", 99), ("most", 100)] {
        let index = (propagation.len() * share / 100).min(propagation.len().saturating_sub(1));
        let time = propagation.get(index).copied().unwrap_or_default();
        println!(
            "change to receipt, {name:<4}              {:.1} ms",
            time.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

fn per(after: u64, before: u64, count: usize) -> u64 {
    after.saturating_sub(before) / u64::try_from(count.max(1)).unwrap_or(1)
}

/// Deliveries a second; `-` when the kernel counted no time.
fn rate(deliveries: u64, cpu: Duration) -> String {
    let micros = cpu.as_micros();
    if micros == 0 {
        return "-".to_owned();
    }
    (u128::from(deliveries) * 1_000_000 / micros).to_string()
}
