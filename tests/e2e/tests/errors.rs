//! The errors that a person meets: each is one clear line that says what to do.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::Context as _;
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::ports::free_addr;
use waypost_testkit::process::{Finished, Process, Stream};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{ServerConfig, cli, command};

/// A bound on what should take a moment.
const SOON: Duration = Duration::from_secs(60);

/// Runs a command that must fail and checks its exit code and that one line of what it says has all
/// of these words.
async fn check(args: &[&str], code: i32, words: &[&str]) {
    let done = match cli(args).await {
        Ok(done) => done,
        Err(error) => panic!("{args:?}: {error:#}"),
    };
    check_finished(&format!("{args:?}"), &done, code, words);
}

fn check_finished(what: &str, done: &Finished, code: i32, words: &[&str]) {
    assert_eq!(done.code(), code, "{what}\n{}{}", done.stdout, done.stderr);
    let line = done
        .stderr
        .lines()
        .find(|line| words.iter().all(|word| line.contains(word)));
    assert!(
        line.is_some(),
        "{what}: no line says {words:?}:\n{}",
        done.stderr
    );
    assert!(!done.stderr.contains("panicked"), "{what}: {}", done.stderr);
}

#[tokio::test]
async fn wrong_usage_exits_2_and_names_the_word_that_is_wrong() {
    let announce = ["announce", "--cluster", "c", "--uri"];
    let with = |uri, more: &[&'static str]| [&announce[..], &[uri], more].concat();
    check(&["dev", "--no-such-flag"], 2, &["--no-such-flag"]).await;
    check(&["no-such-command"], 2, &["no-such-command"]).await;
    check(&with("greeter", &[]), 2, &["greeter", "--uri"]).await;
    check(&with("grpc://h:99999", &[]), 2, &["grpc://h:99999", "port"]).await;
    check(
        &with("grpc://h:1", &["--ttl", "soon"]),
        2,
        &["soon", "--ttl"],
    )
    .await;
    let short = ["--heartbeat", "10s", "--ttl", "15s"];
    check(
        &with("grpc://h:1", &short),
        2,
        &["ttl 15s", "two heartbeats of 10s", "30s"],
    )
    .await;
    check(
        &with("grpc://h:1", &["--weight=-1"]),
        2,
        &["-1", "--weight"],
    )
    .await;
    check(
        &with("grpc://h:1", &["--metadata", "k={"]),
        2,
        &["--metadata", "JSON"],
    )
    .await;
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_flag() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--listen", "--admin"] {
        let taken = TcpListener::bind(free_addr()).unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let other = free_addr().to_string();
        let other_flag = if flag == "--listen" {
            "--admin"
        } else {
            "--listen"
        };
        let data = folder
            .path()
            .join(flag.trim_start_matches('-'))
            .display()
            .to_string();
        let args = ["dev", "--data", &data, flag, &address, other_flag, &other];
        check(&args, 1, &[&address, flag, "in use"]).await;
    }
}

#[tokio::test]
async fn a_data_folder_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let _first = ServerConfig::dev(&data).start().await.unwrap();
    let second = ServerConfig::dev(&data).command().unwrap();
    let done = Process::run("second dev", second, SOON).await.unwrap();
    check_finished(
        "a second dev",
        &done,
        1,
        &[&data.display().to_string(), "in use by process"],
    );
}

#[tokio::test]
async fn looking_at_a_server_that_is_not_there_exits_1_and_names_its_address() {
    let nobody = free_addr().to_string();
    for args in [&["status"][..], &["get", "clusters"], &["watch", "greeter"]] {
        check(&[args, &["--server", &nobody]].concat(), 1, &[&nobody]).await;
    }
}

#[tokio::test]
async fn a_malformed_definition_is_refused_with_line_and_field_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let to = dev.listen().to_string();
    let file = folder.path().join("definitions.yaml");
    let path = file.display().to_string();
    let good = "kind: Cluster\nname: fine\nproperties: {}\n---\n";
    let cases = [
        (
            "kind: Cluster\nname: profile\nproperties: [1]\n",
            &["properties"][..],
        ),
        ("kind: Clutter\nname: profile\n", &["Clutter"]),
        (
            "kind: Service\nname: reads\npath: /p\nproperties: {}\n",
            &["cluster"],
        ),
        ("kind: Cluster\nname: [oops\n", &[]),
    ];
    for (text, words) in cases {
        std::fs::write(&file, format!("{good}{text}")).unwrap();
        let done = cli(&["apply", "-f", &path, "--to", &to]).await.unwrap();
        check_finished(text, &done, 2, &[&[&path[..]], words].concat());
    }
    let clusters = dev.cli_json(&["get", "clusters"]).await.unwrap();
    assert!(
        !clusters.to_string().contains("fine"),
        "written all the same: {clusters}"
    );
}

