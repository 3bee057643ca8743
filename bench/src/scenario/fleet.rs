//! The whole fleet of a large company on one machine: what an instance takes in memory, what it costs to
//! get ready, and whether a heartbeat costs more among millions.

use std::path::Path;
use std::time::Duration;

use waypost_core::limits::TTL_MAX;
use waypost_core::partition::partition_for_key;
use waypost_core::record::{Delivery, KeeperId};
use waypost_core::{Offset, PartitionId, ReadEvent, Record, Timestamp, Topic};
use waypost_fold::{Replica, ReplicaSettings};
use waypost_log::limits::READ_RECORDS_MAX;
use waypost_log::{EmbeddedLog, EmbeddedSettings};
use waypost_testkit::process::Process;
use waypost_testkit::waypost::{ServerConfig, http_get};

use super::{Bound, Figure, Peers, Scenario, Setup, Size, Values, wait};
use crate::clock::Stopwatch;
use crate::fleet::activity::nth;
use crate::fleet::write::announce_all;
use crate::fleet::{Fleet, FleetSpec, Shape};
use crate::kernel;
use crate::server::pinned_command;

const BYTES: &str = "resident bytes an instance";
const SAID: &str = "bytes of key and value";
const CPU: &str = "CPU to ready";
const RATIO: &str = "heartbeat, to one of a small fleet";
const BEAT: &str = "a heartbeat";
const SMALL_BEAT: &str = "a heartbeat of a small fleet";

pub(crate) const FLEET: Scenario = Scenario {
    name: "fleet",
    what: "3 million instances in 30,000 clusters: `waypost dev` on an embedded log; heartbeats, folded",
    peers: Peers::None,
    figures: &[
        Figure::new(BYTES, "B").judged(Bound::AtMost(700.0)),
        Figure::new(SAID, "B"),
        Figure::new(CPU, "s").judged(Bound::AtMost(30.0)),
        Figure::new(RATIO, "times").judged(Bound::AtMost(1.5)),
        Figure::new(BEAT, "ns"),
        Figure::new(SMALL_BEAT, "ns"),
    ],
    run,
};

/// How long a start may take: ten times what it should on a core of its own.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// How long the server is left alone before its memory is read: what a start needs and nothing else does
/// is given back ten seconds after it was freed.
const SETTLE: Duration = Duration::from_secs(15);

/// Partitions that the heartbeats come in: as a fleet of this size would have.
const PARTITIONS: u32 = 8;

/// Batches of heartbeats that are timed.
const BATCHES: usize = 400;

struct Sizes {
    instances: u32,
    clusters: u32,
    small: u32,
    batches: usize,
    settle: Duration,
}

fn run(setup: &Setup<'_>) -> anyhow::Result<Values> {
    let sizes = match setup.size {
        Size::Full => Sizes {
            instances: 3_000_000,
            clusters: 30_000,
            small: 10_000,
            batches: BATCHES,
            settle: SETTLE,
        },
        Size::Short => Sizes {
            instances: 5_000,
            clusters: 50,
            small: 500,
            batches: 4,
            settle: Duration::ZERO,
        },
    };
    let mut values = Values::default();
    measure_server(setup, &sizes, &mut values)?;
    let small = time_heartbeats(sizes.small, sizes.small.div_ceil(100), sizes.batches)?;
    let large = time_heartbeats(sizes.instances, sizes.clusters, sizes.batches)?;
    values.set(RATIO, large / small);
    values.set(BEAT, large);
    values.set(SMALL_BEAT, small);
    Ok(values)
}

fn mk_fleet(instances: u32, clusters: u32) -> Fleet {
    Fleet::new(FleetSpec {
        clusters,
        shape: Shape::Tailed { instances },
        // Nobody beats while memory is read, so nobody may be overdue.
        heartbeat: TTL_MAX / 3,
        ttl: TTL_MAX,
    })
}

