//! A real Kafka on the core of the load, and a real `waypost observer` on the core of the server.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_log::kafka::KafkaSettings;
use waypost_log::kafka::topics::{self, TopicsSpec};
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::process::Process;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{ServerConfig, http_get};

use super::Setup;
use crate::server::{Cores, pinned_command};

/// How long the Observer may take to read everything.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(120);

/// Partitions of the announcements.
pub(super) fn partitions() -> u32 {
    TopicsSpec::development().announcement_partitions
}

/// A running Observer; killed when dropped.
#[derive(Debug)]
pub(super) struct RealObserver {
    process: Process,
    config: ServerConfig,
}

/// Starts a broker.
pub(super) async fn start_broker(setup: &Setup<'_>) -> anyhow::Result<KafkaBroker> {
    let broker = KafkaBroker::start().await?;
    pin(
        broker.pid().context("a broker that runs")?,
        setup.load_cores,
    )?;
    Ok(broker)
}

/// Makes the topics of a fabric, and gives what opens them.
pub(super) async fn create_topics(
    broker: &KafkaBroker,
    prefix: &str,
) -> anyhow::Result<KafkaSettings> {
    let settings = KafkaSettings::new(&broker.bootstrap(), prefix);
    topics::create(&settings, &TopicsSpec::development()).await?;
    Ok(settings)
}

impl RealObserver {
    /// Starts one and waits until it serves.
    pub(super) async fn start(
        setup: &Setup<'_>,
        broker: &KafkaBroker,
        prefix: &str,
    ) -> anyhow::Result<Self> {
        let config = ServerConfig::observer(&broker.bootstrap(), prefix);
        let config = config.args(&["--newborn-grace", "0s", "--log-level", "warn"]);
        let command = pinned_command(&config.command()?, setup.server_cores)?;
        let observer = Self {
            process: Process::spawn("observer", command)?,
            config,
        };
        let is_ready = eventually("the Observer is ready", READ_WITHIN, async || {
            let (status, body) = http_get(observer.config.admin_addr(), "/ready").await?;
            ensure!(status == 200, "{body}");
            Ok(())
        });
        is_ready.await.with_context(|| observer.process.tail())?;
        Ok(observer)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn listen(&self) -> std::net::SocketAddr {
        self.config.listen_addr()
    }

    /// How many records of the announcements it has read.
    pub(super) async fn records_read(&self) -> anyhow::Result<u64> {
        let (_, metrics) = http_get(self.config.admin_addr(), "/metrics").await?;
        let of_topic = "ingest_records_total{topic=\"announcements\"";
        let lines = metrics.lines().filter(|line| line.starts_with(of_topic));
        let counts = lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
        counts.sum::<Result<u64, _>>().context("/metrics")
    }
}

/// Puts a process that runs already on these cores.
fn pin(pid: u32, cores: Cores) -> anyhow::Result<()> {
    let Some(list) = cores.find_list() else {
        return Ok(());
    };
    let mut taskset = Command::new("taskset");
    taskset.args(["-a", "-p", "-c", &list, &pid.to_string()]);
    let status = taskset.stdout(Stdio::null()).status()?;
    ensure!(status.success(), "taskset of process {pid}: {status}");
    Ok(())
}
