//! The config topic as a table: read to its end, and written only where nobody else wrote.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio::time::timeout;
use waypost_core::definition::DefinitionStat;
use waypost_core::record::{Appended, Delivery};
use waypost_core::{
    AnnouncementLog, Definition, DefinitionKey, Headers, LogError, NewRecord, Offset, PartitionId,
    ReadEvent, Record, Topic,
};

use crate::limits::DEFINITIONS_READ_MAX;

/// The last record of a key.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    partition: PartitionId,
    offset: Offset,
    /// `None`: it was deleted, and the log still holds the statement.
    pub(super) value: Option<Bytes>,
}

impl Standing {
    /// The history of the definition that stands here; `None` if it cannot be read.
    pub(super) fn stat(&self, key: &DefinitionKey) -> Option<DefinitionStat> {
        let value = self.value.as_ref()?;
        match waypost_proto::definition::decode(key, value).ok()? {
            Definition::Cluster(c) => Some(c.stat),
            Definition::Service(s) => Some(s.stat),
        }
    }
}

/// Reads the topic to the end that it had when reading began.
pub(super) async fn read(
    log: &dyn AnnouncementLog,
) -> Result<HashMap<DefinitionKey, Standing>, LogError> {
    let mut by_key = HashMap::new();
    follow(log, &[], |record| {
        let parsed = record.key.as_deref().map(DefinitionKey::from_record_key);
        if let Some(Ok(Some(key))) = parsed {
            by_key.insert(key, Standing::from(record));
        }
    })
    .await?;
    Ok(by_key)
}

/// Writes the value of `key` (`None`: deletes it) in the place of `before`.
///
/// A log that compares and sets does so. Kafka cannot: there the topic is read back up to the new
/// record, and whoever finds a stranger's record in between is told (docs/announcement-log.md,
/// "Topic settings").
pub(super) async fn write(
    log: &dyn AnnouncementLog,
    key: &DefinitionKey,
    value: Option<Bytes>,
    before: Option<&Standing>,
) -> Result<(), LogError> {
    let record = NewRecord {
        topic: Topic::Config,
        partition: None,
        key: key.to_record_key(),
        value,
        headers: Headers::default(),
        delivery: Delivery::Change,
    };
    let expected = before.map(|b| b.offset);
    match log.append_if(record.clone(), expected).await {
        Err(LogError::Refused(_)) => {}
        done => return done.map(|_| ()),
    }
    let appended = log.append(record).await?;
    check_nobody_between(log, key, before, appended).await
}

async fn check_nobody_between(
    log: &dyn AnnouncementLog,
    key: &DefinitionKey,
    before: Option<&Standing>,
    appended: Appended,
) -> Result<(), LogError> {
    let partition = appended.partition;
    // Positions of two partitions (the topic grew) cannot be compared; then all of it is read.
    let seen = before
        .filter(|b| b.partition == partition)
        .map(|b| b.offset);
    let from: Vec<_> = seen.map(|o| (partition, o.next())).into_iter().collect();
    let record_key = key.to_record_key();
    let mut stranger = None;
    follow(log, &from, |record| {
        let between = record.partition == partition
            && record.offset < appended.offset
            && seen.is_none_or(|o| record.offset > o);
        let known = before.is_some_and(|b| (b.partition, b.offset) == (partition, record.offset));
        if between && !known && record.key.as_ref() == Some(&record_key) {
            stranger = Some(record.offset);
        }
    })
    .await?;
    stranger.map_or(Ok(()), |offset| Err(LogError::Conflict(offset)))
}

/// Calls `take` with every record from `from` (or the beginning) to the end of each partition.
async fn follow(
    log: &dyn AnnouncementLog,
    from: &[(PartitionId, Offset)],
    mut take: impl FnMut(Record),
) -> Result<(), LogError> {
    let reading = async {
        let mut reader = log.read(Topic::Config, from).await?;
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
                ReadEvent::OutOfRange { partition, .. } => {
                    let why = format!("the config topic's partition {partition} was cut meanwhile");
                    return Err(LogError::Unavailable(why));
                }
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
        .unwrap_or_else(|_| {
            let seconds = DEFINITIONS_READ_MAX.as_secs();
            Err(LogError::Unavailable(format!(
                "the config topic could not be read to its end within {seconds} s"
            )))
        })
}

impl From<Record> for Standing {
    fn from(record: Record) -> Self {
        Self {
            partition: record.partition,
            offset: record.offset,
            value: record.value,
        }
    }
}
