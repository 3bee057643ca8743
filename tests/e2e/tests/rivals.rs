//! Two agents with one URI, as it happens when a host is set up by a copy: each terminal says what is
//! the case, nothing flaps, and the one that lost is back when the other one goes.
#![expect(
    clippy::unwrap_used,
    reason = "tests; helpers beside them are not recognised as such"
)]

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;
use waypost_e2e::look;
use waypost_testkit::process::{Process, Signal};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, command};

/// A bound on what should take a moment.
const SOON: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(3);
const URI: &str = "grpc://127.0.0.1:9";

/// An agent that announces [`URI`]; `application` tells the two apart.
async fn agent(dev: &Server, application: &str) -> Process {
    let listen = dev.listen().to_string();
    let mut agent = command(&["announce", "--cluster", "greeter", "--uri", URI]).unwrap();
    agent.args(["--to", &listen, "--application", application]);
    agent.args(["--ttl", "10s", "--heartbeat", "3s"]);
    let agent = Process::spawn(application, agent).unwrap();
    says(&agent, "served: an Observer serves", 1).await;
    agent
}

/// Waits until the agent has said `words` this many times.
async fn says(agent: &Process, words: &str, times: usize) {
    let what = format!("{words:?} for the {times}. time");
    let said = || async {
        ensure!(count(agent, words) >= times, "{}", agent.tail());
        Ok(())
    };
    eventually(&what, SOON, said).await.unwrap();
}

fn count(agent: &Process, words: &str) -> usize {
    let lines = agent.lines();
    lines.iter().filter(|line| line.contains(words)).count()
}

async fn served_is(dev: &Server, application: &str) {
    let is_it = |item: &serde_json::Value| item["application"] == application;
    look::instance(dev.admin(), "greeter", URI, SOON, is_it)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_losing_agent_says_so_and_is_back_once_the_other_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let older = agent(&dev, "older").await;
    let mut later = agent(&dev, "later").await;
    served_is(&dev, "later").await;
    says(&older, "refused by the log's rules", 1).await;
    let view = look::instance(dev.admin(), "greeter", URI, SOON, |item| {
        item["refused"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    view.await.unwrap();

    // It withdraws: the other one hears it with its next beat.
    later.signal(Signal::TERM).unwrap();
    later.wait_exit(SOON).await.unwrap();
    let left = Instant::now();
    says(&older, "served: an Observer serves", 2).await;
    served_is(&dev, "older").await;
    assert!(left.elapsed() < TTL, "back after {:?}", left.elapsed());

    // It dies without a word: the other one takes over when a time-to-live has passed.
    let mut later = agent(&dev, "later").await;
    says(&older, "refused by the log's rules", 2).await;
    later.kill_9().unwrap();
    let died = Instant::now();
    says(&older, "served: an Observer serves", 3).await;
    served_is(&dev, "older").await;
    let bound = TTL + 2 * HEARTBEAT;
    assert!(died.elapsed() < bound, "back after {:?}", died.elapsed());
    assert_eq!(count(&older, "served: an Observer serves"), 3, "it flaps");
    assert_eq!(count(&older, "refused by the log's rules"), 2, "it flaps");
}
