//! The log in memory: what only it can do.
#![expect(clippy::expect_used, reason = "a test fails by panicking, helpers too")]

use std::time::Duration;

use futures::poll;
use waypost_core::port::{AnnouncementLog, LogError, LogReader, ReadEvent};
use waypost_core::record::{Appended, Delivery, Headers, LogIdentity, NewRecord, Record, Topic};
use waypost_core::{Offset, PartitionId, Timestamp};
use waypost_log::memory::{Acknowledgements, CompactionRules, Pause};
use waypost_log::{ManualClock, MemoryLog};

const TOPIC: Topic = Topic::Announcements;
const ZERO: PartitionId = PartitionId(0);

fn mk_log() -> MemoryLog {
    MemoryLog::new(1, ManualClock::new(Timestamp(1_000_000)))
}

fn mk_record(key: &str, value: Option<&str>) -> NewRecord {
    NewRecord {
        topic: TOPIC,
        partition: None,
        key: key.to_owned().into(),
        value: value.map(|value| value.to_owned().into()),
        headers: Headers::default(),
        delivery: Delivery::Change,
    }
}

async fn append(log: &MemoryLog, key: &str, value: Option<&str>) -> Appended {
    let appended = log.append(mk_record(key, value)).await;
    appended.expect("takes it")
}

fn offsets(records: &[Record]) -> Vec<i64> {
    records.iter().map(|record| record.offset.0).collect()
}

/// Everything that the reader has to say now. A log in memory never says anything later by itself.
async fn events(reader: &mut Box<dyn LogReader>) -> Vec<ReadEvent> {
    let mut events = Vec::new();
    while let std::task::Poll::Ready(event) = poll!(reader.next()) {
        events.push(event.expect("goes on"));
    }
    events
}

async fn open_at(log: &MemoryLog, position: Offset) -> Box<dyn LogReader> {
    let mut reader = log.read(TOPIC, &[(ZERO, position)]).await.expect("opens");
    events(&mut reader).await;
    reader
}

#[tokio::test]
async fn the_events_of_a_reader_are_the_same_every_time() {
    let log = mk_log();
    append(&log, "a", Some("1")).await;
    let mut reader = log.read(TOPIC, &[]).await.expect("opens");
    let expected = [
        ReadEvent::Partitions(1),
        ReadEvent::Bounds {
            partition: ZERO,
            start: Offset(0),
            end: Offset(1),
        },
        ReadEvent::Records(log.records(TOPIC)),
        ReadEvent::CaughtUp {
            partition: ZERO,
            position: Offset(1),
        },
    ];
    assert_eq!(events(&mut reader).await, expected);
    assert_eq!(events(&mut reader).await, []);
}

#[tokio::test]
async fn append_times_are_those_of_the_clock_also_when_it_jumps_back() {
    let log = mk_log();
    for time in [2_000_000, 1_500_000] {
        log.clock().set(Timestamp(time));
        assert_eq!(
            append(&log, "a", None).await.append_time,
            Some(Timestamp(time))
        );
    }
}

#[tokio::test]
async fn a_log_that_refuses_says_why_and_goes_on_when_resumed() {
    let log = mk_log();
    let mut reader = open_at(&log, Offset(0)).await;
    log.pause(Pause::Refuse("no leader".to_owned()));
    let refused = log.append(mk_record("a", None)).await;
    let unavailable = LogError::Unavailable("no leader".to_owned());
    assert_eq!(refused, Err(unavailable.clone()));
    assert_eq!(log.read_at(TOPIC, ZERO, Offset(0)).await, Err(unavailable));
    let told = [ReadEvent::Unavailable("no leader".to_owned())];
    assert_eq!(events(&mut reader).await, told);
    assert_eq!(events(&mut reader).await, []);
    log.resume();
    append(&log, "a", None).await;
    let after = events(&mut reader).await;
    assert_eq!(after[0], ReadEvent::Available);
    assert!(matches!(after[1], ReadEvent::Bounds { .. }), "{after:?}");
    assert!(matches!(after[2], ReadEvent::Records(_)), "{after:?}");
}

#[tokio::test]
async fn a_log_that_hangs_answers_once_resumed() {
    let log = mk_log();
    let mut reader = open_at(&log, Offset(0)).await;
    log.pause(Pause::Hang);
    let mut held = Box::pin(log.append(mk_record("a", None)));
    let mut given_up = Box::pin(log.append(mk_record("b", None)));
    assert!(poll!(&mut held).is_pending());
    assert!(poll!(&mut given_up).is_pending());
    drop(given_up);
    assert_eq!(events(&mut reader).await, []);
    log.resume();
    assert_eq!(held.await.expect("takes it").offset, Offset(0));
    assert_eq!(
        offsets(&log.records(TOPIC)),
        [0],
        "what was given up was not written"
    );
}

