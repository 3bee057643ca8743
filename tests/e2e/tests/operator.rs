//! An operator's hand, as a person uses it: set, evict, release, and who did what.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::process::{Finished, Process};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli, command};

/// A bound on what should take a moment.
const SOON: Duration = Duration::from_secs(60);

const URI: &str = "grpc://127.0.0.1:7000";
const OTHER: &str = "grpc://127.0.0.1:7001";
const WHO: [&str; 4] = ["--author", "ann@ops1", "--reason", "INC-7: slow disk"];

/// An agent that announces and nothing else.
async fn announce(to: &str, uri: &str) -> anyhow::Result<Process> {
    let args = ["announce", "--cluster", "greeter", "--uri", uri];
    let mut agent = Process::spawn("agent", command(&[&args[..], &["--to", to]].concat())?)?;
    agent
        .wait_for_line("served", SOON, |line| line.contains("serve"))
        .await?;
    Ok(agent)
}

/// Runs a command that must do what it is asked.
async fn done(args: &[&str]) -> Finished {
    let done = cli(args).await.unwrap();
    assert_eq!(done.code(), 0, "{args:?}: {}{}", done.stdout, done.stderr);
    done
}

/// The row of `get uris` for one URI; `None` where it is not served.
async fn find_uri(server: &Server, uri: &str) -> anyhow::Result<Option<Value>> {
    let done = server
        .cli(&["get", "uris", "greeter", "-o", "json"])
        .await?;
    if done.code() != 0 {
        return Ok(None);
    }
    let rows: Vec<Value> = serde_json::from_str(&done.stdout)?;
    Ok(rows.into_iter().find(|row| row["uri"] == uri))
}

