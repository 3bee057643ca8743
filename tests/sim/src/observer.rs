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
    Access, ConfigFold, ControlFold, Fold, FoldEvent, FoldSettings, Keeper, KeeperSettings,
    Loading, Logs, Outcome,
};
use waypost_log::MemoryLog;

/// After how long a tick that the log has not taken is given up.
const TICK_PATIENCE: Duration = Duration::from_secs(2);

/// One Observer: what it has read, what it serves, what it writes.
#[derive(Debug)]
pub struct Observer {
    log: MemoryLog,
    readers: Vec<Followed>,
    fold: Fold,
    config: ConfigFold,
    control: ControlFold,
    /// Its decisions.
    pub keeper: Keeper,
    loading: Loading,
    /// Everything that was ever told.
    pub events: Vec<FoldEvent>,
    outcomes: BTreeMap<(PartitionId, Offset), Outcome>,
    served: BTreeMap<InstanceKey, Bytes>,
    running: bool,
    loses_expires: bool,
    lost_expires: usize,
    in_flight: Vec<InFlight>,
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
    pub(crate) fn new(log: MemoryLog, id: KeeperId, access: Access) -> Self {
        let settings = KeeperSettings {
            access,
            ..KeeperSettings::default()
        };
        let follow = |topic| Followed {
            topic,
            reader: open(&log, topic, &[]),
            held_back: VecDeque::new(),
        };
        Self {
            readers: Topic::ALL.map(follow).into(),
            log,
            fold: Fold::new(FoldSettings::default()),
            config: ConfigFold::new(),
            control: ControlFold::new(),
            keeper: Keeper::new(id, settings),
            loading: Loading::new(&Topic::ALL, Duration::ZERO),
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            served: BTreeMap::new(),
            running: true,
            loses_expires: false,
            lost_expires: 0,
            in_flight: Vec::new(),
            blocked: BTreeSet::new(),
        }
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

    /// What it knows of the announcements.
    #[must_use]
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The same, for a test that feeds it by hand.
    pub fn fold_mut(&mut self) -> &mut Fold {
        &mut self.fold
    }

    /// What it knows of the config topic.
    #[must_use]
    pub fn config(&self) -> &ConfigFold {
        &self.config
    }

    /// What its start still waits for.
    #[must_use]
    pub fn loading(&self) -> &Loading {
        &self.loading
    }

    /// What became of the record at a place of the announcements.
    #[must_use]
    pub fn find_outcome(&self, partition: PartitionId, offset: Offset) -> Option<&Outcome> {
        self.outcomes.get(&(partition, offset))
    }

    /// All of its folds.
    #[must_use]
    pub fn logs(&self) -> Logs<'_> {
        Logs {
            announcements: &self.fold,
            config: &self.config,
            control: &self.control,
        }
    }

    /// Whether its tick was the last one read in partition 0.
    #[must_use]
    pub fn is_keeper(&self) -> bool {
        self.keeper.is_keeper(&self.logs())
    }

    /// Whether it serves an instance.
    #[must_use]
    pub fn serves(&self, key: &InstanceKey) -> bool {
        self.served.contains_key(key)
    }

    /// The content of an instance, as served.
    #[must_use]
    pub fn served_value(&self, key: &InstanceKey) -> Option<&Bytes> {
        self.served.get(key)
    }

    /// Every instance served.
    #[must_use]
    pub fn served_keys(&self) -> BTreeSet<InstanceKey> {
        self.served.keys().cloned().collect()
    }

    /// The digest of each partition.
    #[must_use]
    pub fn digests(&self) -> Vec<u64> {
        self.fold.partitions().map(|p| p.digest).collect()
    }

    /// What it was told of changes adds up to what the fold holds.
    pub fn assert_served_is_held(&self) {
        let held: BTreeMap<_, _> = self.fold.iter().map(|v| (v.key, v.value)).collect();
        assert_eq!(self.served, held);
    }

