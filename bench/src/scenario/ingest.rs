//! What reading heartbeats costs: from a real Kafka, against a loop over librdkafka that does nothing with
//! them, and from a log in memory, where reading costs next to nothing.
//!
//! From Kafka the cost is a difference: of a program that reads a fleet and its heartbeats, and of one that
//! reads the fleet alone. Starting up, and taking in the fleet, is in both.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_core::limits::TTL_MAX;
use waypost_log::kafka::KafkaLog;
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::process::Process;

use super::real::{READ_WITHIN, RealObserver, create_topics, partitions, start_broker};
use super::{Bound, Figure, Peers, Scenario, Setup, Size, Values};
use crate::fleet::write::{announce_all, beat_all};
use crate::fleet::{Fleet, FleetSpec, Shape};
use crate::kernel::cpu_time_in_ticks;
use crate::server::{Server, pinned_command};

const RAW: &str = "raw loop, records per CPU-second";
const KAFKA: &str = "from Kafka, heartbeats per CPU-second";
const SHARE: &str = "share of the raw loop's";
const MEMORY: &str = "from memory, heartbeats per CPU-second";

pub(crate) const INGEST: Scenario = Scenario {
    name: "ingest",
    what: "two million heartbeats of 10,000 instances from Kafka, beside a loop over librdkafka alone; \
           three million of 100,000 instances from a log in memory",
    peers: Peers::None,
    figures: &[
        Figure::new(RAW, "/s"),
        Figure::new(KAFKA, "/s"),
        Figure::new(SHARE, "%").judged(Bound::AtLeast(60.0)),
        Figure::new(MEMORY, "/s").judged(Bound::AtLeast(500_000.0)),
    ],
    run,
};

/// A fleet, and how often everybody in it beats.
#[derive(Clone, Copy, Debug)]
struct Amount {
    instances: u32,
    clusters: u32,
    rounds: u32,
}

impl Amount {
    fn beats(self) -> u64 {
        u64::from(self.instances) * u64::from(self.rounds)
    }
}

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let (from_kafka, from_memory) = match setup.size {
        Size::Full => (
            Amount {
                instances: 10_000,
                clusters: 200,
                rounds: 200,
            },
            Amount {
                instances: 100_000,
                clusters: 2_000,
                rounds: 30,
            },
        ),
        Size::Short => (
            Amount {
                instances: 500,
                clusters: 20,
                rounds: 4,
            },
            Amount {
                instances: 500,
                clusters: 20,
                rounds: 2,
            },
        ),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build()?;
    let (raw, observer) = runtime.block_on(read_kafka(setup, from_kafka))?;
    let mut values = Values::default();
    let per_second = |cpu: Duration| from_kafka.beats() as f64 / cpu.as_secs_f64().max(0.01);
    values.set(RAW, per_second(raw));
    values.set(KAFKA, per_second(observer));
    values.set(SHARE, 100.0 * per_second(observer) / per_second(raw));
    values.set(MEMORY, read_memory(setup, from_memory)?);
    Ok(values)
}

/// CPU time of the raw loop and of an Observer for the heartbeats of `amount`.
async fn read_kafka(setup: &Setup<'_>, amount: Amount) -> anyhow::Result<(Duration, Duration)> {
    let broker = start_broker(setup).await?;
    let fleet = Fleet::new(FleetSpec {
        clusters: amount.clusters,
        shape: Shape::Tailed {
            instances: amount.instances,
        },
        heartbeat: TTL_MAX / 3,
        ttl: TTL_MAX,
    });
    let mut differences = [Duration::ZERO; 2];
    for (prefix, rounds) in [("fleet", 0), ("beats", amount.rounds)] {
        write(&broker, prefix, &fleet, rounds).await?;
        let records = u64::from(amount.instances) * u64::from(1 + rounds);
        let costs = [
            read_raw(setup, &broker, prefix, records).await?,
            read_by_observer(setup, &broker, prefix).await?,
        ];
        for (difference, cost) in differences.iter_mut().zip(costs) {
            *difference = cost.saturating_sub(*difference);
        }
    }
    let [raw, observer] = differences;
    Ok((raw, observer))
}

async fn write(
    broker: &KafkaBroker,
    prefix: &str,
    fleet: &Fleet,
    rounds: u32,
) -> anyhow::Result<()> {
    let log = KafkaLog::open(create_topics(broker, prefix).await?)?;
    announce_all(fleet, &log).await?;
    for _ in 0..rounds {
        beat_all(fleet, &log).await?;
    }
    Ok(())
}

/// `waypost-bench consume`, from its start to its end.
async fn read_raw(
    setup: &Setup<'_>,
    broker: &KafkaBroker,
    prefix: &str,
    records: u64,
) -> anyhow::Result<Duration> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["consume", "--kafka", &broker.bootstrap()])
        .args(["--topic", &format!("{prefix}.announcements")])
        .args(["--partitions", &partitions().to_string()])
        .args(["--records", &records.to_string()]);
    let command = pinned_command(&command, setup.server_cores)?;
    let done = Process::run("consume", command, READ_WITHIN).await?;
    ensure!(done.code() == 0, "consume: {}", done.stderr);
    let mut words = done.stdout.split_whitespace();
    let cpu = words.find_map(|word| word.strip_prefix("cpu_ms="));
    Ok(Duration::from_millis(cpu.context("no cpu_ms=")?.parse()?))
}

/// `waypost observer`, from its start until it is ready.
async fn read_by_observer(
    setup: &Setup<'_>,
    broker: &KafkaBroker,
    prefix: &str,
) -> anyhow::Result<Duration> {
    let observer = RealObserver::start(setup, broker, prefix).await?;
    cpu_time_in_ticks(observer.pid())
}

/// Heartbeats per CPU-second of a server whose log is in its own process; the first round is not counted,
/// since it makes the records.
fn read_memory(setup: &Setup<'_>, amount: Amount) -> anyhow::Result<f64> {
    let server = Server::start_fleet(
        setup.side,
        setup.server_cores,
        amount.clusters,
        amount.instances,
    )?;
    server.beat(1)?;
    let before = server.cpu_time()?;
    server.beat(amount.rounds)?;
    let cpu = server.cpu_time()?.saturating_sub(before);
    Ok(amount.beats() as f64 / cpu.as_secs_f64().max(1e-9))
}