#[tokio::test]
async fn an_observer_without_kafka_says_so_again_and_again_and_readiness_names_it() {
    let kafka = free_addr().to_string();
    let mut observer = ServerConfig::observer(&kafka, "waypost").spawn().unwrap();
    let says = |line: &str| line.contains(&kafka);
    for _ in 0..3 {
        let mark = observer.process.mark();
        observer
            .process
            .wait_for_line_after(mark, "names Kafka", SOON, says)
            .await
            .unwrap();
    }
    let (status, body) = observer.get("/ready").await.unwrap();
    assert_eq!(status, 503, "{body}");
    assert!(
        body.to_lowercase().contains("kafka") || body.contains(&kafka),
        "{body}"
    );
    let done = observer.cli(&["status"]).await.unwrap();
    assert_eq!(done.code(), 1, "{}{}", done.stdout, done.stderr);
    assert!(observer.process.try_wait().unwrap().is_none(), "it gave up");
}

#[tokio::test]
async fn a_topic_set_up_wrongly_ends_an_observer_with_the_command_that_mends_it() {
    let kafka = KafkaBroker::start().await.unwrap();
    let bootstrap = kafka.bootstrap();
    let create = [
        "topics",
        "create",
        "--kafka",
        &bootstrap,
        "--replication",
        "1",
    ];
    let done = cli(&create).await.unwrap();
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    let check_topics = ["topics", "check", "--kafka", &bootstrap];
    assert_eq!(cli(&check_topics).await.unwrap().code(), 0);

    let alter = [
        "--bootstrap-server",
        &bootstrap,
        "--alter",
        "--entity-type",
        "topics",
    ];
    let policy = [
        "--entity-name",
        "waypost.announcements",
        "--add-config",
        "cleanup.policy=delete",
    ];
    let tool = "org.apache.kafka.tools.ConfigCommand";
    kafka
        .tool(tool, &[&alter[..], &policy].concat())
        .await
        .unwrap();

    let done = cli(&check_topics).await.unwrap();
    assert_eq!(done.code(), 1, "{}{}", done.stdout, done.stderr);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(
        said.contains("cleanup.policy") && said.contains("compact"),
        "{said}"
    );

    let mut observer = ServerConfig::observer(&bootstrap, "waypost")
        .spawn()
        .unwrap();
    let status = observer.process.wait_exit(SOON).await.unwrap();
    let said = observer.process.text(Stream::Stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    let line = said
        .lines()
        .find(|line| line.contains("cleanup.policy") && line.contains("compact"));
    assert!(line.is_some(), "{said}");
}

#[tokio::test]
async fn an_agent_that_cannot_reach_its_gateway_keeps_trying_and_says_so() {
    let gateway = free_addr();
    let to = gateway.to_string();
    let args = [
        "announce",
        "--cluster",
        "c",
        "--uri",
        "grpc://127.0.0.1:9",
        "--to",
        &to,
    ];
    let mut agent = Process::spawn("agent", command(&args).unwrap()).unwrap();
    agent
        .wait_for_line("names the gateway", SOON, |line| line.contains(&to))
        .await
        .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let config = ServerConfig::dev(&folder.path().join("data")).listen(gateway);
    let dev = config.start().await.unwrap();
    eventually("announced once the gateway is there", SOON, || async {
        let uris = dev.cli_json(&["get", "uris", "c"]).await?;
        uris.to_string()
            .contains("grpc://127.0.0.1:9")
            .then_some(())
            .context("not yet")
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn topics_create_says_whom_it_waits_for() {
    let nobody = free_addr().to_string();
    let create = command(&["topics", "create", "--kafka", &nobody]).unwrap();
    let mut create = Process::spawn("topics create", create).unwrap();
    let words = format!("waiting for Kafka at {nobody}");
    create
        .wait_for_line(&words, Duration::from_secs(20), |line| {
            line.contains(&words)
        })
        .await
        .unwrap();
}
