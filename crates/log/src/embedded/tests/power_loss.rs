//! The power goes at any moment, and the disk keeps only what was synced and any part of the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::timeout;
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog, ReadEvent};
use waypost_core::record::{Delivery, Offset, Record, Topic};

use super::disk::{Fsync, TestDisk};
use super::{DEADLINE, format, mk_record, open};
use crate::embedded::EmbeddedLog;

/// Histories that are tried; each has several losses of power.
const HISTORIES: u64 = 40;
const LOSSES: u32 = 3;
const APPENDERS: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_or_seen_outlives_a_loss_of_power() {
    for seed in 0..HISTORIES {
        if let Err(error) = live_through_losses(Fsync::Honest, seed).await {
            panic!("seed {seed}: {error}");
        }
    }
}

/// Shows that the test above can fail: without fsync it must.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_ignores_fsync_is_found_out() {
    for seed in 0..HISTORIES {
        if live_through_losses(Fsync::Ignored, seed).await.is_err() {
            return;
        }
    }
    panic!("{HISTORIES} histories on a disk without fsync lost nothing");
}

/// What must be there after the power came back.
#[derive(Clone, Debug, Default)]
struct Owed {
    /// Changes that were acknowledged or seen by a reader.
    changes: BTreeMap<(PartitionId, Offset), (Bytes, Bytes)>,
    /// One past the highest offset that was given out, also to heartbeats.
    end_by_partition: BTreeMap<PartitionId, Offset>,
}

impl Owed {
    fn give_out(&mut self, partition: PartitionId, offset: Offset) {
        let end = self.end_by_partition.entry(partition).or_default();
        *end = offset.next().max(*end);
    }

    fn owe(&mut self, partition: PartitionId, offset: Offset, key: Bytes, value: Bytes) {
        self.give_out(partition, offset);
        self.changes.insert((partition, offset), (key, value));
    }
}

async fn live_through_losses(fsync: Fsync, seed: u64) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut disk = TestDisk::new();
    format(&disk);
    disk.set_fsync(fsync);
    let owed = Arc::new(Mutex::new(Owed::default()));
    for life in 0..LOSSES {
        let log = open(&disk).await.map_err(|error| error.to_string())?;
        let due = owed.lock().clone();
        check(&log, &due).await?;
        let mut tasks = Vec::new();
        for appender in 0..APPENDERS {
            let name = format!("{life}-{appender}");
            tasks.push(tokio::spawn(append_for_ever(
                log.clone(),
                name,
                Arc::clone(&owed),
            )));
        }
        tasks.push(tokio::spawn(follow_for_ever(
            log.clone(),
            Arc::clone(&owed),
        )));
        let enough = owed.lock().changes.len() + rng.random_range(1..60);
        let reached = timeout(DEADLINE, async {
            while owed.lock().changes.len() < enough {
                tokio::task::yield_now().await;
            }
        });
        reached
            .await
            .map_err(|_| "nothing is acknowledged any more")?;
        // First what is owed, then the disk: what is acknowledged in between is on it as well.
        let due = owed.lock().clone();
        disk = disk.after_power_loss(&mut rng);
        for task in tasks {
            task.abort();
            // An aborted task has nothing to say.
            let _ = task.await;
        }
        log.close().await;
        *owed.lock() = due;
    }
    let log = open(&disk).await.map_err(|error| error.to_string())?;
    let due = owed.lock().clone();
    check(&log, &due).await
}

/// Changes with heartbeats between them, each noted once it is acknowledged.
async fn append_for_ever(log: EmbeddedLog, name: String, owed: Arc<Mutex<Owed>>) {
    for n in 0_u64.. {
        let key = format!("{name}-{}", n % 5);
        let value = format!("{name} {n} {}", "x".repeat((n % 40) as usize * 100));
        for delivery in [Delivery::Change, Delivery::Heartbeat, Delivery::Heartbeat] {
            let Ok(appended) = log.append(mk_record(&key, &value, delivery)).await else {
                return;
            };
            let (key, value) = (key.clone().into(), value.clone().into());
            let mut owed = owed.lock();
            if delivery == Delivery::Change {
                owed.owe(appended.partition, appended.offset, key, value);
            } else {
                owed.give_out(appended.partition, appended.offset);
            }
        }
    }
}

/// Whoever reads a change may act on it, so it must be durable by then.
async fn follow_for_ever(log: EmbeddedLog, owed: Arc<Mutex<Owed>>) {
    let Ok(mut reader) = log.read(Topic::Announcements, &[]).await else {
        return;
    };
    let mut value_by_key: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    while let Ok(event) = reader.next().await {
        let ReadEvent::Records(records) = event else {
            continue;
        };
        for record in records {
            let (Some(key), Some(value)) = (record.key, record.value) else {
                continue;
            };
            // The first of several equal ones is the change, the others are its heartbeats.
            if value_by_key.insert(key.clone(), value.clone()) != Some(value.clone()) {
                owed.lock().owe(record.partition, record.offset, key, value);
            }
        }
    }
}

/// Everything owed is there, and what is appended now stands above all that was given out.
async fn check(log: &EmbeddedLog, owed: &Owed) -> Result<(), String> {
    let records = read_all(log).await?;
    for ((partition, offset), (key, value)) in &owed.changes {
        // Its place, or that of a heartbeat that replaced it.
        let is_it = |record: &&Record| {
            record.partition == *partition
                && record.offset >= *offset
                && record.key.as_ref() == Some(key)
                && record.value.as_ref() == Some(value)
        };
        let found = records.iter().find(is_it);
        found.ok_or_else(|| format!("partition {partition} offset {offset} is lost"))?;
    }
    for (partition, end) in &owed.end_by_partition {
        let mut record = mk_record("after", "", Delivery::Change);
        record.partition = Some(*partition);
        let appended = log
            .append(record)
            .await
            .map_err(|error| error.to_string())?;
        if appended.offset < *end {
            let again = appended.offset;
            return Err(format!(
                "partition {partition} offset {again} was given out again"
            ));
        }
    }
    Ok(())
}

async fn read_all(log: &EmbeddedLog) -> Result<Vec<Record>, String> {
    let reader = log.read(Topic::Announcements, &[]).await;
    let mut reader = reader.map_err(|error| error.to_string())?;
    let mut records: Vec<Record> = Vec::new();
    let mut caught_up = 0;
    while caught_up < 2 {
        let event = timeout(DEADLINE, reader.next())
            .await
            .map_err(|_| "no event")?;
        match event.map_err(|error| error.to_string())? {
            ReadEvent::Records(batch) => records.extend(batch),
            ReadEvent::CaughtUp { .. } => caught_up += 1,
            _ => {}
        }
    }
    let sorted = |id| {
        let of_partition = records.iter().filter(|r| r.partition == PartitionId(id));
        of_partition.is_sorted_by_key(|r| (r.offset, r.append_time))
    };
    if !(sorted(0) && sorted(1)) {
        return Err("records are out of order".to_owned());
    }
    Ok(records)
}
