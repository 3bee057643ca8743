//! An operator's hand through the gateway: what is served, what is written, what is told.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::time::Duration;

use tonic::{Code, Status};
use waypost_admin_api::{Page, UriView};
use waypost_core::config::ReleaseScope;
use waypost_core::{ConfigKey, Topic};
use waypost_fold::ConfigFold;
use waypost_log::MemoryLog;
use waypost_observer::RunningObserver;
use waypost_proto::v1 as pb;
use waypost_proto::v1::restore_request::Action;
use waypost_proto::v1::set_request::Effect;
use waypost_proto::v1::set_response::Outcome;

use common::{Life, gateway, get_json, mk_announcement, mk_log};

fn mk_set(port: u16, effect: Option<Effect>) -> pb::SetRequest {
    pb::SetRequest {
        cluster: "greeter".to_owned(),
        uri: format!("grpc://127.0.0.1:{port}"),
        effect,
        reason: "INC-7: slow disk".to_owned(),
        author: "ann@ops1".to_owned(),
    }
}

async fn uris(observer: &RunningObserver) -> Vec<UriView> {
    let page: Page<UriView> = get_json(observer, "/api/v1/uris/greeter").await;
    page.items
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(common::DEADLINE, waited)
        .await
        .expect("in time");
}

/// What a reader of the config topic makes of it.
fn fold(log: &MemoryLog) -> ConfigFold {
    let mut fold = ConfigFold::new();
    for record in log.records(Topic::Config) {
        fold.apply(&record, &mut Vec::new());
    }
    fold
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_served_above_heartbeats_and_by_an_observer_that_starts_later() {
    let log = mk_log(4);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let life = Life::new(&log, 5, mk_announcement("greeter", 1));
    life.announce().await;
    until(async || uris(&observer).await.len() == 1).await;

    let set = mk_set(1, Some(Effect::Weight(0.25)));
    let response = client.set(set.clone()).await.unwrap().into_inner();
    assert_eq!(
        (response.outcome(), response.announced),
        (Outcome::Set, Some(true))
    );
    let is_quarter = async |observer: &RunningObserver| {
        let uris = uris(observer).await;
        uris.first()
            .is_some_and(|uri| uri.weights == [(0, 0.25)].into())
    };
    until(async || is_quarter(&observer).await).await;
    life.announce().await;
    let again = client.set(set).await.unwrap().into_inner();
    assert_eq!(again.outcome(), Outcome::Unchanged);
    let late = common::start(&log).await;
    assert!(is_quarter(&late).await && is_quarter(&observer).await);

    let clear = mk_set(1, Some(Effect::Clear(true)));
    let response = client.set(clear.clone()).await.unwrap().into_inner();
    assert_eq!(response.outcome(), Outcome::Cleared);
    until(async || uris(&late).await[0].weights == [(0, 1.0)].into()).await;
    let response = client.set(clear).await.unwrap().into_inner();
    assert_eq!(response.outcome(), Outcome::Absent);
    let waits = client.set(mk_set(9, Some(Effect::Drain(true)))).await;
    assert_eq!(waits.unwrap().into_inner().announced, Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_instance_is_gone_until_its_announcer_beats_again() {
    let log = mk_log(4);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let life = Life::new(&log, 5, mk_announcement("greeter", 1));
    life.announce().await;
    until(async || uris(&observer).await.len() == 1).await;
    let evict = pb::EvictRequest {
        cluster: "greeter".to_owned(),
        uri: "grpc://127.0.0.1:1".to_owned(),
        reason: "INC-8".to_owned(),
        author: String::new(),
    };
    let response = client.evict(evict).await.unwrap().into_inner();
    assert_eq!(response.announced, Some(true));
    assert!(response.purge.is_some());
    until(async || uris(&observer).await.is_empty()).await;
    let told = fold(&log);
    let eviction = told.evictions().next().unwrap();
    assert_eq!(
        (&*eviction.signed.reason, &*eviction.signed.author),
        ("INC-8", "unknown")
    );
    life.announce().await;
    until(async || uris(&observer).await.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_written_and_says_how_many_were_held() {
    let log = mk_log(4);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let release = pb::ReleaseRequest {
        all: true,
        reason: "the rack is gone".to_owned(),
        ..pb::ReleaseRequest::default()
    };
    let response = client.release(release).await.unwrap().into_inner();
    assert_eq!(response.held, Some(0));
    let key = ConfigKey::Release(ReleaseScope::All);
    assert!(fold(&log).find(&key).is_some());
}

fn refused<T>(result: Result<tonic::Response<T>, Status>) -> Status {
    result.map(|_| ()).unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_statements_are_refused_by_field_and_write_nothing() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let good = || mk_set(1, Some(Effect::Drain(true)));
    type Spoil = fn(&mut pb::SetRequest);
    let cases: [(Spoil, &str); 6] = [
        (|r| r.effect = None, "one of weight, drain and clear"),
        (|r| r.effect = Some(Effect::Weight(f64::NAN)), "weight: "),
        (|r| r.effect = Some(Effect::Drain(false)), "one of weight"),
        (|r| r.reason = "a\nb".to_owned(), "reason: "),
        (|r| r.cluster = "a/b".to_owned(), "cluster name"),
        (|r| r.uri = "nowhere".to_owned(), "bad URI"),
    ];
    for (spoil, expected) in cases {
        let mut request = good();
        spoil(&mut request);
        let status = refused(client.set(request).await);
        assert_eq!(status.code(), Code::InvalidArgument, "{expected}");
        assert!(status.message().starts_with(expected), "{status:?}");
    }
    let both = pb::ReleaseRequest {
        cluster: "c".to_owned(),
        all: true,
        reason: "r".to_owned(),
        ..pb::ReleaseRequest::default()
    };
    let neither = pb::RestoreRequest {
        reason: "r".to_owned(),
        ..pb::RestoreRequest::default()
    };
    assert_eq!(
        refused(client.release(both).await).code(),
        Code::InvalidArgument
    );
    assert_eq!(
        refused(client.restore(neither).await).code(),
        Code::InvalidArgument
    );
    let config = |log: &MemoryLog| fold(log).overrides().count() + fold(log).journal().count();
    assert_eq!(config(&log), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_topic_lost_is_kept_until_it_is_restored_or_forgotten() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let names = ["kept", "given-up"];
    let definitions = names.map(|name| pb::DefinitionInput {
        kind: pb::definition_input::Kind::Cluster.into(),
        name: name.to_owned(),
        properties_json: r#"{"a":1}"#.to_owned(),
        ..pb::DefinitionInput::default()
    });
    let apply = pb::ApplyRequest {
        definitions: definitions.to_vec(),
        author: "ann@ops1".to_owned(),
    };
    client.apply(apply).await.unwrap();
    let mut set = mk_set(1, Some(Effect::Drain(true)));
    set.cluster = "kept".to_owned();
    client.set(set).await.unwrap();
    let is_defined = async |name: &str| {
        let path = format!("/api/v1/clusters/{name}");
        common::get(&observer, &path).await.0 == 200
    };
    until(async || is_defined("kept").await && is_defined("given-up").await).await;

    log.recreate(Topic::Config, 1);
    let mut request = pb::RestoreRequest {
        action: Action::Restore.into(),
        names: vec!["kept".to_owned()],
        reason: "the topic was made anew".to_owned(),
        author: "bob@ops2".to_owned(),
        ..pb::RestoreRequest::default()
    };
    // Before the Observer noticed, nothing is orphaned.
    until(async || client.clone().restore(request.clone()).await.is_ok()).await;
    assert!(is_defined("given-up").await, "served on");
    let told = fold(&log);
    assert_eq!(
        (told.definitions().count(), told.overrides().count()),
        (1, 1)
    );

    request.action = Action::Forget.into();
    request.names = vec!["given-up".to_owned()];
    let forgotten = client.restore(request.clone()).await.unwrap().into_inner();
    let names: Vec<_> = forgotten.records.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["cluster given-up"]);
    until(async || !is_defined("given-up").await).await;
    let is_settled = async || {
        let (_, text) = common::get(&observer, "/ready").await;
        !text.contains("orphaned")
    };
    until(is_settled).await;
    let unknown = refused(client.restore(request).await);
    assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
    let late = common::start(&log).await;
    let path = "/api/v1/clusters/kept";
    assert_eq!(common::get(&late, path).await.0, 200, "as the others");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_while_the_log_is_read_may_be_there_all_the_same() {
    let log = mk_log(1);
    let mut settings = common::mk_settings();
    settings.newborn_grace = Duration::from_secs(3600);
    let observer = common::start_with(&log, settings).await;
    for path in ["/api/v1/clusters/c", "/api/v1/services/c", "/api/v1/uris/c"] {
        let (status, text) = common::get(&observer, path).await;
        assert_eq!(status, 503, "{path}: {text}");
        assert!(text.contains("still reading the log"), "{path}: {text}");
    }
    let loaded = common::start(&log).await;
    assert_eq!(common::get(&loaded, "/api/v1/clusters/c").await.0, 404);
}
