//! What every topic has, whatever its records mean: positions, ticks and an identity.

use waypost_core::record::{IDENTITY_KEY, LogIdentity, TICK_KEY, TickRef};
use waypost_core::{LogTime, Offset, PartitionId, Record, RecordKind, Topic};

use crate::clock::{PartitionClock, is_plausible};
use crate::continuity::{Alarm, Discontinuity};
use crate::event::{FoldEvent, Outcome, RejectReason, Tick, VoidReason};

/// Positions, log time and identity of one topic.
#[derive(Clone, Debug)]
pub struct TopicClock {
    topic: Topic,
    identity: Option<LogIdentity>,
    /// Where the identity record stands in partition 0.
    identity_at: Option<Offset>,
    own_name: Option<LogIdentity>,
    partitions: Vec<PartitionClock>,
    /// The first sign since the last question that a position is not continued.
    alarm: Option<Alarm>,
}

impl TopicClock {
    /// Nothing read yet.
    #[must_use]
    pub fn new(topic: Topic) -> Self {
        Self {
            topic,
            identity: None,
            identity_at: None,
            own_name: None,
            partitions: Vec::new(),
            alarm: None,
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

    /// Where its identity record stands in partition 0.
    #[must_use]
    pub fn identity_at(&self) -> Option<Offset> {
        self.identity_at
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

    /// The log says that a partition ends at `end`; whether that is below what was read when it was
    /// asked.
    pub(crate) fn on_end(&mut self, partition: PartitionId, end: Offset) -> bool {
        self.partition(partition).on_end(end)
    }

    /// Takes over what a snapshot says of another reading.
    pub(crate) fn restore(&mut self, identity: Option<LogIdentity>, positions: &[Offset]) {
        self.identity = identity;
        for (partition, position) in (0..).map(PartitionId).zip(positions) {
            self.advance_to(partition, *position);
        }
    }

    /// An identity that is no surprise: this Observer itself writes it.
    pub(crate) fn set_own_name(&mut self, name: Option<LogIdentity>) {
        self.own_name = name;
    }

    /// What was found since the last question.
    pub(crate) fn take_alarm(&mut self) -> Option<Alarm> {
        self.alarm.take()
    }

    fn raise(&mut self, partition: PartitionId, cause: Discontinuity) {
        self.alarm.get_or_insert(Alarm { partition, cause });
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
        if !is_plausible(time, record.offset) {
            let reason = "a tick with more log time than the offsets before it can hold";
            return reject(self.topic, record, RejectReason::Form(reason), events);
        }
        let at = TickRef {
            offset: record.offset,
            append_time: record.append_time,
        };
        let prev = headers.prev;
        let clock = self.partition(record.partition);
        let is_old = clock.is_below_floor(record.offset);
        let broken = clock.follow_tick(at, prev);
        if let (Some(ours), Some(theirs)) = (self.identity, headers.log)
            && ours != theirs
            && !is_old
        {
            self.raise(record.partition, Discontinuity::OtherLog(theirs));
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
        if let Some(cause) = broken {
            self.raise(record.partition, cause);
        }
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
        let is_old = self
            .partition(record.partition)
            .is_below_floor(record.offset);
        let is_known = [self.identity, self.own_name].contains(&Some(identity));
        if !is_old && !is_known && self.identity.is_some() {
            self.raise(record.partition, Discontinuity::Renamed(identity));
            return Outcome::Control;
        }
        self.identity = Some(identity);
        self.identity_at = Some(record.offset);
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
