//! A small world with one clock that is moved by hand: a partitioned log in memory, Observers that
//! are nothing but the folds and a keeper, and announcers. Deterministic; nothing sleeps.

mod announcer;
mod log;
mod observer;

use std::time::Duration;

use waypost_core::partition::partition_for_key;
use waypost_core::record::{Delivery, Evidence, KeeperId};
use waypost_core::{
    Announcement, ClusterName, Headers, InstanceKey, InstanceUri, LifeId, NewRecord, Offset,
    Record, RecordKind, Timestamp, Topic,
};
use waypost_fold::{Access, FoldEvent};

pub(crate) use announcer::Announcer;
pub(crate) use log::SimLog;
pub(crate) use observer::Observer;

/// The grain of simulated time.
const STEP: Duration = Duration::from_millis(100);

pub(crate) const TTL_S: u64 = 30;
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// The whole world.
pub(crate) struct Sim {
    pub(crate) log: SimLog,
    pub(crate) observers: Vec<Observer>,
    pub(crate) announcers: Vec<Announcer>,
    now: Duration,
}

impl Sim {
    /// A log of `partitions` partitions with identities, and no Observers yet.
    pub(crate) fn new(partitions: u32) -> Self {
        Self {
            log: SimLog::new(partitions),
            observers: Vec::new(),
            announcers: Vec::new(),
            now: Duration::ZERO,
        }
    }

    /// Everybody's monotonic time.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// Adds an Observer with this keeper id and returns its number.
    pub(crate) fn observe(&mut self, id: u64) -> usize {
        self.observers
            .push(Observer::new(KeeperId(id), Access::ReadWrite));
        self.observers.len() - 1
    }

    pub(crate) fn observe_read_only(&mut self, id: u64) -> usize {
        self.observers
            .push(Observer::new(KeeperId(id), Access::ReadOnly));
        self.observers.len() - 1
    }

    /// Adds a process that announces `key` from now on and returns its number.
    pub(crate) fn announce(&mut self, id: u64, key: &InstanceKey) -> usize {
        let announcer = Announcer::new(LifeId(id), key, self.now);
        self.announcers.push(announcer);
        self.announcers.len() - 1
    }

    /// Lets time pass for everybody that runs.
    pub(crate) fn run_s(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.step();
        }
    }

    /// Runs until `condition` holds, and says after how many seconds.
    pub(crate) fn run_until(
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
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        self.log.advance(STEP);
        for announcer in &mut self.announcers {
            announcer.step(&mut self.log, self.now);
        }
        for observer in &mut self.observers {
            observer.step(&mut self.log, self.now);
        }
    }

    /// Appends a record by hand.
    pub(crate) fn append(&mut self, record: NewRecord) -> Offset {
        let appended = self.log.append(record).expect("the log takes records");
        appended.offset
    }

    /// An Observer without a past, that reads the log as it is now.
    pub(crate) fn replayer(&self) -> Observer {
        let mut observer = Observer::new(KeeperId(u64::MAX), Access::ReadOnly);
        observer.read(&self.log, self.now);
        observer
    }

    /// Whether every running Observer serves exactly these.
    pub(crate) fn all_serve(&self, keys: &[&InstanceKey]) -> bool {
        let mut running = self.observers.iter().filter(|o| o.is_running());
        running.all(|o| o.served_keys() == keys.iter().copied().cloned().collect())
    }

    /// All expires that were ever appended and are still there.
    pub(crate) fn expires(&self) -> Vec<Record> {
        let records = self.log.records(Topic::Announcements);
        let is_expire = |r: &&Record| kind_of(r) == Some(RecordKind::Expire);
        records.filter(is_expire).cloned().collect()
    }

    /// All Observers that run agree, and what each was told of changes is what it holds.
    pub(crate) fn assert_agreed(&mut self) {
        let mut digests = Vec::new();
        for observer in self.observers.iter_mut().filter(|o| o.is_running()) {
            observer.read(&self.log, self.now);
            observer.assert_served_is_held();
            digests.push(observer.digests());
        }
        digests.dedup();
        assert!(digests.len() <= 1, "{digests:?}");
    }
}

pub(crate) fn kind_of(record: &Record) -> Option<RecordKind> {
    record.headers.as_ref().ok().map(|h| h.kind)
}

pub(crate) fn mk_key(cluster: &str, host: &str) -> InstanceKey {
    InstanceKey {
        cluster: ClusterName::parse(cluster).unwrap(),
        uri: InstanceUri::parse(&format!("grpc://{host}:8080")).unwrap(),
    }
}

pub(crate) fn mk_announcement(key: &InstanceKey) -> Announcement {
    Announcement {
        hostname: "host-1".to_owned(),
        ttl: Duration::from_secs(TTL_S),
        heartbeat: HEARTBEAT,
        ..Announcement::new(
            key.cluster.clone(),
            key.uri.clone(),
            Timestamp(1_700_000_000_000),
        )
    }
}

/// A record of the announcements topic as an announcer writes it.
pub(crate) fn mk_record(
    key: &InstanceKey,
    announcement: Option<&Announcement>,
    headers: Headers,
) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_record_key(),
        value: announcement.map(waypost_proto::announcement::encode),
        headers,
        delivery: Delivery::Change,
    }
}

pub(crate) fn order(id: u64, birth: Option<i64>, seq: u64) -> Headers {
    Headers {
        id: Some(LifeId(id)),
        birth: birth.map(Timestamp),
        seq: Some(seq),
        ..Headers::default()
    }
}

pub(crate) fn withdrawal(key: &InstanceKey, headers: Headers) -> NewRecord {
    let headers = Headers {
        kind: RecordKind::Withdraw,
        ..headers
    };
    mk_record(key, None, headers)
}

pub(crate) fn expire(key: &InstanceKey, headers: Headers, evidence: Evidence) -> NewRecord {
    let headers = Headers {
        kind: RecordKind::Expire,
        evidence: Some(evidence),
        ..headers
    };
    mk_record(key, None, headers)
}

pub(crate) fn purge(key: &InstanceKey) -> NewRecord {
    mk_record(key, None, Headers::default())
}

/// How many events of an Observer a test counts.
pub(crate) fn count(observer: &Observer, matches: impl Fn(&FoldEvent) -> bool) -> usize {
    observer.events.iter().filter(|e| matches(e)).count()
}

pub(crate) fn own_partition(key: &InstanceKey, partitions: u32) -> waypost_core::PartitionId {
    partition_for_key(&key.to_record_key(), partitions)
}
