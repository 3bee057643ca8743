//! State is a fold of the log: two Observers on one log serve byte-equal resources.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::time::Duration;

use waypost_admin_api::{BucketDigests, BucketKeys, ConfigDump, Digests, Status, path};
use waypost_core::Health;
use waypost_log::MemoryLog;
use waypost_observer::{LogWrites, RunningObserver};

use common::{DEADLINE, Life, eventually, get_json, mk_announcement, mk_log, mk_settings};

/// A fleet with changes, withdrawals and definitions, written in an order of its own.
async fn write_history(log: &MemoryLog) {
    for round in 0..3_u16 {
        for cluster in ["alpha", "beta", "gamma"] {
            for port in 1..=20 {
                let id = u64::from(port) * 100 + u64::from(cluster.as_bytes()[0]);
                let mut life = Life::new(log, id, mk_announcement(cluster, port));
                life.seq = u64::from(round) + 1;
                life.announcement.weights = [(0, f64::from(round) + 1.0)].into();
                if port % 7 == round {
                    life.announcement.health = Health::Unhealthy;
                }
                life.announce().await;
                if round == 2 && port % 5 == 0 {
                    life.withdraw().await;
                }
            }
        }
    }
}

async fn dump(observer: &RunningObserver) -> ConfigDump {
    get_json(observer, "/config_dump").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_replays_serves_what_one_that_followed_serves() {
    let log = mk_log(8);
    let followed = common::start(&log).await;
    write_history(&log).await;
    let mut settings = mk_settings();
    settings.log_writes = LogWrites::ReadOnly;
    let replayed = common::start_with(&log, settings).await;
    tokio::time::timeout(DEADLINE, replayed.ready())
        .await
        .unwrap();
    let (ours, theirs) = eventually("both have read everything", || async {
        let (ours, theirs) = (dump(&followed).await, dump(&replayed).await);
        let complete = ours.resources.iter().filter(|r| r.type_label == "d2_uri");
        // Of 20 instances of each of 3 clusters 4 left and 3 are unhealthy.
        (complete.count() == 39 && ours.resources.len() == theirs.resources.len())
            .then_some((ours, theirs))
    })
    .await;
    assert_eq!(ours.resources, theirs.resources);
    assert!(
        ours.resources.iter().all(|r| r.version.len() == 16),
        "{ours:?}"
    );
    for label in [
        "cds",
        "eds",
        "lds",
        "rds",
        "d2_node",
        "d2_uri_map",
        "d2_uri",
        "d2_name",
    ] {
        let some = ours.resources.iter().any(|r| r.type_label == label);
        assert!(some, "no {label} in {:?}", ours.resources);
    }
    let digests = |status: &Status| -> Vec<_> {
        let partitions = status.log.topics[0].partitions.iter();
        partitions.map(|p| p.digest.clone()).collect()
    };
    let (a, b): (Status, Status) = (
        get_json(&followed, "/api/v1/status").await,
        get_json(&replayed, "/api/v1/status").await,
    );
    assert_eq!(digests(&a), digests(&b));
    assert_eq!(a.log.identity, b.log.identity);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_read_again_sends_nothing_and_removes_nothing() {
    let log = mk_log(1);
    let observer = common::start(&log).await;
    let life = Life::new(&log, 1, mk_announcement("greeter", 1));
    life.announce().await;
    eventually("it is served", || async {
        (!dump(&observer).await.resources.is_empty()).then_some(())
    })
    .await;
    let before = dump(&observer).await;
    // The log is made anew and empty: nothing that was served may go.
    log.recreate(waypost_core::Topic::Announcements, 1);
    log.write_identity(waypost_core::record::LogIdentity(8));
    eventually("the topic is read again", || async {
        log.clock().advance(Duration::from_millis(10));
        let replays = common::metric(&observer, "ingest_replays_total{topic=\"announcements\"}");
        (replays.await >= 1.0).then_some(())
    })
    .await;
    assert_eq!(dump(&observer).await.resources, before.resources);
    assert!(observer.readiness().is_ready());
    eventually("what is unconfirmed is said", || async {
        let status: Status = get_json(&observer, "/api/v1/status").await;
        let (code, text) = common::get(&observer, "/ready?fresh").await;
        let is_noted = text.contains("notice: unconfirmed: 1 instance(s)");
        let metric = common::metric(&observer, "observer_unconfirmed_instances").await;
        (code == 200 && is_noted && metric >= 1.0 && status.counts.unconfirmed_instances == 1)
            .then_some(())
    })
    .await;
    // A heartbeat finds it as it was, and a change goes through.
    life.announce().await;
    let mut changed = Life::new(&log, 2, mk_announcement("greeter", 2));
    changed.change(|a| a.application = "x".to_owned()).await;
    eventually("the new one is served too", || async {
        let uris = dump(&observer).await.resources;
        (uris.iter().filter(|r| r.type_label == "d2_uri").count() == 2).then_some(())
    })
    .await;
    let status: Status = get_json(&observer, "/api/v1/status").await;
    assert_eq!(status.counts.unconfirmed_instances, 0);
}

/// The newest tick of a partition that both remember, and what each says of it.
fn common_tick(ours: &Digests, theirs: &Digests, partition: usize) -> Option<(i64, [String; 2])> {
    let ticks = |digests: &Digests| digests.partitions[partition].ticks.clone();
    let (ours, theirs) = (ticks(ours), ticks(theirs));
    ours.iter().rev().find_map(|tick| {
        let same = theirs.iter().find(|t| t.offset == tick.offset)?;
        Some((tick.offset, [tick.digest.clone(), same.digest.clone()]))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn observers_that_follow_are_compared_at_a_tick_by_bucket_and_by_key() {
    let log = mk_log(2);
    let first = common::start(&log).await;
    let mut settings = mk_settings();
    settings.log_writes = LogWrites::ReadOnly;
    let second = common::start_with(&log, settings).await;
    write_history(&log).await;
    // Ticks go on, so both soon remember one that comes after all of this.
    let end = Life::new(&log, 1, mk_announcement("last", 1))
        .announce()
        .await;
    let partition = end.partition.0;
    let (offset, digests) = eventually("a tick behind the last record", || async {
        log.clock().advance(Duration::from_millis(100));
        let ours: Digests = get_json(&first, &path::digests()).await;
        let theirs: Digests = get_json(&second, &path::digests()).await;
        assert_eq!(ours.identity, theirs.identity);
        let tick = common_tick(&ours, &theirs, partition as usize)?;
        (tick.0 > end.offset.0 && theirs.loaded).then_some(tick)
    })
    .await;
    assert_eq!(digests[0], digests[1]);

    let buckets: BucketDigests = get_json(&first, &path::bucket_digests(partition, offset)).await;
    let sum = buckets.buckets.iter().fold(0_u64, |sum, bucket| {
        sum.wrapping_add(u64::from_str_radix(bucket, 16).unwrap())
    });
    assert_eq!(format!("{sum:016x}"), digests[0]);
    let mut keys = Vec::new();
    for bucket in 0..waypost_admin_api::DIGEST_BUCKETS {
        let mut after = None;
        loop {
            let asked = path::bucket_keys(partition, bucket, after.as_deref()) + "&limit=1";
            let page: BucketKeys = get_json(&first, &asked).await;
            keys.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    let status: Status = get_json(&first, "/api/v1/status").await;
    let last = keys.iter().find(|key| key.cluster == "last").unwrap();
    assert_eq!((last.offset, last.seq), (end.offset.0, 1));
    // 16 of each of the three clusters of the history, and the last one, over two partitions.
    assert!(keys.len() < status.counts.instances as usize, "{keys:?}");
    assert_eq!(status.counts.instances, 49);

    for (asked, code) in [
        (path::bucket_digests(partition, offset + 1_000_000), 404),
        (path::bucket_digests(99, offset), 404),
        (path::bucket_keys(99, 0, None), 404),
        (path::bucket_keys(partition, 64, None), 400),
        (path::bucket_keys(partition, 0, Some("zz")), 400),
        (format!("{}/0", path::digests()), 400),
    ] {
        let (status, text) = common::get(&first, &asked).await;
        assert_eq!(status, code, "{asked}: {text}");
    }
}
