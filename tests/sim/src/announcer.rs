//! A process that announces one instance, as docs/announcement-log.md asks of it.

use std::time::Duration;

use futures::FutureExt as _;
use waypost_core::record::Appended;
use waypost_core::time::millis;
use waypost_core::{
    Announcement, AnnouncementLog, Headers, InstanceKey, LifeId, NewRecord, PartitionId,
    RecordKind, Timestamp,
};
use waypost_log::MemoryLog;

use crate::HEARTBEAT;
use crate::records::{mk_announcement, mk_record};

/// One life as the announcer of one instance.
#[derive(Clone, Debug)]
pub struct Announcer {
    /// Which instance.
    pub key: InstanceKey,
    /// What it says.
    pub announcement: Announcement,
    /// How often it beats.
    pub heartbeat: Duration,
    /// Its acknowledgements are lost: it never learns its birth.
    pub is_deaf: bool,
    /// Where it sends its records, if not where the log says: an old count of partitions, another
    /// partitioner.
    pub partition: Option<PartitionId>,
    id: LifeId,
    began_at: Duration,
    birth: Option<Timestamp>,
    seq: u64,
    next_at: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Announcing,
    Withdrawing,
    /// Killed, stopped, or done.
    Still(Still),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Still {
    Stopped,
    Withdrawn,
}

impl Announcer {
    pub(crate) fn new(id: LifeId, key: &InstanceKey, now: Duration) -> Self {
        Self {
            key: key.clone(),
            announcement: mk_announcement(key),
            heartbeat: HEARTBEAT,
            is_deaf: false,
            partition: None,
            id,
            began_at: now,
            birth: None,
            seq: 0,
            next_at: now,
            state: State::Announcing,
        }
    }

    /// kill -9, or SIGSTOP.
    pub fn stop(&mut self) {
        if self.is_alive() {
            self.state = State::Still(Still::Stopped);
        }
    }

    /// SIGCONT. One that has withdrawn stays silent.
    pub fn go_on(&mut self) {
        if self.state == State::Still(Still::Stopped) {
            self.state = State::Announcing;
        }
    }

    /// Whether it announces, and will go on to.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.state == State::Announcing
    }

    /// Which life.
    #[must_use]
    pub fn id(&self) -> LifeId {
        self.id
    }

    /// The bytes that it announces.
    #[must_use]
    pub fn value(&self) -> bytes::Bytes {
        waypost_proto::announcement::encode(&self.announcement)
    }

    /// Announces other content with its next step.
    pub fn change(&mut self, weight: f64) {
        self.announcement.weights.insert(0, weight);
        self.seq += 1;
        self.next_at = Duration::ZERO;
    }

    /// Withdraws with its next step, and ends.
    pub fn withdraw(&mut self) {
        if self.is_alive() {
            self.seq += 1;
            self.state = State::Withdrawing;
            self.next_at = Duration::ZERO;
        }
    }

    pub(crate) fn step(&mut self, log: &MemoryLog, now: Duration) {
        if matches!(self.state, State::Still(_)) || now < self.next_at {
            return;
        }
        self.next_at = now + self.heartbeat;
        let sent = append(log, self.mk_record(now));
        if self.state == State::Withdrawing {
            if sent.is_some() {
                self.state = State::Still(Still::Withdrawn);
            }
            return;
        }
        let learned = sent.filter(|_| !self.is_deaf).and_then(|a| a.append_time);
        if let (None, Some(append_time)) = (self.birth, learned) {
            self.birth = Some(append_time.minus(now - self.began_at));
            append(log, self.mk_record(now));
        }
    }

    fn mk_record(&self, now: Duration) -> NewRecord {
        let withdraws = self.state == State::Withdrawing;
        let age_ms = millis(now - self.began_at);
        let headers = Headers {
            kind: if withdraws {
                RecordKind::Withdraw
            } else {
                RecordKind::Announce
            },
            id: Some(self.id),
            birth: self.birth,
            age_ms: self.birth.is_none().then_some(age_ms),
            seq: Some(self.seq),
            ..Headers::default()
        };
        let content = (!withdraws).then_some(&self.announcement);
        NewRecord {
            partition: self.partition,
            ..mk_record(&self.key, content, headers)
        }
    }
}

/// `None` if the log does not take it now, or does not say that it did. What a log that hangs would
/// take later is dropped: the next beat says the same.
fn append(log: &MemoryLog, record: NewRecord) -> Option<Appended> {
    log.append(record).now_or_never()?.ok()
}
