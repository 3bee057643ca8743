//! Real Apache Kafka, started by a test: one KRaft node ([`KafkaBroker`]) or several
//! ([`KafkaCluster`]), each in a folder of its own, on ports of its own; [`KafkaAdmin`] does to their
//! topics what an operator may do.
//!
//! The broker ends with the [`KafkaBroker`], and with the test process however that ends: a broker
//! that the tests of one binary share lives in a `static`, which Rust never drops.

mod admin;
mod cluster;
mod setup;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

pub use admin::{COMPACT_QUICKLY, KafkaAdmin};
pub use cluster::{Election, KafkaCluster};

use self::setup::{CLUSTER_ID, LOG4J, Node, ask_api_versions, copy_files, java, path_text};
use self::setup::{run_tool, server_properties, spawn_from_a_lasting_thread};
use crate::process::{Finished, Process, Signal};
use crate::{parts, wait};

/// How long a broker may take to answer. 7 s on an idle machine, 16 s with a log to recover.
const READY_MAX: Duration = Duration::from_secs(120);

/// A running Kafka broker, or one that a test has stopped for a while.
#[derive(Debug)]
pub struct KafkaBroker {
    node: Node,
    jars: PathBuf,
    folder: TempDir,
    process: Option<Process>,
}

impl KafkaBroker {
    /// Starts a broker that is a cluster of its own, and waits until it answers.
    ///
    /// # Errors
    /// Kafka is not installed (`cargo xtask parts`), or the broker does not come up; shows its last
    /// lines.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// As [`KafkaBroker::start`], with broker properties that replace or add to the usual ones.
    ///
    /// # Errors
    /// As there.
    pub async fn start_with(properties: &[(&str, &str)]) -> anyhow::Result<Self> {
        let node = Node::new(1);
        Self::start_node(node, &[node], properties).await
    }

    /// Its number in its cluster.
    #[must_use]
    pub fn id(&self) -> i32 {
        i32::try_from(self.node.id).unwrap_or(i32::MAX)
    }

    /// Whether it runs, or is suspended; not after [`KafkaBroker::stop`] or [`KafkaBroker::kill`].
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// The process id of its JVM, to read what it costs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// `HOST:PORT`, for `--kafka`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.node.broker.to_string()
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("Kafka does not run")?;
        process.terminate().await.map(|_| ())
    }

    /// Ends it at once (SIGKILL).
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().context("Kafka does not run")?.kill_9()
    }

    /// Starts it again on the same ports and data, after [`KafkaBroker::stop`] or
    /// [`KafkaBroker::kill`].
    ///
    /// # Errors
    /// It runs already, or does not come up.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_none(), "Kafka runs already");
        self.launch().await
    }

    /// Suspends it (SIGSTOP): connections stay open, nothing is answered.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.process
            .as_ref()
            .context("Kafka does not run")?
            .signal(Signal::STOP)
    }

    /// Lets a paused broker go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process
            .as_ref()
            .context("Kafka does not run")?
            .signal(Signal::CONT)
    }

    /// Runs one of Kafka's own tools, named by its main class, and gives what it printed.
    ///
    /// # Errors
    /// It cannot be started or exits with an error.
    pub async fn tool(&self, main_class: &str, args: &[&str]) -> anyhow::Result<Finished> {
        run_tool(&self.jars, &self.log4j_file(), main_class, args).await
    }

    /// The broker's last lines, for messages.
    #[must_use]
    pub fn tail(&self) -> String {
        self.process.as_ref().map(Process::tail).unwrap_or_default()
    }

    async fn start_node(
        node: Node,
        cluster: &[Node],
        properties: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let jars = parts::kafka_jars()?;
        let folder = tempfile::Builder::new()
            .prefix("waypost-kafka-")
            .tempdir()?;
        let mut broker = Self {
            node,
            jars,
            folder,
            process: None,
        };
        let text = server_properties(node, cluster, &broker.data_dir(), properties);
        std::fs::write(broker.properties_file(), text)?;
        std::fs::write(broker.log4j_file(), LOG4J)?;
        broker.format().await?;
        broker.launch().await?;
        Ok(broker)
    }

    /// Writes the files that mark a fresh data folder as this cluster's. The tool takes seconds and
    /// its result does not depend on ports, so it is kept among the parts and copied.
    async fn format(&self) -> anyhow::Result<()> {
        let kept = self
            .jars
            .with_file_name(format!("formatted-{}", self.node.id));
        let data = self.data_dir();
        if !kept.join("meta.properties").is_file() {
            let properties = self.properties_file();
            let args = ["format", "-t", CLUSTER_ID, "-c", path_text(&properties)?];
            run_tool(
                &self.jars,
                &self.log4j_file(),
                "kafka.tools.StorageTool",
                &args,
            )
            .await?;
            let own = kept.with_file_name(format!("formatted.{}", std::process::id()));
            copy_files(&data, &own)?;
            // Another test process may have been first: its folder is as good.
            if std::fs::rename(&own, &kept).is_err() {
                std::fs::remove_dir_all(&own)?;
            }
            return Ok(());
        }
        copy_files(&kept, &data)
    }

    async fn launch(&mut self) -> anyhow::Result<()> {
        let mut command = java(&self.jars, &self.log4j_file());
        command.arg("kafka.Kafka").arg(self.properties_file());
        let mut process = spawn_from_a_lasting_thread(command).await?;
        let addr = self.node.broker;
        let answers = wait::eventually("Kafka answers", READY_MAX, || async {
            tokio::time::timeout(Duration::from_secs(2), ask_api_versions(addr)).await?
        });
        tokio::select! {
            answered = answers => answered.with_context(|| process.tail())?,
            line = process.wait_for_line("Kafka starts", READY_MAX, |_| false) => {
                line.map(|_| ())?;
            }
        }
        self.process = Some(process);
        Ok(())
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn properties_file(&self) -> PathBuf {
        self.folder.path().join("server.properties")
    }

    fn log4j_file(&self) -> PathBuf {
        self.folder.path().join("log4j2.xml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broker_that_was_killed_comes_back_on_its_port_with_its_data() {
        let mut broker = KafkaBroker::start().await.unwrap();
        let bootstrap = broker.bootstrap();
        let topic = [
            "--bootstrap-server",
            &bootstrap,
            "--create",
            "--topic",
            "kept",
        ];
        broker
            .tool("org.apache.kafka.tools.TopicCommand", &topic)
            .await
            .unwrap();
        broker.kill().unwrap();
        assert!(ask_api_versions(broker.node.broker).await.is_err());
        broker.restart().await.unwrap();
        let list = ["--bootstrap-server", &bootstrap, "--list"];
        let listed = broker
            .tool("org.apache.kafka.tools.TopicCommand", &list)
            .await
            .unwrap();
        assert!(
            listed.stdout.lines().any(|line| line == "kept"),
            "{}",
            listed.stdout
        );
        broker.stop().await.unwrap();
    }
}
