//! Producers that are not ours and send no headers: kcat, as docs/announcing.md shows it, and a client
//! in pure Python.

use std::process::Command;

use anyhow::{Context as _, ensure};
use waypost_core::partition::partition_for_key;
use waypost_core::{ClusterName, InstanceKey, InstanceUri};
use waypost_testkit::parts::{self, Venv};
use waypost_testkit::process::Process;

use super::stage::{PARTITIONS, SOON, Stage};
use crate::fleet::{CLUSTER, announcement};

/// Announces the URI once a second, and purges it on SIGTERM. Looks at the topic's partitions when it
/// starts, and not again for five minutes, as most clients do by default.
const BEAT: &str = "
import os, signal, time
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=os.environ['KAFKA'].split(','), acks='all', metadata_max_age_ms=300000)
key, value = (bytes.fromhex(os.environ[name]) for name in ('KEY', 'VALUE'))
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
while not stopped:
    metadata = producer.send(os.environ['TOPIC'], key=key, value=value).get(timeout=60)
    print('partition', metadata.partition, flush=True)
    time.sleep(1)
producer.send(os.environ['TOPIC'], key=key, value=None).get(timeout=60)
";

/// Announces the URI, or says again that it lives.
///
/// # Errors
/// kcat is not installed, or fails.
pub(super) async fn announce(stage: &Stage, uri: &str) -> anyhow::Result<()> {
    produce(stage, uri, &value(uri)?, &[]).await
}

/// Removes whatever stands for the URI.
///
/// # Errors
/// As [`announce`].
pub(super) async fn purge(stage: &Stage, uri: &str) -> anyhow::Result<()> {
    produce(stage, uri, &[], &["-Z"]).await
}

/// Announces the URI again and again from a process that knows the partitions of now.
///
/// # Errors
/// The Python environment is missing.
pub(super) async fn beat(stage: &Stage, uri: &str) -> anyhow::Result<Process> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let mut command = Command::new(parts::python(Venv::Kafka)?);
    command.args(["-c", BEAT]);
    command.env("KAFKA", stage.kafka.bootstrap());
    command.env("TOPIC", Stage::topic("announcements"));
    command
        .env("KEY", hex(&key(uri)?))
        .env("VALUE", hex(&value(uri)?));
    let mut process = Process::spawn("a stale producer", command)?;
    let is_beat = |line: &str| line.starts_with("partition");
    process
        .wait_for_line("its first beat", SOON, is_beat)
        .await?;
    Ok(process)
}

async fn produce(stage: &Stage, uri: &str, value: &[u8], more: &[&str]) -> anyhow::Result<()> {
    // A key with a zero byte fits no argument: both come from a file, with a mark in between.
    let record = tempfile::NamedTempFile::new()?;
    std::fs::write(record.path(), [&key(uri)?[..], b"|", value].concat())?;
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$@\" < \"$0\""])
        .arg(record.path());
    command.arg(parts::program("kcat")?);
    command.args(["-P", "-b", &stage.kafka.bootstrap()]);
    command.args(["-t", &Stage::topic("announcements")]);
    command.args(["-X", "topic.partitioner=murmur2_random", "-X", "acks=all"]);
    command.args(["-K", "|", "-D", "<end>"]).args(more);
    let done = Process::run("kcat", command, SOON).await.context("kcat")?;
    ensure!(done.code() == 0, "kcat: {}", done.stderr);
    Ok(())
}

/// Whether the URI belongs to another partition of eight than of four.
///
/// # Errors
/// Not a URI.
pub(super) fn moves(uri: &str) -> anyhow::Result<bool> {
    let key = key(uri)?;
    let (few, many) = (PARTITIONS, 2 * PARTITIONS);
    Ok(partition_for_key(&key, few) != partition_for_key(&key, many))
}

fn key(uri: &str) -> anyhow::Result<Vec<u8>> {
    let key = InstanceKey {
        cluster: ClusterName::parse(CLUSTER)?,
        uri: InstanceUri::parse(uri)?,
    };
    Ok(key.to_record_key().to_vec())
}

fn value(uri: &str) -> anyhow::Result<Vec<u8>> {
    Ok(waypost_proto::announcement::encode(&announcement(uri)?).to_vec())
}
