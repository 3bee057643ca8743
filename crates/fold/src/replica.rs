//! One Observer's copy of the log: the three folds, what a start waits for, the keeper's part, and
//! what happens when the log is not the one that was read before. Events of the readers in,
//! what changed and what is to be done out; pure, so that a simulated world drives the same thing as
//! an Observer does (docs/announcement-log.md, "Identity, loading, replay").

mod doubt;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use waypost_core::port::ReadEvent;
use waypost_core::record::KeeperId;
use waypost_core::time::millis;
use waypost_core::{NewRecord, Offset, PartitionId, Record, Topic};

use crate::config_fold::{ConfigFold, ControlFold};
use crate::continuity::{Alarm, Discontinuity};
use crate::event::{FoldEvent, Outcome};
use crate::fold::{Fold, FoldSettings};
use crate::keeper::{Access, Keeper, KeeperSettings, Logs};
use crate::lane::{Doubts, Lane, Replayed};
use crate::limits::TOMBSTONES_KEPT;
use crate::loading::Loading;
use crate::records;
use crate::snapshot::Snapshot;
use crate::topic_clock::TopicClock;
use doubt::Questions;

/// How a replica behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// What the fold of announcements goes by.
    pub fold: FoldSettings,
    /// How its keeper behaves.
    pub keeper: KeeperSettings,
    /// Log time that a log must have before what it lacks means anything; zero takes a new log at
    /// its word.
    pub newborn_grace: Duration,
    /// How long the log keeps tombstones (Kafka's `delete.retention.ms`). Who has not read for half
    /// of it reads everything again.
    pub tombstones_kept: Duration,
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        Self {
            fold: FoldSettings::default(),
            keeper: KeeperSettings::default(),
            newborn_grace: crate::limits::NEWBORN_GRACE,
            tombstones_kept: TOMBSTONES_KEPT,
        }
    }
}

/// What a driver is to do. Each is given out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Append a record in the background, once, and then call [`Replica::on_settled`].
    Append(Box<NewRecord>),
    /// Drop the topic's reader and open another at its beginning.
    ReadAgain(Topic),
    /// Look at one record, and call [`Replica::on_read_at`] with what was found.
    ReadAt {
        /// Which topic.
        topic: Topic,
        /// Which partition.
        partition: PartitionId,
        /// Which offset.
        offset: Offset,
    },
}

/// The copy. Told of everything by one driver, in the order in which it happens.
#[derive(Clone, Debug)]
pub struct Replica {
    settings: ReplicaSettings,
    announcements: Lane<Fold>,
    config: Lane<ConfigFold>,
    control: Lane<ControlFold>,
    loading: Loading,
    keeper: Keeper,
    questions: Questions,
    requests: VecDeque<Request>,
    renames: BTreeMap<Topic, NewRecord>,
    renamed_at: Duration,
}

/// Does the same with the lane of a topic, whichever it is.
macro_rules! with_lane {
    ($replica:expr, $topic:expr, $lane:ident => $body:expr) => {
        match $topic {
            Topic::Announcements => {
                let $lane = &mut $replica.announcements;
                $body
            }
            Topic::Config => {
                let $lane = &mut $replica.config;
                $body
            }
            Topic::Control => {
                let $lane = &mut $replica.control;
                $body
            }
        }
    };
}

impl Replica {
    /// A copy of which nothing has been read. `id` is this process's as a keeper.
    #[must_use]
    pub fn new(id: KeeperId, settings: ReplicaSettings) -> Self {
        Self {
            announcements: Lane::new(Topic::Announcements, Fold::new(settings.fold)),
            config: Lane::new(Topic::Config, ConfigFold::new()),
            control: Lane::new(Topic::Control, ControlFold::new()),
            loading: Loading::new(&Topic::ALL, settings.newborn_grace),
            keeper: Keeper::new(id, settings.keeper),
            questions: Questions::default(),
            requests: VecDeque::new(),
            renames: BTreeMap::new(),
            renamed_at: Duration::ZERO,
            settings,
        }
    }

    /// Takes over what a snapshot holds, before anything was read. `events` gets all of it. It is
    /// compared with what the log holds once that was read, as after any replay; served it is then, or
    /// after [`Self::serve_snapshot`].
    pub fn restore(&mut self, snapshot: &Snapshot, events: &mut Vec<FoldEvent>) {
        let settings = self.settings.fold;
        let (topic, instances) = (&snapshot.announcements, &snapshot.instances);
        let announcements = Fold::from_snapshot(settings, topic, instances);
        announcements.tell_all(events);
        self.announcements.restore(announcements);
        let config = ConfigFold::from_snapshot(&snapshot.config, &snapshot.records);
        config.tell_all(events);
        self.config.restore(config);
    }

