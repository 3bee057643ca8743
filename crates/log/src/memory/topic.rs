//! One topic in memory: per partition the records that still exist, by offset.

use std::collections::BTreeMap;

use bytes::Bytes;
use waypost_core::partition::PartitionId;
use waypost_core::record::{HeaderError, Headers, NewRecord, Offset, Record};
use waypost_core::time::Timestamp;

use crate::admission::LastRecord;

#[derive(Debug)]
pub(super) struct TopicState {
    pub(super) partitions: Vec<PartitionState>,
}

/// Records `[start, end)`, less those that compaction removed.
#[derive(Debug, Default)]
pub(super) struct PartitionState {
    pub(super) start: Offset,
    pub(super) end: Offset,
    pub(super) records_by_offset: BTreeMap<Offset, Record>,
    /// The ends at which its leaders began, where an election lost records that readers hear of.
    pub(super) epochs: Vec<Offset>,
    /// By how much its leader's clock is ahead of the log's, milliseconds.
    pub(super) leader_ahead_ms: i64,
    /// From when on a tombstone may be removed; set when the cleaner first meets it (KIP-534).
    pub(super) horizons_by_offset: BTreeMap<Offset, Timestamp>,
}

/// A record before it has a place.
#[derive(Debug)]
pub(super) struct NewEntry {
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Result<Headers, HeaderError>,
}

impl From<&NewRecord> for NewEntry {
    fn from(record: &NewRecord) -> Self {
        Self {
            key: Some(record.key.clone()),
            value: record.value.clone(),
            headers: Ok(record.headers),
        }
    }
}

impl TopicState {
    pub(super) fn new(partitions: u32) -> Self {
        let mut topic = Self {
            partitions: Vec::new(),
        };
        topic.grow(partitions.max(1));
        topic
    }

    /// Adds partitions until there are `partitions`.
    pub(super) fn grow(&mut self, partitions: u32) {
        while self.partition_count() < partitions {
            self.partitions.push(PartitionState::default());
        }
    }

    pub(super) fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn partition(&self, id: PartitionId) -> Option<&PartitionState> {
        self.partitions.get(id.0 as usize)
    }

    pub(super) fn partition_mut(&mut self, id: PartitionId) -> Option<&mut PartitionState> {
        self.partitions.get_mut(id.0 as usize)
    }

    /// Appends; `now` is the log's clock. `None` if there is no such partition.
    pub(super) fn push(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        entry: NewEntry,
    ) -> Option<Offset> {
        let partition = self.partition_mut(id)?;
        let offset = partition.end;
        let record = Record {
            partition: id,
            offset,
            append_time: partition.leader_time(now),
            key: entry.key,
            value: entry.value,
            headers: entry.headers,
        };
        partition.records_by_offset.insert(offset, record);
        partition.end = offset.next();
        Some(offset)
    }

    /// What the clock of a partition's leader shows when the log's shows `now`.
    pub(super) fn leader_time(&self, id: PartitionId, now: Timestamp) -> Timestamp {
        self.partition(id).map_or(now, |p| p.leader_time(now))
    }

    pub(super) fn find(&self, id: PartitionId, offset: Offset) -> Option<Record> {
        self.partition(id)?.records_by_offset.get(&offset).cloned()
    }

    pub(super) fn find_last(&self, id: PartitionId, key: &[u8]) -> Option<LastRecord> {
        let newest_first = self.partition(id)?.records_by_offset.values().rev();
        let mut of_key = newest_first.filter(|record| record.key.as_deref() == Some(key));
        of_key.next().map(|record| LastRecord {
            offset: record.offset,
            is_tombstone: record.value.is_none(),
        })
    }

    pub(super) fn records(&self) -> Vec<Record> {
        let all = self
            .partitions
            .iter()
            .flat_map(|p| p.records_by_offset.values());
        all.cloned().collect()
    }
}

impl PartitionState {
    pub(super) fn leader_time(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_add(self.leader_ahead_ms))
    }
}
