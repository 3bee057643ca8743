//! Everything at once, with real parts: what the largest deployment of this kind that was described in
//! public does with one server, on one core.

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::process::Process;

use super::real::{READ_WITHIN, RealObserver, create_topics, start_broker};
use super::steady::OPEN_MAX;
use super::{Bound, Figure, Peers, Scenario, Setup, Size, Surroundings, Values, ms};
use crate::clients::Clients;
use crate::clock::Stopwatch;
use crate::kernel::{cpu_time, machine_time, resident_bytes};
use crate::load::LoadOptions;
use crate::load::plan::Kind;
use crate::load::response::Variant;
use crate::server::pinned_command;

const DELIVERIES: &str = "deliveries";
const EVENTS: &str = "Kafka events";
const P50: &str = "age at receipt, p50";
const P99: &str = "age at receipt, p99";
const CORE: &str = "server CPU";
const MEMORY: &str = "resident memory";
const GROWTH: &str = "its growth over the second half";

pub(crate) const HEADLINE: Scenario = Scenario {
    name: "headline",
    what: "40,000 delta streams on 5,000 connections, 10 of 22,000 clusters each; 300,000 instances that beat \
           every 29 s through a real Kafka, 500 changes/s and deploys: 11,000 events/s, 10,000 deliveries/s",
    peers: Peers::None,
    figures: &[
        Figure::new(DELIVERIES, "/s").shown(Bound::AtLeast(9_500.0)),
        Figure::new(EVENTS, "/s").shown(Bound::AtLeast(10_450.0)),
        Figure::new(P50, "ms").shown(Bound::AtMost(20.0)),
        Figure::new(P99, "ms").shown(Bound::AtMost(250.0)),
        Figure::new(CORE, "% of a core").judged(Bound::AtMost(75.0)),
        Figure::new(MEMORY, "MiB"),
        Figure::new(GROWTH, "%").judged(Bound::AtMost(2.0)),
    ],
    run,
};

/// The prefix of the topics.
const PREFIX: &str = "waypost";

/// How long the fleet is at work before and after it is measured: streams are opened meanwhile.
const ASIDE: Duration = Duration::from_secs(45);

struct Amount {
    instances: u32,
    clusters: usize,
    heartbeat: Duration,
    /// Changes and deploy waves a second.
    changes: f64,
    waves: f64,
    streams: usize,
    connections: usize,
    time: Duration,
}

const FULL: Amount = Amount {
    instances: 300_000,
    clusters: 22_000,
    heartbeat: Duration::from_secs(29),
    changes: 500.0,
    // A wave of a cluster of usual size replaces one instance, which is two records.
    waves: 20.0,
    streams: 40_000,
    connections: 5_000,
    time: Duration::from_secs(600),
};

const SHORT: Amount = Amount {
    instances: 500,
    clusters: 50,
    heartbeat: Duration::from_secs(5),
    changes: 10.0,
    waves: 1.0,
    streams: 80,
    connections: 10,
    time: Duration::from_secs(2),
};

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let mut amount = match setup.size {
        Size::Full => FULL,
        Size::Short => SHORT,
    };
    amount.time = setup.time.unwrap_or(amount.time);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build()?;
    runtime.block_on(measure(setup, &amount))
}

async fn measure(setup: &Setup<'_>, amount: &Amount) -> anyhow::Result<Values> {
    let broker = start_broker(setup).await?;
    create_topics(&broker, PREFIX).await?;
    let observer = RealObserver::start(setup, &broker, PREFIX).await?;
    let mut fleet = start_fleet(setup, amount, &broker)?;
    let is_announced = |line: &str| line.contains("instances in");
    let announced = fleet.wait_for_line("the fleet is announced", READ_WITHIN, is_announced);
    announced.await?;

    let options = LoadOptions {
        grpc: observer.listen(),
        then: None,
        connections: amount.connections,
        kind: Kind::Endpoints,
        variant: Variant::Delta,
        clusters: amount.clusters,
        names: 10,
        first_stream: 0,
        unanswered_max: 200,
        slow_percent: 0,
    };
    let mut clients = Clients::start(&options, 1, amount.streams, setup.load_cores)?;
    clients.open(amount.streams, OPEN_MAX)?;
    tokio::time::sleep(amount.time.min(Duration::from_secs(5))).await;
    clients.mark()?;
    watch(&observer, &mut clients, amount.time).await
}

/// Starts the fleet in a process of its own, with the broker and the clients on their core.
fn start_fleet(
    setup: &Setup<'_>,
    amount: &Amount,
    broker: &KafkaBroker,
) -> anyhow::Result<Process> {
    let heartbeat_ms = amount.heartbeat.as_millis();
    let seconds = (amount.time + 2 * ASIDE).as_secs();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["fleet", "--kafka", &broker.bootstrap()]);
    let settings = [
        ("--instances", amount.instances.to_string()),
        ("--clusters", amount.clusters.to_string()),
        ("--heartbeat-ms", heartbeat_ms.to_string()),
        ("--ttl-ms", (3 * heartbeat_ms).to_string()),
        ("--seconds", seconds.to_string()),
        ("--changes", amount.changes.to_string()),
        ("--waves", amount.waves.to_string()),
    ];
    for (name, value) in settings {
        command.args([name, &value]);
    }
    Process::spawn("fleet", pinned_command(&command, setup.load_cores)?)
}

/// Lets it run for `time` and says what it cost.
async fn watch(
    observer: &RealObserver,
    clients: &mut Clients,
    time: Duration,
) -> anyhow::Result<Values> {
    let watch = Stopwatch::start();
    let machine = machine_time()?;
    let (cpu, load_cpu) = (cpu_time(observer.pid())?, clients.cpu_time()?);
    let read = observer.records_read().await?;
    tokio::time::sleep(time / 2).await;
    let middle = resident_bytes(observer.pid())?;
    tokio::time::sleep(time / 2).await;
    let end = resident_bytes(observer.pid())?;
    let read = observer.records_read().await?.saturating_sub(read);
    let cpu = cpu_time(observer.pid())?.saturating_sub(cpu);
    let load_cpu = clients.cpu_time()?.saturating_sub(load_cpu);
    let wall = watch.elapsed().as_secs_f64();
    let after = machine_time()?;
    let report = clients.report()?;
    ensure!(report.counts.resources > 0, "nothing was delivered");

    let cores = |time: Duration| time.as_secs_f64() / wall;
    let busy = after.busy.saturating_sub(machine.busy);
    let mut values = Values {
        surroundings: Surroundings {
            server: cores(cpu),
            load: cores(load_cpu),
            // The broker and the fleet, above all.
            others: cores(busy.saturating_sub(cpu + load_cpu)),
            stolen: cores(after.stolen.saturating_sub(machine.stolen)),
        },
        ..Values::default()
    };
    values.set(DELIVERIES, report.counts.resources as f64 / wall);
    values.set(EVENTS, read as f64 / wall);
    values.set(P50, ms(report.ages.quantile(0.5)));
    values.set(P99, ms(report.ages.quantile(0.99)));
    values.set(CORE, 100.0 * cores(cpu));
    values.set(MEMORY, end as f64 / f64::from(1 << 20));
    let growth = end as f64 / middle as f64 - 1.0;
    values.set(GROWTH, 100.0 * growth);
    Ok(values)
}
