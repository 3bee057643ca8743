//! The world: a log, Observers, announcers, and one clock for all.

use std::time::Duration;

use futures::FutureExt as _;
use waypost_core::record::{KeeperId, LogIdentity};
use waypost_core::{
    AnnouncementLog, InstanceKey, LifeId, NewRecord, Offset, PartitionId, Record, RecordKind,
    Timestamp, Topic,
};
use waypost_fold::{Access, FoldEvent};
use waypost_log::limits::DELETE_RETENTION;
use waypost_log::memory::CompactionRules;
use waypost_log::{Clock as _, ManualClock, MemoryLog};

use crate::{Announcer, Client, Observer, Settings, TTL_S};

/// The grain of time, where a test asks for no other.
const STEP: Duration = Duration::from_millis(100);

/// Three of the longest time-to-live in use, seconds.
const COMPACTION_LAG_S: u64 = 3 * TTL_S;

/// What the log's clock shows at first.
const START: Timestamp = Timestamp(1_800_000_000_000);

/// The whole world.
#[derive(Debug)]
pub struct Sim {
    /// The log, with its faults.
    pub log: MemoryLog,
    /// Observers by number.
    pub observers: Vec<Observer>,
    /// Announcers by number.
    pub announcers: Vec<Announcer>,
    /// Clients by number.
    pub clients: Vec<Client>,
    /// What new Observers are started with.
    pub settings: Settings,
    /// The grain of time.
    pub step: Duration,
    now: Duration,
}

impl Sim {
    /// A log of `partitions` partitions with identities, and no Observers yet.
    #[must_use]
    pub fn new(partitions: u32) -> Self {
        let sim = Self::with_unnamed_log(partitions);
        sim.log.write_identity(LogIdentity(7));
        sim
    }

    /// A log that nobody has given an identity.
    #[must_use]
    pub fn with_unnamed_log(partitions: u32) -> Self {
        Self {
            log: MemoryLog::new(partitions, ManualClock::new(START)),
            observers: Vec::new(),
            announcers: Vec::new(),
            clients: Vec::new(),
            settings: Settings::default(),
            step: STEP,
            now: Duration::ZERO,
        }
    }

    /// Everybody's monotonic time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Adds an Observer with this keeper id and returns its number.
    pub fn observe(&mut self, id: u64) -> usize {
        self.observers.push(self.mk_observer(id));
        self.observers.len() - 1
    }

    /// Adds an Observer that writes nothing and returns its number.
    pub fn observe_read_only(&mut self, id: u64) -> usize {
        let observer = self.mk_reader(id);
        self.observers.push(observer);
        self.observers.len() - 1
    }

    /// An Observer is killed and started again, as another keeper and without anything it knew.
    pub fn restart(&mut self, number: usize, id: u64) {
        self.observers[number] = self.mk_observer(id);
    }

    /// Adds a client of an Observer and returns its number.
    pub fn connect(&mut self, observer: usize) -> usize {
        self.clients.push(Client::new(observer));
        self.clients.len() - 1
    }

    /// Adds a process that announces `key` from now on and returns its number.
    pub fn announce(&mut self, id: u64, key: &InstanceKey) -> usize {
        let announcer = Announcer::new(LifeId(id), key, self.now);
        self.announcers.push(announcer);
        self.announcers.len() - 1
    }

