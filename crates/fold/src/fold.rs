//! The fold of the announcements topic.

mod holding;

use std::time::Duration;

use waypost_core::limits::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use waypost_core::partition::partition_for_key;
use waypost_core::time::millis;
use waypost_core::{InstanceKey, Offset, PartitionId, Record, RecordKind, Topic};

use crate::cap::CapSettings;
use crate::census::Censuses;
use crate::clock::{Mark, PartitionClock};
use crate::copies;
use crate::digest::{self, BucketPage, PartitionDigests};
use crate::event::{FoldEvent, Outcome, RejectReason};
use crate::key_state::{AnnouncementDigest, KeyState, Rank};
use crate::key_table::{ClusterNames, KeyParts};
use crate::limits::GONE_KEPT_TTLS;
use crate::partition_fold::{BurialDue, Overdue, PartitionFold};
use crate::rules::{Reading, Step};
use crate::topic_clock::{TopicClock, reject};
use crate::view::{Counters, InstanceView, PartitionView};

pub use holding::HoldingView;

/// What the fold goes by besides the records. Equal in all Observers of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldSettings {
    /// Time-to-live of an announcement that states none.
    pub ttl_default: Duration,
    /// Shorter ones count as this.
    pub ttl_min: Duration,
    /// Longer ones count as this.
    pub ttl_max: Duration,
    /// How much may expire at once.
    pub cap: CapSettings,
}

impl Default for FoldSettings {
    fn default() -> Self {
        Self {
            ttl_default: TTL_DEFAULT,
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            cap: CapSettings::default(),
        }
    }
}

impl FoldSettings {
    /// The time-to-live in force for an announcement that states `stated`, milliseconds.
    pub(crate) fn ttl_ms(&self, stated: Duration) -> u32 {
        let ttl = if stated.is_zero() {
            self.ttl_default
        } else {
            stated.max(self.ttl_min).min(self.ttl_max)
        };
        u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX)
    }
}

/// The state of every instance, as a function of the records read and of nothing else.
#[derive(Clone, Debug)]
pub struct Fold {
    settings: FoldSettings,
    /// How many partitions the log says there are; 0 until it has said so.
    pub(crate) partition_count: u32,
    pub(crate) clock: TopicClock,
    pub(crate) partitions: Vec<PartitionFold>,
    pub(crate) names: ClusterNames,
    censuses: Censuses,
    counters: Counters,
}

impl Fold {
    /// Nothing read yet.
    #[must_use]
    pub fn new(settings: FoldSettings) -> Self {
        Self {
            settings,
            partition_count: 0,
            clock: TopicClock::new(Topic::Announcements),
            partitions: Vec::new(),
            names: ClusterNames::default(),
            censuses: Censuses::new(settings.cap),
            counters: Counters::default(),
        }
    }

    /// The topic has `count` partitions now: which partition is a key's own depends on it.
    pub fn set_partitions(&mut self, count: u32) {
        self.make_partitions(count);
        if count <= self.partition_count {
            return;
        }
        self.partition_count = count;
        let strays = self.partitions.iter().flat_map(PartitionFold::strays);
        let copied: Vec<_> = strays.cloned().collect();
        for partition in &mut self.partitions {
            let id = partition.id;
            partition.find_strays(|key| partition_for_key(&key.to_record_key(), count) != id);
        }
        self.settle_copies(&copied);
    }

