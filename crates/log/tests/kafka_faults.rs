//! The Kafka log while its broker is killed, suspended, or given another topic. Each test has a
//! broker of its own.
#![expect(
    clippy::unwrap_used,
    reason = "tests; helpers beside them are not recognised as such"
)]

#[path = "kafka/support.rs"]
#[expect(dead_code, reason = "shared with the other Kafka tests")]
mod support;

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use tokio::time::{Instant, timeout};
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog as _, LogError, ReadEvent};
use waypost_core::record::{Delivery, Offset, Record, Topic};
use waypost_log::kafka::KafkaLog;
use waypost_log::kafka::topics::{self, TopicsSpec};
use waypost_log::suite::Follower;
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::wait::eventually;

use support::{DEADLINE, fresh_log, fresh_settings, mk_record, read_until};

/// Reads until `is_it`, and gives the records read on the way.
async fn read_past(
    follower: &mut Follower,
    what: &str,
    mut is_it: impl FnMut(&ReadEvent) -> bool,
) -> (ReadEvent, Vec<Record>) {
    let mut records = Vec::new();
    let event = read_until(follower, what, |event| {
        if is_it(&event) {
            return Some(event);
        }
        if let ReadEvent::Records(batch) = event {
            records.extend(batch);
        }
        None
    });
    (event.await, records)
}

async fn until_unavailable(follower: &mut Follower, log: &KafkaLog) {
    let unavailable = |event: &ReadEvent| matches!(event, ReadEvent::Unavailable(_));
    let (event, records) = read_past(follower, "unavailable", unavailable).await;
    assert_eq!(records, []);
    let ReadEvent::Unavailable(why) = event else {
        unreachable!()
    };
    assert!(why.contains(log.settings().brokers()), "{why}");
}