#[tokio::test]
async fn appends_alone_can_be_refused() {
    let log = mk_log();
    append(&log, "a", None).await;
    log.pause_appends(Pause::Refuse("too few replicas".to_owned()));
    assert!(log.append(mk_record("a", None)).await.is_err());
    assert!(log.read_at(TOPIC, ZERO, Offset(0)).await.is_ok());
}

#[tokio::test]
async fn a_lost_acknowledgement_leaves_the_record_written() {
    let log = mk_log();
    log.set_acknowledgements(Acknowledgements::Lost);
    let lost = log.append(mk_record("a", None)).await;
    assert!(matches!(lost, Err(LogError::Unavailable(_))), "{lost:?}");
    log.set_acknowledgements(Acknowledgements::Sent);
    append(&log, "a", None).await;
    assert_eq!(offsets(&log.records(TOPIC)), [0, 1]);
}

#[tokio::test]
async fn a_duplicated_append_stands_there_twice_and_the_next_once() {
    let log = mk_log();
    log.duplicate_next(1);
    assert_eq!(append(&log, "a", Some("1")).await.offset, Offset(0));
    assert_eq!(append(&log, "a", Some("2")).await.offset, Offset(2));
    assert_eq!(offsets(&log.records(TOPIC)), [0, 1, 2]);
}

#[tokio::test]
async fn compaction_keeps_what_is_young_and_the_last_of_what_is_not() {
    let log = mk_log();
    let lag = CompactionRules::STANDARD.lag;
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "1")] {
        append(&log, key, Some(value)).await;
    }
    log.clock().advance(lag);
    append(&log, "a", Some("3")).await;
    append(&log, "b", Some("2")).await;
    log.compact(TOPIC, CompactionRules::STANDARD);
    // The young records of a and b make no older one removable.
    assert_eq!(offsets(&log.records(TOPIC)), [1, 2, 3, 4]);
    log.clock().advance(lag);
    log.compact(TOPIC, CompactionRules::STANDARD);
    assert_eq!(offsets(&log.records(TOPIC)), [3, 4]);
    let mut reader = log.read(TOPIC, &[]).await.expect("opens");
    let end = ReadEvent::CaughtUp {
        partition: ZERO,
        position: Offset(5),
    };
    assert_eq!(events(&mut reader).await.last(), Some(&end));
}

#[tokio::test]
async fn a_tombstone_stays_for_its_retention_after_the_cleaner_first_met_it() {
    let log = mk_log();
    let CompactionRules {
        lag,
        delete_retention,
    } = CompactionRules::STANDARD;
    append(&log, "a", Some("1")).await;
    append(&log, "a", None).await;
    for (later, left) in [
        (lag, vec![1]),
        (delete_retention - Duration::from_millis(1), vec![1]),
        (Duration::from_millis(1), vec![]),
    ] {
        log.clock().advance(later);
        log.compact(TOPIC, CompactionRules::STANDARD);
        assert_eq!(offsets(&log.records(TOPIC)), left);
    }
}

#[tokio::test]
async fn a_reader_passes_a_gap_that_ends_at_the_end() {
    let log = mk_log();
    append(&log, "a", Some("1")).await;
    append(&log, "a", None).await;
    let rules = CompactionRules {
        lag: Duration::ZERO,
        delete_retention: Duration::ZERO,
    };
    log.compact(TOPIC, rules);
    let mut reader = log.read(TOPIC, &[]).await.expect("opens");
    let end = ReadEvent::CaughtUp {
        partition: ZERO,
        position: Offset(2),
    };
    assert_eq!(events(&mut reader).await.last(), Some(&end));
}

#[tokio::test]
async fn truncation_is_noticed_only_by_readers_above_the_new_end() {
    let log = mk_log();
    for _ in 0..5 {
        append(&log, "a", Some("v")).await;
    }
    let mut ahead = open_at(&log, Offset(0)).await;
    log.truncate(TOPIC, ZERO, Offset(2));
    let out_of_range = ReadEvent::OutOfRange {
        partition: ZERO,
        position: Offset(5),
    };
    assert_eq!(events(&mut ahead).await, [out_of_range]);
    assert_eq!(append(&log, "a", Some("other")).await.offset, Offset(2));
    assert_eq!(events(&mut ahead).await, [], "it does not move");
    let mut behind = log.read(TOPIC, &[(ZERO, Offset(2))]).await.expect("opens");
    let told = events(&mut behind).await;
    assert!(told.contains(&ReadEvent::Records(log.records(TOPIC)[2..].to_vec())));
}

