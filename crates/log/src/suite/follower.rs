//! A reader with deadlines.

use std::collections::BTreeMap;

use tokio::time::timeout;
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog, LogReader, ReadEvent};
use waypost_core::record::{Offset, Record, Topic};

use super::DEADLINE;

/// Reads a topic and fails the test when what must come does not.
#[derive(Debug)]
pub struct Follower {
    reader: Box<dyn LogReader>,
}

impl Follower {
    /// Follows `topic` from its beginning.
    pub async fn open(log: &dyn AnnouncementLog, topic: Topic) -> Self {
        Self::open_from(log, topic, &[]).await
    }

    /// Follows `topic` from the given positions.
    pub async fn open_from(
        log: &dyn AnnouncementLog,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Self {
        let reader = log.read(topic, from).await.expect("the reader opens");
        Self { reader }
    }

    /// The next event.
    pub async fn next(&mut self) -> ReadEvent {
        let event = timeout(DEADLINE, self.reader.next()).await;
        event
            .expect("an event within the deadline")
            .expect("the reader goes on")
    }

    /// Like [`Self::next`], but given up after a millisecond.
    pub async fn next_impatiently(&mut self) -> Option<ReadEvent> {
        let patience = std::time::Duration::from_millis(1);
        let event = timeout(patience, self.reader.next()).await.ok()?;
        Some(event.expect("the reader goes on"))
    }

    /// The next `count` records that are not the log's own (identity).
    pub async fn records(&mut self, count: usize) -> Vec<Record> {
        let mut records = Vec::new();
        while records.len() < count {
            if let ReadEvent::Records(batch) = self.next().await {
                assert!(!batch.is_empty(), "a batch holds at least one record");
                records.extend(batch.into_iter().filter(is_from_a_caller));
            }
        }
        assert_eq!(records.len(), count, "more records than were appended");
        records
    }

    /// Everything up to the moment at which all of `partitions` were caught up, with the position
    /// of each.
    pub async fn until_caught_up(
        &mut self,
        partitions: u32,
    ) -> (Vec<Record>, BTreeMap<PartitionId, Offset>) {
        let mut records = Vec::new();
        let mut position_by_partition = BTreeMap::new();
        while position_by_partition.len() < partitions as usize {
            match self.next().await {
                ReadEvent::Records(batch) => {
                    records.extend(batch.into_iter().filter(is_from_a_caller));
                }
                ReadEvent::CaughtUp {
                    partition,
                    position,
                } => {
                    position_by_partition.insert(partition, position);
                }
                _ => {}
            }
        }
        (records, position_by_partition)
    }
}

/// Whether a caller of the suite wrote it, as its keys show.
fn is_from_a_caller(record: &Record) -> bool {
    record.key.as_deref() != Some(waypost_core::record::IDENTITY_KEY)
}
