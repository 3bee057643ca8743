//! Cases about appending.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waypost_core::config::Replaces;
use waypost_core::limits::ANNOUNCEMENT_BYTES_MAX;
use waypost_core::partition::{PartitionId, partition_for_key};
use waypost_core::port::{AnnouncementLog, LogError};
use waypost_core::record::{
    Appended, Delivery, Evidence, Headers, KeeperId, LifeId, LogIdentity, NewRecord, Offset,
    Record, RecordKind, TICK_KEY, TickRef, Topic,
};
use waypost_core::time::{LogTime, Timestamp};

use super::{CompareAndSet, Follower, Harness};

pub(super) fn mk_record(key: &str, value: &str) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: Headers::default(),
        delivery: Delivery::Change,
    }
}

pub(super) async fn append(log: &dyn AnnouncementLog, record: NewRecord) -> Appended {
    log.append(record).await.expect("the log takes the record")
}

pub(super) fn values(records: &[Record]) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    records
        .iter()
        .filter_map(|r| r.value.as_ref())
        .map(text)
        .collect()
}

/// Records of one key come back in the order in which their caller appended them.
pub async fn records_of_one_key_keep_their_order(harness: &dyn Harness) {
    let subject = harness.create(3).await;
    let log = subject.log();
    let written: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for value in &written {
        append(&*log, mk_record("one", value)).await;
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    assert_eq!(values(&follower.records(100).await), written);
}

/// Without an explicit partition the key decides, as Kafka's Java client does.
pub async fn the_key_decides_the_partition_by_murmur2(harness: &dyn Harness) {
    let subject = harness.create(4).await;
    let log = subject.log();
    assert_eq!(log.partition_count(Topic::Announcements).await, Ok(4));
    for n in 0..40 {
        let key = format!("greeter\0grpc://10.0.0.{n}:1");
        let appended = append(&*log, mk_record(&key, "v")).await;
        assert_eq!(appended.partition, partition_for_key(key.as_bytes(), 4));
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    for record in follower.records(40).await {
        let key = record.key.expect("has a key");
        assert_eq!(record.partition, partition_for_key(&key, 4));
    }
}

/// A tick goes to the partition that it names.
pub async fn an_explicit_partition_stands_above_the_key(harness: &dyn Harness) {
    let subject = harness.create(3).await;
    let log = subject.log();
    let named = [2, 0, 1, 2].map(PartitionId);
    for partition in named {
        let mut tick = mk_record("", "");
        tick.key = Bytes::from_static(TICK_KEY);
        tick.value = None;
        tick.headers.kind = RecordKind::Tick;
        tick.partition = Some(partition);
        tick.delivery = Delivery::Tick;
        assert_eq!(append(&*log, tick).await.partition, partition);
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let mut read: Vec<_> = follower
        .records(4)
        .await
        .iter()
        .map(|r| r.partition)
        .collect();
    read.sort();
    assert_eq!(read, [0, 1, 2, 2].map(PartitionId));
}

/// Every header, and none.
pub async fn headers_come_back_as_they_were_written(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let full = Headers {
        kind: RecordKind::Expire,
        id: Some(LifeId(7)),
        birth: Some(Timestamp(1_700_000_000_000)),
        age_ms: Some(12),
        seq: Some(3),
        evidence: Some(Evidence::At(Offset(9))),
        log: Some(LogIdentity(u64::MAX)),
        follows: Some(LogIdentity(1)),
        prev: Some(TickRef {
            offset: Offset(4),
            append_time: Timestamp(5),
        }),
        time: Some(LogTime(6)),
        keeper: Some(KeeperId(8)),
        replaces: Some(Replaces::Nothing),
    };
    for headers in [full, Headers::default()] {
        let mut record = mk_record("k", "v");
        record.headers = headers;
        append(&*log, record).await;
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let read: Vec<_> = follower
        .records(2)
        .await
        .into_iter()
        .map(|r| r.headers)
        .collect();
    assert_eq!(read, [Ok(full), Ok(Headers::default())]);
}

/// A tombstone is not an empty value.
pub async fn null_and_empty_values_come_back_as_they_were_written(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let written = [None, Some(Bytes::new()), Some(Bytes::from_static(b"v"))];
    for value in &written {
        let mut record = mk_record("k", "");
        record.value.clone_from(value);
        append(&*log, record).await;
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let read: Vec<_> = follower
        .records(3)
        .await
        .into_iter()
        .map(|r| r.value)
        .collect();
    assert_eq!(read, written);
}

/// Each record gets the offset after that of the one before it in its partition.
pub async fn offsets_are_dense_and_increase(harness: &dyn Harness) {
    let subject = harness.create(2).await;
    let log = subject.log();
    let mut offsets_by_partition: BTreeMap<PartitionId, Vec<i64>> = BTreeMap::new();
    for n in 0..40 {
        let appended = append(&*log, mk_record(&format!("key-{n}"), "v")).await;
        let offsets = offsets_by_partition.entry(appended.partition).or_default();
        offsets.push(appended.offset.0);
    }
    for (partition, offsets) in offsets_by_partition {
        let first = offsets[0];
        let count = i64::try_from(offsets.len()).expect("few");
        let dense: Vec<_> = (first..first + count).collect();
        assert_eq!(offsets, dense, "partition {partition}");
    }
}

/// Within a partition time does not go back, and the acknowledgement says what the record says.
pub async fn append_times_never_decrease_and_are_those_acknowledged(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let mut acknowledged = Vec::new();
    for n in 0..20 {
        subject.advance(Duration::from_millis(n % 3));
        acknowledged.push(append(&*log, mk_record("k", &n.to_string())).await);
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let records = follower.records(20).await;
    assert!(records.is_sorted_by_key(|record| record.append_time));
    for (appended, record) in acknowledged.iter().zip(&records) {
        assert_eq!(appended.offset, record.offset);
        let time = appended
            .append_time
            .expect("an acknowledgement carries its time");
        assert_eq!(time, record.append_time);
    }
}

/// Refused by size, with both sizes in the text; the largest announcement allowed is taken.
pub async fn a_record_over_the_limit_is_refused_and_the_rest_flows(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let limit = crate::limits::record_bytes_max(Topic::Announcements);
    let refused = log.append(mk_record("k", &"x".repeat(limit))).await;
    let Err(LogError::Refused(text)) = refused else {
        panic!("{limit} bytes and a key were taken: {refused:?}");
    };
    assert!(text.contains(&limit.to_string()), "no limit in: {text}");
    let largest = "y".repeat(ANNOUNCEMENT_BYTES_MAX);
    append(&*log, mk_record("k", &largest)).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    assert_eq!(values(&follower.records(1).await), [largest]);
}

/// Compacted topics need keys.
pub async fn a_record_without_a_key_is_refused(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let refused = subject.log().append(mk_record("", "v")).await;
    assert!(matches!(refused, Err(LogError::Refused(_))), "{refused:?}");
}

/// A partition number at or above the count.
pub async fn a_partition_that_does_not_exist_is_refused(harness: &dyn Harness) {
    let subject = harness.create(2).await;
    let mut record = mk_record("k", "v");
    record.partition = Some(PartitionId(2));
    let refused = subject.log().append(record).await;
    assert!(matches!(refused, Err(LogError::Refused(_))), "{refused:?}");
}

/// Many tasks append at once: no place is given twice, nothing is lost, each key keeps its order.
pub async fn concurrent_appenders_lose_nothing_and_keep_their_order(harness: &dyn Harness) {
    const TASKS: usize = 16;
    const EACH: usize = 40;
    let subject = harness.create(4).await;
    let log = subject.log();
    let appenders: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(append_many(Arc::clone(&log), format!("task-{task}"), EACH)))
        .collect();
    let mut places = BTreeSet::new();
    for appender in appenders {
        for appended in appender.await.expect("the appender ends") {
            let place = (appended.partition, appended.offset);
            assert!(places.insert(place), "{place:?} was given twice");
        }
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let mut values_by_key: BTreeMap<Bytes, Vec<Record>> = BTreeMap::new();
    for record in follower.records(TASKS * EACH).await {
        assert!(places.contains(&(record.partition, record.offset)));
        let key = record.key.clone().expect("has a key");
        values_by_key.entry(key).or_default().push(record);
    }
    let expected: Vec<String> = (0..EACH).map(|n| n.to_string()).collect();
    assert_eq!(values_by_key.len(), TASKS);
    for records in values_by_key.values() {
        assert_eq!(values(records), expected);
    }
}

async fn append_many(log: Arc<dyn AnnouncementLog>, key: String, count: usize) -> Vec<Appended> {
    let mut appended = Vec::new();
    for n in 0..count {
        appended.push(append(&*log, mk_record(&key, &n.to_string())).await);
    }
    appended
}

/// How a record is delivered changes when it is acknowledged, not where it stands.
pub async fn heartbeats_and_changes_are_seen_in_one_order(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let deliveries = [Delivery::Change, Delivery::Heartbeat, Delivery::Tick];
    let mut written = Vec::new();
    for n in 0..30 {
        let mut record = mk_record("k", &n.to_string());
        record.delivery = deliveries[n % deliveries.len()];
        append(&*log, record).await;
        written.push(n.to_string());
    }
    assert_eq!(values(&follower.records(30).await), written);
}

/// Each step of a definition's life, and each way to be wrong about it.
pub async fn a_compare_and_set_that_names_another_revision_is_a_conflict(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let mk = |value: &str| {
        let mut record = mk_record("service\0greeter", value);
        record.topic = Topic::Config;
        record
    };
    let first = log.append_if(mk("1"), None).await;
    if subject.compare_and_set() == CompareAndSet::Refused {
        assert!(matches!(first, Err(LogError::Refused(_))), "{first:?}");
        return;
    }
    let first = first.expect("the key has no record").offset;
    let conflict = Err(LogError::Conflict(first));
    assert_eq!(log.append_if(mk("2"), None).await, conflict);
    let wrong = Some(first.next());
    assert_eq!(log.append_if(mk("2"), wrong).await, conflict);
    let second = log.append_if(mk("2"), Some(first)).await;
    let second = second.expect("names the last revision").offset;
    let conflict = Err(LogError::Conflict(second));
    assert_eq!(log.append_if(mk("3"), Some(first)).await, conflict);
    let mut deletion = mk("");
    deletion.value = None;
    let deleted = log.append_if(deletion, Some(second)).await;
    deleted.expect("names the last revision");
    let again = log.append_if(mk("4"), None).await;
    again.expect("a deleted key has no record");
    let mut follower = Follower::open(&*log, Topic::Config).await;
    let read = follower.records(4).await;
    assert_eq!(values(&read), ["1", "2", "4"]);
}

/// Whoever comes second is told so.
pub async fn of_two_compare_and_sets_at_once_one_wins(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    if subject.compare_and_set() == CompareAndSet::Refused {
        return;
    }
    let log = subject.log();
    let mk = |value: String| {
        let mut record = mk_record("cluster\0greeter", &value);
        record.topic = Topic::Config;
        record
    };
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (log, record) = (Arc::clone(&log), mk(n.to_string()));
            tokio::spawn(async move { log.append_if(record, None).await })
        })
        .collect();
    let mut winners = Vec::new();
    let mut conflicts = Vec::new();
    for writer in writers {
        match writer.await.expect("the writer ends") {
            Ok(appended) => winners.push(appended.offset),
            Err(LogError::Conflict(offset)) => conflicts.push(offset),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(conflicts, [winners[0]; 7]);
}

/// Changes and what surrounds them are there after a restart, at the same places, and what follows
/// stands above and not before them.
pub async fn everything_acknowledged_survives_a_restart(harness: &dyn Harness) {
    let mut subject = harness.create(2).await;
    let log = subject.log();
    let mut acknowledged = Vec::new();
    for n in 0..60 {
        let mut record = mk_record(&format!("key-{}", n % 7), &n.to_string());
        if n % 3 == 1 {
            record.delivery = Delivery::Heartbeat;
        }
        acknowledged.push((append(&*log, record).await, n.to_string()));
    }
    drop(log);
    subject.restart().await;
    let log = subject.log();
    let after = append(&*log, mk_record("key-0", "after")).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let (records, _) = follower.until_caught_up(2).await;
    let record_by_place: BTreeMap<_, _> = records
        .iter()
        .map(|r| ((r.partition, r.offset), r))
        .collect();
    for (appended, value) in acknowledged {
        let place = (appended.partition, appended.offset);
        let record = record_by_place.get(&place).expect("survived the restart");
        assert_eq!(record.value.as_deref(), Some(value.as_bytes()));
        assert_eq!(Some(record.append_time), appended.append_time);
        if appended.partition == after.partition {
            assert!(appended.offset < after.offset);
            assert!(appended.append_time <= after.append_time);
        }
    }
}
