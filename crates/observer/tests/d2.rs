//! rest.li's client, as `tests/d2-client` plays it, against a whole Observer: what it makes of what is
//! served, also over reconnects.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use prost::Message as _;
use waypost_admin_api::{SharedSymlinks, Status, path};
use waypost_core::definition::{DefinitionStat, ServiceDefinition};
use waypost_core::{
    Announcement, ApplicationName, CalleesDefinition, ClusterDefinition, ClusterName, Definition,
    DefinitionKey, InstanceUri, PartitionId, ResourceType, ServiceName, Timestamp, Topic,
};
use waypost_d2_client::{D2Client, D2Error, Mode, Report};
use waypost_log::MemoryLog;
use waypost_observer::RunningObserver;
use waypost_proto::indis;

use common::xds::Delta;
use common::{DEADLINE, Life, START, eventually, mk_announcement, mk_log, mk_settings};

/// What every client finds missing: it is asked for to learn of the connection.
const NEVER: &str = "/d2/clusters/NonExistentCluster";

/// An Observer at an address that another one had, or at any.
async fn start_at(log: &MemoryLog, address: Option<SocketAddr>) -> RunningObserver {
    let mut settings = mk_settings();
    settings.listen = address.unwrap_or(settings.listen);
    let observer = common::start_with(log, settings).await;
    let ready = tokio::time::timeout(DEADLINE, observer.ready()).await;
    ready.expect("it becomes ready");
    observer
}

async fn start_client(observer: &RunningObserver, mode: Mode) -> D2Client {
    let server = observer.grpc_address().to_string();
    let client = D2Client::start(&server, "h", mode).await.unwrap();
    assert_eq!(client.pre_check(), Ok(()));
    client
}

fn stat() -> DefinitionStat {
    DefinitionStat {
        created: START,
        modified: START,
        revision: 1,
    }
}

/// Writes the definition of a cluster: a document, or the path of a symlink.
fn define_cluster(log: &MemoryLog, name: &str, document: &str) {
    let definition = Definition::Cluster(ClusterDefinition {
        name: ClusterName::parse(name).unwrap(),
        document: document.to_owned().into(),
        stat: stat(),
        author: "".into(),
    });
    let key = DefinitionKey::Cluster(ClusterName::parse(name).unwrap());
    write(log, &key, Some(&definition));
}

fn define_service(log: &MemoryLog, name: &str, cluster: &str) {
    let document = format!(
        r#"{{"serviceName":"{name}","clusterName":"{cluster}","path":"/p","loadBalancerStrategyList":["relative"],"prioritizedSchemes":["http"]}}"#
    );
    let definition = Definition::Service(ServiceDefinition {
        name: ServiceName::parse(name).unwrap(),
        cluster: ClusterName::parse(cluster).unwrap(),
        path: "/p".to_owned(),
        document: document.into(),
        stat: stat(),
        author: "".into(),
    });
    let key = DefinitionKey::Service(ServiceName::parse(name).unwrap());
    write(log, &key, Some(&definition));
}

/// Says what an application calls; `None` that nobody says it any more.
fn define_callees(log: &MemoryLog, application: &str, services: Option<&[&str]>) {
    let application = ApplicationName::parse(application).unwrap();
    let services = services.map(|s| s.iter().map(|name| ServiceName::parse(name).unwrap()));
    let definition = services.map(|services| {
        Definition::Callees(CalleesDefinition {
            application: application.clone(),
            services: services.collect(),
            stat: stat(),
            author: "".into(),
        })
    });
    write(
        log,
        &DefinitionKey::Callees(application),
        definition.as_ref(),
    );
}

async fn until_callees(client: &D2Client, name: &str, services: &[&str]) {
    eventually(&format!("{name} calls {services:?}"), || async {
        let callees = client.callees(name).await.ok()?;
        (callees == services).then_some(())
    })
    .await;
}

