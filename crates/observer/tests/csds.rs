//! CSDS: what the Observer says of its clients is what they were told and what they said.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use tokio_stream::StreamExt as _;
use waypost_core::ResourceType::{Cluster, ClusterLoadAssignment, D2Uri, Listener};
use waypost_observer::RunningObserver;

use common::xds::{Delta, Sotw, mk_envoy};
use common::{Life, eventually, mk_announcement, mk_log};

type Csds = ClientStatusDiscoveryServiceClient<tonic::transport::Channel>;

async fn csds(observer: &RunningObserver) -> Csds {
    Csds::new(common::channel(observer).await)
}

fn mk_node(id: &str) -> Node {
    Node {
        id: id.to_owned(),
        user_agent_name: "probe".to_owned(),
        ..Node::default()
    }
}

/// Asks about the client of this node id.
fn about(id: &str) -> ClientStatusRequest {
    let node_id = Some(StringMatcher {
        match_pattern: Some(MatchPattern::Exact(id.to_owned())),
        ..StringMatcher::default()
    });
    ClientStatusRequest {
        node_matchers: vec![NodeMatcher {
            node_id,
            node_metadatas: Vec::new(),
        }],
        ..ClientStatusRequest::default()
    }
}

async fn fetch(csds: &mut Csds, id: &str) -> Vec<ClientConfig> {
    let answer = csds.fetch_client_status(about(id)).await.unwrap();
    answer.into_inner().config
}

/// What is said of one resource, `NAME CONFIG CLIENT`, and the rest of it.
fn show(config: &GenericXdsConfig) -> String {
    let (of_config, of_client) = (config.config_status(), config.client_status());
    let name = &config.name;
    format!(
        "{name} {} {}",
        of_config.as_str_name(),
        of_client.as_str_name()
    )
}

/// Waits until the only client of this node id is as expected.
async fn until(csds: &Csds, id: &str, expected: &[&str]) -> ClientConfig {
    let look = || async {
        let configs = fetch(&mut csds.clone(), id).await;
        let [config] = &configs[..] else {
            return None;
        };
        let shown: Vec<_> = config.generic_xds_configs.iter().map(show).collect();
        (shown == expected).then(|| config.clone())
    };
    eventually(&format!("{id} is {expected:?}"), look).await
}

async fn start() -> (waypost_log::MemoryLog, RunningObserver) {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    for (id, name) in [(1, "greeter"), (2, "other")] {
        let life = Life::new(&log, id, mk_announcement(name, 1000));
        life.announce().await;
    }
    let is_served = async || {
        let (status, _) = common::get(&observer, "/api/v1/clusters/other").await;
        (status == 200).then_some(())
    };
    eventually("both are served", is_served).await;
    (log, observer)
}

