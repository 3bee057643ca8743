//! The gateway writes to the log for others and says what became of it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use bytes::Bytes;
use tonic::Code;
use waypost_admin_api::{Page, ServiceView, UriView};
use waypost_core::{Announcement, Topic};
use waypost_observer::LogWrites;
use waypost_proto::v1::append_progress::Event;
use waypost_proto::v1::append_request::Kind;
use waypost_proto::v1::{
    self as pb, AppendRequest, ApplyRequest, DefinitionInput, DeleteRequest, definition_input,
    definition_result::Outcome,
};

use common::{
    Life, eventually, gateway, get, get_json, metric, mk_announcement, mk_log, mk_settings,
};

fn mk_request(kind: Kind, announcement: &Announcement, id: u64, seq: u64) -> AppendRequest {
    let has_value = matches!(kind, Kind::Announce | Kind::Heartbeat);
    let value = waypost_proto::announcement::encode(announcement);
    AppendRequest {
        kind: kind.into(),
        cluster: announcement.cluster.to_string(),
        uri: announcement.uri.to_string(),
        announcement: if has_value { value } else { Bytes::new() },
        id: Some(id),
        birth_ms: None,
        age_ms: Some(0),
        seq: Some(seq),
        until_served: true,
    }
}

async fn append(
    client: &mut pb::gateway_client::GatewayClient<tonic::transport::Channel>,
    request: AppendRequest,
) -> Vec<Event> {
    let mut stream = client.append(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(progress) = stream.message().await.unwrap() {
        events.push(progress.event.unwrap());
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_hears_when_the_log_has_its_record_and_when_it_is_served() {
    let log = mk_log(4);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let announcement = mk_announcement("greeter", 1);
    let events = append(&mut client, mk_request(Kind::Announce, &announcement, 5, 1)).await;
    let [Event::Appended(appended), Event::Served(_)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(appended.append_time_ms, Some(log.clock_now()));
    // Served means served: no waiting here.
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    let facts = page.items[0].sources[0].log.as_ref().unwrap();
    assert_eq!(facts.offset, appended.offset);
    assert_eq!(facts.life_id.as_deref(), Some("0000000000000005"));

    let events = append(&mut client, mk_request(Kind::Withdraw, &announcement, 5, 2)).await;
    assert!(matches!(&events[1], Event::Served(_)), "{events:?}");
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    assert_eq!(page.items, []);
    let appends = "gateway_requests_total{method=\"append\",result=\"ok\"}";
    assert_eq!(metric(&observer, appends).await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_record_the_rules_refuse_hears_why() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let announcement = mk_announcement("greeter", 1);
    let mut young = mk_request(Kind::Announce, &announcement, 5, 1);
    (young.birth_ms, young.age_ms) = (Some(common::START.0), None);
    append(&mut client, young).await;
    let mut old = mk_request(Kind::Announce, &announcement, 6, 1);
    (old.birth_ms, old.age_ms) = (Some(common::START.0 - 60_000), None);
    let events = append(&mut client, old).await;
    let [Event::Appended(_), Event::Refused(refused)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(refused.reason.contains("older than"), "{refused:?}");
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    assert!(
        page.items[0].refused[0].reason.contains("older than"),
        "{page:?}"
    );
    assert_eq!(
        metric(&observer, "ingest_refused_total{reason=\"older\"}").await,
        1.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_does_not_wait_hears_of_the_log_only_and_bytes_are_passed_on() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let mut request = mk_request(Kind::Announce, &mk_announcement("greeter", 1), 5, 1);
    let mut value = request.announcement.to_vec();
    value.extend_from_slice(&[0xf8, 0x07, 0x2a]); // field 127, varint 42: of a later release
    request.announcement = value.clone().into();
    request.until_served = false;
    let events = append(&mut client, request).await;
    assert!(matches!(&events[..], [Event::Appended(_)]), "{events:?}");
    let records = log.records(Topic::Announcements);
    assert!(
        records
            .iter()
            .any(|r| r.value.as_deref() == Some(&value[..]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_write_nothing() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let mut request = mk_request(Kind::Announce, &mk_announcement("greeter", 1), 5, 1);
    request.announcement = Bytes::from_static(b"\xff\xff");
    let status = client.append(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let bad = ApplyRequest {
        definitions: vec![DefinitionInput {
            kind: definition_input::Kind::Cluster.into(),
            name: "a b".to_owned(),
            ..DefinitionInput::default()
        }],
        ..ApplyRequest::default()
    };
    let status = client.apply(bad).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("name"), "{status:?}");
    let records = log.records(Topic::Announcements);
    let announcements = records.iter().filter(|r| {
        let key = r.key.as_deref().unwrap_or_default();
        key.first() != Some(&0)
    });
    assert_eq!(announcements.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_applied_served_and_deleted() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = gateway(&observer).await;
    let definitions = vec![
        DefinitionInput {
            kind: definition_input::Kind::Cluster.into(),
            name: "profile".to_owned(),
            ..DefinitionInput::default()
        },
        DefinitionInput {
            kind: definition_input::Kind::Service.into(),
            name: "profileReads".to_owned(),
            cluster: "profile".to_owned(),
            path: "/profile".to_owned(),
            properties_json: "{}".to_owned(),
            ..DefinitionInput::default()
        },
    ];
    let request = ApplyRequest {
        definitions,
        author: "ann@ops1".to_owned(),
    };
    let applied = client.apply(request.clone()).await.unwrap().into_inner();
    let outcomes: Vec<_> = applied
        .results
        .iter()
        .map(pb::DefinitionResult::outcome)
        .collect();
    assert_eq!(outcomes, [Outcome::Created, Outcome::Created]);
    let again = client.apply(request).await.unwrap().into_inner();
    assert_eq!(again.results[0].outcome(), Outcome::Unchanged);
    let service: ServiceView = eventually("the service is served", || async {
        let (status, text) = get(&observer, "/api/v1/services/profileReads").await;
        (status == 200).then(|| serde_json::from_str(&text).unwrap())
    })
    .await;
    assert_eq!(
        (service.cluster.as_str(), service.implicit),
        ("profile", false)
    );
    let delete = DeleteRequest {
        kind: definition_input::Kind::Service.into(),
        name: "profileReads".to_owned(),
        author: "ann@ops1".to_owned(),
    };
    let deleted = client.delete(delete).await.unwrap().into_inner();
    assert_eq!(deleted.result.unwrap().outcome(), Outcome::Deleted);
    eventually("the service is gone", || async {
        let (status, _) = get(&observer, "/api/v1/services/profileReads").await;
        (status == 404).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_are_the_senders_mistake() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let mut client = tonic::client::Grpc::new(common::channel(&observer).await);
    client.ready().await.unwrap();
    // Its first field is a text, where Delete's is a number.
    let garbage = pb::EvictRequest {
        cluster: "greeter".to_owned(),
        ..pb::EvictRequest::default()
    };
    let codec = tonic_prost::ProstCodec::<pb::EvictRequest, pb::DeleteResponse>::default();
    let path = "/waypost.v1.Gateway/Delete".parse().unwrap();
    let answer = client
        .unary(tonic::Request::new(garbage), path, codec)
        .await;
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("decode"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_observer_writes_nothing_for_anybody() {
    let log = mk_log(1);
    let mut settings = mk_settings();
    settings.log_writes = LogWrites::ReadOnly;
    let observer = common::start_with(&log, settings).await;
    observer.ready().await;
    let mut client = gateway(&observer).await;
    let request = mk_request(Kind::Announce, &mk_announcement("greeter", 1), 5, 1);
    let status = client.append(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("--read-only"), "{status:?}");
    // The log moves on by somebody else's record, and still nobody ticks.
    Life::new(&log, 1, mk_announcement("greeter", 2))
        .announce()
        .await;
    eventually("the record is served", || async {
        let (status, _) = get(&observer, "/api/v1/clusters/greeter").await;
        (status == 200).then_some(())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(
        log.records(Topic::Announcements).len(),
        2,
        "identity and one record"
    );
}

trait ClockNow {
    fn clock_now(&self) -> i64;
}

impl ClockNow for waypost_log::MemoryLog {
    fn clock_now(&self) -> i64 {
        waypost_log::Clock::now(self.clock()).0
    }
}