    /// Lets time pass for everybody that runs.
    pub fn run_s(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.step();
        }
    }

    /// Runs until `condition` holds, and says after how many seconds.
    pub fn run_until(
        &mut self,
        what: &str,
        seconds_max: u64,
        condition: impl Fn(&Self) -> bool,
    ) -> u64 {
        let start = self.now;
        while !condition(self) {
            assert!(
                self.now - start < Duration::from_secs(seconds_max),
                "not within {seconds_max} s: {what}"
            );
            self.step();
        }
        (self.now - start).as_secs()
    }

    /// Lets the smallest time pass.
    pub fn step(&mut self) {
        self.now += self.step;
        self.log.clock().advance(self.step);
        for announcer in &mut self.announcers {
            announcer.step(&self.log, self.now);
        }
        for observer in &mut self.observers {
            observer.step(self.now);
        }
        for client in &mut self.clients {
            client.step(&self.observers[client.observer]);
        }
    }

    /// Every partition of the announcements gets a leader whose clock is so much ahead.
    pub fn move_leaders(&self, ahead_ms: i64) {
        let count = self
            .log
            .partition_count(Topic::Announcements)
            .now_or_never();
        let count = count.expect("it does not wait").expect("it is known");
        for partition in (0..count).map(PartitionId) {
            self.log
                .move_leader(Topic::Announcements, partition, ahead_ms);
        }
    }

    /// Every leader's clock is set, back too.
    pub fn jump_broker_clock(&self, by_ms: i64) {
        let clock = self.log.clock();
        clock.set(Timestamp(clock.now().0.saturating_add(by_ms)));
    }

    /// Appends a record by hand.
    pub fn append(&mut self, record: NewRecord) -> Offset {
        let appended = self.log.append(record).now_or_never();
        let appended = appended.expect("the log does not hang");
        appended.expect("the log takes records").offset
    }

    /// Runs the log's cleaner over every topic: of what is older than `lag` only the last record of
    /// each key stays. Tombstones stay for a day.
    pub fn compact(&mut self, lag: Duration) {
        let rules = CompactionRules {
            lag,
            delete_retention: DELETE_RETENTION,
        };
        for topic in Topic::ALL {
            self.log.compact(topic, rules);
        }
    }

    /// An Observer without a past, that reads the log as it is now.
    #[must_use]
    pub fn replayer(&self) -> Observer {
        let mut observer = self.mk_reader(u64::MAX);
        observer.read(self.now);
        observer
    }

    /// Whether every running Observer serves exactly these.
    #[must_use]
    pub fn all_serve(&self, keys: &[&InstanceKey]) -> bool {
        let mut running = self.observers.iter().filter(|o| o.is_running());
        running.all(|o| o.served_keys() == keys.iter().copied().cloned().collect())
    }

    /// All expires that were ever appended and are still there.
    #[must_use]
    pub fn expires(&self) -> Vec<Record> {
        let records = self.log.records(Topic::Announcements).into_iter();
        let is_expire = |r: &Record| kind_of(r) == Some(RecordKind::Expire);
        records.filter(is_expire).collect()
    }

    /// Where the next announcement in a partition will stand.
    #[must_use]
    pub fn end(&self, partition: PartitionId) -> Offset {
        let end = self.log.find_end(Topic::Announcements, partition);
        end.expect("there is such a partition")
    }

    /// All Observers that run agree, and what each was told of changes is what it holds.
    pub fn assert_agreed(&mut self) {
        let mut digests = Vec::new();
        for observer in self.observers.iter_mut().filter(|o| o.is_running()) {
            observer.read(self.now);
            observer.assert_served_is_held();
            digests.push(observer.digests());
        }
        digests.dedup();
        assert!(digests.len() <= 1, "{digests:?}");
    }

    /// The end of every scenario: what compaction leaves is what the fold came to. Lets time pass until
    /// everything that happened so far may be compacted, compacts, and compares everybody who runs with
    /// an Observer that knows only what is left.
    pub fn finish(&mut self) {
        self.step = Duration::from_millis(500);
        self.run_s(COMPACTION_LAG_S);
        self.compact(Duration::from_secs(COMPACTION_LAG_S));
        self.assert_agreed();
        let replayer = self.replayer();
        replayer.assert_served_is_held();
        for observer in self.observers.iter().filter(|o| o.is_running()) {
            assert_eq!(observer.served(), replayer.served(), "after compaction");
            assert_eq!(observer.digests(), replayer.digests(), "after compaction");
        }
    }

    fn mk_reader(&self, id: u64) -> Observer {
        let settings = Settings {
            access: Access::ReadOnly,
            ..self.settings
        };
        Observer::new(self.log.clone(), KeeperId(id), settings)
    }

    fn mk_observer(&self, id: u64) -> Observer {
        Observer::new(self.log.clone(), KeeperId(id), self.settings)
    }
}

/// What kind of statement a record makes, if it can be read.
#[must_use]
pub fn kind_of(record: &Record) -> Option<RecordKind> {
    record.headers.as_ref().ok().map(|h| h.kind)
}

/// How many events of an Observer a test counts.
#[must_use]
pub fn count(observer: &Observer, matches: impl Fn(&FoldEvent) -> bool) -> usize {
    observer.events.iter().filter(|e| matches(e)).count()
}
