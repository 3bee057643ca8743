//! What every topic has, whatever its records mean: positions, ticks and an identity.

use waypost_core::record::{IDENTITY_KEY, LogIdentity, TICK_KEY, TickRef};
use waypost_core::{LogTime, Offset, PartitionId, Record, RecordKind, Topic};

use crate::clock::{PartitionClock, is_plausible};
use crate::event::{FoldEvent, Outcome, RejectReason, Tick, VoidReason};

/// Positions, log time and identity of one topic.
#[derive(Clone, Debug)]
pub struct TopicClock {
    topic: Topic,
    identity: Option<LogIdentity>,
    partitions: Vec<PartitionClock>,
}

impl TopicClock {
    /// Nothing read yet.
    #[must_use]
    pub fn new(topic: Topic) -> Self {
        Self {
            topic,
            identity: None,
            partitions: Vec::new(),
        }
    }

    /// Which topic.
    #[must_use]
    pub fn topic(&self) -> Topic {
        self.topic
    }

    /// Which log this is, once its identity record was read. Of several the last stands.
    #[must_use]
    pub fn identity(&self) -> Option<LogIdentity> {
        self.identity
    }

    /// How many partitions are known.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)
    }

    /// One partition, where it is known.
    #[must_use]
    pub fn find(&self, partition: PartitionId) -> Option<&PartitionClock> {
        self.partitions.get(partition.0 as usize)
    }

    /// All partitions in order.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionId, &PartitionClock)> {
        (0..).map(PartitionId).zip(&self.partitions)
    }

    /// The smallest log time of any partition; zero while none is known.
    #[must_use]
    pub fn log_time_min(&self) -> LogTime {
        let times = self.partitions.iter().map(PartitionClock::log_time);
        times.min().unwrap_or_default()
    }

    /// Makes room for `count` partitions; they never become fewer.
    pub(crate) fn set_partitions(&mut self, count: u32) {
        if count > self.partition_count() {
            self.partitions
                .resize_with(count as usize, PartitionClock::default);
        }
    }

    /// The clock of a partition, which is made if it was not known.
    pub(crate) fn partition(&mut self, partition: PartitionId) -> &mut PartitionClock {
        self.set_partitions(partition.0.saturating_add(1));
        &mut self.partitions[partition.0 as usize]
    }

    /// Takes the place of a record; false if it was read before.
    pub(crate) fn enter(&mut self, record: &Record) -> bool {
        self.partition(record.partition)
            .enter(record.offset, record.append_time)
    }

    /// Nothing stands between the position and `position` (compacted away).
    pub(crate) fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.partition(partition).advance_to(position);
    }

    /// Reads a record whose key begins with a zero byte or whose kind is a tick or an identity.
    pub(crate) fn apply_reserved(
        &mut self,
        record: &Record,
        key: &[u8],
        kind: RecordKind,
        events: &mut Vec<FoldEvent>,
    ) -> Outcome {
        match (key, kind) {
            (TICK_KEY, RecordKind::Tick) => self.apply_tick(record, events),
            (IDENTITY_KEY, RecordKind::Identity) => self.apply_identity(record, events),
            (TICK_KEY | IDENTITY_KEY, _) | (_, RecordKind::Tick | RecordKind::Identity) => {
                let reason =
                    "ticks and identity records have keys of their own, and nothing else has them";
                reject(self.topic, record, RejectReason::Form(reason), events)
            }
            _ => Outcome::Ignored,
        }
    }

    fn apply_tick(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        let Ok(headers) = &record.headers else {
            return Outcome::Ignored;
        };
        let (Some(keeper), Some(time)) = (headers.keeper, headers.time) else {
            let reason = "a tick needs waypost-keeper and waypost-time";
            return reject(self.topic, record, RejectReason::Form(reason), events);
        };
        if !is_plausible(time) {
            let reason = "a tick with more than a hundred years of log time";
            return reject(self.topic, record, RejectReason::Form(reason), events);
        }
        if let (Some(ours), Some(theirs)) = (self.identity, headers.log)
            && ours != theirs
        {
            let reason = VoidReason::OtherLog(theirs);
            events.push(FoldEvent::Void {
                topic: self.topic,
                partition: record.partition,
                offset: record.offset,
                key: None,
                reason,
            });
            return Outcome::Void(reason);
        }
        let at = TickRef {
            offset: record.offset,
            append_time: record.append_time,
        };
        let clock = self.partition(record.partition);
        clock.tick(at, keeper, headers);
        let log_time = clock.log_time();
        events.push(FoldEvent::Ticked(Tick {
            topic: self.topic,
            partition: record.partition,
            offset: record.offset,
            append_time: record.append_time,
            keeper,
            log_time,
        }));
        Outcome::Control
    }

    fn apply_identity(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        let headers = record.headers.as_ref().ok();
        let Some(identity) = headers.and_then(|h| h.log) else {
            let reason = "an identity record needs waypost-log";
            return reject(self.topic, record, RejectReason::Form(reason), events);
        };
        if record.partition != PartitionId(0) {
            let reason = "an identity record outside partition 0";
            return reject(self.topic, record, RejectReason::Form(reason), events);
        }
        self.identity = Some(identity);
        events.push(FoldEvent::Identity {
            topic: self.topic,
            identity,
            follows: headers.and_then(|h| h.follows),
        });
        Outcome::Control
    }
}

/// Skips a record, and says so.
pub(crate) fn reject(
    topic: Topic,
    record: &Record,
    reason: RejectReason,
    events: &mut Vec<FoldEvent>,
) -> Outcome {
    events.push(FoldEvent::Rejected {
        topic,
        partition: record.partition,
        offset: record.offset,
        reason: reason.clone(),
    });
    Outcome::Rejected(reason)
}
