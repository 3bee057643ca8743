//! What this Observer writes: ticks, the log's identity, expires as far as the cap allows, burials and
//! restatements (docs/announcement-log.md, "Time", "Expiry", "Cap and holding", "Compaction").
//!
//! Decides only. Nothing that is decided here has an effect before it is read back from the log.

mod expiry;
mod role;
mod room;
mod statements;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use waypost_core::record::{KeeperId, LogIdentity};
use waypost_core::{InstanceKey, LogTime, NewRecord, Offset, PartitionId, RecordKind, Topic};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::{Mark, PartitionClock};
use crate::config_fold::{ConfigFold, ControlFold};
use crate::event::Tick;
use crate::fold::Fold;
use crate::limits::{
    METADATA_AGE_MAX, PAUSE_NOTICED, SLOW_TICK_INTERVAL, TAKEOVER_MISSED_TICKS, TICK_IN_FLIGHT_MAX,
    TICK_INTERVAL,
};
use crate::records;
use crate::topic_clock::TopicClock;
use expiry::Looks;
use statements::Written;

/// Whether an Observer writes at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// It takes part: may become keeper, and is part of the safety net.
    #[default]
    ReadWrite,
    /// `--read-only`: it folds another fabric's log and writes nothing.
    ReadOnly,
}

/// How a keeper behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperSettings {
    /// Whether it writes.
    pub access: Access,
    /// How often the announcements topic is ticked; a takeover takes three of these, plus jitter.
    pub tick_interval: Duration,
    /// How often the config and control topics are ticked.
    pub slow_tick_interval: Duration,
}

impl Default for KeeperSettings {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            tick_interval: TICK_INTERVAL,
            slow_tick_interval: SLOW_TICK_INTERVAL,
        }
    }
}

impl KeeperSettings {
    /// How long it may be since a topic's tick was read before the log is suspected to be another:
    /// the ticks after which another Observer takes over.
    pub(crate) fn trust_in_ticks(&self, topic: Topic) -> Duration {
        let interval = match topic {
            Topic::Announcements => self.tick_interval,
            Topic::Config | Topic::Control => self.slow_tick_interval,
        };
        interval.saturating_mul(TAKEOVER_MISSED_TICKS)
    }
}

/// The three folds of one log, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Logs<'a> {
    /// The announcements topic.
    pub announcements: &'a Fold,
    /// The config topic.
    pub config: &'a ConfigFold,
    /// The control topic.
    pub control: &'a ControlFold,
}

impl<'a> Logs<'a> {
    /// Positions, ticks and identity of one topic.
    #[must_use]
    pub fn clock(&self, topic: Topic) -> &'a TopicClock {
        match topic {
            Topic::Announcements => self.announcements.clock(),
            Topic::Config => self.config.clock(),
            Topic::Control => self.control.clock(),
        }
    }
}

/// What an Observer is to the log at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It reads only: by its settings, or because it was not at the end of every partition yet.
    #[default]
    Follower,
    /// Another ticks, or is about to.
    Standby,
    /// It ticks. It is the keeper once its own tick was the last one read in partition 0.
    Ticking,
}

/// The state machine of one Observer. A driver that starts to read anew, with new folds, also makes
/// a new one (of the same id).
#[derive(Clone, Debug)]
pub struct Keeper {
    id: KeeperId,
    settings: KeeperSettings,
    role: Role,
    ends: BTreeMap<(Topic, PartitionId), EndReport>,
    /// Log time of a partition when this Observer first stood at its end.
    followed_since: BTreeMap<PartitionId, LogTime>,
    /// What of a partition's ticks and identity was written last.
    sent: HashMap<(Topic, PartitionId, RecordKind), Sent>,
    written: HashMap<(PartitionId, RecordKind, InstanceKey), Written>,
    /// Expires that count and were not read back yet.
    pending: HashMap<(PartitionId, InstanceKey), Written>,
    looks: Looks,
    /// When a tick of partition 0 was read last, or when this began to listen for one.
    heard_at: Duration,
    asked_at: Duration,
    /// When it stood at the end of every partition last.
    at_end_at: Option<Duration>,
    /// Reports of ends from before this Observer slept say nothing any more.
    awake_since: Duration,
}

