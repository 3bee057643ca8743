//! What reading through the port costs, beside librdkafka alone: CPU time of this process, all of its
//! threads, for 100,000 records.
//!
//! ```text
//! cargo run --release -p waypost-log --example kafka_reader_cost [RECORDS]
//! ```
//!
//! Starts a real broker (`cargo xtask parts` installs it), writes announcements of usual size, and
//! reads them twice with each reader, in turn; the second time counts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use tokio::task::JoinSet;
use waypost_core::port::{AnnouncementLog as _, LogError, ReadEvent};
use waypost_core::record::{Appended, Delivery, Headers, LifeId, NewRecord, Topic};
use waypost_core::time::Timestamp;
use waypost_log::kafka::topics::{self, TopicsSpec};
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_testkit::kafka::KafkaBroker;

const PARTITIONS: u32 = 8;
const VALUE_BYTES: usize = 250;
/// Records that wait for their acknowledgement at once.
const IN_FLIGHT: usize = 5_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let records: usize = match std::env::args().nth(1) {
        Some(text) => text.parse().context("RECORDS is a number")?,
        None => 500_000,
    };
    let broker = KafkaBroker::start().await?;
    let settings = KafkaSettings::new(&broker.bootstrap(), "cost");
    let spec = TopicsSpec {
        announcement_partitions: PARTITIONS,
        ..TopicsSpec::development()
    };
    topics::create(&settings, &spec).await?;
    write(&settings, records).await?;
    for round in ["warm-up", "measured"] {
        let raw = cpu_of(read_raw(&settings, records)).await?;
        let port = cpu_of(read_port(&settings, records)).await?;
        let per_100k = |cpu: Duration| cpu.as_secs_f64() * 1e5 / records as f64;
        println!(
            "{round}: {records} records; CPU-s per 100,000: librdkafka alone {:.3}, KafkaLog {:.3} ({:+.0} %)",
            per_100k(raw),
            per_100k(port),
            (per_100k(port) / per_100k(raw) - 1.0) * 100.0
        );
    }
    Ok(())
}

async fn write(settings: &KafkaSettings, records: usize) -> anyhow::Result<()> {
    let log = Arc::new(KafkaLog::open(settings.clone())?);
    let mut waiting: JoinSet<Result<Appended, LogError>> = JoinSet::new();
    for n in 0..records {
        if waiting.len() >= IN_FLIGHT {
            waiting
                .join_next()
                .await
                .context("some wait")??
                .context("append")?;
        }
        let log = Arc::clone(&log);
        waiting.spawn(async move { log.append(mk_record(n)).await });
    }
    while let Some(done) = waiting.join_next().await {
        done?.context("append")?;
    }
    Ok(())
}

fn mk_record(n: usize) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: Bytes::from(format!("cluster-{}\0grpc://10.0.0.1:{n}", n % 100)),
        value: Some(Bytes::from(vec![b'v'; VALUE_BYTES])),
        headers: Headers {
            id: Some(LifeId(n as u64)),
            birth: Some(Timestamp(1_700_000_000_000)),
            seq: Some(1),
            ..Headers::default()
        },
        delivery: Delivery::Change,
    }
}

async fn read_port(settings: &KafkaSettings, records: usize) -> anyhow::Result<()> {
    let log = KafkaLog::open(settings.clone())?;
    let mut reader = log.read(Topic::Announcements, &[]).await?;
    let mut read = 0;
    // One more: the log's identity.
    while read <= records {
        if let ReadEvent::Records(batch) = reader.next().await? {
            read += batch.len();
        }
    }
    Ok(())
}

async fn read_raw(settings: &KafkaSettings, records: usize) -> anyhow::Result<()> {
    let mut config = rdkafka::ClientConfig::new();
    config
        .set("bootstrap.servers", settings.brokers())
        .set("group.id", "raw");
    config.set("enable.auto.commit", "false");
    let name = settings.topic_name(Topic::Announcements);
    tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = config.create()?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            let partition = i32::try_from(partition)?;
            assignment.add_partition_offset(&name, partition, KafkaOffset::Beginning)?;
        }
        consumer.assign(&assignment)?;
        let (mut read, mut bytes) = (0, 0);
        while read <= records {
            if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                let message = message?;
                bytes += message.key_len() + message.payload_len();
                read += 1;
            }
        }
        anyhow::ensure!(bytes > records * VALUE_BYTES);
        Ok(())
    })
    .await?
}

/// CPU time of the whole process while `work` ran. Resolution: 10 ms.
async fn cpu_of(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
    let before = cpu_of_process()?;
    work.await?;
    Ok(cpu_of_process()? - before)
}

/// Fields 14 and 15 of `/proc/self/stat`: user and system time in ticks of 10 ms, all threads.
fn cpu_of_process() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, after_name) = stat.rsplit_once(')').context("a name in parentheses")?;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(str::parse::<u64>).sum::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}
