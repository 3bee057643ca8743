//! How a broker is set up: its properties, its JVM, its first words.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ports;
use crate::process::{Finished, Process};

/// How long one run of Kafka's tools may take. Each starts a JVM: 3 s on an idle machine.
const TOOL_MAX: Duration = Duration::from_secs(120);

/// Any 22 characters of base64url name a cluster; a constant one lets a formatted folder be reused.
pub(super) const CLUSTER_ID: &str = "waypostTestClusterAAAA";

/// What every JVM here is started with: a small heap, a quick start.
const JVM_FLAGS: [&str; 4] = [
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
];

/// One node of a Kafka cluster: broker and controller in one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) id: u32,
    pub(super) broker: SocketAddr,
    pub(super) controller: SocketAddr,
}

impl Node {
    /// A node on ports that are free now.
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            broker: ports::free_addr(),
            controller: ports::free_addr(),
        }
    }
}

pub(super) const LOG4J: &str = r#"<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"#;

pub(super) fn server_properties(
    node: Node,
    cluster: &[Node],
    data: &Path,
    more: &[(&str, &str)],
) -> String {
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

/// Small and quick. A broker that is stopped or killed loses its partitions to the others within
/// seconds (`broker.session.timeout.ms`). The cleaner looks once a second (15 s by default), so that a test can see
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
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
replica.lag.time.max.ms=10000
";

pub(super) async fn run_tool(
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

pub(super) fn java(jars: &Path, log4j: &Path) -> Command {
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
pub(super) async fn spawn_from_a_lasting_thread(command: Command) -> anyhow::Result<Process> {
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
pub(super) async fn ask_api_versions(addr: SocketAddr) -> anyhow::Result<()> {
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

pub(super) fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

pub(super) fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
