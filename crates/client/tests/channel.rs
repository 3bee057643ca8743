//! The tower service: real servers of tonic, real calls.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{World, client, eventually, soon, until_ports};
use futures::StreamExt as _;
use tower::discover::Change;
use waypost_client::ClusterChannel;
use waypost_testkit::tonic_greeter::{TonicGreeter, hello};

async fn mk_greeters(count: usize, delay: Duration) -> Vec<TonicGreeter> {
    let mut greeters = Vec::new();
    for _ in 0..count {
        greeters.push(TonicGreeter::start(delay).await.unwrap());
    }
    greeters
}

/// Calls until each of these has answered.
async fn until_all_answer(channel: &ClusterChannel, names: &BTreeSet<String>) {
    let mut answered = BTreeSet::new();
    let all = async {
        while answered != *names {
            answered.insert(hello(channel.clone()).await.unwrap());
        }
    };
    soon("all answer", all).await;
}

#[tokio::test]
async fn calls_go_to_all_endpoints_and_a_dead_one_costs_only_what_was_on_it() {
    let world = World::new();
    let mut greeters = mk_greeters(3, Duration::ZERO).await;
    let mut ports: Vec<u16> = greeters.iter().map(|g| g.address().port()).collect();
    for port in &ports {
        world.announce("greeter", *port).await;
    }
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let greeter = client.cluster("greeter").unwrap();
    ports.sort_unstable();
    until_ports(&greeter, &ports).await;
    let channel = greeter.channel();
    until_all_answer(&channel, &greeters.iter().map(TonicGreeter::name).collect()).await;
    assert_eq!(client.metrics().connections_opened, 3);

    // One dies and nobody says so. Its connection is seen to end: after the call that may be sent to it
    // in that moment no other is, though it stays in the list.
    greeters.pop().unwrap().kill().await.unwrap();
    let mut failed = 0;
    let mut calls = 0;
    let seen = async {
        while client.metrics().connections_failed == 0 || calls < 200 {
            failed += u32::from(hello(channel.clone()).await.is_err());
            calls += 1;
        }
    };
    soon("it is passed over", seen).await;
    assert!(failed <= 1, "{failed} of {calls} calls failed");
    until_ports(&greeter, &ports).await;
    observer.shutdown().await;
}

#[tokio::test]
async fn a_server_that_leaves_the_list_finishes_what_it_has() {
    let world = World::new();
    let greeters = mk_greeters(1, Duration::from_secs(2)).await;
    let port = greeters[0].address().port();
    world.announce("greeter", port).await;
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let greeter = client.cluster("greeter").unwrap();
    until_ports(&greeter, &[port]).await;
    let channel = greeter.channel();
    let in_flight = tokio::spawn(hello(channel.clone()));
    eventually("it is connected", || {
        (client.metrics().connections_opened == 1).then_some(())
    })
    .await;
    world.withdraw("greeter", port).await;
    until_ports(&greeter, &[]).await;
    let refused = hello(channel.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert_eq!(
        refused.message(),
        "cluster greeter: cluster greeter has no endpoints"
    );
    let answer = soon("the call in flight", in_flight).await.unwrap();
    assert_eq!(answer.unwrap(), greeters[0].name());
    observer.shutdown().await;
}

#[tokio::test]
async fn changes_name_what_comes_before_what_goes() {
    let world = World::new();
    world.announce("greeter", 1001).await;
    let observer = world.observer().await;
    let client = client(&[&observer]);
    let greeter = client.cluster("greeter").unwrap();
    let mut changes = greeter.changes();
    let mut next = async || {
        let change = soon("a change", changes.next()).await.unwrap();
        match change.unwrap() {
            Change::Insert(address, endpoint) => {
                assert_eq!(address, endpoint.address());
                (true, address.port())
            }
            Change::Remove(address) => (false, address.port()),
        }
    };
    assert_eq!(next().await, (true, 1001));
    world.announce("greeter", 1002).await;
    assert_eq!(next().await, (true, 1002));
    world.withdraw("greeter", 1001).await;
    assert_eq!(next().await, (false, 1001));
    observer.shutdown().await;
}
