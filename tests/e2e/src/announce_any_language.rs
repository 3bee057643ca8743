//! docs/announcing.md is enough: its Python example, its kcat lines, and a Kafka client that shares no
//! code with ours announce real servers that grpcio finds through a real Observer.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_testkit::caller::{Greeter, Load, script};
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::parts::{self, Venv, source_root};
use waypost_testkit::ports::free_port;
use waypost_testkit::process::{Process, Signal};
use waypost_testkit::waypost::Server;

use crate::Form;
use crate::clients::{Clients, bootstrap};
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, uri};
use crate::kafka_main_job::{create_topics, observer};
use crate::look;

/// The topic of announcements.
const TOPIC: &str = "waypost.announcements";
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(60);

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(_form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    figures.step("Apache Kafka and an Observer start");
    let kafka = KafkaBroker::start().await?;
    create_topics(&kafka.bootstrap()).await?;
    let server = observer(&kafka, 1, free_port()).start().await?;

    let ports = [free_port(), free_port()];
    let names = ports.map(|port| format!("127.0.0.1:{port}"));
    let _greeter = Greeter::start(&ports).await?;

    figures.step("docs/examples/announce.py announces a server");
    let messages = folder.path().join("messages");
    compile_messages(&messages).await?;
    let mut example = example_announcer(&kafka, &messages, &uri(&names[0]))?;
    look::instances(server.admin(), CLUSTER, 1, SOON).await?;

    let file = bootstrap(server.listen(), folder.path()).await?;
    let load = Load {
        rate: 100.0,
        concurrency: 4,
    };
    let clients = Clients::start(1, load, &file, folder.path()).await?;

    figures.step("a pure Python client announces another, without headers");
    let mut simple = simple_announcer(&kafka, &messages, &uri(&names[1]))?;
    look::instances(server.admin(), CLUSTER, 2, SOON).await?;
    clients.all_reach(&names[1], 0.0, SOON).await?;
    figures.add("announced and called, order data in headers", &names[0]);
    figures.add("announced and called, simple contract", &names[1]);
    ensure!(
        facts(&server, &names[0]).await?.is_string(),
        "the example's life is not known"
    );
    ensure!(
        facts(&server, &names[1]).await?.is_null(),
        "a life without headers"
    );

    figures.step("both beat past their time-to-live, then leave one after the other");
    let beating = now();
    clients.all_call_on(beating + 12.0, 1, SOON).await?;
    look::instances(server.admin(), CLUSTER, 2, SOON).await?;
    figures.add("still there after 12 s of heartbeats, time-to-live 10 s", 2);
    simple.signal(Signal::TERM)?;
    simple.wait_exit(SOON).await?;
    look::instances(server.admin(), CLUSTER, 1, SOON).await?;
    let left = now();
    clients.all_call_on(left + 1.0, 50, SOON).await?;
    let late = clients.last_answer(&names[1], left)? - left;
    let late = Duration::from_secs_f64(late.max(0.0));
    figures.add_within("no new call after the purge", late, Duration::from_secs(1))?;
    let calls = clients.finish().await?;
    figures.add("calls", calls.0.len());
    figures.add_at_most("failed calls", calls.failed(), 0)?;
    example.signal(Signal::TERM)?;
    let status = example.wait_exit(SOON).await?;
    ensure!(
        status.success(),
        "announce.py ended with {status}\n{}",
        example.tail()
    );
    look::instances(server.admin(), CLUSTER, 0, SOON).await?;
    figures.add("left by its withdrawal", &names[0]);
    Ok(())
}

/// `life_id` of the instance, as the Observer read it from the record's headers.
async fn facts(server: &Server, name: &str) -> anyhow::Result<serde_json::Value> {
    let wanted = uri(name);
    let item = look::instance(server.admin(), CLUSTER, &wanted, SOON, |_| true).await?;
    let sources = item["sources"].as_array().context("no sources")?;
    let source = sources.first().context("no source")?;
    Ok(source["log"]["life_id"].clone())
}

/// Compiles the public contract for Python, with the command of docs/announcing.md.
async fn compile_messages(into: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(into)?;
    let mut command = Command::new(parts::python(Venv::Kafka)?);
    command
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(source_root().join("crates/proto/proto"));
    command.arg(format!("--python_out={}", into.display()));
    let done = Process::run(
        "protoc",
        {
            command.arg("waypost/v1/announcement.proto");
            command
        },
        SOON,
    )
    .await?;
    ensure!(done.code() == 0, "{}", done.stderr);
    Ok(())
}

/// The worked example of docs/announcing.md.
fn example_announcer(kafka: &KafkaBroker, messages: &Path, uri: &str) -> anyhow::Result<Process> {
    let mut command = Command::new(parts::python(Venv::Kafka)?);
    command
        .arg(source_root().join("docs/examples/announce.py"))
        .env("PYTHONPATH", messages)
        .args(["--kafka", &kafka.bootstrap(), "--cluster", CLUSTER])
        .args(["--uri", uri, "--ttl", "10"]);
    Process::spawn("announce.py", command)
}

/// A client in pure Python that keeps the simple contract.
fn simple_announcer(kafka: &KafkaBroker, messages: &Path, uri: &str) -> anyhow::Result<Process> {
    let mut command = script(Venv::Kafka, "announce_simply.py")?;
    command.env("PYTHONPATH", messages);
    let args = [
        "--kafka",
        &kafka.bootstrap(),
        "--topic",
        TOPIC,
        "--cluster",
        CLUSTER,
        "--uri",
        uri,
    ];
    command.args(args);
    Process::spawn("announce_simply.py", command)
}