    /// The log cannot be read in the time that an operator gives it: what the snapshot holds is
    /// served from now on, and the log is read beside it.
    pub fn serve_snapshot(&mut self) {
        self.loading.cut_short();
    }

    /// One event of the topic's reader. `now` is any monotonic time; `events` gets what changed, and
    /// `heard` every record with what became of it.
    pub fn on_event(
        &mut self,
        topic: Topic,
        event: &ReadEvent,
        now: Duration,
        events: &mut Vec<FoldEvent>,
        heard: &mut dyn FnMut(&Record, &Outcome),
    ) {
        match event {
            ReadEvent::Partitions(count) => self.on_partitions(topic, *count, now, events),
            ReadEvent::Bounds { partition, end, .. } => {
                self.on_bounds(topic, *partition, *end, now, events);
            }
            ReadEvent::Records(records) => self.on_records(topic, records, now, events, heard),
            ReadEvent::CaughtUp {
                partition,
                position,
            } => self.on_caught_up(topic, *partition, *position, now, events),
            ReadEvent::OutOfRange { partition, .. } => {
                let alarm = Alarm {
                    partition: *partition,
                    cause: Discontinuity::OutOfRange,
                };
                self.begin_replay(topic, alarm, now, events);
            }
            ReadEvent::Unavailable(_) | ReadEvent::Available => {}
        }
    }

