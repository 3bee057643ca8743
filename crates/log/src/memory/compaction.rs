//! Kafka's log cleaner, run when the test says so.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use waypost_core::record::{Offset, Topic};
use waypost_core::time::{Timestamp, millis};

use super::MemoryLog;
use super::topic::PartitionState;
use crate::limits::{COMPACTION_LAG, DELETE_RETENTION};

/// The two topic settings that decide what a cleaner may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRules {
    /// Records younger than this are neither removed nor do they make others removable
    /// (`min.compaction.lag.ms`).
    pub lag: Duration,
    /// How long a tombstone stays after the cleaner first met it (`delete.retention.ms`).
    pub delete_retention: Duration,
}

impl CompactionRules {
    /// The settings of docs/announcement-log.md, "Topic settings".
    pub const STANDARD: Self = Self {
        lag: COMPACTION_LAG,
        delete_retention: DELETE_RETENTION,
    };
}

impl MemoryLog {
    /// Runs the cleaner over every partition of `topic` once. Of the records older than the lag the
    /// last of each key stays; a tombstone among those goes once its retention is over.
    pub fn compact(&self, topic: Topic, rules: CompactionRules) {
        self.change(|state, now| {
            for partition in &mut state.topic_mut(topic).partitions {
                partition.compact(rules, now);
            }
        });
    }
}

impl PartitionState {
    fn compact(&mut self, rules: CompactionRules, now: Timestamp) {
        let now = self.leader_time(now);
        let newest_cleanable = now.minus(rules.lag);
        // As in Kafka the cleanable part ends at the first record that is too young.
        let cleanable: Vec<_> = self
            .records_by_offset
            .values()
            .take_while(|record| record.append_time <= newest_cleanable)
            .collect();
        let mut last_by_key: HashMap<&Bytes, Offset> = HashMap::new();
        for record in &cleanable {
            last_by_key.extend(record.key.as_ref().map(|key| (key, record.offset)));
        }
        let mut removed = Vec::new();
        for record in &cleanable {
            let Some(key) = &record.key else { continue };
            if last_by_key.get(key) != Some(&record.offset) {
                removed.push(record.offset);
            } else if record.value.is_none() {
                let met_now = Timestamp(now.0.saturating_add(millis(rules.delete_retention)));
                let horizons = self.horizons_by_offset.entry(record.offset);
                let horizon = *horizons.or_insert(met_now);
                removed.extend((now >= horizon).then_some(record.offset));
            }
        }
        for offset in removed {
            self.records_by_offset.remove(&offset);
            self.horizons_by_offset.remove(&offset);
        }
    }
}
