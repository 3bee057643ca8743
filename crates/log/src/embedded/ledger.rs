//! What the writer knows of every partition: where it ends, the last record of each key, and what
//! may be removed. Pure: no clock, no I/O.

use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher as _};
use std::num::NonZeroU64;
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashMap};
use hugealloc::HugeAlloc;
use waypost_core::partition::PartitionId;
use waypost_core::record::{Offset, Record, RecordKind, Topic};
use waypost_core::time::Timestamp;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use super::store::{Closing, Contents, End};
use super::stored::Place;
use crate::admission::LastRecord;
use crate::limits::EMBEDDED_RESERVE;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    announcements: Vec<Partition>,
    config: Vec<Partition>,
    control: Vec<Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    next: Offset,
    last_time: Timestamp,
    /// On huge pages where it is large: it is looked up at random, once a record.
    last_by_key: HashMap<KeyDigest, Last, DefaultHashBuilder, HugeAlloc>,
    /// When a record was superseded, and which: in that order.
    superseded: VecDeque<(Timestamp, Offset)>,
    /// Tombstones in the order of their times; one that is no longer its key's last is superseded.
    tombstones: VecDeque<(Timestamp, Offset, KeyDigest)>,
}

/// Stands for a key of a few dozen bytes. Of 128 bits, so that no two keys share one.
type KeyDigest = u128;

/// The last record of a key.
#[derive(Clone, Copy, Debug)]
struct Last {
    offset: Offset,
    /// `None`: a tombstone.
    content: Option<ContentDigest>,
}

// There is one for each key of the log: three million, where a fleet is announced.
const _: () = assert!(size_of::<(KeyDigest, Last)>() <= 32);

/// Of value and headers: enough to recognise a repetition.
type ContentDigest = NonZeroU64;

/// How long what was superseded and what was deleted stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    pub(super) compaction_lag: Duration,
    pub(super) delete_retention: Duration,
}

impl Ledger {
    /// The partitions that the store has, without their records: those are [`applied`](Self::apply)
    /// one by one. After a crash a partition goes on above what was set aside.
    pub(super) fn new(contents: &Contents) -> Self {
        let mut ledger = Self::default();
        // In the order of partitions, since the map is sorted.
        for ((topic, _), end) in &contents.ends {
            let next = match contents.closing {
                Closing::Orderly => end.next,
                Closing::Crash => end.reserved,
            };
            ledger.topic_mut(*topic).push(Partition {
                next,
                last_time: end.last_time,
                ..Partition::default()
            });
        }
        ledger
    }

    pub(super) fn partition_count(&self, topic: Topic) -> u32 {
        u32::try_from(self.topic(topic).len()).unwrap_or(u32::MAX)
    }

    /// The offset and time of the next record of a partition, if the clock says `now`.
    pub(super) fn assign(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        now: Timestamp,
    ) -> Option<(Offset, Timestamp)> {
        let state = self.find_mut(topic, partition)?;
        let offset = state.next;
        state.next = offset.next();
        state.last_time = state.last_time.max(now);
        Some((offset, state.last_time))
    }

    /// Goes on at `next` at least: what was given out is not given out again.
    pub(super) fn skip_to(&mut self, topic: Topic, partition: PartitionId, end: End) {
        if let Some(state) = self.find_mut(topic, partition) {
            state.next = state.next.max(end.next);
            state.last_time = state.last_time.max(end.last_time);
        }
    }

    /// Takes note of a record. Returns the one that it replaces at once: a heartbeat repeats what
    /// stands there byte for byte, so that nothing is lost with the earlier copy, and a log that
    /// only beats does not grow. Everything else that is superseded stays for the compaction lag.
    pub(super) fn apply(&mut self, place: Place, record: &Record) -> Option<Place> {
        let state = self.find_mut(place.topic, place.partition)?;
        state.next = state.next.max(place.offset.next());
        state.last_time = state.last_time.max(record.append_time);
        let key = xxh3_128(record.key.as_ref()?);
        let content = content(record);
        let last = Last {
            offset: place.offset,
            content,
        };
        if content.is_none() {
            state
                .tombstones
                .push_back((record.append_time, place.offset, key));
        }
        let before = state.last_by_key.insert(key, last)?;
        let replaced = Place {
            offset: before.offset,
            ..place
        };
        let is_announcement = place.topic == Topic::Announcements && is_announce(record);
        if is_announcement && content.is_some() && before.content == content {
            return Some(replaced);
        }
        state
            .superseded
            .push_back((record.append_time, before.offset));
        None
    }