/// Starts a real `waypost dev` on a log that holds the fleet.
fn measure_server(setup: &Setup<'_>, sizes: &Sizes, values: &mut Values) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let said = runtime.block_on(write_log(&data, &mk_fleet(sizes.instances, sizes.clusters)))?;
    let instances = f64::from(sizes.instances);

    let config = ServerConfig::dev(&data);
    let command = pinned_command(&config.command()?, setup.server_cores)?;
    let mut server = Process::spawn("dev", command)?;
    let watch = Stopwatch::start();
    while !runtime.block_on(is_ready(&config)) {
        let status = server.try_wait()?;
        anyhow::ensure!(status.is_none(), "the server ended: {}", server.tail());
        anyhow::ensure!(
            watch.elapsed() < READY_WITHIN,
            "not ready: {}",
            server.tail()
        );
        wait(Duration::from_millis(100))?;
    }
    // Threads for blocking work come and go.
    let cpu = kernel::cpu_time_in_ticks(server.pid())?;
    wait(sizes.settle)?;
    let bytes = kernel::resident_bytes(server.pid())?;
    values.set(BYTES, bytes as f64 / instances);
    values.set(SAID, said as f64 / instances);
    values.set(CPU, cpu.as_secs_f64());
    Ok(())
}

async fn write_log(data: &Path, fleet: &Fleet) -> anyhow::Result<u64> {
    let log = EmbeddedLog::open(data, EmbeddedSettings::standard()).await?;
    let bytes = announce_all(fleet, &log).await;
    log.close().await;
    bytes
}

async fn is_ready(config: &ServerConfig) -> bool {
    let answer = http_get(config.admin_addr(), "/ready").await;
    answer.is_ok_and(|(status, _)| status == 200)
}

/// Nanoseconds that a heartbeat takes from the record to the verdict, in a fleet of `instances`: the
/// median of `batches` batches. Their records were made just before, as a reader's are.
fn time_heartbeats(instances: u32, clusters: u32, batches: usize) -> anyhow::Result<f64> {
    let fleet = mk_fleet(instances, clusters);
    let mut reading = Reading::new();
    for slot in 0..instances {
        reading.read(&fleet, slot)?;
    }
    reading.read_rest();
    reading.times.clear();
    for n in 0.. {
        if reading.times.len() >= batches {
            break;
        }
        reading.read(&fleet, nth(n, instances))?;
    }
    reading.times.sort_unstable();
    let median = reading.times[reading.times.len() / 2];
    Ok(median.as_nanos() as f64 / READ_RECORDS_MAX as f64)
}

/// A copy of the log that reads announcements a batch of one partition at a time.
struct Reading {
    replica: Replica,
    waiting: Vec<Vec<Record>>,
    ends: Vec<Offset>,
    /// Of each whole batch.
    times: Vec<Duration>,
}

impl Reading {
    fn new() -> Self {
        let mut reading = Self {
            replica: Replica::new(KeeperId(1), ReplicaSettings::default()),
            waiting: vec![Vec::new(); PARTITIONS as usize],
            ends: vec![Offset(0); PARTITIONS as usize],
            times: Vec::new(),
        };
        reading.tell(&ReadEvent::Partitions(PARTITIONS));
        reading
    }

    fn read(&mut self, fleet: &Fleet, slot: u32) -> anyhow::Result<()> {
        let new = fleet.announce(slot, Delivery::Heartbeat)?;
        let partition = partition_for_key(&new.key, PARTITIONS);
        let index = partition.0 as usize;
        let offset = self.ends[index];
        self.ends[index] = offset.next();
        self.waiting[index].push(Record {
            partition,
            offset,
            append_time: Timestamp(1_700_000_000_000),
            key: Some(new.key),
            value: new.value,
            headers: Ok(new.headers),
        });
        if self.waiting[index].len() == READ_RECORDS_MAX {
            self.read_batch(partition);
        }
        Ok(())
    }

    fn read_rest(&mut self) {
        for partition in (0..PARTITIONS).map(PartitionId) {
            self.read_batch(partition);
        }
    }

    fn read_batch(&mut self, partition: PartitionId) {
        let records = std::mem::take(&mut self.waiting[partition.0 as usize]);
        let event = ReadEvent::Records(records);
        let watch = Stopwatch::start();
        self.tell(&event);
        self.times.push(watch.elapsed());
    }

    fn tell(&mut self, event: &ReadEvent) {
        let mut changes = Vec::new();
        let topic = Topic::Announcements;
        let replica = &mut self.replica;
        replica.on_event(topic, event, Duration::ZERO, &mut changes, &mut |_, _| {});
    }
}
