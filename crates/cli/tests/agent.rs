//! `waypost announce` as a process: a small shell COMMAND below it, a gateway that remembers above.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot set up fails"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};
use waypost_core::{Announcement, Health};
use waypost_proto::v1 as pb;
use waypost_proto::v1::append_progress::Event;
use waypost_proto::v1::append_request::Kind;
use waypost_proto::v1::gateway_server::{Gateway, GatewayServer};

/// A bound on what should take a moment; the machine may be busy.
const SOON: Duration = Duration::from_secs(60);

type Requests = Arc<Mutex<Vec<(Instant, pb::AppendRequest)>>>;

/// Acknowledges everything and remembers it.
struct FakeGateway {
    requests: Requests,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Gateway for FakeGateway {
    type AppendStream = ReceiverStream<Result<pb::AppendProgress, Status>>;

    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let offset = {
            let mut requests = self.requests.lock().unwrap();
            requests.push((Instant::now(), request.into_inner()));
            i64::try_from(requests.len()).unwrap()
        };
        let appended = Event::Appended(pb::Appended {
            partition: 0,
            offset,
            append_time_ms: Some(1_700_000_000_000),
        });
        let (progress_tx, progress_rx) = mpsc::channel(2);
        for event in [appended, Event::Served(pb::Served {})] {
            let progress = pb::AppendProgress { event: Some(event) };
            progress_tx.send(Ok(progress)).await.unwrap();
        }
        Ok(Response::new(ReceiverStream::new(progress_rx)))
    }

    async fn apply(&self, _: Request<pb::ApplyRequest>) -> Answer<pb::ApplyResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn delete(&self, _: Request<pb::DeleteRequest>) -> Answer<pb::DeleteResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn set(&self, _: Request<pb::SetRequest>) -> Answer<pb::SetResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn evict(&self, _: Request<pb::EvictRequest>) -> Answer<pb::EvictResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn release(&self, _: Request<pb::ReleaseRequest>) -> Answer<pb::ReleaseResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn restore(&self, _: Request<pb::RestoreRequest>) -> Answer<pb::RestoreResponse> {
        Err(Status::unimplemented("not in this test"))
    }
}

async fn start_gateway() -> (SocketAddr, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Requests::default();
    let gateway = FakeGateway {
        requests: Arc::clone(&requests),
    };
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(GatewayServer::new(gateway))
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (address, requests)
}

/// The agent, killed with the test; what it says is collected.
struct Agent {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Agent {
    fn start(gateway: SocketAddr, flags: &[&str], command: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_waypost"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WAYPOST_") {
                process.env_remove(name);
            }
        }
        process
            .args([
                "announce",
                "--cluster",
                "greeter",
                "--uri",
                "grpc://127.0.0.1:50051",
            ])
            .args(["--to", &gateway.to_string()])
            .args(flags)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .stdin(Stdio::null());
        if !command.is_empty() {
            process.arg("--").args(command);
        }
        let mut child = process.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().unwrap();
        let collected = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                collected.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    async fn exit(&mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = timeout(SOON, ended).await;
        ended.unwrap_or_else(|_| panic!("the agent did not end:\n{}", self.said.lock().unwrap()))
    }

    async fn wait_until_it_says(&self, words: &str) {
        eventually(words, || self.said.lock().unwrap().contains(words)).await;
    }
}

