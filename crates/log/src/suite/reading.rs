//! Cases about reading.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use waypost_core::partition::PartitionId;
use waypost_core::port::ReadEvent;
use waypost_core::record::{Offset, Topic};

use super::appending::{append, mk_record, values};
use super::{Follower, Harness};

/// `Partitions` first; of each partition its bounds before its records; its end exactly there.
pub async fn a_reader_hears_partitions_then_bounds_then_records_then_the_end(
    harness: &dyn Harness,
) {
    let subject = harness.create(3).await;
    let log = subject.log();
    for n in 0..50 {
        append(&*log, mk_record(&format!("key-{n}"), "v")).await;
    }
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    assert_eq!(follower.next().await, ReadEvent::Partitions(3));
    let mut end_by_partition = BTreeMap::new();
    let mut next_by_partition = BTreeMap::new();
    let mut caught_up = BTreeSet::new();
    while caught_up.len() < 3 {
        match follower.next().await {
            ReadEvent::Bounds {
                partition,
                start,
                end,
            } => {
                assert!(start <= end);
                end_by_partition.insert(partition, end);
                next_by_partition.entry(partition).or_insert(start);
            }
            ReadEvent::Records(records) => {
                for record in records {
                    let expected = next_by_partition.get_mut(&record.partition);
                    let expected = expected.expect("bounds come before records");
                    assert_eq!(record.offset, *expected, "nothing was compacted yet");
                    *expected = record.offset.next();
                }
            }
            ReadEvent::CaughtUp {
                partition,
                position,
            } => {
                assert_eq!(Some(&position), end_by_partition.get(&partition));
                assert_eq!(Some(&position), next_by_partition.get(&partition));
                caught_up.insert(partition);
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// A partition without records has an end too.
pub async fn an_empty_partition_is_caught_up_at_once(harness: &dyn Harness) {
    let subject = harness.create(2).await;
    let log = subject.log();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let (records, positions) = follower.until_caught_up(2).await;
    assert_eq!(records, []);
    assert_eq!(positions.get(&PartitionId(1)), Some(&Offset(0)));
}

/// At the position given, and at the beginning where none is.
pub async fn a_reader_starts_where_it_is_told(harness: &dyn Harness) {
    let subject = harness.create(2).await;
    let log = subject.log();
    let mut second_of_zero = Offset(0);
    for n in 0..10 {
        let mut record = mk_record("k", &n.to_string());
        record.partition = Some(PartitionId(n % 2));
        let appended = append(&*log, record).await;
        if n == 2 {
            second_of_zero = appended.offset;
        }
    }
    let from = [(PartitionId(0), second_of_zero)];
    let mut follower = Follower::open_from(&*log, Topic::Announcements, &from).await;
    let records = follower.records(9).await;
    let of_partition = |id| {
        let of_id = records
            .iter()
            .filter(move |r| r.partition == PartitionId(id));
        values(&of_id.cloned().collect::<Vec<_>>())
    };
    assert_eq!(of_partition(0), ["2", "4", "6", "8"]);
    assert_eq!(of_partition(1), ["1", "3", "5", "7", "9"]);
}

/// Readers that open before, between and after the appends agree in every record.
pub async fn every_reader_sees_the_same(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let mut before = Follower::open(&*log, Topic::Announcements).await;
    for n in 0..20 {
        append(&*log, mk_record(&format!("key-{}", n % 3), &n.to_string())).await;
    }
    let mut between = Follower::open(&*log, Topic::Announcements).await;
    for n in 20..40 {
        append(&*log, mk_record(&format!("key-{}", n % 3), &n.to_string())).await;
    }
    let mut after = Follower::open(&*log, Topic::Announcements).await;
    let read = before.records(40).await;
    assert_eq!(between.records(40).await, read);
    assert_eq!(after.records(40).await, read);
}

/// A reader at the end hears of what comes, then of the new end.
pub async fn a_waiting_reader_is_woken_by_an_append(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    follower.until_caught_up(1).await;
    let waiting = tokio::spawn(async move {
        let records = follower.records(1).await;
        let (more, positions) = follower.until_caught_up(1).await;
        assert_eq!(more, []);
        (records, positions)
    });
    tokio::task::yield_now().await;
    let appended = append(&*log, mk_record("k", "v")).await;
    let (records, positions) = waiting.await.expect("the reader goes on");
    assert_eq!(values(&records), ["v"]);
    let end = appended.offset.next();
    assert_eq!(positions.get(&appended.partition), Some(&end));
}

/// Every few seconds, and then with the end of that moment.
pub async fn bounds_are_reported_again(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    follower.until_caught_up(1).await;
    let appended = append(&*log, mk_record("k", "v")).await;
    subject.advance(Duration::from_secs(5));
    loop {
        if let ReadEvent::Bounds { end, .. } = follower.next().await
            && end == appended.offset.next()
        {
            break;
        }
    }
}

/// The reader says so and stays; the other partitions are read on.
pub async fn a_position_above_the_end_is_out_of_range(harness: &dyn Harness) {
    let subject = harness.create(2).await;
    let log = subject.log();
    let mut record = mk_record("k", "v");
    record.partition = Some(PartitionId(1));
    append(&*log, record).await;
    let far = (PartitionId(0), Offset(1_000));
    let mut follower = Follower::open_from(&*log, Topic::Announcements, &[far]).await;
    let mut told = false;
    let mut read = 0;
    while !told || read == 0 {
        match follower.next().await {
            ReadEvent::OutOfRange {
                partition,
                position,
            } => {
                assert_eq!((partition, position), far);
                told = true;
            }
            ReadEvent::Records(records) => {
                assert!(records.iter().all(|r| r.partition == PartitionId(1)));
                read += records.len();
            }
            ReadEvent::CaughtUp { partition, .. } => assert_eq!(partition, PartitionId(1)),
            _ => {}
        }
    }
}

/// `next` is cancel-safe: given up every millisecond while records arrive, it skips none.
pub async fn dropping_next_loses_nothing(harness: &dyn Harness) {
    const COUNT: usize = 300;
    let subject = harness.create(1).await;
    let log = subject.log();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let reading = tokio::spawn(async move {
        let mut read = Vec::new();
        while read.len() < COUNT {
            if let Some(ReadEvent::Records(records)) = follower.next_impatiently().await {
                let of_ours = records.iter().filter(|r| r.key.as_deref() == Some(b"k"));
                read.extend(of_ours.cloned());
            }
        }
        read
    });
    let mut written = Vec::new();
    for n in 0..COUNT {
        append(&*log, mk_record("k", &n.to_string())).await;
        written.push(n.to_string());
    }
    let read = tokio::time::timeout(super::DEADLINE, reading).await;
    let read = read
        .expect("within the deadline")
        .expect("the reader goes on");
    assert_eq!(values(&read), written);
}

/// A record that stands there, and offsets that hold none.
pub async fn one_record_is_read_again(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    let first = append(&*log, mk_record("k", "1")).await;
    let second = append(&*log, mk_record("k", "2")).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let read = follower.records(2).await;
    for (appended, record) in [first, second].iter().zip(read) {
        let again = log.read_at(Topic::Announcements, appended.partition, appended.offset);
        assert_eq!(again.await, Ok(Some(record)));
    }
    for nothing in [second.offset.next(), Offset(1_000_000)] {
        let again = log.read_at(Topic::Announcements, second.partition, nothing);
        assert_eq!(again.await, Ok(None), "at {nothing}");
    }
}

/// The three topics are separate logs.
pub async fn topics_do_not_mix(harness: &dyn Harness) {
    let subject = harness.create(1).await;
    let log = subject.log();
    for topic in Topic::ALL {
        let mut record = mk_record("k", topic.suffix());
        record.topic = topic;
        append(&*log, record).await;
    }
    for topic in Topic::ALL {
        let partitions = log.partition_count(topic).await.expect("the topic exists");
        let mut follower = Follower::open(&*log, topic).await;
        let (records, _) = follower.until_caught_up(partitions).await;
        assert_eq!(values(&records), [topic.suffix()]);
    }
}