#[tokio::test]
async fn an_unclean_election_is_told_to_readers_above_where_the_leader_began() {
    let log = mk_log();
    for _ in 0..5 {
        append(&log, "a", Some("v")).await;
    }
    let mut ahead = open_at(&log, Offset(0)).await;
    let mut below = log.read(TOPIC, &[(ZERO, Offset(5))]).await.expect("opens");
    events(&mut below).await;
    log.elect_uncleanly(TOPIC, ZERO, Offset(2));
    for _ in 0..5 {
        append(&log, "a", Some("other")).await;
    }
    let out_of_range = [ReadEvent::OutOfRange {
        partition: ZERO,
        position: Offset(5),
    }];
    for reader in [&mut ahead, &mut below] {
        assert_eq!(events(reader).await, out_of_range, "regrown");
    }
    let mut new = log.read(TOPIC, &[(ZERO, Offset(2))]).await.expect("opens");
    let told = events(&mut new).await;
    assert!(told.contains(&ReadEvent::Records(log.records(TOPIC)[2..].to_vec())));
}

#[tokio::test]
async fn a_position_below_the_start_is_out_of_range() {
    let log = mk_log();
    for _ in 0..5 {
        append(&log, "a", Some("v")).await;
    }
    log.delete_below(TOPIC, ZERO, Offset(3));
    let mut reader = log.read(TOPIC, &[(ZERO, Offset(1))]).await.expect("opens");
    let out_of_range = ReadEvent::OutOfRange {
        partition: ZERO,
        position: Offset(1),
    };
    assert_eq!(events(&mut reader).await.last(), Some(&out_of_range));
}

#[tokio::test]
async fn a_topic_made_anew_is_empty_and_has_no_identity() {
    let log = mk_log();
    log.write_identity(LogIdentity(7));
    let mut reader = open_at(&log, Offset(0)).await;
    log.recreate(TOPIC, 1);
    assert_eq!(log.records(TOPIC), []);
    assert_eq!(log.records(Topic::Config).len(), 1);
    let told = events(&mut reader).await;
    assert!(
        matches!(told[..], [ReadEvent::OutOfRange { .. }]),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_partition_that_is_no_more_is_out_of_range() {
    let log = MemoryLog::new(2, ManualClock::new(Timestamp(1_000_000)));
    let mut reader = log.read(TOPIC, &[]).await.expect("opens");
    events(&mut reader).await;
    log.recreate(TOPIC, 1);
    let out_of_range = ReadEvent::OutOfRange {
        partition: PartitionId(1),
        position: Offset(0),
    };
    assert_eq!(events(&mut reader).await, [out_of_range]);
    assert_eq!(events(&mut reader).await, [], "said once");
}

#[tokio::test]
async fn a_leader_whose_clock_is_another_stamps_its_own_partition() {
    let log = MemoryLog::new(2, ManualClock::new(Timestamp(1_000_000)));
    let mut times = Vec::new();
    for ahead_ms in [3_600_000, -40_000, 0] {
        log.move_leader(TOPIC, PartitionId(1), ahead_ms);
        for partition in 0..2 {
            let mut record = mk_record("a", Some("v"));
            record.partition = Some(PartitionId(partition));
            let appended = log.append(record).await.expect("takes it");
            let written = log.records(TOPIC).into_iter();
            let mut written = written.filter(|r| r.partition == appended.partition);
            let append_time = written.next_back().map(|r| r.append_time);
            assert_eq!(appended.append_time, append_time);
            times.push(append_time.expect("it was written").0 - 1_000_000);
        }
    }
    assert_eq!(times, [0, 3_600_000, 0, -40_000, 0, 0]);
}

#[tokio::test]
async fn added_partitions_are_announced_and_read_from_their_beginning() {
    let log = mk_log();
    let mut reader = open_at(&log, Offset(0)).await;
    log.add_partitions(TOPIC, 2);
    let mut record = mk_record("a", None);
    record.partition = Some(PartitionId(1));
    log.append(record).await.expect("the partition exists");
    let told = events(&mut reader).await;
    assert_eq!(told[0], ReadEvent::Partitions(2));
    assert!(
        told.contains(&ReadEvent::Records(log.records(TOPIC))),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_raw_record_comes_as_it_is() {
    let log = mk_log();
    let bad: &[(&str, &[u8])] = &[("waypost-seq", b"many")];
    log.append_raw(TOPIC, ZERO, None, Some("v".into()), bad)
        .expect("the partition exists");
    let records = log.records(TOPIC);
    assert_eq!(records[0].key, None);
    assert!(records[0].headers.is_err());
    assert_eq!(log.append_raw(TOPIC, PartitionId(9), None, None, &[]), None);
}
