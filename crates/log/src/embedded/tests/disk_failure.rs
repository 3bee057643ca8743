//! The disk fails for a while and works again: nothing is lost, doubled or given another place.

use tokio::time::timeout;
use waypost_core::port::{AnnouncementLog, LogError, LogReader, ReadEvent};
use waypost_core::record::{Appended, Delivery, Offset, Record, Topic};

use super::disk::{Refusal, TestDisk};
use super::{DEADLINE, format, mk_record, open};
use crate::embedded::EmbeddedLog;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_goes_on_when_a_full_disk_has_space_again() {
    check(Refusal::Writes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_fsync_failed_is_settled_by_what_the_disk_holds() {
    check(Refusal::Syncs).await;
}

async fn check(refusal: Refusal) {
    let disk = TestDisk::new();
    format(&disk);
    let log = open(&disk).await.expect("the log opens");
    let mut reader = log.read(Topic::Announcements, &[]).await.expect("opens");
    let mut acknowledged = Vec::new();
    for n in 0..5 {
        acknowledged.push(append(&log, &format!("before-{n}"), Delivery::Change).await);
    }
    // Visible, and in memory only when the disk fails.
    acknowledged.push(append(&log, "beat", Delivery::Heartbeat).await);

    disk.refuse(refusal);
    let refused = log.append(mk_record("during", "v", Delivery::Change)).await;
    let Err(LogError::Unavailable(reason)) = refused else {
        panic!("a disk that failed acknowledged: {refused:?}");
    };
    assert!(reason.contains("space"), "does not say why: {reason}");

    disk.refuse(Refusal::Nothing);
    let recovered = timeout(DEADLINE, append_until_taken(&log, "after")).await;
    let last = recovered.expect("the log goes on within the deadline");
    acknowledged.push(last);
    assert!(
        last.offset < Offset(100),
        "the reserve is for crashes: {last:?}"
    );

    let live = read_until(&mut *reader, last).await;
    for appended in &acknowledged {
        let copies = live.iter().filter(|r| is_at(r, appended)).count();
        assert_eq!(copies, 1, "{appended:?}");
    }
    log.close().await;

    let log = open(&disk).await.expect("the log opens again");
    let mut reader = log.read(Topic::Announcements, &[]).await.expect("opens");
    let stored = read_until(&mut *reader, last).await;
    let by_place = |records: &mut Vec<Record>| records.sort_by_key(|r| (r.partition, r.offset));
    let (mut live, mut stored) = (live, stored);
    by_place(&mut live);
    by_place(&mut stored);
    assert_eq!(live, stored, "a reader that stayed and one that came later");
}

async fn append(log: &EmbeddedLog, key: &str, delivery: Delivery) -> Appended {
    let appended = log.append(mk_record(key, "v", delivery)).await;
    appended.expect("the log takes the record")
}

async fn append_until_taken(log: &EmbeddedLog, key: &str) -> Appended {
    loop {
        if let Ok(appended) = log.append(mk_record(key, "v", Delivery::Change)).await {
            return appended;
        }
        tokio::task::yield_now().await;
    }
}

/// Reads until the record at `last` was seen and all partitions were caught up after it.
async fn read_until(reader: &mut dyn LogReader, last: Appended) -> Vec<Record> {
    let mut records = Vec::new();
    let mut seen_by_partition = std::collections::BTreeSet::new();
    loop {
        let event = timeout(DEADLINE, reader.next()).await.expect("an event");
        match event.expect("the reader goes on") {
            ReadEvent::Records(batch) => records.extend(batch),
            ReadEvent::CaughtUp { partition, .. } => {
                seen_by_partition.insert(partition);
            }
            _ => {}
        }
        let is_there = records.iter().any(|record| is_at(record, &last));
        if is_there && seen_by_partition.len() == 2 {
            return records;
        }
    }
}

fn is_at(record: &Record, appended: &Appended) -> bool {
    (record.partition, record.offset) == (appended.partition, appended.offset)
}
