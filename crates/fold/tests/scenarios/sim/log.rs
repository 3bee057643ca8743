//! A log in memory that keeps records as a broker would.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use waypost_core::partition::partition_for_key;
use waypost_core::record::{Appended, LogIdentity};
use waypost_core::{Headers, NewRecord, Offset, PartitionId, Record, Timestamp, Topic};
use waypost_fold::records;

/// Three topics; every partition a list of records with ever growing offsets.
#[derive(Clone)]
pub(crate) struct SimLog {
    partitions: BTreeMap<(Topic, PartitionId), Partition>,
    /// The broker's clock, milliseconds.
    pub(crate) clock_ms: i64,
    /// While set nothing is taken.
    pub(crate) is_stuck: bool,
    announcements: u32,
}

#[derive(Clone, Default)]
struct Partition {
    records: Vec<Record>,
    end: i64,
}

impl SimLog {
    /// `count` partitions of announcements, one of each other topic; identities written.
    pub(crate) fn new(count: u32) -> Self {
        let mut log = Self {
            partitions: BTreeMap::new(),
            clock_ms: 1_800_000_000_000,
            is_stuck: false,
            announcements: count,
        };
        for topic in Topic::ALL {
            for partition in 0..log.partition_count(topic) {
                log.partitions
                    .insert((topic, PartitionId(partition)), Partition::default());
            }
            log.append(records::identity(topic, LogIdentity(7), None));
        }
        log
    }

    pub(crate) fn partition_count(&self, topic: Topic) -> u32 {
        match topic {
            Topic::Announcements => self.announcements,
            Topic::Config | Topic::Control => 1,
        }
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.clock_ms += i64::try_from(by.as_millis()).unwrap();
    }

    /// `None` while stuck.
    pub(crate) fn append(&mut self, new: NewRecord) -> Option<Appended> {
        // Through the wire form, as a real log would.
        let pairs = new.headers.to_pairs();
        let pairs = pairs.iter().map(|(n, v)| (*n, v.as_bytes()));
        let headers = Headers::read(pairs);
        let count = self.partition_count(new.topic);
        let own = partition_for_key(&new.key, count);
        self.append_raw(
            Record {
                partition: new.partition.unwrap_or(own),
                offset: Offset(0),
                append_time: Timestamp(0),
                key: Some(new.key),
                value: new.value,
                headers,
            },
            new.topic,
        )
    }

    /// Appends anything; offset and time are the log's.
    pub(crate) fn append_raw(&mut self, mut record: Record, topic: Topic) -> Option<Appended> {
        if self.is_stuck {
            return None;
        }
        let partition = self.partitions.get_mut(&(topic, record.partition))?;
        record.offset = Offset(partition.end);
        record.append_time = Timestamp(self.clock_ms);
        let appended = Appended {
            partition: record.partition,
            offset: record.offset,
            append_time: Some(record.append_time),
        };
        partition.records.push(record);
        partition.end += 1;
        Some(appended)
    }

    /// As if nobody had created the topics properly.
    pub(crate) fn forget_identities(&mut self) {
        for partition in self.partitions.values_mut() {
            *partition = Partition::default();
        }
    }

    /// Where the next record will stand.
    pub(crate) fn end(&self, topic: Topic, partition: PartitionId) -> Offset {
        Offset(self.partitions[&(topic, partition)].end)
    }

    /// Records of a partition from `position` on.
    pub(crate) fn read(&self, topic: Topic, partition: PartitionId, position: Offset) -> &[Record] {
        let records = &self.partitions[&(topic, partition)].records;
        &records[records.partition_point(|r| r.offset < position)..]
    }

    pub(crate) fn records(&self, topic: Topic) -> impl Iterator<Item = &Record> {
        let partitions = self
            .partitions
            .iter()
            .filter(move |((t, _), _)| *t == topic);
        partitions.flat_map(|(_, partition)| &partition.records)
    }

    /// Of each key keeps only the last record among those older than `lag`; younger ones stay.
    pub(crate) fn compact(&mut self, lag: Duration) {
        let until = self.clock_ms - i64::try_from(lag.as_millis()).unwrap();
        for partition in self.partitions.values_mut() {
            let mut last: HashMap<Bytes, Offset> = HashMap::new();
            for record in partition
                .records
                .iter()
                .filter(|r| r.append_time.0 <= until)
            {
                last.insert(record.key.clone().unwrap_or_default(), record.offset);
            }
            partition.records.retain(|record| {
                let key = record.key.clone().unwrap_or_default();
                last.get(&key).is_none_or(|last| record.offset >= *last)
            });
        }
    }
}