    /// One turn: writes, reads, writes.
    pub(crate) fn step(&mut self, now: Duration) {
        if !self.running {
            return;
        }
        // What it decides before it reads must be safe, too: it may just have been asleep.
        self.write(now);
        self.read(now);
        self.write(now);
    }

    /// Reads whatever the log gives now.
    pub fn read(&mut self, now: Duration) {
        for index in 0..self.readers.len() {
            while let Some(event) = self.next_event(index) {
                self.on_event(self.readers[index].topic, event, now);
            }
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

    fn on_event(&mut self, topic: Topic, event: ReadEvent, now: Duration) {
        match event {
            ReadEvent::Partitions(count) => {
                self.loading.on_partitions(topic, count);
                match topic {
                    Topic::Announcements => self.fold.set_partitions(count),
                    Topic::Config => self.config.set_partitions(count),
                    Topic::Control => self.control.set_partitions(count),
                }
            }
            ReadEvent::Bounds { partition, end, .. } => self.on_end(topic, partition, end, now),
            ReadEvent::Records(records) => self.on_records(topic, &records, now),
            ReadEvent::CaughtUp {
                partition,
                position,
            } => {
                match topic {
                    Topic::Announcements => self.fold.advance_to(partition, position),
                    Topic::Config => self.config.advance_to(partition, position),
                    Topic::Control => self.control.advance_to(partition, position),
                }
                self.loading.on_position(topic, partition, position, now);
                self.on_end(topic, partition, position, now);
            }
            ReadEvent::OutOfRange { .. } | ReadEvent::Unavailable(_) | ReadEvent::Available => {}
        }
    }

    fn on_end(&mut self, topic: Topic, partition: PartitionId, end: Offset, now: Duration) {
        self.loading.on_end(topic, partition, end);
        let logs = Logs {
            announcements: &self.fold,
            config: &self.config,
            control: &self.control,
        };
        self.keeper.on_end(topic, partition, end, &logs, now);
    }

    fn on_records(&mut self, topic: Topic, records: &[Record], now: Duration) {
        let mut events = Vec::new();
        for record in records {
            match topic {
                Topic::Announcements => {
                    let outcome = self.fold.apply(record, &mut events);
                    let place = (record.partition, record.offset);
                    self.outcomes.insert(place, outcome);
                }
                Topic::Config => {
                    self.config.apply(record, &mut events);
                }
                Topic::Control => {
                    self.control.apply(record, &mut events);
                }
            }
            let position = record.offset.next();
            self.loading
                .on_position(topic, record.partition, position, now);
        }
        self.loading.on_log_time(self.fold.clock().log_time_min());
        for event in events {
            self.take(event, now);
        }
    }

    fn take(&mut self, event: FoldEvent, now: Duration) {
        match &event {
            FoldEvent::Live { key, value } => {
                self.served.insert(key.clone(), value.clone());
            }
            FoldEvent::Gone { key, .. } => {
                self.served.remove(key);
            }
            FoldEvent::Ticked(tick) => self.keeper.on_tick(tick, now),
            _ => {}
        }
        self.events.push(event);
    }

    fn write(&mut self, now: Duration) {
        let logs = Logs {
            announcements: &self.fold,
            config: &self.config,
            control: &self.control,
        };
        let due = self.keeper.due(now, &logs);
        for record in due {
            if self.loses_expires && record.headers.kind == RecordKind::Expire {
                self.lost_expires += 1;
                self.keeper.on_settled(&record);
                continue;
            }
            let (log, appended) = (self.log.clone(), record.clone());
            self.in_flight.push(InFlight {
                since: now,
                record,
                append: Box::pin(async move { log.append(appended).await }),
            });
        }
        self.settle(now);
    }

    /// Looks after what is on its way to the log.
    fn settle(&mut self, now: Duration) {
        let mut rest = Vec::new();
        for mut one in std::mem::take(&mut self.in_flight) {
            let given_up =
                one.record.delivery == Delivery::Tick && now - one.since >= TICK_PATIENCE;
            if given_up || (&mut one.append).now_or_never().is_some() {
                self.keeper.on_settled(&one.record);
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