    pub(super) fn find_last(
        &self,
        topic: Topic,
        partition: PartitionId,
        key: &[u8],
    ) -> Option<LastRecord> {
        let state = self.topic(topic).get(partition.0 as usize)?;
        state
            .last_by_key
            .get(&xxh3_128(key))
            .map(|last| LastRecord {
                offset: last.offset,
                is_tombstone: last.content.is_none(),
            })
    }

    /// Takes up to `count_max` records out that need not be kept at `now`, by Kafka's rule: a
    /// superseded record goes once the one that superseded it is older than the lag; a tombstone
    /// that is still its key's last goes after its retention.
    pub(super) fn take_removable(
        &mut self,
        now: Timestamp,
        retention: Retention,
        count_max: usize,
    ) -> Vec<Place> {
        let superseded_before = now.minus(retention.compaction_lag);
        let deleted_before = now.minus(retention.delete_retention.max(retention.compaction_lag));
        let mut removable = Vec::new();
        for topic in Topic::ALL {
            for (id, state) in (0..).map(PartitionId).zip(self.topic_mut(topic)) {
                let room = count_max.saturating_sub(removable.len());
                let offsets = state.take_removable(superseded_before, deleted_before, room);
                removable.extend(offsets.into_iter().map(|offset| Place {
                    topic,
                    partition: id,
                    offset,
                }));
            }
        }
        removable
    }

    /// Where every partition ends, with offsets set aside above it unless the log is closing.
    pub(super) fn ends(&self, closing: Closing) -> Vec<(Topic, PartitionId, End)> {
        let of_topic = |topic| {
            let partitions = (0..).map(PartitionId).zip(self.topic(topic));
            partitions.map(move |(id, state)| (topic, id, state.end(closing)))
        };
        Topic::ALL.into_iter().flat_map(of_topic).collect()
    }

    fn topic(&self, topic: Topic) -> &Vec<Partition> {
        match topic {
            Topic::Announcements => &self.announcements,
            Topic::Config => &self.config,
            Topic::Control => &self.control,
        }
    }

    fn topic_mut(&mut self, topic: Topic) -> &mut Vec<Partition> {
        match topic {
            Topic::Announcements => &mut self.announcements,
            Topic::Config => &mut self.config,
            Topic::Control => &mut self.control,
        }
    }

    fn find_mut(&mut self, topic: Topic, partition: PartitionId) -> Option<&mut Partition> {
        self.topic_mut(topic).get_mut(partition.0 as usize)
    }
}

impl Partition {
    fn end(&self, closing: Closing) -> End {
        let reserve = match closing {
            Closing::Orderly => 0,
            Closing::Crash => EMBEDDED_RESERVE,
        };
        End {
            next: self.next,
            reserved: Offset(self.next.0.saturating_add(reserve)),
            last_time: self.last_time,
        }
    }

    fn take_removable(
        &mut self,
        superseded_before: Timestamp,
        deleted_before: Timestamp,
        count_max: usize,
    ) -> Vec<Offset> {
        let mut removable = Vec::new();
        while removable.len() < count_max
            && let Some((_, offset)) = self
                .superseded
                .pop_front_if(|(time, _)| *time <= superseded_before)
        {
            removable.push(offset);
        }
        while removable.len() < count_max
            && let Some((_, offset, key)) = self
                .tombstones
                .pop_front_if(|(time, ..)| *time <= deleted_before)
        {
            if self
                .last_by_key
                .get(&key)
                .is_some_and(|last| last.offset == offset)
            {
                self.last_by_key.remove(&key);
                removable.push(offset);
            }
        }
        removable
    }
}

fn content(record: &Record) -> Option<ContentDigest> {
    let value = record.value.as_ref()?;
    let mut digest = Xxh3Default::new();
    digest.update(value);
    record
        .headers
        .as_ref()
        .copied()
        .unwrap_or_default()
        .hash(&mut digest);
    Some(NonZeroU64::new(digest.finish()).unwrap_or(NonZeroU64::MIN))
}

fn is_announce(record: &Record) -> bool {
    let headers = record.headers.as_ref();
    headers.map_or(RecordKind::default(), |headers| headers.kind) == RecordKind::Announce
}