    /// What the last events ask for. Asked after each of them, so that a reader whose topic is read
    /// again gives out nothing more.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.requests.drain(..).collect()
    }

    /// What is to be done now, asked several times a second.
    pub fn due(&mut self, now: Duration) -> Vec<Request> {
        if !self.is_replaying() {
            self.push_keeper_records(now);
            self.push_renames(now);
        }
        for place in self.stuck(now) {
            let nudge = self.keeper.nudge(place, &self.reading_logs());
            self.requests
                .extend(nudge.map(|record| Request::Append(Box::new(record))));
        }
        self.take_requests()
    }

    /// A record that [`Self::due`] gave out was taken by the log, or was given up.
    pub fn on_settled(&mut self, record: &NewRecord) {
        self.keeper.on_settled(record);
    }

    /// The folds whose state is served.
    #[must_use]
    pub fn logs(&self) -> Logs<'_> {
        Logs {
            announcements: self.announcements.served(),
            config: self.config.served(),
            control: self.control.served(),
        }
    }

    /// Positions, ticks and identity of what is being read: the served fold's, or those of the one
    /// that will take its place.
    #[must_use]
    pub fn reading(&self, topic: Topic) -> &TopicClock {
        self.reading_logs().clock(topic)
    }

    /// What a start still waits for.
    #[must_use]
    pub fn loading(&self) -> &Loading {
        &self.loading
    }

    /// What this Observer writes.
    #[must_use]
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Topics that are being read again while the old state is served.
    pub fn replaying(&self) -> impl Iterator<Item = Topic> {
        let lanes = [
            (Topic::Announcements, self.announcements.is_replaying()),
            (Topic::Config, self.config.is_replaying()),
            (Topic::Control, self.control.is_replaying()),
        ];
        let replaying = lanes.into_iter().filter(|(_, is_replaying)| *is_replaying);
        replaying.map(|(topic, _)| topic)
    }

    fn is_replaying(&self) -> bool {
        self.replaying().next().is_some()
    }

    fn reading_logs(&self) -> Logs<'_> {
        Logs {
            announcements: self.announcements.reading(),
            config: self.config.reading(),
            control: self.control.reading(),
        }
    }

    fn on_partitions(
        &mut self,
        topic: Topic,
        count: u32,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        match with_lane!(self, topic, lane => lane.on_partitions(count)) {
            Some(alarm) => self.begin_replay(topic, alarm, now, events),
            None => self.loading.on_partitions(topic, count),
        }
    }

    fn on_bounds(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        end: Offset,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        match with_lane!(self, topic, lane => lane.on_end(partition, end)) {
            Some(alarm) => self.begin_replay(topic, alarm, now, events),
            None => self.on_end(topic, partition, end, now, events),
        }
    }

    fn on_caught_up(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        position: Offset,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        with_lane!(self, topic, lane => lane.on_caught_up(partition, position));
        self.on_position(topic, partition, now);
        self.on_end(topic, partition, position, now, events);
    }

    fn on_records(
        &mut self,
        topic: Topic,
        records: &[Record],
        now: Duration,
        events: &mut Vec<FoldEvent>,
        heard: &mut dyn FnMut(&Record, &Outcome),
    ) {
        let kept_ms = millis(self.settings.tombstones_kept);
        let since = events.len();
        let doubts: Doubts =
            with_lane!(self, topic, lane => lane.on_records(records, kept_ms, events, heard));
        self.hear_ticks(&events[since..], now);
        if topic == Topic::Config && records.iter().any(is_release) {
            self.tell_releases();
        }
        let mut last = None;
        for record in records {
            if last != Some(record.partition) {
                self.on_position(topic, record.partition, now);
                last = Some(record.partition);
            }
        }
        if let Some(alarm) = doubts.alarm {
            self.begin_replay(topic, alarm, now, events);
            return;
        }
        if doubts.identity {
            self.doubt_identity(topic, now, events);
        }
        self.finish_replay(topic, now, events);
    }

    /// The log says where a partition ends, after everything read so far was read.
    fn on_end(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        end: Offset,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        self.loading.on_end(topic, partition, end);
        if !self.is_replaying() {
            let logs = Logs {
                announcements: self.announcements.served(),
                config: self.config.served(),
                control: self.control.served(),
            };
            self.keeper.on_end(topic, partition, end, &logs, now);
        }
        self.finish_replay(topic, now, events);
    }

    fn on_position(&mut self, topic: Topic, partition: PartitionId, now: Duration) {
        let position = with_lane!(self, topic, lane => {
            lane.on_position(partition, now);
            lane.position(partition)
        });
        self.loading.on_position(topic, partition, position, now);
        if topic == Topic::Announcements {
            let log_time = self.reading(topic).log_time_min();
            self.loading.on_log_time(log_time);
        }
    }

    /// Reads a topic again from its beginning. What is served stays, and so does that it is loaded.
    fn begin_replay(
        &mut self,
        topic: Topic,
        alarm: Alarm,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        let cause = alarm.cause;
        let is_served = self.loading.is_loaded();
        match topic {
            Topic::Announcements => {
                let fold = Fold::new(self.settings.fold);
                self.announcements.begin_replay(fold, cause, is_served);
            }
            Topic::Config => self
                .config
                .begin_replay(ConfigFold::new(), cause, is_served),
            Topic::Control => {
                self.control
                    .begin_replay(ControlFold::new(), cause, is_served);
            }
        }
        self.tell_releases();
        self.loading.restart(topic, now);
        self.keeper = Keeper::new(self.keeper.id(), self.settings.keeper);
        self.questions.forget(topic);
        self.renames.remove(&topic);
        self.requests.push_back(Request::ReadAgain(topic));
        events.push(FoldEvent::Discontinued {
            topic,
            partition: alarm.partition,
            cause,
        });
    }

    /// Ends a replay that is over.
    fn finish_replay(&mut self, topic: Topic, now: Duration, events: &mut Vec<FoldEvent>) {
        let replayed: Option<Replayed> =
            with_lane!(self, topic, lane => lane.finish_replay(events));
        let Some(replayed) = replayed else {
            return;
        };
        self.tell_releases();
        self.keeper = Keeper::new(self.keeper.id(), self.settings.keeper);
        self.questions.on_read_to_end(topic, now);
        events.push(FoldEvent::Replayed {
            topic,
            sameness: replayed.sameness,
        });
        if let Some(old) = replayed.to_rename
            && self.settings.keeper.access == Access::ReadWrite
        {
            let name = self.keeper.new_identity(topic, Some(old));
            with_lane!(self, topic, lane => lane.set_own_name(name));
            self.renames
                .insert(topic, records::identity(topic, name, Some(old)));
        }
    }

    /// The fold of announcements counts what expires, unless an operator released it.
    fn tell_releases(&mut self) {
        let config = self.config.served();
        self.announcements.for_each_fold(|fold| {
            for (scope, at) in config.released() {
                fold.release(scope, at);
            }
        });
    }

    fn stuck(&mut self, now: Duration) -> Vec<(Topic, PartitionId)> {
        let mut stuck = self.loading.stuck(now);
        for topic in Topic::ALL {
            stuck.extend(with_lane!(self, topic, lane => lane.stuck(now)));
        }
        stuck.dedup();
        stuck
    }
}

/// Whether a record of the config topic may be an operator's release.
fn is_release(record: &Record) -> bool {
    let key = record.key.as_deref();
    key.is_some_and(|key| key.starts_with(b"release\0"))
}
