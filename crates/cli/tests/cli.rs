//! The command line as a contract: what is refused, with which words and which exit code.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot set up fails"
)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

use waypost_admin_api::{
    Counts, HoldingScope, KeeperRole, KeeperStatus, LogKind, LogStatus, ObserverInfo,
    OrphanedDefinition, Status,
};

fn waypost(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WAYPOST_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

fn run(args: &[&str]) -> Output {
    waypost(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks the exit code and that the error holds all of these words in its first line.
fn expect_error(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("error: "), "{text}");
    for word in words {
        assert!(first.contains(word), "no {word:?} in {first:?}");
    }
}

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

const COMMANDS: [&str; 15] = [
    "dev",
    "observer",
    "announce",
    "apply",
    "delete",
    "set",
    "evict",
    "release",
    "config",
    "get",
    "describe",
    "watch",
    "topics",
    "status",
    "bootstrap",
];

#[test]
fn every_command_has_help_and_the_page_names_every_flag() {
    let page = include_str!("../../../docs/cli.md");
    let whole = stdout(&run(&["--help"]));
    for command in COMMANDS {
        assert!(
            whole.contains(&format!("  {command} ")),
            "{command} is not in --help"
        );
        let output = run(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        let help = stdout(&output);
        assert!(
            help.contains(&format!("Usage: waypost {command}")),
            "{help}"
        );
        let heading = format!("## `waypost {command}");
        let start = page
            .find(&heading)
            .unwrap_or_else(|| panic!("no {heading} in docs/cli.md"));
        let rest = &page[start + heading.len()..];
        let section = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
        let flags = help.lines().filter_map(|line| {
            let flag = line
                .trim_start()
                .trim_start_matches("-f, ")
                .trim_start_matches("-o, ");
            let word = flag.split([' ', '=']).next()?;
            word.strip_prefix("--")
        });
        for flag in flags.filter(|f| !["help", "config", "log-level", "log-format"].contains(f)) {
            assert!(
                section.contains(&format!("`--{flag}")),
                "docs/cli.md, {command}: no --{flag}"
            );
        }
    }
}

#[test]
fn the_version_is_told() {
    let output = run(&["--version"]);
    assert_eq!(
        stdout(&output).trim(),
        concat!("waypost ", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn wrong_usage_exits_2_and_names_what_is_wrong() {
    let announce = ["announce", "--cluster", "c", "--uri", "grpc://h:1"];
    let with = |more: &[&'static str]| [&announce[..], more].concat();
    let cases: [(Vec<&str>, &[&str]); 18] = [
        (vec!["dev", "--no-such-flag"], &["--no-such-flag"]),
        (vec!["no-such-command"], &["no-such-command"]),
        (
            vec!["announce", "--cluster", "c", "--uri", "h:1"],
            &["h:1", "--uri", "scheme://host:port"],
        ),
        (
            vec!["announce", "--cluster", "a/b", "--uri", "grpc://h:1"],
            &["a/b", "--cluster"],
        ),
        (with(&["--ttl", "10"]), &["10", "--ttl", "10s"]),
        (
            with(&["--ttl", "15s"]),
            &[
                "ttl 15s is shorter than two heartbeats of 10s",
                "at least 30s",
            ],
        ),
        (
            with(&["--health-check", "udp://h:1"]),
            &["udp", "--health-check"],
        ),
        (
            with(&["--address", "10.0.0.1", "--address", "10.0.0.2"]),
            &["10.0.0.2", "--address"],
        ),
        (
            with(&["--weight", "1", "--weight", "0=2"]),
            &["--weight", "twice"],
        ),
        (
            with(&["--kafka", "k:1", "--to", "h:1"]),
            &["--kafka and --to"],
        ),
        (
            vec!["topics", "create", "--kafka", "k:1", "--replication", "2"],
            &["--replication", "3"],
        ),
        (
            vec!["bootstrap", "grpc", "--to", "a:1,b:1"],
            &["--to", "one DNS name"],
        ),
        (vec!["bootstrap", "envoy", "--node-id="], &["--node-id"]),
        (
            vec!["bootstrap", "envoy", "--service", "a,,b"],
            &["--service", "service name"],
        ),
        (vec!["watch", "a b"], &["a b", "cluster name"]),
        (
            vec!["observer", "--kafka", "foo"],
            &["foo", "--kafka", "HOST:PORT"],
        ),
        (
            vec!["topics", "check", "--kafka", "k:1", "--topic-prefix", "a b"],
            &["a b", "--topic-prefix", "Kafka allows"],
        ),
        (
            with(&["--health-check", "ftp://h:1"]),
            &["ftp", "--health-check", "tcp://HOST:PORT"],
        ),
    ];
    for (args, words) in cases {
        let output = run(&args);
        expect_error(&output, 2, words);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn missing_flags_are_named() {
    expect_error(&run(&["announce"]), 2, &["--cluster", "--uri"]);
    assert_eq!(run(&["observer"]).status.code(), Some(2));
    assert_eq!(run(&["apply"]).status.code(), Some(2));
}

#[test]
fn a_malformed_definition_is_refused_with_file_line_and_field_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.yaml");
    let path = file.display().to_string();
    let cases: [(&str, &[&str]); 5] = [
        (
            "kind: Cluster\nname: profile\nproperties:\n  partitionProperties:\n    partitionType: HASH\n    partitionCount: '4'\n    partitionKeyRegex: x\n    hashAlgorithm: MD5\n",
            &[
                ":6: ",
                "properties.partitionProperties.partitionCount",
                "a string",
            ],
        ),
        (
            "kind: Klaster\nname: profile\n",
            &[":1: ", "kind", "Klaster"],
        ),
        (
            "kind: Cluster\nname: ok\n---\nkind: Cluster\nname: ok\n",
            &[":5: ", "name", "twice"],
        ),
        ("kind: Service\nname: s\npath: /p\n", &[":1: ", "cluster"]),
        ("kind: [\n", &[": ", "cannot be read as YAML"]),
    ];
    for (text, words) in cases {
        std::fs::write(&file, text).unwrap();
        let output = run(&["apply", "-f", &path, "--to", &nobody()]);
        expect_error(&output, 2, &[&[path.as_str()], words].concat());
        assert!(stderr(&output).contains("nothing was written"), "{text}");
    }
    let missing = folder.path().join("none.yaml").display().to_string();
    expect_error(&run(&["apply", "-f", &missing]), 1, &[&missing]);
}

#[test]
fn nobody_there_exits_1_and_names_the_address() {
    let nobody = nobody();
    for args in [
        &["status"][..],
        &["get", "clusters"],
        &["describe", "cluster", "c"],
        &["watch", "c"],
    ] {
        let output = run(&[args, &["--server", &nobody]].concat());
        expect_error(&output, 1, &[&nobody, "--server"]);
    }
    let output = run(&["delete", "service", "s", "--to", &nobody]);
    expect_error(&output, 1, &[&nobody, "--to"]);
}

/// The target that `bootstrap grpc` prints.
fn target(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let bootstrap: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    bootstrap["xds_servers"][0]["server_uri"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.toml");
    std::fs::write(&file, "to = 'everywhere:1'\n[bootstrap]\nto = 'file:1'\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let base = ["bootstrap", "grpc"];
    assert_eq!(target(&mut waypost(&base)), "dns:///127.0.0.1:18000");
    assert_eq!(target(waypost(&base).args(config)), "dns:///file:1");
    assert_eq!(
        target(waypost(&base).env("WAYPOST_CONFIG", &file)),
        "dns:///file:1"
    );
    let with_variable = |command: &mut Command| target(command.env("WAYPOST_TO", "variable:1"));
    assert_eq!(
        with_variable(waypost(&base).args(config)),
        "dns:///variable:1"
    );
    let flag = ["--to", "flag:1"];
    assert_eq!(
        with_variable(waypost(&base).args(config).args(flag)),
        "dns:///flag:1"
    );
}

#[test]
fn mistakes_in_the_file_are_named_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.toml");
    let path = file.display().to_string();
    let cases: [(&str, &[&str]); 3] = [
        ("\nserver = 'h:1'\nkafkaa = 'x'\n", &[":3: ", "kafkaa"]),
        (
            "[status]\nserver = 'no port'\n",
            &[":2: ", "server", "no port", "HOST:PORT"],
        ),
        ("[status\n", &[":1: "]),
    ];
    for (text, words) in cases {
        std::fs::write(&file, text).unwrap();
        let output = run(&["status", "--config", &path]);
        expect_error(&output, 2, &[&[path.as_str()], words].concat());
    }
    expect_error(
        &run(&["status", "--config", "no/such.toml"]),
        2,
        &["no/such.toml", "--config"],
    );
}

#[test]
fn client_configurations_have_one_name_for_all_observers() {
    let args = ["bootstrap", "grpc", "--to", "o.example:1", "--zone", "a"];
    assert_eq!(target(&mut waypost(&args)), "dns:///o.example:1");
    let list = run(&["bootstrap", "grpc", "--to", "127.0.0.2:1,127.0.0.3:1"]);
    expect_error(&list, 2, &["--to", "one DNS name"]);
    let grpc = stdout(&run(&["bootstrap", "grpc"]));
    let of_servers = "\"grpc/server?xds.resource.listening_address=%s\"";
    assert!(grpc.contains(of_servers), "no {of_servers} in {grpc}");
    let envoy = stdout(&run(&[
        "bootstrap",
        "envoy",
        "--to",
        "o.example:1",
        "--service",
        "s,t",
        "--proxy-listen",
        "[::1]:80",
    ]));
    for part in [
        "STRICT_DNS",
        "address: \"o.example\", port_value: 1",
        "waypost.services: [\"s\",\"t\"]",
        "waypost.outbound_address: \"::1\"",
        "waypost.outbound_port: 80",
        "api_type: DELTA_GRPC",
    ] {
        assert!(envoy.contains(part), "no {part} in {envoy}");
    }
    assert!(
        !envoy.contains('@') || envoy.matches('@').count() == envoy.matches("\"@type\"").count()
    );
    let d2 = stdout(&run(&["bootstrap", "d2", "--to", "o.example:1"]));
    assert!(d2.contains(".setXdsServer(\"dns:///o.example:1\")"), "{d2}");
}

fn mk_status() -> Status {
    Status {
        observer: ObserverInfo {
            identifier: "waypost-1".into(),
            version: "0".into(),
            fabric: String::new(),
            zone: String::new(),
            read_only: false,
            grpc_address: "127.0.0.1:1".into(),
            admin_address: "127.0.0.1:2".into(),
            uptime_ms: 1,
        },
        ready: true,
        pending: Vec::new(),
        stale: false,
        stale_reasons: Vec::new(),
        sources: Vec::new(),
        log: LogStatus {
            kind: LogKind::Memory,
            identity: None,
            topics: Vec::new(),
        },
        keeper: KeeperStatus {
            role: KeeperRole::Keeper,
            own_id: None,
            current_id: None,
        },
        counts: Counts::default(),
        replaying: Vec::new(),
        holding_clusters: Vec::new(),
        holding: Vec::new(),
        orphaned: Vec::new(),
        refused_definitions: Vec::new(),
        shared_symlinks: Vec::new(),
    }
}

fn mk_holding(cluster: Option<&str>) -> HoldingScope {
    HoldingScope {
        cluster: cluster.map(str::to_owned),
        since_at_ms: 1,
        lasts_ms: 65_000,
        live: 16,
        overdue: 15,
        cap: 4,
    }
}

fn mk_orphan() -> OrphanedDefinition {
    OrphanedDefinition {
        kind: "override".into(),
        name: "greeter".into(),
        uri: Some("grpc://h:1".into()),
    }
}

#[test]
fn status_says_what_an_operator_has_to_decide_on() {
    let mut status = mk_status();
    status.holding = vec![mk_holding(None), mk_holding(Some("greeter"))];
    status.orphaned.push(mk_orphan());
    status.counts.orphaned = 3;
    status.counts.unconfirmed_instances = 2;
    status.replaying.push("announcements".into());
    let server = serve_once(&status).to_string();
    let text = stdout(&run(&["status", "--server", &server]));
    for line in [
        "holding: the fleet: 15 of 16 instance(s) silent and served on for 1m5s; `waypost release --all` lets them go",
        "holding: cluster greeter: 15 of 16 instance(s) silent and served on for 1m5s; `waypost release greeter` lets them go",
        "replaying: announcements is read again from its beginning",
        "unconfirmed: 2 instance(s)",
        "orphaned: override greeter grpc://h:1",
        "orphaned: and 2 more",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

/// Answers one request with this status.
fn serve_once(status: &Status) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = serde_json::to_string(status).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap();
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    });
    address
}

#[test]
fn status_exits_0_when_ready_1_when_not_and_3_when_stale_or_holding() {
    type Change = fn(&mut Status);
    let cases: [(Change, i32); 9] = [
        (|_| {}, 0),
        (|s| s.ready = false, 1),
        (|s| (s.ready, s.stale) = (false, true), 1),
        (|s| s.stale = true, 3),
        (|s| s.holding.push(mk_holding(Some("greeter"))), 3),
        (|s| s.holding.push(mk_holding(None)), 3),
        // Nothing that a heartbeat does not mend, and nothing that clients see.
        (|s| s.counts.unconfirmed_instances = 1, 0),
        (|s| s.orphaned.push(mk_orphan()), 0),
        (|s| s.replaying.push("config".into()), 0),
    ];
    for (n, (change, code)) in cases.into_iter().enumerate() {
        for format in ["table", "json", "yaml"] {
            let mut status = mk_status();
            change(&mut status);
            let server = serve_once(&status).to_string();
            let output = run(&["status", "--server", &server, "-o", format]);
            assert_eq!(
                output.status.code(),
                Some(code),
                "case {n}: {}",
                stderr(&output)
            );
            if format == "json" {
                let told: Status = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(told, status);
            }
        }
    }
}