async fn until_available(follower: &mut Follower) {
    let (_, records) = read_past(follower, "available", |event| {
        *event == ReadEvent::Available
    })
    .await;
    assert_eq!(records, []);
    let bounds = |event: &ReadEvent| matches!(event, ReadEvent::Bounds { .. });
    read_past(follower, "bounds", bounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_and_a_writer_survive_the_broker_being_killed_and_started_again() {
    let mut broker = KafkaBroker::start().await.unwrap();
    let log = fresh_log(&broker, 2).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let mut acknowledged = Vec::new();
    for n in 0..20 {
        acknowledged.push(
            log.append(mk_record(&format!("key-{n}"), "v"))
                .await
                .unwrap(),
        );
    }
    let mut read = follower.records(20).await;

    broker.kill().unwrap();
    until_unavailable(&mut follower, &log).await;
    // A change is tried for a time-to-live at most, a second heartbeat of a key not at all.
    let mut beat = mk_record("key-0", "v");
    beat.delivery = Delivery::Heartbeat;
    let waiting = tokio::spawn({
        let (log, beat) = (Arc::clone(&log), beat.clone());
        async move { log.append(beat).await }
    });
    let second = eventually("a second heartbeat is refused", DEADLINE, || async {
        match timeout(Duration::from_millis(500), log.append(beat.clone())).await {
            Ok(Err(LogError::Unavailable(why))) => Ok(why),
            other => anyhow::bail!("{other:?}"),
        }
    });
    let why = second.await.unwrap();
    assert!(why.contains("heartbeat before this one"), "{why}");
    let first = waiting.await.unwrap();
    assert!(matches!(first, Err(LogError::Unavailable(_))), "{first:?}");

    broker.restart().await.unwrap();
    until_available(&mut follower).await;
    let written = || async { Ok(log.append(mk_record("after", "v")).await?) };
    acknowledged.push(
        eventually("an append works again", DEADLINE, written)
            .await
            .unwrap(),
    );
    // Nothing twice, nothing left out: the heartbeat was never acknowledged and may be there.
    let is_after = |record: &Record| record.key.as_deref() == Some(b"after");
    while !read.iter().any(is_after) {
        if let ReadEvent::Records(batch) = follower.next().await {
            read.extend(batch);
        }
    }
    let mut places: Vec<_> = read.iter().map(|r| (r.partition, r.offset)).collect();
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count, "delivered twice");
    for appended in acknowledged {
        assert!(
            places.contains(&(appended.partition, appended.offset)),
            "{appended:?} is lost"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_opened_while_kafka_is_away_works_once_it_is_there() {
    let mut broker = KafkaBroker::start().await.unwrap();
    let settings = fresh_log(&broker, 1).await.settings().clone();
    broker.stop().await.unwrap();

    let log = KafkaLog::open(settings).unwrap();
    let refused = log.append(mk_record("k", "v")).await;
    assert!(
        matches!(refused, Err(LogError::Unavailable(_))),
        "{refused:?}"
    );
    let mut follower = Follower::open(&log, Topic::Announcements).await;
    until_unavailable(&mut follower, &log).await;
    broker.restart().await.unwrap();
    let available = |event: &ReadEvent| *event == ReadEvent::Available;
    read_past(&mut follower, "available", available).await;
    assert_eq!(follower.next().await, ReadEvent::Partitions(1));
    let written = || async { Ok(log.append(mk_record("k", "v")).await?) };
    eventually("an append works", DEADLINE, written)
        .await
        .unwrap();
    assert_eq!(follower.records(1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_broker_is_noticed_although_its_connections_stay_open() {
    let broker = KafkaBroker::start().await.unwrap();
    let log = fresh_log(&broker, 1).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    follower.until_caught_up(1).await;
    let mut tick = mk_record("tick", "v");
    tick.partition = Some(PartitionId(0));
    tick.delivery = Delivery::Tick;
    log.append(tick.clone()).await.unwrap();
    follower.records(1).await;

    broker.pause().unwrap();
    let started = Instant::now();
    let given_up = log.append(tick).await;
    assert!(
        matches!(given_up, Err(LogError::Unavailable(_))),
        "{given_up:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "a tick is tried for 2 s"
    );
    until_unavailable(&mut follower, &log).await;
    broker.resume().unwrap();
    read_past(&mut follower, "available", |event| {
        *event == ReadEvent::Available
    })
    .await;
    log.append(mk_record("k", "v")).await.unwrap();
    let is_it = |record: &Record| record.key.as_deref() == Some(b"k");
    let has_it = |event: &ReadEvent| matches!(event, ReadEvent::Records(r) if r.iter().any(is_it));
    read_past(&mut follower, "the record", has_it).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_is_out_of_range_for_who_read_further() {
    let broker = KafkaBroker::start().await.unwrap();
    let settings = fresh_settings(&broker);
    let spec = TopicsSpec {
        announcement_partitions: 1,
        ..TopicsSpec::development()
    };
    let before = topics::create(&settings, &spec).await.unwrap();
    let log = KafkaLog::open(settings.clone()).unwrap();
    for n in 0..10 {
        log.append(mk_record(&format!("key-{n}"), "v"))
            .await
            .unwrap();
    }
    let mut follower = Follower::open(&log, Topic::Announcements).await;
    follower.records(10).await;

    let mut config = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> = config
        .set("bootstrap.servers", settings.brokers())
        .create()
        .unwrap();
    let name = settings.topic_name(Topic::Announcements);
    let deleted = admin
        .delete_topics(&[&name], &AdminOptions::new())
        .await
        .unwrap();
    deleted[0].as_ref().unwrap();
    let made = || async { Ok(topics::create(&settings, &spec).await?) };
    let after = eventually("the topic is there again", DEADLINE, made)
        .await
        .unwrap();
    assert_ne!(before[0].identity, after[0].identity);
    assert_eq!(before[1].identity, after[1].identity);

    let out_of_range = |event: &ReadEvent| matches!(event, ReadEvent::OutOfRange { .. });
    let (_, records) = read_past(&mut follower, "out of range", out_of_range).await;
    assert_eq!(
        records,
        [],
        "nothing of another log is read as if it followed"
    );
    let mut follower = Follower::open(&log, Topic::Announcements).await;
    let written = || async { Ok(log.append(mk_record("new", "v")).await?) };
    eventually("an append works", DEADLINE, written)
        .await
        .unwrap();
    assert_eq!(
        follower.records(1).await[0].key.as_deref(),
        Some(&b"new"[..])
    );
}

/// Reading needs no group: librdkafka asks for the coordinator of one, and may be told that it has
/// no right to it. (fede1024/rust-rdkafka#717)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_any_right_to_groups_reads_and_writes() {
    let authorizer = [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("allow.everyone.if.no.acl.found", "true"),
    ];
    let broker = KafkaBroker::start_with(&authorizer).await.unwrap();
    let bootstrap = broker.bootstrap();
    let deny = [
        "--bootstrap-server",
        &bootstrap,
        "--add",
        "--deny-principal",
        "User:*",
        "--operation",
        "All",
        "--group",
        "*",
    ];
    broker
        .tool("org.apache.kafka.tools.AclCommand", &deny)
        .await
        .unwrap();
    let log = fresh_log(&broker, 2).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    follower.until_caught_up(2).await;
    for n in 0..20 {
        log.append(mk_record(&format!("key-{n}"), "v"))
            .await
            .unwrap();
    }
    assert_eq!(follower.records(20).await.len(), 20);
    let first = log
        .read_at(Topic::Announcements, PartitionId(1), Offset(0))
        .await;
    assert!(matches!(first, Ok(Some(_))), "{first:?}");
    // Nothing is said of it either.
    let mut bounds = 0;
    while bounds < 6 {
        match follower.next().await {
            ReadEvent::Unavailable(why) => panic!("{why}"),
            ReadEvent::Bounds { .. } => bounds += 1,
            _ => {}
        }
    }
}