impl Drop for Agent {
    /// Its command gets the second signal at once; who does not end on that is killed.
    fn drop(&mut self) {
        for _ in 0..200 {
            match self.child.try_wait() {
                Ok(None) => self.signal(Signal::TERM),
                _ => return,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_true() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn kinds(requests: &Requests) -> Vec<Kind> {
    requests
        .lock()
        .unwrap()
        .iter()
        .map(|(_, r)| r.kind())
        .collect()
}

fn last_announcement(requests: &Requests) -> Option<Announcement> {
    let requests = requests.lock().unwrap();
    let (_, last) = requests
        .iter()
        .rev()
        .find(|(_, r)| !r.announcement.is_empty())?;
    Some(waypost_proto::announcement::decode(&last.announcement).unwrap())
}

fn when_withdrawn(requests: &Requests) -> Option<Instant> {
    let requests = requests.lock().unwrap();
    let found = requests.iter().find(|(_, r)| r.kind() == Kind::Withdraw);
    found.map(|(at, _)| *at)
}

/// A shell that notes a signal in a file and then ends with code 7. It says when it is ready for it,
/// and ends by itself after a minute, so that a test that fails leaves nothing behind.
fn mk_command(folder: &Path, signal: &str) -> (Vec<String>, PathBuf) {
    let file = folder.join("signalled");
    let ready = folder.join("ready");
    let script = format!(
        "trap 'echo {signal} > {}; exit 7' {signal}; echo > {}; for i in $(seq 1200); do sleep 0.05; done",
        file.display(),
        ready.display()
    );
    (vec!["sh".to_owned(), "-c".to_owned(), script], file)
}

async fn start_with_command(
    gateway: SocketAddr,
    requests: &Requests,
    folder: &Path,
    signal: &str,
    drain: &str,
) -> (Agent, PathBuf) {
    let (command, file) = mk_command(folder, signal);
    let words: Vec<_> = command.iter().map(String::as_str).collect();
    let agent = Agent::start(gateway, &["--drain", drain], &words);
    eventually("announced", || !kinds(requests).is_empty()).await;
    eventually("the command runs", || folder.join("ready").exists()).await;
    (agent, file)
}

#[tokio::test]
async fn on_a_signal_it_withdraws_drains_and_only_then_passes_the_signal_on() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT")] {
        let folder = tempfile::tempdir().unwrap();
        let (gateway, requests) = start_gateway().await;
        let (mut agent, file) =
            start_with_command(gateway, &requests, folder.path(), name, "1s").await;
        agent.signal(signal);
        eventually("withdrawn", || when_withdrawn(&requests).is_some()).await;
        assert!(
            !file.exists(),
            "{name} reached the command before it had drained"
        );
        let status = agent.exit().await;
        let drained = when_withdrawn(&requests).unwrap().elapsed();
        assert!(
            drained >= Duration::from_secs(1),
            "{name} after {drained:?}"
        );
        assert_eq!(status.code(), Some(7), "the code is not the command's");
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), name);
        assert_eq!(kinds(&requests).last(), Some(&Kind::Withdraw));
    }
}

#[tokio::test]
async fn a_second_signal_goes_through_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, requests) = start_gateway().await;
    let (mut agent, file) =
        start_with_command(gateway, &requests, folder.path(), "TERM", "1h").await;
    agent.signal(Signal::TERM);
    eventually("withdrawn", || when_withdrawn(&requests).is_some()).await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit().await.code(), Some(7));
    assert!(file.exists());
}

#[tokio::test]
async fn other_signals_are_passed_on_and_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, requests) = start_gateway().await;
    let file = folder.path().join("reloaded");
    let ready = folder.path().join("ready");
    let script = format!(
        "trap 'echo > {}' HUP; echo > {}; for i in $(seq 1200); do sleep 0.05; done",
        file.display(),
        ready.display()
    );
    let mut agent = Agent::start(gateway, &[], &["sh", "-c", &script]);
    eventually("announced", || !kinds(&requests).is_empty()).await;
    eventually("the command runs", || ready.exists()).await;
    agent.signal(Signal::HUP);
    eventually("reloaded", || file.exists()).await;
    assert!(agent.child.try_wait().unwrap().is_none());
    assert_eq!(when_withdrawn(&requests), None);
}

#[tokio::test]
async fn the_end_of_the_command_withdraws_and_its_exit_code_is_the_agents() {
    for (script, code) in [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137)] {
        let (gateway, requests) = start_gateway().await;
        let script = format!("sleep 0.5; {script}");
        let mut agent = Agent::start(gateway, &[], &["sh", "-c", &script]);
        eventually("announced", || !kinds(&requests).is_empty()).await;
        assert_eq!(agent.exit().await.code(), Some(code));
        assert_eq!(kinds(&requests).last(), Some(&Kind::Withdraw), "{script}");
    }
}

#[tokio::test]
async fn a_command_that_ends_before_it_is_healthy_is_never_announced() {
    let (gateway, requests) = start_gateway().await;
    let nobody = free_address().await;
    let check = format!("tcp://{nobody}");
    let mut agent = Agent::start(
        gateway,
        &["--health-check", &check],
        &["sh", "-c", "exit 9"],
    );
    assert_eq!(agent.exit().await.code(), Some(9));
    assert_eq!(kinds(&requests), []);
}

#[tokio::test]
async fn it_waits_for_its_health_check_and_later_failures_change_health_only() {
    let (gateway, requests) = start_gateway().await;
    let address = free_address().await;
    let check = format!("tcp://{address}");
    let flags = [
        "--health-check",
        &check,
        "--health-interval",
        "100ms",
        "--health-failures",
        "2",
    ];
    let mut agent = Agent::start(gateway, &flags, &[]);
    agent
        .wait_until_it_says(&format!("waiting for {check}"))
        .await;
    assert_eq!(kinds(&requests), []);

    let server = TcpListener::bind(address).await.unwrap();
    let is = |health| last_announcement(&requests).is_some_and(|a| a.health == health);
    eventually("announced", || is(Health::Healthy)).await;
    drop(server);
    eventually("unhealthy", || is(Health::Unhealthy)).await;
    let _server = TcpListener::bind(address).await.unwrap();
    eventually("healthy again", || is(Health::Healthy)).await;
    assert!(agent.child.try_wait().unwrap().is_none());
    assert_eq!(when_withdrawn(&requests), None);

    agent.signal(Signal::TERM);
    assert_eq!(agent.exit().await.code(), Some(0));
    assert!(when_withdrawn(&requests).is_some());
}