#[tokio::test(flavor = "multi_thread")]
async fn names_versions_contents_and_verdicts_of_a_delta_stream_are_told() {
    let (_log, observer) = start().await;
    let csds = csds(&observer).await;
    let mut stream = Delta::open_as(&observer, mk_node("one")).await.unwrap();
    stream.subscribe(Cluster, &["greeter", "nowhere"]).await;
    let response = stream.next_unanswered().await;
    let awaited = ["greeter STALE UNKNOWN", "nowhere SYNCED DOES_NOT_EXIST"];
    until(&csds, "one", &awaited).await;

    stream.reject(&response, "greeter: not to my taste").await;
    let rejected = ["greeter ERROR NACKED", "nowhere NOT_SENT DOES_NOT_EXIST"];
    let config = until(&csds, "one", &rejected).await;
    let error = config.generic_xds_configs[0].error_state.clone().unwrap();
    assert_eq!(error.details, "greeter: not to my taste");
    assert_eq!(error.version_info, response.resources[0].version);

    stream.subscribe(Cluster, &["greeter"]).await;
    let response = stream.next().await;
    let synced = ["greeter SYNCED ACKED", "nowhere NOT_SENT DOES_NOT_EXIST"];
    let config = until(&csds, "one", &synced).await;
    let greeter = &config.generic_xds_configs[0];
    assert_eq!(greeter.version_info, response.resources[0].version);
    assert_eq!(greeter.xds_config, response.resources[0].resource);
    assert_eq!(greeter.type_url, Cluster.type_url());
    assert!(greeter.error_state.is_none());
    assert_eq!(config.node.unwrap().user_agent_name, "probe");
    assert!(
        config.client_scope.contains("delta"),
        "{}",
        config.client_scope
    );

    let mut without = about("one");
    without.exclude_resource_contents = true;
    let answer = csds.clone().fetch_client_status(without).await.unwrap();
    let configs = &answer.get_ref().config[0].generic_xds_configs;
    assert!(configs.iter().all(|config| config.xds_config.is_none()));
    assert_eq!(configs[0].version_info, response.resources[0].version);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_the_world_and_collections_are_told_in_the_same_words() {
    let (log, observer) = start().await;
    let csds = csds(&observer).await;
    let mut world = Sotw::open_as(&observer, mk_node("world")).await.unwrap();
    world.subscribe(Cluster, &["greeter", "nowhere"]).await;
    world.next().await;
    let whole = ["greeter SYNCED ACKED", "nowhere SYNCED DOES_NOT_EXIST"];
    until(&csds, "world", &whole).await;
    world
        .subscribe(ClusterLoadAssignment, &["greeter", "nowhere"])
        .await;
    world.next().await;
    let both = [
        &whole[..],
        &["greeter SYNCED ACKED", "nowhere NOT_SENT DOES_NOT_EXIST"],
    ]
    .concat();
    until(&csds, "world", &both).await;

    let envoy = Node {
        id: "proxy".to_owned(),
        ..mk_envoy(&["greeter", "other"], 0)
    };
    let mut proxy = Delta::open_as(&observer, envoy).await.unwrap();
    proxy.subscribe(Cluster, &["*"]).await;
    let response = proxy.next().await;
    let members = ["greeter SYNCED ACKED", "other SYNCED ACKED"];
    let config = until(&csds, "proxy", &members).await;
    for (told, sent) in config.generic_xds_configs.iter().zip(&response.resources) {
        assert_eq!(
            (&told.name, &told.version_info),
            (&sent.name, &sent.version)
        );
    }

    // The collection of a cluster's instances.
    let mut d2 = Delta::open_as(&observer, mk_node("d2")).await.unwrap();
    d2.subscribe(D2Uri, &["xdstp:///indis.D2URI/greeter/*"])
        .await;
    d2.next().await;
    let uri = "xdstp:///indis.D2URI/greeter/grpc%3A%2F%2F127.0.0.1%3A1000";
    let config = until(&csds, "d2", &[&format!("{uri} SYNCED ACKED")]).await;
    let updated = config.generic_xds_configs[0].last_updated.unwrap();
    assert!(updated.seconds > 0, "{updated:?}");
    drop(log);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_would_be_too_large_is_refused_and_one_about_others_is_not() {
    let (_log, observer) = start().await;
    let mut csds = csds(&observer).await;
    let mut small = Delta::open_as(&observer, mk_node("small")).await.unwrap();
    small.subscribe(Cluster, &["greeter"]).await;
    let mut large = Delta::open_as(&observer, mk_node("large")).await.unwrap();
    let names: Vec<String> = (0..=50_000).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    large.subscribe(Cluster, &names).await;
    large.next().await;
    until(&csds, "small", &["greeter STALE UNKNOWN"]).await;
    for request in [about("large"), ClientStatusRequest::default()] {
        let refused = csds.fetch_client_status(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("node_matchers"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_of_a_stream_is_answered_about_those_it_names() {
    let (_log, observer) = start().await;
    let mut csds = csds(&observer).await;
    let mut streams = Vec::new();
    for id in ["one", "two", "two"] {
        let mut stream = Delta::open_as(&observer, mk_node(id)).await.unwrap();
        stream.subscribe(Listener, &["greeter"]).await;
        stream.next().await;
        streams.push(stream);
    }
    until(&csds, "one", &["greeter SYNCED ACKED"]).await;
    let requests = ["one", "two", "three"].map(about);
    let all = ClientStatusRequest::default();
    let requests = tokio_stream::iter(requests.into_iter().chain([all]));
    let answers = csds.stream_client_status(requests).await.unwrap();
    let answers: Vec<_> = answers.into_inner().collect().await;
    let counts: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.unwrap().config.len())
        .collect();
    assert_eq!(counts, [1, 2, 0, 3]);

    let mut bad = about("one");
    bad.node_matchers[0].node_id = None;
    let refused = csds.fetch_client_status(bad).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}