async fn wait_for_weight(server: &Server, uri: &str, weight: f64) {
    eventually("the weight", SOON, async || {
        let row = find_uri(server, uri).await?.context("it is not there")?;
        ensure!(row["weights"]["0"] == weight, "{}", row["weights"]);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_outlives_the_agent_and_the_observer_and_says_who_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"));
    let server = dev.start().await.unwrap();
    let to = server.listen().to_string();
    let to_server = ["--to", &to];
    let agent = announce(&to, URI).await.unwrap();
    let _other = announce(&to, OTHER).await.unwrap();

    let set = ["set", "greeter", URI, "--weight", "0.25"];
    let said = done(&[&set[..], &WHO, &to_server].concat()).await;
    assert_eq!(
        said.stdout.trim(),
        format!("greeter {URI}: set (weight 0.25)")
    );
    wait_for_weight(&server, URI, 0.25).await;
    let row = find_uri(&server, OTHER).await.unwrap().unwrap();
    assert_eq!(
        row["weights"]["0"], 1.0,
        "of the other instance nothing changed"
    );

    drop(agent);
    let config = server.kill_9().unwrap();
    let server = config.start().await.unwrap();
    let _agent = announce(&to, URI).await.unwrap();
    wait_for_weight(&server, URI, 0.25).await;
    let described = server
        .cli(&["describe", "uri", "greeter", URI])
        .await
        .unwrap();
    for words in [
        "weight 0.25, set by ann@ops1",
        "INC-7: slow disk",
        "announces: weight 1, healthy",
    ] {
        assert!(
            described.stdout.contains(words),
            "{words}: {}",
            described.stdout
        );
    }

    let clear = ["set", "greeter", URI, "--clear"];
    done(&[&clear[..], &WHO, &to_server].concat()).await;
    wait_for_weight(&server, URI, 1.0).await;
    let ahead = ["set", "greeter", "grpc://127.0.0.1:7009", "--drain"];
    let said = done(&[&ahead[..], &WHO, &to_server].concat()).await;
    assert!(
        said.stdout.contains("stands for when it comes"),
        "{}",
        said.stdout
    );
    let absent = ["describe", "uri", "greeter", "grpc://127.0.0.1:7009"];
    let absent = server.cli(&absent).await.unwrap();
    assert_eq!(absent.code(), 1);
    assert!(
        absent
            .stderr
            .contains("it waits for drain, set by ann@ops1"),
        "{}",
        absent.stderr
    );
    let overrides = server.cli_json(&["get", "overrides"]).await.unwrap();
    assert_eq!(overrides.as_array().unwrap().len(), 1, "{overrides}");
    let journal = server.cli(&["get", "journal", "greeter"]).await.unwrap();
    assert_eq!(
        journal.stdout.matches("ann@ops1").count(),
        3,
        "{}",
        journal.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_instance_comes_back_if_it_lives_and_a_release_says_what_was_held() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerConfig::dev(&folder.path().join("data"));
    let server = server.start().await.unwrap();
    let to = server.listen().to_string();
    let args = [
        "announce",
        "--cluster",
        "greeter",
        "--uri",
        URI,
        "--to",
        &to,
    ];
    let fast = ["--heartbeat", "1s", "--ttl", "30s"];
    let agent = command(&[&args[..], &fast].concat()).unwrap();
    let mut agent = Process::spawn("agent", agent).unwrap();
    agent
        .wait_for_line("served", SOON, |line| line.contains("serve"))
        .await
        .unwrap();
    let offset = async || -> anyhow::Result<i64> {
        let row = find_uri(&server, URI).await?.context("it is not there")?;
        row["sources"][0]["log"]["offset"]
            .as_i64()
            .context("no offset")
    };
    let before = offset().await.unwrap();

    let said = done(&[&["evict", "greeter", URI, "--to", &to][..], &WHO].concat()).await;
    assert!(
        said.stdout.contains("back with its next beat"),
        "{}",
        said.stdout
    );
    eventually("the next beat", SOON, async || {
        let now = offset().await?;
        ensure!(now > before, "still the one from before: {now}");
        let row = find_uri(&server, URI).await?.context("it is not there")?;
        ensure!(row["evicted"]["author"] == "ann@ops1", "{row}");
        Ok(())
    })
    .await
    .unwrap();

    let said = done(&[&["release", "greeter", "--to", &to][..], &WHO].concat()).await;
    assert_eq!(
        said.stdout.trim(),
        "cluster greeter: released; 0 expiries were held"
    );
    let described = server
        .cli(&["describe", "cluster", "greeter"])
        .await
        .unwrap();
    for words in ["released:", "evicted:", "journal:", "INC-7: slow disk"] {
        assert!(
            described.stdout.contains(words),
            "{words}: {}",
            described.stdout
        );
    }
    let nothing = ["config", "restore", "greeter", "--to", &to];
    let nothing = cli(&nothing).await.unwrap();
    assert_eq!(nothing.code(), 1, "{}", nothing.stdout);
    assert!(nothing.stderr.contains("greeter"), "{}", nothing.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stated_to_kafka_itself_is_what_an_observer_of_it_serves() {
    let kafka = KafkaBroker::start().await.unwrap();
    let brokers = kafka.bootstrap();
    let to_kafka = ["--kafka", &brokers];
    done(&[&["topics", "create", "--development"][..], &to_kafka].concat()).await;
    let set = ["set", "greeter", URI, "--weight", "0.5"];
    done(&[&set[..], &WHO, &to_kafka].concat()).await;
    let release = ["release", "--all"];
    let said = done(&[&release[..], &WHO, &to_kafka].concat()).await;
    assert!(said.stdout.contains("not known here"), "{}", said.stdout);

    let observer = ServerConfig::observer(&brokers, "waypost").args(&["--newborn-grace", "0s"]);
    let server = observer.start().await.unwrap();
    let to = server.listen().to_string();
    let _agent = announce(&to, URI).await.unwrap();
    wait_for_weight(&server, URI, 0.5).await;
    let evict = ["evict", "greeter", URI];
    done(&[&evict[..], &WHO, &to_kafka].concat()).await;
    eventually("the eviction", SOON, async || {
        let row = find_uri(&server, URI).await?;
        ensure!(row.is_none(), "still there");
        Ok(())
    })
    .await
    .unwrap();
}
