//! Real Apache Kafka, started by a test: one KRaft node in a folder of its own, on ports of its own.
//!
//! The broker ends with the [`KafkaBroker`], and with the test process however that ends: a broker
//! that the tests of one binary share lives in a `static`, which Rust never drops.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::process::{Finished, Process, Signal};
use crate::{parts, ports, wait};

/// How long one run of Kafka's tools may take. Each starts a JVM: 3 s on an idle machine.
const TOOL_MAX: Duration = Duration::from_secs(120);

/// How long a broker may take to answer. 7 s on an idle machine, 16 s with a log to recover.
const READY_MAX: Duration = Duration::from_secs(120);

/// Any 22 characters of base64url name a cluster; a constant one lets a formatted folder be reused.
const CLUSTER_ID: &str = "waypostTestClusterAAAA";

/// What every JVM here is started with: a small heap, a quick start.
const JVM_FLAGS: [&str; 4] = [
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
];

/// One node of a Kafka cluster: broker and controller in one process.
#[derive(Clone, Copy, Debug)]
struct Node {
    id: u32,
    broker: SocketAddr,
    controller: SocketAddr,
}

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
        let node = Node {
            id: 1,
            broker: ports::free_addr(),
            controller: ports::free_addr(),
        };
        Self::start_node(node, &[node], properties).await
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

const LOG4J: &str = r#"<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"#;

fn server_properties(node: Node, cluster: &[Node], data: &Path, more: &[(&str, &str)]) -> String {
    let voters: Vec<String> = cluster
        .iter()
        .map(|node| format!("{}@{}", node.id, node.controller))
        .collect();
    let copies = cluster.len().min(3).to_string();
    let own = [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", node.id.to_string()),
        ("controller.quorum.voters", voters.join(",")),
        (
            "listeners",
            format!(
                "PLAINTEXT://{},CONTROLLER://{}",
                node.broker, node.controller
            ),
        ),
        (
            "advertised.listeners",
            format!("PLAINTEXT://{}", node.broker),
        ),
        ("log.dirs", data.display().to_string()),
        ("offsets.topic.replication.factor", copies.clone()),
        ("transaction.state.log.replication.factor", copies.clone()),
        ("share.coordinator.state.topic.replication.factor", copies),
    ];
    let mut text = String::from(COMMON_PROPERTIES);
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    for (name, value) in own.chain(more.iter().copied()) {
        // The last of two equal names counts in a properties file.
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// Small and quick. The cleaner looks once a second (15 s by default), so that a test can see
/// compaction happen. Topics are made up on demand, as Kafka does by default: nothing of ours may
/// cause that.
const COMMON_PROPERTIES: &str = "\
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=1000
";

async fn run_tool(
    jars: &Path,
    log4j: &Path,
    main_class: &str,
    args: &[&str],
) -> anyhow::Result<Finished> {
    let mut command = java(jars, log4j);
    command.arg(main_class).args(args);
    let finished = Process::run(main_class, command, TOOL_MAX).await?;
    ensure!(
        finished.status.success(),
        "{main_class} {args:?}: {}\n{}{}",
        finished.status,
        finished.stdout,
        finished.stderr
    );
    Ok(finished)
}

fn java(jars: &Path, log4j: &Path) -> Command {
    // The kernel kills the JVM when the thread that started it ends, so nothing is left behind by a
    // test process that was killed itself.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "java"])
        .args(JVM_FLAGS);
    command.arg(format!("-Dlog4j2.configurationFile={}", log4j.display()));
    command.arg("-cp").arg(jars.join("*"));
    command
}

/// The thread that starts a program with `--pdeathsig` must live as long as the program may: a
/// test's own thread ends with the test, the broker it started may be shared by the next.
async fn spawn_from_a_lasting_thread(command: Command) -> anyhow::Result<Process> {
    let (started_tx, started_rx) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = started_tx.send(Process::spawn("kafka", command));
        loop {
            std::thread::park();
        }
    });
    started_rx
        .await
        .context("the thread that starts Kafka ended")?
}

/// The first thing every Kafka client asks; an open port alone is too early. Kafka protocol,
/// `ApiVersions` version 0: header of key, version, correlation id and a null client id; no body.
async fn ask_api_versions(addr: SocketAddr) -> anyhow::Result<()> {
    const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(&REQUEST).await?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).await?;
    ensure!(
        answer[8..] == [0, 0],
        "Kafka answers with error {:?}",
        &answer[8..]
    );
    Ok(())
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
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
