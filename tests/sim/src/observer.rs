//! An Observer without anything around it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use waypost_core::record::{Appended, Delivery, KeeperId};
use waypost_core::{
    AnnouncementLog, InstanceKey, LogError, LogReader, NewRecord, Offset, PartitionId, ReadEvent,
    Record, RecordKind, Topic,
};
use waypost_fold::{
    Access, ConfigFold, Fold, FoldEvent, FoldSettings, Keeper, KeeperSettings, Loading, Logs,
    Outcome, Replica, ReplicaSettings, Request, Snapshot,
};
use waypost_log::MemoryLog;
use waypost_log::limits::DELETE_RETENTION;

/// After how long a tick that the log has not taken is given up.
const TICK_PATIENCE: Duration = Duration::from_secs(2);

/// Whether an Observer remembers everything that it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// Every event and outcome.
    #[default]
    Kept,
    /// Nothing: there are very many cases.
    Forgotten,
}

/// What an Observer is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether it writes.
    pub access: Access,
    /// Log time that a log must have before its emptiness means anything.
    pub newborn_grace: Duration,
    /// How long the log keeps tombstones (`delete.retention.ms`).
    pub tombstones_kept: Duration,
    /// Bounds of the time-to-live.
    pub fold: FoldSettings,
    /// Whether tests may ask what happened.
    pub history: History,
}

impl Default for Settings {
    /// Takes a young log at its word.
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            newborn_grace: Duration::ZERO,
            tombstones_kept: DELETE_RETENTION,
            fold: FoldSettings::default(),
            history: History::Kept,
        }
    }
}

/// One Observer: what it has read, what it serves, what it writes.
#[derive(Debug)]
pub struct Observer {
    log: MemoryLog,
    readers: Vec<Followed>,
    replica: Replica,
    /// Everything that was ever told.
    pub events: Vec<FoldEvent>,
    outcomes: BTreeMap<(PartitionId, Offset), Outcome>,
    served: BTreeMap<InstanceKey, Bytes>,
    /// How many differences the store took.
    pub published: usize,
    /// How many records it gave to the log, ticks aside.
    pub written: u64,
    /// How often it has read a topic again.
    pub replays: u64,
    /// When it read last.
    pub read_at: Duration,
    history: History,
    running: bool,
    ticks_to_lose: usize,
    loses_expires: bool,
    lost_expires: usize,
    in_flight: Vec<InFlight>,
    /// Records that are to be looked at, with the next step.
    asked: Vec<(Topic, PartitionId, Offset)>,
    blocked: BTreeSet<PartitionId>,
}

/// The reader of one topic.
#[derive(Debug)]
struct Followed {
    topic: Topic,
    reader: Box<dyn LogReader>,
    /// What was read of partitions that are blocked.
    held_back: VecDeque<ReadEvent>,
}

/// A record that the log has not taken yet.
struct InFlight {
    since: Duration,
    record: NewRecord,
    append: BoxFuture<'static, Result<Appended, LogError>>,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.record.fmt(f)
    }
}

impl Observer {
    pub(crate) fn new(log: MemoryLog, id: KeeperId, settings: Settings) -> Self {
        let history = settings.history;
        let settings = ReplicaSettings {
            fold: settings.fold,
            keeper: KeeperSettings {
                access: settings.access,
                ..KeeperSettings::default()
            },
            newborn_grace: settings.newborn_grace,
            tombstones_kept: settings.tombstones_kept,
        };
        let follow = |topic| Followed {
            topic,
            reader: open(&log, topic, &[]),
            held_back: VecDeque::new(),
        };
        Self {
            readers: Topic::ALL.map(follow).into(),
            log,
            replica: Replica::new(id, settings),
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            served: BTreeMap::new(),
            published: 0,
            written: 0,
            replays: 0,
            read_at: Duration::ZERO,
            history,
            running: true,
            ticks_to_lose: 0,
            loses_expires: false,
            lost_expires: 0,
            in_flight: Vec::new(),
            asked: Vec::new(),
            blocked: BTreeSet::new(),
        }
    }