fn write(log: &MemoryLog, key: &DefinitionKey, definition: Option<&Definition>) {
    let value = definition.map(waypost_proto::definition::encode);
    let key = Some(key.to_record_key());
    log.append_raw(Topic::Config, PartitionId(0), key, value, &[])
        .unwrap();
}

/// Announces an instance by its URI.
async fn announce(log: &MemoryLog, id: u64, cluster: &str, uri: &str) -> Life {
    let announcement = Announcement {
        uri: InstanceUri::parse(uri).unwrap(),
        ..mk_announcement(cluster, 1)
    };
    let life = Life::new(log, id, announcement);
    life.announce().await;
    life
}

async fn until_hosts(client: &D2Client, cluster: &str, uris: &[&str]) {
    let wanted: BTreeSet<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
    eventually(&format!("{cluster} has {uris:?}"), || async {
        (client.find_hosts(cluster)? == wanted).then_some(())
    })
    .await;
}

/// Waits for a stream after the first whose answers are all there.
async fn until_back(client: &D2Client) -> Report {
    eventually("it is back", || async {
        let report = client.report();
        let is_back = report.streams_answered > 1 && report.awaited.is_empty();
        is_back.then_some(report)
    })
    .await
}

fn check_unharmed(report: &Report) {
    assert_eq!(report.counters.nacks, 0, "{report:?}");
    assert!(report.invalid.is_empty(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symlink_is_served_as_it_is_and_the_client_follows_it() {
    let log = mk_log(1);
    define_cluster(&log, "$greeterMaster", "/d2/clusters/greeter-east");
    define_cluster(&log, "greeter-east", r#"{"clusterName":"greeter-east"}"#);
    define_cluster(&log, "greeter-west", r#"{"clusterName":"greeter-west"}"#);
    define_service(&log, "greeterReads", "$greeterMaster");
    announce(&log, 1, "greeter-east", "http://east.example:1/a").await;
    announce(&log, 2, "greeter-west", "http://west.example:1/a").await;
    let observer = start_at(&log, None).await;
    for (_, mode) in Mode::ALL {
        define_cluster(&log, "$greeterMaster", "/d2/clusters/greeter-east");
        let client = start_client(&observer, mode).await;
        eventually("it leads east", || async {
            let url = client.resolve("d2://greeterReads/x?y").await.ok()?;
            (url == "http://east.example:1/a/p/x?y").then_some(())
        })
        .await;
        define_cluster(&log, "$greeterMaster", "/d2/clusters/greeter-west");
        until_hosts(&client, "$greeterMaster", &["http://west.example:1/a"]).await;
        let report = client.report();
        check_unharmed(&report);
        // A symlink of the cluster is enough; there is none of its instances.
        let missing = BTreeSet::from([NEVER.to_owned(), "/d2/uris/$greeterMaster".to_owned()]);
        assert_eq!(report.not_found, missing);
        let directory = client.directory().await.unwrap();
        assert!(
            directory.clusters.contains("$greeterMaster"),
            "{directory:?}"
        );
    }
    observer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_symlinks_to_one_cluster_are_served_as_they_are_and_an_operator_is_told() {
    let log = mk_log(1);
    define_cluster(&log, "$a", "/d2/clusters/east");
    define_cluster(&log, "$b", "/d2/clusters/west");
    let observer = start_at(&log, None).await;
    let metric = "observer_shared_symlinks";
    assert_eq!(common::metric(&observer, metric).await, 0.0);
    // As somebody writes it who does not use `waypost apply`.
    define_cluster(&log, "$b", "/d2/clusters/east");
    eventually("the alert", || async {
        (common::metric(&observer, metric).await == 2.0).then_some(())
    })
    .await;
    let status: Status = common::get_json(&observer, &path::status()).await;
    let shared = SharedSymlinks {
        cluster: "east".to_owned(),
        symlinks: vec!["$a".to_owned(), "$b".to_owned()],
    };
    assert_eq!(status.shared_symlinks, [shared]);
    let mut client = Delta::open(&observer).await.unwrap();
    let names = ["/d2/clusters/$a", "/d2/clusters/$b"];
    client.subscribe(ResourceType::D2Node, &names).await;
    let response = client.next().await;
    for resource in response.resources {
        let node = indis::Node::decode(&*resource.resource.unwrap().value).unwrap();
        assert_eq!(&node.data[..], b"/d2/clusters/east", "{}", resource.name);
    }
    define_cluster(&log, "$b", "/d2/clusters/west");
    eventually("all is well again", || async {
        (common::metric(&observer, metric).await == 0.0).then_some(())
    })
    .await;
    observer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_away_learns_what_left_and_keeps_what_stayed() {
    for (name, mode) in Mode::ALL {
        let log = mk_log(1);
        define_cluster(&log, "gone", r#"{"clusterName":"gone"}"#);
        let _stays = announce(&log, 1, "greeter", "http://h1:1").await;
        let mut leaves = announce(&log, 2, "greeter", "http://h2:1").await;
        let mut returns = announce(&log, 3, "greeter", "http://h3:1").await;
        let mut last = announce(&log, 4, "emptied", "http://h4:1").await;
        let observer = start_at(&log, None).await;
        let client = start_client(&observer, mode).await;
        client.instances("greeter").await.unwrap();
        client.instances("emptied").await.unwrap();
        assert!(client.uri("greeter", "http://h2:1").await.is_ok());
        let directory = client.directory().await.unwrap();
        assert!(directory.clusters.contains("gone"), "{directory:?}");
        assert_eq!(client.find_hosts("greeter").unwrap().len(), 3);

        let address = observer.grpc_address();
        observer.shutdown().await;
        leaves.withdraw().await;
        last.withdraw().await;
        returns.withdraw().await;
        returns.change(|_| {}).await;
        let gone = ClusterName::parse("gone").unwrap();
        write(&log, &DefinitionKey::Cluster(gone), None);
        let observer = start_at(&log, Some(address)).await;

        let report = until_back(&client).await;
        until_hosts(&client, "greeter", &["http://h1:1", "http://h3:1"]).await;
        until_hosts(&client, "emptied", &[]).await;
        let uri = client.uri("greeter", "http://h2:1").await;
        assert!(matches!(uri, Err(D2Error::Nothing(_))), "{name}: {uri:?}");
        eventually("the directory follows", || async {
            let directory = client.directory().await.unwrap();
            (!directory.clusters.contains("gone")).then_some(())
        })
        .await;
        check_unharmed(&report);
        observer.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_versions_told_nothing_comes_again_but_what_changed() {
    let log = mk_log(1);
    define_service(&log, "greeterReads", "greeter");
    announce(&log, 1, "greeter", "http://h1:1").await;
    let mut changes = announce(&log, 2, "greeter", "http://h2:1").await;
    let (_, mode) = Mode::ALL[2];
    let mut observer = start_at(&log, None).await;
    let address = observer.grpc_address();
    let client = start_client(&observer, mode).await;
    client.resolve("d2://greeterReads/").await.unwrap();
    client.uri("greeter", "http://h1:1").await.unwrap();
    until_hosts(&client, "greeter", &["http://h1:1", "http://h2:1"]).await;
    client.directory().await.unwrap();
    for (round, changed) in [(1, 0), (2, 1)] {
        observer.shutdown().await;
        if changed > 0 {
            changes.change(|a| a.origin = Timestamp(START.0 + 1)).await;
        }
        observer = start_at(&log, Some(address)).await;
        let report = eventually("it is back", || async {
            let report = client.report();
            let is_back = report.streams_answered == round + 1 && report.is_connected;
            // The cluster that never exists is answered in any case.
            let answered = report.removals_of_stream > 0;
            let whole = report.resources_of_stream >= changed;
            (is_back && answered && whole).then_some(report)
        })
        .await;
        assert_eq!(report.resources_of_stream, changed, "{report:?}");
        assert_eq!(client.find_hosts("greeter").unwrap().len(), 2);
        check_unharmed(&report);
    }
    observer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_the_same_under_the_same_keys_in_the_map_and_in_the_glob() {
    const CLUSTER: &str = "A.b_c-ü";
    let uris = [
        "https://h-1.example.net:8443/alpha",
        "http://h_2.example.net:80/~bob/a*b",
        "http://[2001:DB8::5]:8080/x",
        "https://h.example.net:1/a/../b;v=2,@$",
        "http://H.Example:1/a%2Fb",
    ];
    let log = mk_log(1);
    for (id, uri) in (1..).zip(uris) {
        announce(&log, id, CLUSTER, uri).await;
    }
    let observer = start_at(&log, None).await;
    let mut seen = Vec::new();
    for (name, mode) in Mode::ALL {
        let client = start_client(&observer, mode).await;
        client.instances(CLUSTER).await.unwrap();
        until_hosts(&client, CLUSTER, &uris).await;
        let instances = client.instances(CLUSTER).await.unwrap();
        for (key, instance) in &instances {
            assert_eq!(*key, instance.uri, "{name}");
            let single = client.uri(CLUSTER, key).await.unwrap();
            assert_eq!(single, *instance, "{name}");
        }
        check_unharmed(&client.report());
        seen.push(instances);
    }
    assert!(seen.iter().all(|instances| *instances == seen[0]));
    observer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_said_at_once_and_comes_when_it_is_there() {
    let log = mk_log(1);
    let observer = start_at(&log, None).await;
    for (id, (name, mode)) in (1..).zip(Mode::ALL) {
        let client = start_client(&observer, mode).await;
        let cluster = format!("later{id}");
        let url = format!("d2://{cluster}/x");
        let called = client.resolve(&url).await;
        assert!(
            matches!(called, Err(D2Error::Nothing(_))),
            "{name}: {called:?}"
        );
        let single = client.uri(&cluster, "http://h:1").await;
        assert!(
            matches!(single, Err(D2Error::Nothing(_))),
            "{name}: {single:?}"
        );
        announce(&log, id, &cluster, "http://h:1").await;
        eventually("it comes", || async { client.resolve(&url).await.ok() }).await;
        eventually("the single one comes too", || async {
            client.uri(&cluster, "http://h:1").await.ok()
        })
        .await;
        check_unharmed(&client.report());
    }
    observer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callees_that_nobody_defined_are_left_unanswered_so_that_the_client_takes_its_own_list() {
    let log = mk_log(1);
    announce(&log, 1, "greeter", "http://h:1").await;
    define_callees(&log, "other", Some(&["greeter"]));
    let observer = start_at(&log, None).await;
    let client = start_client(&observer, Mode::Map).await;
    let callees = client.callees("app:i001:service").await;
    assert!(matches!(callees, Err(D2Error::NoAnswer(_))), "{callees:?}");
    // The other types go on, and the list comes once there is one.
    client.resolve("d2://greeter/").await.unwrap();
    define_callees(&log, "app", Some(&["b", "a"]));
    until_callees(&client, "app:i001:service", &["b", "a"]).await;
    check_unharmed(&client.report());
    observer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_of_an_application_is_told_whom_it_calls_and_of_changes() {
    let log = mk_log(1);
    define_callees(&log, "app", Some(&["reads", "writes"]));
    define_callees(&log, "idle", Some(&[]));
    let observer = start_at(&log, None).await;
    let client = start_client(&observer, Mode::Map).await;
    let names = ["app:i001:service", "app:i002:job", "app"];
    for name in names {
        assert_eq!(client.callees(name).await.unwrap(), ["reads", "writes"]);
    }
    // Calling nobody is an answer.
    assert!(client.callees("idle:i001:x").await.unwrap().is_empty());
    define_callees(&log, "app", Some(&["writes"]));
    for name in names {
        until_callees(&client, name, &["writes"]).await;
    }
    define_callees(&log, "app", None);
    for name in names {
        until_callees(&client, name, &[]).await;
    }
    check_unharmed(&client.report());
    observer.shutdown().await;
}
