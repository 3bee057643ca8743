//! A process that announces one instance, as docs/announcement-log.md asks of it.

use std::time::Duration;

use waypost_core::time::millis;
use waypost_core::{Announcement, Headers, InstanceKey, LifeId, RecordKind, Timestamp};

use super::{HEARTBEAT, SimLog, mk_announcement, mk_record};

pub(crate) struct Announcer {
    pub(crate) key: InstanceKey,
    pub(crate) announcement: Announcement,
    id: LifeId,
    began_at: Duration,
    birth: Option<Timestamp>,
    seq: u64,
    pub(crate) heartbeat: Duration,
    next_at: Duration,
    running: bool,
    withdraws: bool,
    /// Its acknowledgements are lost: it never learns its birth.
    pub(crate) is_deaf: bool,
}

impl Announcer {
    pub(crate) fn new(id: LifeId, key: &InstanceKey, now: Duration) -> Self {
        Self {
            key: key.clone(),
            announcement: mk_announcement(key),
            id,
            began_at: now,
            birth: None,
            seq: 0,
            heartbeat: HEARTBEAT,
            next_at: now,
            running: true,
            withdraws: false,
            is_deaf: false,
        }
    }

    /// kill -9, or SIGSTOP.
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    pub(crate) fn go_on(&mut self) {
        self.running = true;
    }

    pub(crate) fn id(&self) -> LifeId {
        self.id
    }

    /// Announces other content with its next step.
    pub(crate) fn change(&mut self, now_weight: f64) {
        self.announcement.weights.insert(0, now_weight);
        self.seq += 1;
        self.next_at = Duration::ZERO;
    }

    /// Withdraws with its next step, and ends.
    pub(crate) fn withdraw(&mut self) {
        self.seq += 1;
        self.withdraws = true;
        self.next_at = Duration::ZERO;
    }

    pub(crate) fn step(&mut self, log: &mut SimLog, now: Duration) {
        if !self.running || now < self.next_at {
            return;
        }
        self.next_at = now + self.heartbeat;
        let sent = log.append(self.mk_record(now));
        let learned = sent.filter(|_| !self.is_deaf).and_then(|a| a.append_time);
        if self.withdraws {
            self.running = sent.is_none();
        } else if let (None, Some(append_time)) = (self.birth, learned) {
            self.birth = Some(append_time.minus(now - self.began_at));
            log.append(self.mk_record(now));
        }
    }

    fn mk_record(&self, now: Duration) -> waypost_core::NewRecord {
        let age_ms = millis(now - self.began_at);
        let headers = Headers {
            kind: if self.withdraws {
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
        let content = (!self.withdraws).then_some(&self.announcement);
        mk_record(&self.key, content, headers)
    }
}
