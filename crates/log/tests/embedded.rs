//! The embedded log: what only it must do.
#![expect(clippy::expect_used, reason = "a test fails by panicking, helpers too")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use waypost_core::port::{AnnouncementLog, LogError, LogReader, ReadEvent};
use waypost_core::record::{Delivery, Headers, IDENTITY_KEY, NewRecord, Record, RecordKind, Topic};
use waypost_core::{Offset, PartitionId, Timestamp};
use waypost_log::suite::{DEADLINE, Follower};
use waypost_log::{EmbeddedLog, EmbeddedSettings, ManualClock};

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn mk_settings(clock: &ManualClock) -> EmbeddedSettings {
    EmbeddedSettings {
        partitions: 1,
        clock: Arc::new(clock.clone()),
        ..EmbeddedSettings::standard()
    }
}

fn mk_record(key: &str, value: Option<&str>) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_owned().into(),
        value: value.map(|value| value.to_owned().into()),
        headers: Headers::default(),
        delivery: Delivery::Change,
    }
}

async fn open(dir: &Path, clock: &ManualClock) -> EmbeddedLog {
    let log = EmbeddedLog::open(dir, mk_settings(clock)).await;
    log.expect("the log opens")
}

/// What the store holds: read after a restart, so that nothing comes from memory.
async fn stored(log: EmbeddedLog, dir: &Path, clock: &ManualClock) -> (EmbeddedLog, Vec<Record>) {
    log.close().await;
    let log = open(dir, clock).await;
    let mut follower = Follower::open(&log, Topic::Announcements).await;
    let (records, _) = follower.until_caught_up(1).await;
    (log, records)
}

fn offsets_of(records: &[Record], key: &str) -> Vec<i64> {
    let of_key = records
        .iter()
        .filter(|r| r.key.as_deref() == Some(key.as_bytes()));
    of_key.map(|r| r.offset.0).collect()
}

#[tokio::test]
async fn a_new_log_names_itself_in_partition_zero_of_every_topic_and_keeps_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    assert!(log.is_fresh());
    let identity = log.identity();
    for topic in Topic::ALL {
        let first = log.read_at(topic, PartitionId(0), Offset(0)).await;
        let first = first.expect("readable").expect("is there");
        let headers = first.headers.expect("readable");
        assert_eq!(first.key.as_deref(), Some(IDENTITY_KEY));
        assert_eq!(headers.kind, RecordKind::Identity);
        assert_eq!(headers.log, Some(identity));
    }
    log.close().await;
    let log = open(dir.path(), &clock).await;
    assert!(!log.is_fresh());
    assert_eq!(log.identity(), identity);
}

#[tokio::test]
async fn a_second_opener_of_a_directory_is_told_which_directory_and_who_has_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let second = EmbeddedLog::open(dir.path(), mk_settings(&clock)).await;
    let Err(LogError::InUse(text)) = second else {
        panic!("opened twice: {second:?}");
    };
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    log.append(mk_record("k", Some("v")))
        .await
        .expect("the first goes on");
    drop(log);
    // The directory is free once the last handle is gone and everything is written.
    let reopened = timeout(DEADLINE, async {
        while let Err(error) = EmbeddedLog::open(dir.path(), mk_settings(&clock)).await {
            assert!(matches!(error, LogError::InUse(_)), "{error}");
        }
    });
    reopened.await.expect("within the deadline");
}

#[tokio::test]
async fn a_directory_that_cannot_be_one_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("writable");
    let opened = EmbeddedLog::open(&file, EmbeddedSettings::standard()).await;
    let Err(LogError::Misconfigured(text)) = opened else {
        panic!("opened a file as a directory: {opened:?}");
    };
    assert!(text.contains(&file.display().to_string()), "{text}");
}

#[tokio::test]
async fn a_closed_log_says_so_to_appenders_and_readers() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path(), &ManualClock::new(NOW)).await;
    let mut reader = log.read(Topic::Config, &[]).await.expect("opens");
    log.close().await;
    let appended = log.append(mk_record("k", Some("v"))).await;
    assert_eq!(appended, Err(LogError::Closed));
    assert_eq!(reader.next().await, Err(LogError::Closed));
    assert!(log.read(Topic::Config, &[]).await.is_err());
}