    /// The reader stands at `position`; what lay before and was not delivered was compacted.
    pub fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.make_partitions(partition.0.saturating_add(1));
        self.clock.advance_to(partition, position);
    }

    /// Fetches what is kept of the keys of some records that are about to be read. They are of one
    /// partition as a rule; of others nothing is fetched.
    pub(crate) fn foresee(&self, records: &[Record]) {
        let partition = records.first().map(|record| record.partition.0 as usize);
        if let Some(fold) = partition.and_then(|index| self.partitions.get(index)) {
            let of_fold = records.iter().filter(|r| r.partition == fold.id);
            let keys = of_fold.filter_map(|record| KeyParts::split(record.key.as_deref()?));
            fold.keys.fetch(keys);
        }
    }

    /// Reads one record, appends what happened to `events` and says what became of the record.
    pub fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        self.make_partitions(record.partition.0.saturating_add(1));
        let outcome = if self.clock.enter(record) {
            self.apply_new(record, events)
                .unwrap_or_else(|reason| reject(Topic::Announcements, record, reason, events))
        } else {
            Outcome::AlreadyRead
        };
        self.counters.count(&outcome);
        outcome
    }

    /// Positions, ticks and identity.
    #[must_use]
    pub fn clock(&self) -> &TopicClock {
        &self.clock
    }

    pub(crate) fn clock_mut(&mut self) -> &mut TopicClock {
        &mut self.clock
    }

    /// Live instances that this log has not confirmed yet.
    #[must_use]
    pub fn unconfirmed_count(&self) -> usize {
        self.partitions.iter().map(PartitionFold::unconfirmed).sum()
    }

    /// A live instance.
    #[must_use]
    pub fn find(&self, key: &InstanceKey) -> Option<InstanceView> {
        let (partition, state) = copies::find_standing(&self.partitions, key)?;
        self.view(partition, state)
    }

    /// Every live instance, in no order.
    pub fn iter(&self) -> impl Iterator<Item = InstanceView> {
        let standing = self.standing();
        standing.filter_map(|(partition, state)| self.view(partition, state))
    }

    /// Live instances (a key announced in two partitions counts twice).
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.partitions.iter().map(PartitionFold::live).sum()
    }

    /// Keys that were announced in a partition that is not their own, with where.
    pub fn wrong_partitions(&self) -> impl Iterator<Item = (&InstanceKey, PartitionId)> {
        let partitions = self.partitions.iter();
        partitions.flat_map(|partition| partition.strays().iter().map(|key| (key, partition.id)))
    }

    /// One partition.
    #[must_use]
    pub fn find_partition(&self, partition: PartitionId) -> Option<PartitionView> {
        let (fold, clock) = self.pair(partition)?;
        Some(PartitionView {
            partition,
            position: clock.position(),
            log_time: clock.log_time(),
            last_tick: clock.last_tick(),
            live: fold.live(),
            unconfirmed: fold.unconfirmed(),
            gone: fold.gone(),
            overdue: fold.overdue_count(),
            digest: fold.digests().now(),
        })
    }

    /// All partitions in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView> {
        let ids = self.partitions.iter().map(|partition| partition.id);
        ids.filter_map(|id| self.find_partition(id))
    }

    /// The digests of one partition, now and at its last ticks.
    #[must_use]
    pub fn find_digests(&self, partition: PartitionId) -> Option<&PartitionDigests> {
        let fold = self.partitions.get(partition.0 as usize)?;
        Some(fold.digests())
    }

    /// At most about `keys_max` of the live keys of one bucket, those whose hash is above `after`.
    /// Looks at every key of the partition: for people who compare, not for every second.
    #[must_use]
    pub fn find_bucket(
        &self,
        partition: PartitionId,
        bucket: usize,
        after: Option<u64>,
        keys_max: usize,
    ) -> Option<BucketPage> {
        let (fold, clock) = self.pair(partition)?;
        let (keys, next) = digest::cut(fold.digested_keys(bucket, after), keys_max);
        Some(BucketPage {
            partition,
            position: clock.position(),
            keys,
            next,
        })
    }

    /// How many records had which outcome.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let strays = self.partitions.iter().map(|p| p.stray_records).sum();
        Counters {
            wrong_partition: strays,
            ..self.counters
        }
    }

    /// Live keys of a partition that no announcement had touched for their time-to-live at the
    /// moment `at`.
    pub fn overdue(&self, partition: PartitionId, at: Mark) -> impl Iterator<Item = Overdue> {
        let pair = self.pair(partition).into_iter();
        pair.flat_map(move |(fold, clock)| fold.overdue(clock, at))
    }

    /// Withdrawals of a partition that must be written again, since compaction would otherwise
    /// leave an announcement that they refused.
    pub fn burials_due(&self, partition: PartitionId) -> impl Iterator<Item = BurialDue> {
        let pair = self.pair(partition).into_iter();
        pair.flat_map(|(fold, _)| fold.burials_due())
    }

    /// Of every key the copy that stands, live or gone.
    pub(crate) fn standing_states(&self) -> impl Iterator<Item = &KeyState> {
        self.standing().map(|(_, state)| state)
    }

    /// The same for the copies in one partition.
    pub(crate) fn standing_in(&self, partition: PartitionId) -> impl Iterator<Item = &KeyState> {
        let partition = self.partitions.get(partition.0 as usize).into_iter();
        let states = partition.flat_map(|partition| partition.keys.iter());
        states.filter(|state| state.rank == Rank::Stands)
    }

    fn standing(&self) -> impl Iterator<Item = (PartitionId, &KeyState)> {
        self.partitions.iter().flat_map(|partition| {
            partition
                .keys
                .iter()
                .filter_map(|state| (state.rank == Rank::Stands).then_some((partition.id, state)))
        })
    }

    fn make_partitions(&mut self, count: u32) {
        self.clock.set_partitions(count);
        let known = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
        let is_following = self.partitions.iter().any(PartitionFold::is_followed);
        for id in (known..count).map(PartitionId) {
            let mut partition = PartitionFold::new(id);
            if is_following {
                // It was added under the eyes of this reader, who misses nothing of it.
                partition.follow_from(Offset(0));
            }
            self.partitions.push(partition);
        }
    }

    fn pair(&self, partition: PartitionId) -> Option<(&PartitionFold, &PartitionClock)> {
        let fold = self.partitions.get(partition.0 as usize)?;
        Some((fold, self.clock.find(partition)?))
    }

    fn apply_new(
        &mut self,
        record: &Record,
        events: &mut Vec<FoldEvent>,
    ) -> Result<Outcome, RejectReason> {
        let headers = record.headers.as_ref().map_err(Clone::clone)?;
        let key = record.key.as_deref().ok_or(RejectReason::NoKey)?;
        let is_control = matches!(headers.kind, RecordKind::Tick | RecordKind::Identity);
        if is_control || key.first() == Some(&0) {
            let outcome = self.clock.apply_reserved(record, key, headers.kind, events);
            if headers.kind == RecordKind::Tick && outcome == Outcome::Control {
                self.on_tick(record.partition, events);
            }
            return Ok(outcome);
        }
        let count = self.partition_count;
        let own_partition = |key: &[u8]| (count > 0).then(|| partition_for_key(key, count));
        let clock = self.clock.find(record.partition);
        let fold = self.partitions.get_mut(record.partition.0 as usize);
        let (Some(clock), Some(fold)) = (clock, fold) else {
            return Ok(Outcome::Ignored);
        };
        let parts = KeyParts::split(key);
        let strays_before = fold.strays().len();
        let step = fold.apply(Reading {
            record,
            headers,
            record_key: key,
            key: parts,
            digest: parts
                .zip(record.value.as_deref())
                .map_or_else(AnnouncementDigest::default, |(key, value)| {
                    key.digest(value)
                }),
            clock,
            settings: &self.settings,
            names: &mut self.names,
            own_partition: &own_partition,
        })?;
        if fold.strays().len() > strays_before
            && let Some(expected) = own_partition(key)
            && let Some(slot) = KeyParts::split(key).and_then(|key| fold.keys.find(key))
            && let Some(state) = fold.keys.get(slot)
        {
            events.push(FoldEvent::WrongPartition {
                key: state.key.clone(),
                partition: record.partition,
                expected,
                offset: record.offset,
            });
        }
        self.settle(record.partition, events);
        Ok(self.report(record, step, events))
    }

    fn on_tick(&mut self, partition: PartitionId, events: &mut Vec<FoldEvent>) {
        let kept_ms = millis(self.settings.ttl_max).saturating_mul(GONE_KEPT_TTLS.into());
        let fold = self.partitions.get_mut(partition.0 as usize);
        if let (Some(fold), Some(clock)) = (fold, self.clock.find(partition)) {
            fold.on_tick(clock, kept_ms, &mut self.names);
        }
        self.count_tick(partition);
        self.settle(partition, events);
    }

    /// Says what a step means for whoever holds the served state, which knows no partitions.
    fn report(&self, record: &Record, step: Step, events: &mut Vec<FoldEvent>) -> Outcome {
        match step {
            Step::Live(key) => {
                events.extend(copies::after_live(&self.partitions, record.partition, key));
                Outcome::Changed
            }
            Step::Gone(key, cause) => {
                events.push(copies::after_gone(&self.partitions, key, cause));
                Outcome::Changed
            }
            Step::Absent(key) => {
                // In another partition a copy of it may stand.
                if copies::find_standing(&self.partitions, &key)
                    .is_none_or(|(_, s)| s.live().is_none())
                {
                    let at = record.append_time;
                    events.push(FoldEvent::Absent { key, at });
                }
                Outcome::Unchanged
            }
            Step::Unchanged => Outcome::Unchanged,
            Step::Refused(key, refusal) => {
                let event = FoldEvent::Refused {
                    key,
                    refusal: refusal.clone(),
                };
                events.push(event);
                Outcome::Refused(refusal)
            }
            Step::Void(key, reason) => {
                events.push(FoldEvent::Void {
                    topic: Topic::Announcements,
                    partition: record.partition,
                    offset: record.offset,
                    key: Some(key),
                    reason,
                });
                Outcome::Void(reason)
            }
        }
    }

    fn view(&self, partition: PartitionId, state: &KeyState) -> Option<InstanceView> {
        let live = state.live()?;
        let clock = self.clock.find(partition)?;
        let last_append = clock.last_append().unwrap_or(live.last().append_time);
        Some(InstanceView {
            key: state.key.clone(),
            partition,
            life: live.life(),
            offset: live.last().offset,
            append_time: live.last().append_time,
            heartbeat_age: to_duration(last_append.millis_since(live.last().append_time)),
            log_age: to_duration(clock.age_ms(live.last().mark)),
            ttl: Duration::from_millis(live.ttl_ms.into()),
            value: live.value.to_bytes(),
            refusal: state.refused.as_ref().map(|r| r.refusal.clone()),
            wrong_partition: state.stray,
            expiry: self.expiry_of(state, live),
            confirmation: live.confirmation,
        })
    }
}

fn to_duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
