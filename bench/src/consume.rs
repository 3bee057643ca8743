//! `waypost-bench consume`: what reading a topic costs with nothing behind it: a loop over librdkafka's
//! consumer that looks at each record's key and value and drops it. The yardstick of scenario ingest.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::kernel::cpu_time_in_ticks;

/// How long nothing may come.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What is read.
#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    /// The brokers.
    #[arg(long, value_name = "HOST:PORT")]
    kafka: String,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// How many partitions it has.
    #[arg(long)]
    partitions: i32,
    /// After how many records it ends.
    #[arg(long)]
    records: u64,
}

/// Reads, and prints `records=N bytes=N cpu_ms=N`, the CPU time of the whole process.
pub(crate) fn run(args: &ConsumeArgs) -> anyhow::Result<()> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &args.kafka)
        .set("group.id", "waypost-bench")
        .set("enable.auto.commit", "false")
        // As in every consumer of Waypost: damaged records must be noticed, and as much is fetched at once
        // and waits as there.
        .set("check.crcs", "true")
        .set("enable.partition.eof", "true")
        .set("queued.max.messages.kbytes", "16384")
        .set("fetch.max.bytes", "8388608")
        .set("fetch.message.max.bytes", "2097152")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.queue.backoff.ms", "10");
    let consumer: BaseConsumer = config.create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in 0..args.partitions {
        assignment.add_partition_offset(&args.topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    let (mut records, mut bytes) = (0, 0);
    let mut heard = Instant::now();
    while records < args.records {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Err(KafkaError::PartitionEOF(_))) => {}
            Some(message) => {
                let message = message?;
                bytes += message.key_len() + message.payload_len();
                records += 1;
                if records % 1_000 == 0 {
                    heard = Instant::now();
                }
            }
            None => ensure!(
                heard.elapsed() < SILENCE_MAX,
                "{records} of {} records came",
                args.records
            ),
        }
    }
    let cpu = cpu_time_in_ticks(std::process::id()).context("this process")?;
    println!("records={records} bytes={bytes} cpu_ms={}", cpu.as_millis());
    Ok(())
}