#[tokio::test]
async fn append_times_do_not_go_back_with_the_clock_nor_across_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let append = async |log: &EmbeddedLog| {
        let appended = log.append(mk_record("k", Some("v"))).await;
        appended.expect("takes it").append_time
    };
    assert_eq!(append(&log).await, Some(NOW));
    clock.set(Timestamp(NOW.0 - 5_000));
    assert_eq!(append(&log).await, Some(NOW));
    log.close().await;
    let log = open(dir.path(), &clock).await;
    assert_eq!(append(&log).await, Some(NOW));
    clock.set(Timestamp(NOW.0 + 1));
    assert_eq!(append(&log).await, Some(Timestamp(NOW.0 + 1)));
}

#[tokio::test]
async fn offsets_are_dense_across_an_orderly_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let before = log
        .append(mk_record("k", Some("1")))
        .await
        .expect("takes it");
    log.close().await;
    let log = open(dir.path(), &clock).await;
    let after = log
        .append(mk_record("k", Some("2")))
        .await
        .expect("takes it");
    assert_eq!(after.offset, before.offset.next());
}

#[tokio::test]
async fn a_superseded_record_goes_once_the_newer_one_is_older_than_the_lag() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let lag = EmbeddedSettings::standard().compaction_lag;
    let append = async |log: &EmbeddedLog, key: &str, value| {
        let appended = log.append(mk_record(key, Some(value))).await;
        appended.expect("takes it").offset.0
    };
    let first = append(&log, "k", "1").await;
    clock.advance(lag * 2);
    let second = append(&log, "k", "2").await;
    let (log, records) = stored(log, dir.path(), &clock).await;
    assert_eq!(
        offsets_of(&records, "k"),
        [first, second],
        "the newer one is young"
    );
    clock.advance(lag - Duration::from_millis(1));
    append(&log, "other", "1").await;
    let (log, records) = stored(log, dir.path(), &clock).await;
    assert_eq!(offsets_of(&records, "k"), [first, second]);
    clock.advance(Duration::from_millis(1));
    append(&log, "other", "2").await;
    let (_, records) = stored(log, dir.path(), &clock).await;
    assert_eq!(offsets_of(&records, "k"), [second]);
}

#[tokio::test]
async fn a_tombstone_goes_after_its_retention_and_the_key_is_as_if_it_never_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let retention = EmbeddedSettings::standard().delete_retention;
    log.append(mk_record("k", Some("v")))
        .await
        .expect("takes it");
    let tombstone = log.append(mk_record("k", None)).await.expect("takes it");
    clock.advance(retention - Duration::from_millis(1));
    let (log, records) = stored(log, dir.path(), &clock).await;
    assert_eq!(offsets_of(&records, "k"), [tombstone.offset.0]);
    clock.advance(Duration::from_millis(1));
    log.append(mk_record("other", Some("v")))
        .await
        .expect("takes it");
    let (log, records) = stored(log, dir.path(), &clock).await;
    assert!(offsets_of(&records, "k").is_empty());
    let created = log.append_if(mk_record("k", Some("v")), None).await;
    created.expect("the key has no record");
}

#[tokio::test]
async fn a_key_that_came_back_outlives_its_old_tombstone() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    log.append(mk_record("k", None)).await.expect("takes it");
    let back = log
        .append(mk_record("k", Some("v")))
        .await
        .expect("takes it");
    clock.advance(EmbeddedSettings::standard().delete_retention * 2);
    log.append(mk_record("other", Some("v")))
        .await
        .expect("takes it");
    let (_, records) = stored(log, dir.path(), &clock).await;
    assert_eq!(offsets_of(&records, "k"), [back.offset.0]);
}

#[tokio::test]
async fn a_heartbeat_replaces_what_it_repeats_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let append = async |value: Option<&str>, delivery| {
        let mut record = mk_record("k", value);
        record.delivery = delivery;
        log.append(record).await.expect("takes it").offset.0
    };
    append(Some("1"), Delivery::Change).await;
    append(Some("1"), Delivery::Heartbeat).await;
    let last_of_one = append(Some("1"), Delivery::Heartbeat).await;
    let withdrawal = append(None, Delivery::Change).await;
    let late_heartbeat = append(Some("1"), Delivery::Heartbeat).await;
    let change = append(Some("2"), Delivery::Change).await;
    let (_, records) = stored(log, dir.path(), &clock).await;
    let kept = [last_of_one, withdrawal, late_heartbeat, change];
    assert_eq!(offsets_of(&records, "k"), kept);
}