    /// What it would leave on disk.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (fold, config) = (self.fold(), self.config());
        let announcements = fold.topic_snapshot();
        let partitions = (0..).map(PartitionId).take(announcements.positions.len());
        Snapshot {
            instances: partitions.flat_map(|p| fold.snapshot(p)).collect(),
            config: config.topic_snapshot(),
            records: config.snapshot().collect(),
            announcements,
        }
    }

    /// Starts from what another life left on disk, before it has read anything.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        let mut events = Vec::new();
        self.replica.restore(snapshot, &mut events);
        self.take(events);
    }

    /// The log has had all the time that an operator gives it.
    pub fn serve_snapshot(&mut self) {
        self.replica.serve_snapshot();
    }

    /// SIGSTOP.
    pub fn stop(&mut self) {
        self.running = false;
    }

    /// SIGCONT: it goes on where it stood, and first of all does what it had in mind.
    pub fn go_on(&mut self) {
        self.running = true;
    }

    /// Whether it is neither stopped nor killed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// From now on the expires that it writes never reach the log.
    pub fn loses_expires(&mut self, loses: bool) {
        self.loses_expires = loses;
    }

    /// So many of the next ticks that it writes never reach the log.
    pub fn lose_ticks(&mut self, ticks: usize) {
        self.ticks_to_lose = ticks;
    }

    /// How many did not.
    #[must_use]
    pub fn lost_expires(&self) -> usize {
        self.lost_expires
    }

    /// Partitions of the announcements that come no further for now, as if they were slow.
    pub fn block(&mut self, partitions: impl IntoIterator<Item = PartitionId>) {
        self.blocked.extend(partitions);
    }

    /// No partition is slow any more.
    pub fn unblock(&mut self) {
        self.blocked.clear();
    }

    /// Everything it knows.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// What it knows of the announcements.
    #[must_use]
    pub fn fold(&self) -> &Fold {
        self.replica.logs().announcements
    }

    /// What it knows of the config topic.
    #[must_use]
    pub fn config(&self) -> &ConfigFold {
        self.replica.logs().config
    }

    /// What its start still waits for.
    #[must_use]
    pub fn loading(&self) -> &Loading {
        self.replica.loading()
    }

    /// Its decisions.
    #[must_use]
    pub fn keeper(&self) -> &Keeper {
        self.replica.keeper()
    }

    /// What became of the record at a place of the announcements.
    #[must_use]
    pub fn find_outcome(&self, partition: PartitionId, offset: Offset) -> Option<&Outcome> {
        self.outcomes.get(&(partition, offset))
    }

    /// All of its folds.
    #[must_use]
    pub fn logs(&self) -> Logs<'_> {
        self.replica.logs()
    }

    /// Whether its tick was the last one read in partition 0.
    #[must_use]
    pub fn is_keeper(&self) -> bool {
        self.keeper().is_keeper(&self.logs())
    }

    /// Whether it serves an instance.
    #[must_use]
    pub fn serves(&self, key: &InstanceKey) -> bool {
        self.served.contains_key(key)
    }

    /// What it answers with; `None` while it says that it cannot answer yet, or nothing.
    #[must_use]
    pub fn answer(&self) -> Option<&BTreeMap<InstanceKey, Bytes>> {
        (self.running && self.loading().is_loaded()).then_some(&self.served)
    }

    /// The content of an instance, as served.
    #[must_use]
    pub fn served_value(&self, key: &InstanceKey) -> Option<&Bytes> {
        self.served.get(key)
    }

    /// Everything served.
    #[must_use]
    pub fn served(&self) -> &BTreeMap<InstanceKey, Bytes> {
        &self.served
    }

    /// Every instance served.
    #[must_use]
    pub fn served_keys(&self) -> BTreeSet<InstanceKey> {
        self.served.keys().cloned().collect()
    }

    /// The digest of each partition.
    #[must_use]
    pub fn digests(&self) -> Vec<u64> {
        self.fold().partitions().map(|p| p.digest).collect()
    }

    /// What it was told of changes adds up to what the fold holds.
    pub fn assert_served_is_held(&self) {
        let held: BTreeMap<_, _> = self.fold().iter().map(|v| (v.key, v.value)).collect();
        assert_eq!(self.served, held);
    }

    /// One turn: writes, reads, writes.
    pub(crate) fn step(&mut self, now: Duration) {
        if !self.running {
            return;
        }
        self.look(now);
        // What it decides before it reads must be safe, too: it may just have been asleep.
        self.write(now);
        self.read(now);
        self.write(now);
    }

    /// Reads whatever the log gives now.
    pub fn read(&mut self, now: Duration) {
        self.read_at = now;
        for index in 0..self.readers.len() {
            while let Some(event) = self.next_event(index) {
                let topic = self.readers[index].topic;
                let mut events = Vec::new();
                let (outcomes, history) = (&mut self.outcomes, self.history);
                let mut heard = |record: &Record, outcome: &Outcome| {
                    if topic == Topic::Announcements && history == History::Kept {
                        let place = (record.partition, record.offset);
                        outcomes.insert(place, outcome.clone());
                    }
                };
                self.replica
                    .on_event(topic, &event, now, &mut events, &mut heard);
                self.take(events);
                self.perform_all(now);
            }
        }
    }

    /// Answers what the replica asked of single records.
    fn look(&mut self, now: Duration) {
        for (topic, partition, offset) in std::mem::take(&mut self.asked) {
            let found = self.log.read_at(topic, partition, offset).now_or_never();
            let found = found.expect("the log in memory answers at once");
            let mut events = Vec::new();
            self.replica
                .on_read_at(topic, partition, offset, found, now, &mut events);
            self.take(events);
            self.perform_all(now);
        }
    }

    fn next_event(&mut self, index: usize) -> Option<ReadEvent> {
        let blocked = &self.blocked;
        let followed = &mut self.readers[index];
        let may_pass = |event: &ReadEvent| {
            followed.topic != Topic::Announcements
                || partition_of(event).is_none_or(|partition| !blocked.contains(&partition))
        };
        if let Some(at) = followed.held_back.iter().position(may_pass) {
            return followed.held_back.remove(at);
        }
        loop {
            let event = followed.reader.next().now_or_never()?;
            let event = event.expect("the log in memory does not end");
            if may_pass(&event) {
                return Some(event);
            }
            followed.held_back.push_back(event);
        }
    }

    fn take(&mut self, events: Vec<FoldEvent>) {
        for event in events {
            match &event {
                FoldEvent::Live { key, value } => {
                    let value = value.to_bytes();
                    let before = self.served.insert(key.clone(), value.clone());
                    self.published += usize::from(before.as_ref() != Some(&value));
                }
                FoldEvent::Gone { key, .. } => {
                    let before = self.served.remove(key);
                    self.published += usize::from(before.is_some());
                }
                FoldEvent::Replayed { .. } => self.replays += 1,
                _ => {}
            }
            if self.history == History::Kept {
                self.events.push(event);
            }
        }
    }

    fn write(&mut self, now: Duration) {
        for request in self.replica.due(now) {
            self.perform(request, now);
        }
        self.settle(now);
    }

    fn perform_all(&mut self, now: Duration) {
        for request in self.replica.take_requests() {
            self.perform(request, now);
        }
    }

    fn perform(&mut self, request: Request, now: Duration) {
        match request {
            Request::Append(record) => self.append(*record, now),
            Request::ReadAt {
                topic,
                partition,
                offset,
            } => self.asked.push((topic, partition, offset)),
            Request::ReadAgain(topic) => {
                let mut readers = self.readers.iter_mut();
                let followed = readers.find(|followed| followed.topic == topic);
                let followed = followed.expect("every topic is followed");
                followed.reader = open(&self.log, topic, &[]);
                followed.held_back.clear();
            }
        }
    }

    fn append(&mut self, record: NewRecord, now: Duration) {
        if self.loses_expires && record.headers.kind == RecordKind::Expire {
            self.lost_expires += 1;
            self.replica.on_settled(&record);
            return;
        }
        if record.headers.kind == RecordKind::Tick && self.ticks_to_lose > 0 {
            self.ticks_to_lose -= 1;
            self.replica.on_settled(&record);
            return;
        }
        self.written += u64::from(record.headers.kind != RecordKind::Tick);
        let (log, appended) = (self.log.clone(), record.clone());
        self.in_flight.push(InFlight {
            since: now,
            record,
            append: Box::pin(async move { log.append(appended).await }),
        });
    }

    /// Looks after what is on its way to the log.
    fn settle(&mut self, now: Duration) {
        let mut rest = Vec::new();
        for mut one in std::mem::take(&mut self.in_flight) {
            let given_up =
                one.record.delivery == Delivery::Tick && now - one.since >= TICK_PATIENCE;
            if given_up || (&mut one.append).now_or_never().is_some() {
                self.replica.on_settled(&one.record);
            } else {
                rest.push(one);
            }
        }
        self.in_flight = rest;
    }
}

fn open(log: &MemoryLog, topic: Topic, from: &[(PartitionId, Offset)]) -> Box<dyn LogReader> {
    let reader = log.read(topic, from).now_or_never();
    let reader = reader.expect("the log in memory answers at once");
    reader.expect("it can always be read")
}

/// What an event says was read, if it is of one partition.
fn partition_of(event: &ReadEvent) -> Option<PartitionId> {
    match event {
        ReadEvent::Records(records) => records.first().map(|record| record.partition),
        ReadEvent::CaughtUp { partition, .. } => Some(*partition),
        _ => None,
    }
}
