//! The client against a server that is played by hand: what it asks for, in which order, and what it
//! makes of the answers.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use waypost_proto::indis;
use waypost_xds_client::{Action, LinkId, Policy, Request, Response};

use super::*;

const GLOB: Mode = Mode::Glob(KnownVersions::Omitted);
const GLOB_TOLD: Mode = Mode::Glob(KnownVersions::Told);

struct Client {
    machine: Machine<D2Codec>,
    book: Book,
    view_rx: watch::Receiver<View>,
    link: Option<LinkId>,
    nonces: u32,
}

/// One thing that a response says.
enum Item {
    Is(&'static str, String, Vec<u8>),
    Gone(&'static str, String),
}

fn node(name: &str, data: &str) -> Item {
    let stat = Some(indis::Stat::default());
    let data = data.as_bytes().to_vec().into();
    let message = indis::Node { stat, data };
    Item::Is("Node", name.to_owned(), message.encode_to_vec())
}

fn service(name: &str, cluster: &str) -> Item {
    let document = format!(
        r#"{{"serviceName":"{name}","clusterName":"{cluster}","path":"","loadBalancerStrategyList":["relative"],"prioritizedSchemes":["http"]}}"#
    );
    node(&format!("/d2/services/{name}"), &document)
}

fn cluster(name: &str) -> Item {
    let document = format!(r#"{{"clusterName":"{name}"}}"#);
    node(&format!("/d2/clusters/{name}"), &document)
}

fn mk_uri(uri: &str) -> D2uri {
    D2uri {
        uri: uri.to_owned(),
        partition_desc: [(0, 1.0)].into_iter().collect(),
        ..D2uri::default()
    }
}

fn map(cluster: &str, uris: &[&str]) -> Item {
    let uris = uris.iter().map(|uri| ((*uri).to_owned(), mk_uri(uri)));
    let message = D2uriMap {
        uris: uris.collect(),
    };
    Item::Is(
        "D2URIMap",
        format!("/d2/uris/{cluster}"),
        message.encode_to_vec(),
    )
}

fn uri(cluster: &str, uri: &str) -> Item {
    let name = names::instance(cluster, uri);
    Item::Is("D2URI", name, mk_uri(uri).encode_to_vec())
}

fn uri_gone(cluster: &str, uri: &str) -> Item {
    Item::Gone("D2URI", names::instance(cluster, uri))
}

fn gone(message: &'static str, name: &str) -> Item {
    Item::Gone(message, name.to_owned())
}

impl Client {
    fn start(mode: Mode) -> Self {
        let policy = Policy::d2(mode.known_versions());
        let node = Node {
            id: "restli~h~.default~default.svc.cluster.local".to_owned(),
            ..Node::default()
        };
        let (view_tx, view_rx) = watch::channel(View::default());
        let mut client = Self {
            machine: Machine::new(policy, node, D2Codec, 1, 1),
            book: Book::new(mode, view_tx),
            view_rx,
            link: None,
            nonces: 0,
        };
        client.book.start(&mut client.machine);
        client.connect();
        client
    }

    fn connect(&mut self) {
        let Some(Action::Open { link, .. }) = self.machine.poll_action(Duration::ZERO) else {
            panic!("no stream is opened at once");
        };
        self.link = Some(link);
        self.machine.up(link, Duration::ZERO);
        self.handle();
    }

    fn reconnect(&mut self) {
        self.machine
            .ended(self.link.unwrap(), "broken", Duration::ZERO);
        self.connect();
    }

    fn want(&mut self, want: Want) {
        self.book.want(want, &mut self.machine);
    }

    fn handle(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            self.book.handle(event, &mut self.machine);
        }
    }

    /// One response, and what is sent for it.
    fn answer(&mut self, items: impl IntoIterator<Item = Item>) -> Vec<String> {
        self.answer_in(0, items)
    }

    /// One response of several: `more` are still to come.
    fn answer_in(&mut self, more: u32, items: impl IntoIterator<Item = Item>) -> Vec<String> {
        self.nonces += 1;
        let mut response = DeltaDiscoveryResponse {
            nonce: format!("{:016x}{more:08x}", self.nonces),
            ..DeltaDiscoveryResponse::default()
        };
        for item in items {
            let (Item::Is(message, ..) | Item::Gone(message, _)) = &item;
            let type_url = format!("type.googleapis.com/indis.{message}");
            response.type_url.clone_from(&type_url);
            match item {
                Item::Gone(_, name) => response.removed_resources.push(name),
                Item::Is(_, name, value) => response.resources.push(Resource {
                    name,
                    version: self.nonces.to_string(),
                    resource: Some(Any { type_url, value }),
                    ..Resource::default()
                }),
            }
        }
        let response = Response::Delta(response);
        let link = self.link.unwrap();
        self.machine.response(link, response, Duration::ZERO);
        self.handle();
        self.requests()
    }

    /// All requests that wait: message, what is subscribed, versions, `ack` or the error.
    fn requests(&mut self) -> Vec<String> {
        let link = self.link.unwrap();
        let requests = std::iter::from_fn(|| self.machine.poll_request(link, Duration::ZERO));
        let shown = requests.map(|request| {
            let Request::Delta(request) = request else {
                panic!("{request:?}");
            };
            assert!(request.node.is_some(), "the node is in every request");
            assert!(request.resource_names_unsubscribe.is_empty());
            let message = request.type_url.rsplit('.').next().unwrap().to_owned();
            let mut words = vec![message];
            words.extend(request.resource_names_subscribe);
            let versions = request.initial_resource_versions.into_iter();
            let mut versions: Vec<_> = versions.map(|(n, v)| format!("{n}@{v}")).collect();
            versions.sort();
            words.extend(versions);
            match request.error_detail {
                Some(error) => words.push(format!("nack:{}", error.message)),
                None if !request.response_nonce.is_empty() => words.push("ack".to_owned()),
                None => {}
            }
            words.join(" ")
        });
        shown.collect()
    }

    /// The URIs of a cluster's hosts, if anything is known.
    fn hosts(&self, cluster: &str) -> Option<Vec<String>> {
        let view = self.view_rx.borrow();
        let hosts = view.hosts.get(cluster)?.as_ref()?;
        Some(hosts.keys().cloned().collect())
    }

    fn report(&self) -> crate::view::Report {
        self.view_rx.borrow().report.clone()
    }
}

#[test]
fn names_are_asked_for_one_by_one_as_a_call_needs_them_and_every_answer_is_confirmed() {
    let mut client = Client::start(Mode::Map);
    assert_eq!(client.requests(), ["Node /d2/clusters/NonExistentCluster"]);
    client.want(Want::Service("s".to_owned()));
    assert_eq!(client.requests(), ["Node /d2/services/s"]);
    let ack = ["Node ack"];
    assert_eq!(
        client.answer([gone("Node", "/d2/clusters/NonExistentCluster")]),
        ack
    );
    assert_eq!(client.answer([service("s", "c")]), ack);
    client.want(Want::Cluster("c".to_owned()));
    client.want(Want::Hosts("c".to_owned()));
    client.want(Want::Cluster("c".to_owned()));
    let asked = ["Node /d2/clusters/c", "D2URIMap /d2/uris/c"];
    assert_eq!(client.requests(), asked, "once each");
    assert_eq!(client.answer([cluster("c")]), ack);
    assert_eq!(client.answer([map("c", &["http://h:1"])]), ["D2URIMap ack"]);
    assert_eq!(client.hosts("c").unwrap(), ["http://h:1"]);
    let report = client.report();
    assert!(report.awaited.is_empty(), "{report:?}");
    assert_eq!(report.not_found.len(), 1, "{report:?}");
}

#[test]
fn the_removal_of_a_document_or_a_map_clears_nothing_and_an_empty_map_does() {
    let mut client = Client::start(Mode::Map);
    client.want(Want::Service("s".to_owned()));
    client.want(Want::Hosts("c".to_owned()));
    client.answer([service("s", "c")]);
    client.answer([map("c", &["http://h:1"])]);
    client.answer([gone("Node", "/d2/services/s")]);
    client.answer([gone("D2URIMap", "/d2/uris/c")]);
    assert!(client.view_rx.borrow().services["s"].is_some());
    assert_eq!(client.hosts("c").unwrap(), ["http://h:1"]);
    client.answer([map("c", &[])]);
    assert_eq!(client.hosts("c"), Some(Vec::new()));
    // Whoever has nothing learns that there is nothing.
    client.want(Want::Hosts("d".to_owned()));
    client.answer([gone("D2URIMap", "/d2/uris/d")]);
    assert!(client.view_rx.borrow().hosts["d"].is_none());
}

#[test]
fn of_a_glob_hosts_go_one_by_one_and_its_removal_alone_clears_none() {
    let mut client = Client::start(GLOB);
    client.want(Want::Hosts("c".to_owned()));
    let glob = "xdstp:///indis.D2URI/c/*";
    assert_eq!(client.requests()[1], format!("D2URI {glob}"));
    client.answer([uri("c", "http://a:1"), uri("c", "http://b:1")]);
    client.answer([gone("D2URI", glob)]);
    assert_eq!(client.hosts("c").unwrap().len(), 2);
    client.answer([uri_gone("c", "http://a:1")]);
    assert_eq!(client.hosts("c").unwrap(), ["http://b:1"]);
    client.answer([uri_gone("c", "http://b:1"), gone("D2URI", glob)]);
    assert_eq!(client.hosts("c"), Some(Vec::new()));
    client.answer([uri("c", "http://b:1")]);
    assert_eq!(client.hosts("c").unwrap(), ["http://b:1"]);
    // An unknown cluster is one without hosts here.
    client.want(Want::Hosts("d".to_owned()));
    client.answer([gone("D2URI", "xdstp:///indis.D2URI/d/*")]);
    assert_eq!(client.hosts("d"), Some(Vec::new()));
}

#[test]
fn hosts_that_nobody_asked_for_are_refused_and_the_others_are_used() {
    let mut client = Client::start(GLOB);
    client.want(Want::Hosts("c".to_owned()));
    client.requests();
    let sent = client.answer([uri("other", "http://x:1"), uri("c", "http://a:1")]);
    assert!(sent[0].contains("nack:") && sent.len() == 1, "{sent:?}");
    assert_eq!(client.hosts("c").unwrap(), ["http://a:1"]);
    assert_eq!(client.hosts("other"), None);
}

#[test]
fn a_symlink_is_followed_by_its_nodes_and_its_cluster_is_known_under_both_names() {
    let mut client = Client::start(Mode::Map);
    client.requests();
    client.want(Want::Cluster("$cMaster".to_owned()));
    client.want(Want::Hosts("$cMaster".to_owned()));
    let asked = ["Node /d2/clusters/$cMaster", "Node /d2/uris/$cMaster"];
    assert_eq!(client.requests(), asked);
    let sent = client.answer([node("/d2/clusters/$cMaster", "/d2/clusters/c-east")]);
    let followed = [
        "Node ack",
        "Node /d2/clusters/c-east",
        "D2URIMap /d2/uris/c-east",
    ];
    assert_eq!(sent, followed);
    client.answer([gone("Node", "/d2/uris/$cMaster")]);
    client.answer([cluster("c-east")]);
    client.answer([map("c-east", &["http://e:1"])]);
    assert_eq!(client.hosts("$cMaster"), client.hosts("c-east"));
    assert_eq!(client.hosts("$cMaster").unwrap(), ["http://e:1"]);

    // It moves: what was known of the old target stays until the new one comes.
    client.answer([node("/d2/clusters/$cMaster", "/d2/clusters/c-west")]);
    client.answer([map("c-east", &[])]);
    assert_eq!(client.hosts("$cMaster").unwrap(), ["http://e:1"]);
    client.answer([map("c-west", &["http://w:1"])]);
    assert_eq!(client.hosts("$cMaster").unwrap(), ["http://w:1"]);

    // Two symlinks to one cluster: the second is not followed.
    client.want(Want::Cluster("$other".to_owned()));
    client.answer([node("/d2/clusters/$other", "/d2/clusters/c-west")]);
    assert_eq!(client.hosts("$other"), None);
    assert!(client.report().conflicting_symlinks.contains("$other"));
}

#[test]
fn after_a_reconnect_everything_is_asked_for_again_and_with_versions_silence_is_an_answer() {
    for (mode, awaited) in [(GLOB, 3), (GLOB_TOLD, 0)] {
        let mut client = Client::start(mode);
        client.want(Want::Hosts("c".to_owned()));
        let single = names::instance("d", "http://s:1");
        client.want(Want::Uri(single.clone()));
        client.answer([gone("Node", "/d2/clusters/NonExistentCluster")]);
        client.answer([uri("c", "http://a:1"), uri("d", "http://s:1")]);
        assert!(client.report().awaited.is_empty());
        client.reconnect();
        let table = match mode.known_versions() {
            KnownVersions::Omitted => String::new(),
            KnownVersions::Told => {
                let a = names::instance("c", "http://a:1");
                format!(" {a}@2 {single}@2")
            }
        };
        let asked = [
            "Node /d2/clusters/NonExistentCluster".to_owned(),
            format!("D2URI xdstp:///indis.D2URI/c/*{table}"),
            format!("D2URI {single}{table}"),
        ];
        assert_eq!(client.requests(), asked);
        let report = client.report();
        assert_eq!(report.awaited.len(), awaited, "{report:?}");
        assert_eq!(report.resources_of_stream, 0);
        assert_eq!(
            client.hosts("c").unwrap(),
            ["http://a:1"],
            "nothing is lost"
        );
    }
}

#[test]
fn a_single_uri_is_deleted_by_its_removal_and_back_with_its_resource() {
    let mut client = Client::start(Mode::Map);
    let name = names::instance("c", "http://a:1");
    client.want(Want::Uri(name.clone()));
    let is_there = |client: &Client| client.view_rx.borrow().uris[&name].is_some();
    client.answer([uri_gone("c", "http://a:1")]);
    assert!(!is_there(&client));
    for _ in 0..2 {
        client.answer([uri("c", "http://a:1")]);
        assert!(is_there(&client));
        client.answer([uri_gone("c", "http://a:1")]);
        assert!(!is_there(&client));
    }
    assert_eq!(client.hosts("c"), None, "no collection was asked for");
}

#[test]
fn the_directory_is_whole_with_its_last_chunk_and_follows_what_comes_and_goes() {
    let entry = |name: &str| {
        let of = Type::ServiceName(name.to_owned());
        let message = indis::D2ClusterOrServiceName { r#type: Some(of) };
        let path = format!("/d2/services/{name}");
        Item::Is("D2ClusterOrServiceName", path, message.encode_to_vec())
    };
    let mut client = Client::start(Mode::Map);
    client.requests();
    client.want(Want::Directory);
    assert_eq!(client.requests(), ["D2ClusterOrServiceName *"]);
    client.answer_in(1, [entry("a")]);
    assert!(!client.view_rx.borrow().directory.is_complete);
    client.answer_in(0, [entry("b")]);
    assert!(client.view_rx.borrow().directory.is_complete);
    client.answer([gone("D2ClusterOrServiceName", "/d2/services/a")]);
    let directory = client.view_rx.borrow().directory.clone();
    assert_eq!(directory.services.into_iter().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn an_empty_document_is_confirmed_and_of_no_use_and_an_unreadable_one_is_refused() {
    let mut client = Client::start(Mode::Map);
    client.want(Want::Service("s".to_owned()));
    client.requests();
    assert_eq!(client.answer([node("/d2/services/s", "")]), ["Node ack"]);
    assert!(client.view_rx.borrow().services["s"].is_none());
    client.answer([service("s", "c")]);
    let undecodable = Item::Is("Node", "/d2/services/s".to_owned(), vec![0xff]);
    let sent = client.answer([undecodable]);
    assert!(sent[0].contains("nack:"), "{sent:?}");
    assert_eq!(
        client.answer([node("/d2/services/s", "no JSON")]),
        ["Node ack"]
    );
    assert!(
        client.view_rx.borrow().services["s"].is_some(),
        "the good one stays"
    );
    assert!(client.report().invalid.contains("/d2/services/s"));
}

#[test]
fn callees_that_are_removed_are_none() {
    let mut client = Client::start(Mode::Map);
    client.requests();
    client.want(Want::Callees("app:i1:s".to_owned()));
    assert_eq!(client.requests(), ["D2CalleeServices app:i1:s"]);
    client.answer([gone("D2CalleeServices", "app:i1:s")]);
    let view = client.view_rx.borrow();
    assert_eq!(view.callees["app:i1:s"].as_deref(), Some(&Vec::new()));
}