#[tokio::test]
async fn an_agent_that_was_stopped_announces_itself_again_when_it_continues() {
    let (gateway, requests) = start_gateway().await;
    let agent = Agent::start(gateway, &["--heartbeat", "3s", "--ttl", "10s"], &[]);
    // The announcement, and the second one that carries the birth.
    eventually("announced twice", || kinds(&requests).len() >= 2).await;
    agent.wait_until_it_says("served: an Observer serves").await;
    agent.signal(Signal::STOP);
    sleep(Duration::from_secs(4)).await;
    let before = requests.lock().unwrap().clone();
    agent.signal(Signal::CONT);
    eventually("a beat", || kinds(&requests).len() > before.len()).await;
    let (_, last) = before.last().unwrap();
    let (_, next) = requests.lock().unwrap()[before.len()].clone();
    assert_eq!(
        (next.id, next.birth_ms, next.seq),
        (last.id, last.birth_ms, last.seq)
    );
    assert_eq!(next.announcement, last.announcement);
}

#[tokio::test]
async fn what_the_flags_say_is_announced_and_progress_is_told() {
    let (gateway, requests) = start_gateway().await;
    let flags = [
        "--application",
        "app",
        "--fabric",
        "east",
        "--zone",
        "a",
        "--address",
        "10.0.0.7",
        "--weight",
        "2",
        "--weight",
        "3=0.5",
        "--metadata",
        "build=\"2.4.1\"",
        "--metadata",
        "n=9007199254740993.50",
        "--heartbeat",
        "5s",
        "--ttl",
        "20s",
    ];
    let agent = Agent::start(gateway, &flags, &[]);
    agent
        .wait_until_it_says("announced: the log acknowledged grpc://127.0.0.1:50051")
        .await;
    agent
        .wait_until_it_says("served: an Observer serves grpc://127.0.0.1:50051")
        .await;
    let a = last_announcement(&requests).unwrap();
    assert_eq!(a.ipv4.map(|ip| ip.to_string()).as_deref(), Some("10.0.0.7"));
    assert_eq!(a.metadata, r#"{"build":"2.4.1","n":9007199254740993.50}"#);
    assert_eq!(a.weights, [(0, 2.0), (3, 0.5)].into());
    assert_eq!(
        (a.application.as_str(), a.fabric.as_str(), a.zone.as_str()),
        ("app", "east", "a")
    );
    assert_eq!(
        (a.heartbeat, a.ttl),
        (Duration::from_secs(5), Duration::from_secs(20))
    );
    assert!(!a.hostname.is_empty() && !a.tracing_id.is_empty() && a.origin.0 > 0);
}

#[tokio::test]
async fn a_gateway_that_is_away_is_told_and_the_command_runs_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = free_address().await;
    let (command, _) = mk_command(folder.path(), "TERM");
    let words: Vec<_> = command.iter().map(String::as_str).collect();
    let mut agent = Agent::start(nobody, &["--drain", "0s"], &words);
    agent
        .wait_until_it_says(&format!("trying again: gateway {nobody}"))
        .await;
    eventually("the command runs", || folder.path().join("ready").exists()).await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit().await.code(), Some(7));
    agent
        .wait_until_it_says("has not acknowledged the withdrawal")
        .await;
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_one_clear_line() {
    let nobody = free_address().await;
    let mut agent = Agent::start(nobody, &[], &["./no-such-server"]);
    assert_eq!(agent.exit().await.code(), Some(1));
    agent
        .wait_until_it_says("error: cannot start ./no-such-server: ")
        .await;
}

#[tokio::test]
async fn standard_output_belongs_to_the_command() {
    let (gateway, _requests) = start_gateway().await;
    let mut process = Command::new(env!("CARGO_BIN_EXE_waypost"));
    process
        .args([
            "announce",
            "--cluster",
            "c",
            "--uri",
            "grpc://h:1",
            "--address",
            "10.0.0.1",
        ])
        .args([
            "--to",
            &gateway.to_string(),
            "--",
            "sh",
            "-c",
            "echo mine; sleep 0.3",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = process.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let text = timeout(SOON, read).await.unwrap().unwrap().unwrap();
    assert_eq!(text, "mine\n");
    child.wait().unwrap();
}

/// An address at which nobody listens.
async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