/// What the log said last about a partition's end.
#[derive(Clone, Copy, Debug)]
struct EndReport {
    end: Offset,
    /// When, by this Observer's monotonic time.
    at: Duration,
    /// After which tick.
    mark: Mark,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Duration,
    in_flight: bool,
}

impl Keeper {
    /// A follower that has seen nothing yet.
    #[must_use]
    pub fn new(id: KeeperId, settings: KeeperSettings) -> Self {
        Self {
            id,
            settings,
            role: Role::default(),
            ends: BTreeMap::new(),
            followed_since: BTreeMap::new(),
            sent: HashMap::new(),
            written: HashMap::new(),
            pending: HashMap::new(),
            looks: Looks::default(),
            heard_at: Duration::ZERO,
            asked_at: Duration::ZERO,
            at_end_at: None,
            awake_since: Duration::ZERO,
        }
    }

    /// Whose decisions these are.
    #[must_use]
    pub fn id(&self) -> KeeperId {
        self.id
    }

    /// What this Observer is at the moment.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether this Observer is the keeper: its tick was the last one read in partition 0.
    #[must_use]
    pub fn is_keeper(&self, logs: &Logs<'_>) -> bool {
        let clock = logs.announcements.clock().find(PartitionId(0));
        let last_tick = clock.and_then(PartitionClock::last_tick);
        last_tick.is_some_and(|tick| tick.keeper == self.id)
    }

    /// A tick was read.
    pub fn on_tick(&mut self, tick: &Tick, now: Duration) {
        if tick.topic == Topic::Announcements && tick.partition == PartitionId(0) {
            self.hear(tick.keeper, now);
        }
    }

    /// The log said, after everything read so far was read, that a partition ends at `end`.
    pub fn on_end(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        end: Offset,
        logs: &Logs<'_>,
        now: Duration,
    ) {
        let Some(clock) = logs.clock(topic).find(partition) else {
            return;
        };
        let report = EndReport {
            end,
            at: now,
            mark: clock.mark(),
        };
        self.ends.insert((topic, partition), report);
    }

    /// Whether this Observer stands at the end of every partition and has not done so before, or not
    /// for a while: it slept, or the log was away. Asked before [`Self::due`], says so once.
    pub(crate) fn returns(&mut self, now: Duration, logs: &Logs<'_>) -> bool {
        self.notice_sleep(now);
        if !self.is_at_end(logs, now) {
            return false;
        }
        let was_away = self
            .at_end_at
            .is_none_or(|at| at < self.awake_since || now.saturating_sub(at) >= METADATA_AGE_MAX);
        self.at_end_at = Some(now);
        was_away
    }

    /// What is to be written now. Each record is appended once, beside the others, and never
    /// retried; the driver then calls [`Self::on_settled`].
    pub fn due(&mut self, now: Duration, logs: &Logs<'_>) -> Vec<NewRecord> {
        self.notice_sleep(now);
        if self.settings.access == Access::ReadOnly || !self.is_at_end(logs, now) {
            return Vec::new();
        }
        for (partition, clock) in logs.announcements.clock().iter() {
            let since = self.followed_since.entry(partition);
            since.or_insert_with(|| clock.log_time());
        }
        self.take_turns(now);
        let mut due = Vec::new();
        if self.role == Role::Ticking {
            for topic in Topic::ALL {
                self.push_ticks(topic, now, logs, &mut due);
            }
        }
        self.push_statements(now, logs, &mut due);
        due
    }

    /// A record that `due` gave out was taken by the log, or was given up.
    pub fn on_settled(&mut self, record: &NewRecord) {
        let Some(partition) = record.partition else {
            return;
        };
        let place = (record.topic, partition, record.headers.kind);
        if let Some(sent) = self.sent.get_mut(&place) {
            sent.in_flight = false;
        }
    }

