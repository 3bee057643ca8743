//! The config topic, record by record.

use std::collections::HashSet;
use std::pin::pin;

use tokio::time::{Instant, timeout};
use waypost_core::record::Appended;
use waypost_core::{AnnouncementLog, LogError, Offset, PartitionId, ReadEvent, Record, Topic};

use crate::limits::{DEFINITIONS_READ_MAX, READ_BACK_BEYOND};

/// Calls `take` with every record to the end that the topic had when reading began.
pub(super) async fn to_end(
    log: &dyn AnnouncementLog,
    mut take: impl FnMut(Record),
) -> Result<(), LogError> {
    let reading = async {
        let mut reader = log.read(Topic::Config, &[]).await?;
        let mut partitions = None;
        let mut caught_up = HashSet::new();
        let mut away = None;
        loop {
            match reader.next().await? {
                ReadEvent::Partitions(count) => partitions = Some(count as usize),
                ReadEvent::Records(records) => records.into_iter().for_each(&mut take),
                ReadEvent::CaughtUp { partition, .. } => {
                    caught_up.insert(partition);
                }
                ReadEvent::OutOfRange { partition, .. } => return Err(was_cut(partition)),
                ReadEvent::Unavailable(why) => away = Some(why),
                ReadEvent::Available => away = None,
                ReadEvent::Bounds { .. } => {}
            }
            if away.is_none() && partitions.is_some_and(|count| caught_up.len() >= count) {
                return Ok(());
            }
        }
    };
    timeout(DEFINITIONS_READ_MAX, reading)
        .await
        .unwrap_or_else(|_| Err(not_in_time("read to its end")))
}

/// Calls `take` with every record from `from` on, until all of `own` were read and for a second
/// after that, in which others who wrote at the same time are read too.
pub(super) async fn beyond(
    log: &dyn AnnouncementLog,
    from: &[(PartitionId, Offset)],
    own: &[Appended],
    mut take: impl FnMut(Record),
) -> Result<(), LogError> {
    let mut reader = log.read(Topic::Config, from).await?;
    let mut missing: HashSet<_> = own.iter().map(|a| (a.partition, a.offset)).collect();
    let mut next = async |until: Instant, missing: &mut HashSet<(PartitionId, Offset)>| {
        let event = pin!(reader.next());
        match tokio::time::timeout_at(until, event).await {
            Err(_) => return Ok(false),
            Ok(event) => match event? {
                ReadEvent::Records(records) => {
                    for record in records {
                        missing.remove(&(record.partition, record.offset));
                        take(record);
                    }
                }
                // Compacted meanwhile: somebody wrote the same key again.
                ReadEvent::CaughtUp {
                    partition,
                    position,
                } => missing.retain(|(p, offset)| *p != partition || *offset >= position),
                ReadEvent::OutOfRange { partition, .. } => return Err(was_cut(partition)),
                _ => {}
            },
        }
        Ok(true)
    };
    let given_up = Instant::now() + DEFINITIONS_READ_MAX;
    while !missing.is_empty() {
        if !next(given_up, &mut missing).await? {
            return Err(not_in_time("read back"));
        }
    }
    let until = Instant::now() + READ_BACK_BEYOND;
    while next(until, &mut missing).await? {}
    Ok(())
}

fn was_cut(partition: PartitionId) -> LogError {
    let why = format!("the config topic's partition {partition} was cut meanwhile");
    LogError::Unavailable(why)
}

fn not_in_time(what: &str) -> LogError {
    let seconds = DEFINITIONS_READ_MAX.as_secs();
    LogError::Unavailable(format!(
        "the config topic could not be {what} within {seconds} s"
    ))
}