#[tokio::test]
async fn a_log_that_only_beats_does_not_grow() {
    const INSTANCES: usize = 500;
    const ROUNDS_TO_SETTLE: usize = 10;
    const ROUNDS: usize = 60;
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::new(NOW);
    let log = open(dir.path(), &clock).await;
    let size = || {
        std::fs::metadata(dir.path().join("log.redb"))
            .expect("is there")
            .len()
    };
    let mut settled = 0;
    for round in 0..ROUNDS {
        let mut beats = JoinSet::new();
        for instance in 0..INSTANCES {
            let mut beat = mk_record(&format!("key-{instance}"), Some(&"v".repeat(300)));
            beat.delivery = Delivery::Heartbeat;
            let log = log.clone();
            beats.spawn(async move { log.append(beat).await });
        }
        for appended in beats.join_all().await {
            appended.expect("takes it");
        }
        // A change makes the log write what is pending.
        let change = mk_record("change", Some(&round.to_string()));
        log.append(change).await.expect("takes it");
        clock.advance(Duration::from_secs(10));
        if round == ROUNDS_TO_SETTLE {
            settled = size();
        }
    }
    assert!(
        size() <= settled * 3 / 2,
        "grew from {settled} to {} bytes",
        size()
    );
    let (_, records) = stored(log, dir.path(), &clock).await;
    assert_eq!(
        records.len(),
        INSTANCES + ROUNDS,
        "one of each key, and changes within the lag"
    );
}

/// The events of a reader until one that `is_it`.
async fn until_event(reader: &mut dyn LogReader, is_it: impl Fn(&ReadEvent) -> bool) -> ReadEvent {
    loop {
        let event = timeout(DEADLINE, reader.next()).await;
        let event = event.expect("an event").expect("the reader goes on");
        if is_it(&event) {
            return event;
        }
    }
}

async fn until_appended(log: &EmbeddedLog, key: &str) {
    let append = async {
        while log.append(mk_record(key, Some("v"))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, append)
        .await
        .expect("the log takes it in time");
}

#[tokio::test]
async fn a_directory_that_is_removed_under_the_log_is_noticed_and_one_put_back_goes_on() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, elsewhere) = (parent.path().join("data"), parent.path().join("away"));
    let clock = ManualClock::new(NOW);
    let log = open(&dir, &clock).await;
    until_appended(&log, "before").await;
    let mut reader = log.read(Topic::Announcements, &[]).await.expect("opens");
    let caught_up = |event: &ReadEvent| matches!(event, ReadEvent::CaughtUp { .. });
    until_event(&mut *reader, caught_up).await;

    std::fs::rename(&dir, &elsewhere).expect("moved");
    // Another file at the same place is not this log's.
    std::fs::create_dir(&dir).expect("made");
    std::fs::write(dir.join("log.redb"), b"of somebody else").expect("written");
    let refused = log.append(mk_record("during", Some("v"))).await;
    let Err(LogError::Unavailable(reason)) = refused else {
        panic!("acknowledged what is lost: {refused:?}");
    };
    let file = dir.join("log.redb").display().to_string();
    assert!(
        reason.contains(&file) && reason.contains("removed or replaced"),
        "{reason}"
    );
    let unavailable = |event: &ReadEvent| matches!(event, ReadEvent::Unavailable(_));
    let told = until_event(&mut *reader, unavailable).await;
    assert_eq!(told, ReadEvent::Unavailable(reason));
    // What was read is still there to be read.
    let mut late = log.read(Topic::Announcements, &[]).await.expect("opens");
    let has_before = |event: &ReadEvent| match event {
        ReadEvent::Records(records) => !offsets_of(records, "before").is_empty(),
        _ => false,
    };
    until_event(&mut *late, has_before).await;

    std::fs::remove_dir_all(&dir).expect("removed");
    std::fs::rename(&elsewhere, &dir).expect("moved back");
    until_appended(&log, "after").await;
    let available = |event: &ReadEvent| matches!(event, ReadEvent::Available);
    until_event(&mut *reader, available).await;
    let (_log, records) = stored(log, &dir, &clock).await;
    assert_eq!(offsets_of(&records, "during"), [0_i64; 0]);
    assert_eq!(offsets_of(&records, "before").len(), 1);
    assert_eq!(offsets_of(&records, "after").len(), 1);
}
