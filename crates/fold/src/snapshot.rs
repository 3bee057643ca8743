//! What an Observer keeps on disk, so that its next start knows what was served: a start from it is
//! a replay, with what the snapshot holds as the old state (docs/announcement-log.md, "Snapshots").

use bytes::Bytes;
use waypost_core::config::{ConfigKey, ConfigValue};
use waypost_core::partition::partition_for_key;
use waypost_core::record::LogIdentity;
use waypost_core::{InstanceKey, InstanceValue, Offset, PartitionId, Timestamp};

use crate::config_fold::{ConfigFold, Held, Origin};
use crate::event::{Confirmation, FoldEvent, Life};
use crate::fold::{Fold, FoldSettings};
use crate::key_state::{Accepted, KeyState, Live, NewContent, Place};
use crate::key_table::KeyParts;
use crate::partition_fold::NewKey;

/// The served state of one log, as far as it must be known to compare another reading with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Where the announcements topic was read to.
    pub announcements: TopicSnapshot,
    /// Where the config topic was read to.
    pub config: TopicSnapshot,
    /// Every live instance.
    pub instances: Vec<InstanceSnapshot>,
    /// Every record of the config topic that stands.
    pub records: Vec<ConfigSnapshot>,
}

/// Where a topic was read to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSnapshot {
    /// Which log it was.
    pub identity: Option<LogIdentity>,
    /// The position in each partition, in order.
    pub positions: Vec<Offset>,
}

/// A live instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSnapshot {
    /// Which instance.
    pub key: InstanceKey,
    /// Who announced it.
    pub life: Life,
    /// Its time-to-live, milliseconds.
    pub ttl_ms: u32,
    /// The bytes of its announcement.
    pub value: Bytes,
    /// Whether the log that was read had said that it lives.
    pub confirmation: Confirmation,
}

/// A record of the config topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSnapshot {
    /// Which one.
    pub key: ConfigKey,
    /// What it says.
    pub value: ConfigValue,
    /// Where it stood.
    pub partition: PartitionId,
    /// Where it stood.
    pub offset: Offset,
    /// When the log took it.
    pub append_time: Timestamp,
    /// Whether the log that was read had it.
    pub origin: Origin,
}

impl Fold {
    /// Where the topic was read to.
    #[must_use]
    pub fn topic_snapshot(&self) -> TopicSnapshot {
        topic_snapshot(self.clock())
    }

    /// The live instances whose copy in `partition` is the one that is served. A partition at a
    /// time, so that whoever takes the snapshot of a whole fleet can do other things in between.
    pub fn snapshot(&self, partition: PartitionId) -> impl Iterator<Item = InstanceSnapshot> {
        let standing = self.standing_in(partition);
        standing.filter_map(to_snapshot)
    }

    /// The fold whose snapshot this is, for a replay to be compared with. It knows no time.
    #[must_use]
    pub fn from_snapshot(
        settings: FoldSettings,
        topic: &TopicSnapshot,
        instances: &[InstanceSnapshot],
    ) -> Self {
        let mut fold = Self::new(settings);
        let count = u32::try_from(topic.positions.len()).unwrap_or(u32::MAX);
        fold.set_partitions(count);
        fold.clock_mut().restore(topic.identity, &topic.positions);
        for instance in instances {
            fold.restore(instance);
        }
        fold
    }

    fn restore(&mut self, instance: &InstanceSnapshot) {
        if self.partition_count == 0 {
            return;
        }
        let record_key = instance.key.to_record_key();
        let partition = partition_for_key(&record_key, self.partition_count);
        let fold = self.partitions.get_mut(partition.0 as usize);
        let (Some(fold), Some(clock)) = (fold, self.clock.find(partition)) else {
            return;
        };
        let place = Place {
            offset: Offset::NONE,
            append_time: Timestamp(0),
            mark: clock.mark(),
        };
        let content = NewContent {
            value: InstanceValue::new(&instance.key.uri, &instance.value),
            digest: KeyParts::of(&instance.key).digest(&instance.value),
            ttl_ms: instance.ttl_ms,
        };
        if instance.confirmation == Confirmation::Unconfirmed {
            let live = Live::unconfirmed(instance.life, content, place);
            fold.insert_unconfirmed(&instance.key, &live, clock, &mut self.names);
            return;
        }
        let accepted = Accepted {
            life: instance.life,
            place,
        };
        let key = NewKey {
            key: self.names.intern(instance.key.clone()),
            stray: false,
        };
        fold.insert_live(key, accepted, content, clock.log_time());
    }

    /// Everything that is served, as if it had just appeared.
    pub(crate) fn tell_all(&self, events: &mut Vec<FoldEvent>) {
        let standing = self.standing_states();
        events.extend(standing.filter_map(|state| {
            Some(FoldEvent::Live {
                key: state.key.clone(),
                value: state.live()?.value.clone(),
            })
        }));
    }
}

impl ConfigFold {
    /// Where the topic was read to.
    #[must_use]
    pub fn topic_snapshot(&self) -> TopicSnapshot {
        topic_snapshot(self.clock())
    }

    /// Every record that stands.
    pub fn snapshot(&self) -> impl Iterator<Item = ConfigSnapshot> {
        self.records().filter_map(|(key, held)| {
            Some(ConfigSnapshot {
                key: key.clone(),
                value: held.value.clone()?,
                partition: held.partition,
                offset: held.offset,
                append_time: held.append_time,
                origin: held.origin,
            })
        })
    }

    /// The fold whose snapshot this is, for a replay to be compared with.
    #[must_use]
    pub fn from_snapshot(topic: &TopicSnapshot, records: &[ConfigSnapshot]) -> Self {
        let mut fold = Self::new();
        let count = u32::try_from(topic.positions.len()).unwrap_or(u32::MAX);
        fold.set_partitions(count);
        fold.clock_mut().restore(topic.identity, &topic.positions);
        for record in records {
            let held = Held {
                value: Some(record.value.clone()),
                partition: record.partition,
                offset: record.offset,
                append_time: record.append_time,
                replaces: None,
                origin: record.origin,
                conflict: None,
            };
            fold.hold(record.key.clone(), held);
        }
        fold
    }

    /// Everything that is served, as if it had just appeared.
    pub(crate) fn tell_all(&self, events: &mut Vec<FoldEvent>) {
        self.tell_differences(&Self::new(), events);
    }
}

fn topic_snapshot(clock: &crate::topic_clock::TopicClock) -> TopicSnapshot {
    TopicSnapshot {
        identity: clock.identity(),
        positions: clock.iter().map(|(_, clock)| clock.position()).collect(),
    }
}

fn to_snapshot(state: &KeyState) -> Option<InstanceSnapshot> {
    let live = state.live()?;
    Some(InstanceSnapshot {
        key: state.key.clone(),
        life: live.life(),
        ttl_ms: live.ttl_ms,
        value: live.value.to_bytes(),
        confirmation: live.confirmation,
    })
}
