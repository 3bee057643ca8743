//! Definitions that a person writes with `waypost apply`, and what a D2 client makes of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use waypost_d2_client::{D2Client, Mode};
use waypost_testkit::process::{Finished, Process};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli, command};

/// A bound on what should take a moment.
const SOON: Duration = Duration::from_secs(60);

const EAST: &str = "http://127.0.0.1:7000";
const WEST: &str = "http://127.0.0.1:7001";

async fn start(folder: &Path) -> Server {
    let dev = ServerConfig::dev(&folder.join("data"));
    dev.start().await.unwrap()
}

/// An agent that announces and nothing else.
async fn announce(server: &Server, cluster: &str, uri: &str) -> Process {
    let to = server.listen().to_string();
    let args = ["announce", "--cluster", cluster, "--uri", uri, "--to", &to];
    let mut agent = Process::spawn("agent", command(&args).unwrap()).unwrap();
    let served = agent.wait_for_line("served", SOON, |line| line.contains("serve"));
    served.await.unwrap();
    agent
}

/// Applies definitions; gives what the command said.
async fn apply(server: &Server, folder: &Path, definitions: &str) -> Finished {
    let file = folder.join("definitions.yaml");
    std::fs::write(&file, definitions).unwrap();
    let (file, to) = (file.display().to_string(), server.listen().to_string());
    cli(&["apply", "-f", &file, "--to", &to]).await.unwrap()
}

async fn delete(server: &Server, kind: &str, name: &str) -> Finished {
    let to = server.listen().to_string();
    cli(&["delete", kind, name, "--to", &to]).await.unwrap()
}

fn said(done: &Finished, words: &[&str]) {
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    for words in words {
        assert!(done.stdout.contains(words), "{words}: {}", done.stdout);
    }
}

async fn until_resolved(client: &D2Client, url: &str, expected: &str) {
    eventually(expected, SOON, async || {
        let resolved = client.resolve(url).await?;
        ensure!(resolved == expected, "{resolved}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symlink_is_written_followed_turned_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let _east = announce(&server, "greeter-east", EAST).await;
    let _west = announce(&server, "greeter-west", WEST).await;
    let east = "kind: Symlink\nname: $greeterMaster\ncluster: greeter-east\n";
    let service = "---\nkind: Service\nname: reads\ncluster: $greeterMaster\npath: /p\n";
    let done = apply(&server, folder.path(), &format!("{east}{service}")).await;
    said(&done, &["symlink $greeterMaster: created (revision 0)"]);

    let mut clients = Vec::new();
    for (name, mode) in Mode::ALL {
        let address = server.listen().to_string();
        clients.push(D2Client::start(&address, name, mode).await.unwrap());
    }
    for client in &clients {
        until_resolved(client, "d2://reads/x", &format!("{EAST}/p/x")).await;
    }
    let west = east.replace("east", "west");
    let done = apply(&server, folder.path(), &west).await;
    said(&done, &["symlink $greeterMaster: changed (revision 1)"]);
    for client in &clients {
        until_resolved(client, "d2://reads/x", &format!("{WEST}/p/x")).await;
        let report = client.report();
        assert_eq!(report.counters.nacks, 0, "{report:?}");
        assert!(report.conflicting_symlinks.is_empty(), "{report:?}");
    }

    let second = west.replace("$greeterMaster", "$other");
    let refused = apply(&server, folder.path(), &second).await;
    assert_eq!(refused.code(), 1, "{}", refused.stdout);
    assert!(
        refused.stderr.contains("$greeterMaster leads too"),
        "{}",
        refused.stderr
    );
    let listed = server.cli(&["get", "clusters", "$greeterMaster"]).await;
    said(&listed.unwrap(), &["leads to greeter-west"]);
    let described = server.cli(&["describe", "cluster", "$greeterMaster"]).await;
    said(
        &described.unwrap(),
        &["symlink to: greeter-west", "revision 1", "services: reads"],
    );

    said(
        &delete(&server, "symlink", "$greeterMaster").await,
        &["symlink $greeterMaster: deleted"],
    );
    eventually("the directory has lost it", SOON, async || {
        let directory = clients[0].directory().await?;
        ensure!(!directory.clusters.contains("$greeterMaster"));
        Ok(())
    })
    .await
    .unwrap();
    said(
        &delete(&server, "symlink", "$greeterMaster").await,
        &["absent"],
    );
}

async fn until_callees(client: &D2Client, name: &str, expected: &[&str]) {
    eventually(name, SOON, async || {
        let callees = client.callees(name).await?;
        ensure!(callees == expected, "{callees:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn callees_are_written_told_changed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let callees = "kind: Callees\nname: shop\nservices: [cart, prices]\n";
    let service = "---\nkind: Service\nname: prices\ncluster: prices\n";
    let done = apply(&server, folder.path(), &format!("{callees}{service}")).await;
    said(&done, &["callees shop: created (revision 0)"]);

    let address = server.listen().to_string();
    let client = D2Client::start(&address, "h", Mode::Map).await.unwrap();
    let name = "shop:i001:service";
    until_callees(&client, name, &["cart", "prices"]).await;
    let fewer = callees.replace("cart, ", "");
    let done = apply(&server, folder.path(), &fewer).await;
    said(&done, &["callees shop: changed (revision 1)"]);
    until_callees(&client, name, &["prices"]).await;
    assert_eq!(client.report().counters.nacks, 0);

    let with_unknown = callees.replace("cart", "nobody");
    said(&apply(&server, folder.path(), &with_unknown).await, &[]);
    until_callees(&client, name, &["nobody", "prices"]).await;
    let listed = server.cli(&["get", "callees"]).await.unwrap();
    said(&listed, &["shop", "nobody,prices", "revision 2"]);
    let described = server.cli(&["describe", "callees", "shop"]).await.unwrap();
    said(
        &described,
        &["application: shop", "revision 2", "nobody  (not known)"],
    );
    let one = server.cli_json(&["get", "callees", "shop"]).await.unwrap();
    assert_eq!(one[0]["services"][1], "prices", "{one}");

    let wrong = "kind: Callees\nname: shop:i001\nservices: [a, a]\n";
    let refused = apply(&server, folder.path(), wrong).await;
    assert_eq!(refused.code(), 2, "{}", refused.stdout);
    for words in [
        "definitions.yaml:2: name",
        "definitions.yaml:3: services[1]",
    ] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    said(
        &delete(&server, "callees", "shop").await,
        &["callees shop: deleted"],
    );
    // Who holds the list is told that there is none; who asks now is not answered.
    until_callees(&client, name, &[]).await;
    let absent = server.cli(&["describe", "callees", "shop"]).await.unwrap();
    assert_eq!(absent.code(), 1, "{}", absent.stdout);
}
