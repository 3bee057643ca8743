//! TLS on the command line: flags that do not fit, and what `bootstrap` writes.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WAYPOST_") {
            command.env_remove(name);
        }
    }
    command.args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that it was wrong usage and that the one line of the error has this word.
fn expect_refused(output: &Output, word: &str) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.starts_with("error: ") && text.contains(word),
        "no {word} in {text}"
    );
}

#[test]
fn tls_flags_that_do_not_fit_together_are_refused_before_anything_starts() {
    let dev = ["dev", "--data", "/nowhere/at/all"];
    for (args, word) in [
        ([&dev[..], &["--tls-cert", "c.pem"]].concat(), "--tls-key"),
        ([&dev[..], &["--tls-key", "c.key"]].concat(), "--tls-cert"),
        (
            [&dev[..], &["--tls-client-ca", "ca.pem"]].concat(),
            "--tls-cert",
        ),
        (
            vec!["delete", "service", "s", "--tls-cert", "c.pem"],
            "--tls-key",
        ),
        (
            vec![
                "delete",
                "service",
                "s",
                "--to",
                "https://h:1",
                "--tls-ca",
                "/nowhere.pem",
            ],
            "/nowhere.pem",
        ),
        (
            vec!["bootstrap", "envoy", "--to", "https://h:1,127.0.0.1:2"],
            "https://",
        ),
        (
            vec![
                "bootstrap",
                "grpc",
                "--to",
                "https://h:1",
                "--tls-server-name",
                "n",
            ],
            "--tls-server-name",
        ),
        (
            vec!["bootstrap", "grpc", "--authority", "a/b"],
            "--authority",
        ),
        // A client whose user names a CA must not be made to speak without TLS.
        (
            vec!["bootstrap", "grpc", "--tls-ca", "ca.pem"],
            "--to: --tls-… is for addresses that begin with https://",
        ),
    ] {
        expect_refused(&run(&args), word);
    }
}

#[test]
fn bootstrap_writes_tls_as_each_client_has_it() {
    let files = [
        "--tls-ca",
        "ca.pem",
        "--tls-cert",
        "c.pem",
        "--tls-key",
        "c.key",
    ];
    let to = ["--to", "https://observers.example:1"];
    let grpc = run(&[&["bootstrap", "grpc"], &to[..], &files].concat());
    let grpc: serde_json::Value = serde_json::from_slice(&grpc.stdout).unwrap();
    let server = &grpc["xds_servers"][0];
    assert_eq!(server["server_uri"], "dns:///observers.example:1");
    let credentials = &server["channel_creds"][0];
    assert_eq!(credentials["type"], "tls");
    assert_eq!(credentials["config"]["ca_certificate_file"], "ca.pem");
    assert_eq!(credentials["config"]["certificate_file"], "c.pem");
    assert_eq!(credentials["config"]["private_key_file"], "c.key");

    let envoy = stdout(&run(&[&["bootstrap", "envoy"], &to[..], &files].concat()));
    for word in [
        "UpstreamTlsContext",
        "ca.pem",
        "c.key",
        r#""sni":"observers.example""#,
    ] {
        assert!(envoy.contains(word), "no {word} in {envoy}");
    }
    let d2 = stdout(&run(&[&["bootstrap", "d2"], &to[..]].concat()));
    assert!(d2.contains("setGrpcSslContext"), "{d2}");
    assert!(!stdout(&run(&["bootstrap", "d2"])).contains("Ssl"));
}

#[test]
fn bootstrap_names_resources_by_an_authority() {
    let grpc = run(&["bootstrap", "grpc", "--authority", "an.authority"]);
    let grpc: serde_json::Value = serde_json::from_slice(&grpc.stdout).unwrap();
    let listener = "xdstp://an.authority/envoy.config.listener.v3.Listener/%s";
    let of_authority = &grpc["authorities"]["an.authority"];
    assert_eq!(
        of_authority["client_listener_resource_name_template"],
        listener
    );
    assert_eq!(
        grpc["client_default_listener_resource_name_template"],
        listener
    );
    let of_servers = "xdstp://an.authority/envoy.config.listener.v3.Listener/grpc/server?xds.resource.listening_address=%s";
    assert_eq!(grpc["server_listener_resource_name_template"], of_servers);
}