    /// One tick for a partition whose position stands still below its end while loading; `None` if
    /// this Observer writes nothing.
    #[must_use]
    pub fn nudge(&self, place: (Topic, PartitionId), logs: &Logs<'_>) -> Option<NewRecord> {
        let clock = logs.clock(place.0);
        let partition = clock.find(place.1)?;
        (self.settings.access == Access::ReadWrite)
            .then(|| self.mk_tick(place.0, place.1, partition, clock.identity()))
    }

    fn notice_sleep(&mut self, now: Duration) {
        if now.saturating_sub(self.asked_at) > PAUSE_NOTICED {
            self.awake_since = now;
        }
        self.asked_at = now;
    }

    /// Whether everything that exists was read, as far as the log has said lately.
    fn is_at_end(&self, logs: &Logs<'_>, now: Duration) -> bool {
        Topic::ALL.into_iter().all(|topic| {
            let clock = logs.clock(topic);
            let mut partitions = clock.iter();
            clock.partition_count() > 0
                && partitions.all(|(id, partition)| {
                    self.fresh_end(topic, id, now)
                        .is_some_and(|report| partition.position() >= report.end)
                })
        })
    }

    /// What the log said about a partition's end, if it did so lately and since this Observer slept.
    fn fresh_end(&self, topic: Topic, partition: PartitionId, now: Duration) -> Option<&EndReport> {
        self.ends.get(&(topic, partition)).filter(|report| {
            report.at >= self.awake_since && now.saturating_sub(report.at) < METADATA_AGE_MAX
        })
    }

    /// The ticks of a topic that are due, or first of all the record that says which log it is.
    fn push_ticks(
        &mut self,
        topic: Topic,
        now: Duration,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let clock = logs.clock(topic);
        let interval = match topic {
            Topic::Announcements => self.settings.tick_interval,
            Topic::Config | Topic::Control => self.settings.slow_tick_interval,
        };
        if clock.identity().is_none() {
            let place = (topic, PartitionId(0), RecordKind::Identity);
            if self.may_send(place, interval, now) {
                due.push(records::identity(
                    topic,
                    self.new_identity(topic, None),
                    None,
                ));
            }
            return;
        }
        for (id, partition) in clock.iter() {
            if self.may_send((topic, id, RecordKind::Tick), interval, now) {
                due.push(self.mk_tick(topic, id, partition, clock.identity()));
            }
        }
    }

    /// Whether a tick or identity is due, none being on its way; if so it counts as sent.
    fn may_send(
        &mut self,
        place: (Topic, PartitionId, RecordKind),
        interval: Duration,
        now: Duration,
    ) -> bool {
        let may = self.sent.get(&place).is_none_or(|sent| {
            let since = now.saturating_sub(sent.at);
            since >= interval && (!sent.in_flight || since >= TICK_IN_FLIGHT_MAX)
        });
        if may {
            let sent = Sent {
                at: now,
                in_flight: true,
            };
            self.sent.insert(place, sent);
        }
        may
    }

    fn mk_tick(
        &self,
        topic: Topic,
        partition: PartitionId,
        clock: &PartitionClock,
        identity: Option<LogIdentity>,
    ) -> NewRecord {
        let prev = clock.last_tick().map(|tick| tick.at);
        records::tick(topic, partition, self.id, identity, prev, clock.log_time())
    }

    /// As random as this Observer's own id, and another one for each topic.
    pub(crate) fn new_identity(&self, topic: Topic, follows: Option<LogIdentity>) -> LogIdentity {
        let follows = follows.map_or(0, |old| old.0).to_le_bytes();
        let id = self.id.0.to_le_bytes();
        let seed = [&id, &follows, topic.suffix().as_bytes()].concat();
        LogIdentity(xxh3_64(&seed))
    }
}
