//! README's five minutes, as a person does them.

use std::time::Duration;

use serde_json::Value;
use waypost_e2e::clients::{Clients, bootstrap};
use waypost_e2e::clock::now;
use waypost_testkit::caller::{Greeter, Load};
use waypost_testkit::ports::free_port;
use waypost_testkit::process::{Process, Signal, Stream};
use waypost_testkit::waypost::{Server, ServerConfig, command};

/// A bound on what should take a moment.
const SOON: Duration = Duration::from_secs(60);

async fn announce(dev: &Server, port: u16) -> anyhow::Result<Process> {
    let greeter = Greeter::command(&[port])?;
    let uri = format!("grpc://127.0.0.1:{port}");
    let check = format!("tcp://127.0.0.1:{port}");
    let mut agent = command(&["announce", "--cluster", "greeter", "--uri", &uri])?;
    agent.args([
        "--health-check",
        &check,
        "--to",
        &dev.listen().to_string(),
        "--",
    ]);
    agent.arg(greeter.get_program()).args(greeter.get_args());
    let mut agent = Process::spawn("agent", agent)?;
    agent
        .wait_for_line("acknowledged", SOON, |line| line.contains("acknowledged"))
        .await?;
    agent
        .wait_for_line("served", SOON, |line| line.contains("serve"))
        .await?;
    Ok(agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_says_what_listens_where_and_what_to_type_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let (listen, admin) = (dev.listen().to_string(), dev.admin().to_string());
    for word in [&listen[..], &admin, "waypost announce"] {
        dev.process
            .wait_for_line(word, SOON, |line| line.contains(word))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_announced_found_watched_and_withdrawn() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let server = dev.admin().to_string();
    let watch = command(&["watch", "greeter", "--server", &server]).unwrap();
    let mut watch = Process::spawn("watch", watch).unwrap();

    let ports = [free_port(), free_port()];
    let names = ports.map(|port| format!("127.0.0.1:{port}"));
    let _first = announce(&dev, ports[0]).await.unwrap();
    let file = bootstrap(dev.listen(), folder.path()).await.unwrap();
    let load = Load {
        rate: 100.0,
        concurrency: 4,
    };
    let clients = Clients::start(1, load, &file, folder.path()).await.unwrap();

    let mut second = announce(&dev, ports[1]).await.unwrap();
    let announced = now();
    let used = clients.all_reach(&names[1], 0.0, SOON).await.unwrap();
    assert!(
        used - announced < 1.0,
        "used {} s after it was announced",
        used - announced
    );

    second.signal(Signal::TERM).unwrap();
    let gone = |line: &str| line.contains("down") && line.contains(&names[1]);
    watch
        .wait_for_line("the withdrawal", SOON, gone)
        .await
        .unwrap();
    let withdrawn = now();
    second.wait_exit(SOON).await.unwrap();
    clients
        .all_call_on(withdrawn + 1.0, 50, SOON)
        .await
        .unwrap();
    assert!(clients.last_answer(&names[1], withdrawn).unwrap() - withdrawn < 1.0);
    for name in &names {
        let up = |line: &str| line.contains("up") && line.contains(name.as_str());
        watch
            .wait_for_line("the announcement", SOON, up)
            .await
            .unwrap();
    }
    let calls = clients.finish().await.unwrap();
    assert_eq!(calls.failed(), 0, "{:?}", calls.failures());
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_shows_what_is_there_and_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let port = free_port();
    let _agent = announce(&dev, port).await.unwrap();
    let file = bootstrap(dev.listen(), folder.path()).await.unwrap();
    let load = Load {
        rate: 10.0,
        concurrency: 1,
    };
    let _clients = Clients::start(1, load, &file, folder.path()).await.unwrap();

    let uris = dev.cli_json(&["get", "uris", "greeter"]).await.unwrap();
    assert_eq!(list(&uris).len(), 1, "{uris}");
    let table = dev.cli(&["get", "uris", "greeter"]).await.unwrap();
    assert!(
        table.stdout.contains(&format!("127.0.0.1:{port}")),
        "{}",
        table.stdout
    );
    assert!(
        table.stdout.to_lowercase().contains("heartbeat"),
        "{}",
        table.stdout
    );
    for noun in [
        &["get", "clusters"][..],
        &["get", "services"],
        &["get", "streams"],
    ] {
        let found = dev.cli_json(noun).await.unwrap();
        assert!(!list(&found).is_empty(), "{noun:?}: {found}");
    }
    let described = dev.cli(&["describe", "cluster", "greeter"]).await.unwrap();
    assert_eq!(described.code(), 0, "{}", described.stderr);
    assert!(
        described.stdout.contains("implicit"),
        "{}",
        described.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_by_its_exit_code_whether_all_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let status = dev.cli(&["status"]).await.unwrap();
    assert_eq!(status.code(), 0, "{}{}", status.stdout, status.stderr);
    let admin = dev.admin().to_string();
    dev.stop().await.unwrap();
    let status = waypost_testkit::waypost::cli(&["status", "--server", &admin])
        .await
        .unwrap();
    assert_eq!(status.code(), 1, "{}{}", status.stdout, status.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_applied_shown_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let to = dev.listen().to_string();
    let file = folder.path().join("profile.yaml");
    let text = "kind: Cluster\nname: profile\nproperties: {}\n---\nkind: Service\nname: profileReads\n\
                cluster: profile\npath: /profile\nproperties: {}\n";
    std::fs::write(&file, text).unwrap();
    let apply = ["apply", "-f", file.to_str().unwrap(), "--to", &to];
    let done = waypost_testkit::waypost::cli(&apply).await.unwrap();
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    let services = dev.cli_json(&["get", "services"]).await.unwrap();
    assert!(services.to_string().contains("profileReads"), "{services}");
    let delete = ["delete", "service", "profileReads", "--to", &to];
    let done = waypost_testkit::waypost::cli(&delete).await.unwrap();
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    let services = dev.cli_json(&["get", "services"]).await.unwrap();
    assert!(!services.to_string().contains("profileReads"), "{services}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_exits_as_its_command_does() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let to = dev.listen().to_string();
    let uri = [
        "announce",
        "--cluster",
        "c",
        "--uri",
        "grpc://127.0.0.1:9",
        "--to",
        &to,
    ];
    let command = command(&[&uri[..], &["--drain", "0s", "--", "sh", "-c", "exit 7"]].concat());
    let done = Process::run("agent", command.unwrap(), SOON).await.unwrap();
    assert_eq!(done.code(), 7, "{}", done.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stopped_past_its_ttl_announces_itself_again() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let to = dev.listen().to_string();
    let uri = [
        "announce",
        "--cluster",
        "c",
        "--uri",
        "grpc://127.0.0.1:9",
        "--to",
        &to,
    ];
    let times = ["--heartbeat", "3s", "--ttl", "10s"];
    let agent = command(&[&uri[..], &times].concat()).unwrap();
    let agent = Process::spawn("agent", agent).unwrap();
    waypost_e2e::look::instances(dev.admin(), "c", 1, SOON)
        .await
        .unwrap();
    agent.signal(Signal::STOP).unwrap();
    waypost_e2e::look::instances(dev.admin(), "c", 0, SOON)
        .await
        .unwrap();
    agent.signal(Signal::CONT).unwrap();
    waypost_e2e::look::instances(dev.admin(), "c", 1, SOON)
        .await
        .unwrap();
    drop(agent);
    assert!(!dev.process.text(Stream::Stderr).contains("panicked"));
}

/// The entries of a list as the command line prints it.
fn list(value: &Value) -> &[Value] {
    let items = value.as_array().or_else(|| value["items"].as_array());
    items.map_or(&[], Vec::as_slice)
}
