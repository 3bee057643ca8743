//! A producer that is not ours and sends no headers: kcat, as docs/announcing.md shows it.

use std::process::Command;

use anyhow::{Context as _, ensure};
use waypost_core::{ClusterName, InstanceKey, InstanceUri};
use waypost_testkit::parts;
use waypost_testkit::process::Process;

use super::stage::{SOON, Stage};
use crate::fleet::{CLUSTER, announcement};

/// Announces the URI, or says again that it lives.
///
/// # Errors
/// kcat is not installed, or fails.
pub(super) async fn announce(stage: &Stage, uri: &str) -> anyhow::Result<()> {
    let value = waypost_proto::announcement::encode(&announcement(uri)?);
    produce(stage, uri, &value, &[]).await
}

/// Removes whatever stands for the URI.
///
/// # Errors
/// As [`announce`].
pub(super) async fn purge(stage: &Stage, uri: &str) -> anyhow::Result<()> {
    produce(stage, uri, &[], &["-Z"]).await
}

async fn produce(stage: &Stage, uri: &str, value: &[u8], more: &[&str]) -> anyhow::Result<()> {
    let key = InstanceKey {
        cluster: ClusterName::parse(CLUSTER)?,
        uri: InstanceUri::parse(uri)?,
    };
    // A key with a zero byte fits no argument: both come from a file, with a mark in between.
    let record = tempfile::NamedTempFile::new()?;
    std::fs::write(
        record.path(),
        [&key.to_record_key()[..], b"|", value].concat(),
    )?;
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$@\" < \"$0\""])
        .arg(record.path());
    command
        .arg(parts::program("kcat")?)
        .args(["-P", "-b", &stage.kafka.bootstrap()]);
    command.args(["-t", &Stage::topic("announcements")]);
    command.args(["-X", "topic.partitioner=murmur2_random", "-X", "acks=all"]);
    command.args(["-K", "|", "-D", "<end>"]).args(more);
    let done = Process::run("kcat", command, SOON).await.context("kcat")?;
    ensure!(done.code() == 0, "kcat: {}", done.stderr);
    Ok(())
}
