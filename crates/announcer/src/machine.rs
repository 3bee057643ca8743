//! One instance as a state machine: what to write and when. No clock, no I/O, no randomness of its
//! own; times are monotonic and counted from whenever its owner likes.
//!
//! Rules: docs/announcement-log.md, "Records" (birth, age, seq, heartbeat) and "Order within a key".

mod schedule;

use std::time::Duration;

use bytes::Bytes;
use waypost_core::record::{Appended, Delivery};
use waypost_core::time::millis;
use waypost_core::{Announcement, Headers, InstanceKey, LifeId, RecordKind, Timestamp};
use waypost_proto::announcement::encode;

use crate::sink::{InstanceRecord, SinkError, Verdict};
use crate::status::{Progress, Status, Wanted};
use schedule::Schedule;

/// Marks a change: when it was made, and a name for it in traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) origin: Timestamp,
    pub(crate) tracing_id: String,
}

/// What the machine wants of its driver.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives for one match; a box would cost an allocation for every heartbeat"
)]
pub(crate) enum Next {
    /// Write this and report `acknowledged` or `failed`.
    Write(InstanceRecord),
    /// Ask again at this time.
    At(Duration),
    /// Nothing until something is reported or changed.
    Wait,
}

/// What a verdict asks of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    None,
    /// Let it begin a new life.
    NewLife,
}

/// One process's life as the announcer of one instance.
#[derive(Debug)]
pub(crate) struct Machine {
    key: InstanceKey,
    id: LifeId,
    /// When the first write was tried; birth is counted back to it.
    first_attempt: Option<Duration>,
    birth: Option<Timestamp>,
    wanted: Wanted,
    content: Announcement,
    /// `content` encoded; none while down.
    value: Option<Bytes>,
    /// Counts changes. Equal `seq` and birth mean equal bytes.
    seq: u64,
    /// What the log acknowledged last.
    acknowledged: Option<Version>,
    in_flight: Option<InFlight>,
    progress: Progress,
    trouble: Option<String>,
    /// Its owner is gone; nothing is announced any more.
    silent: bool,
    schedule: Schedule,
}

/// Identifies the bytes of a record within one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    seq: u64,
    has_birth: bool,
}

/// A record that is under way.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    version: Version,
    sent_at: Duration,
}

impl Machine {
    /// An instance that is down. `id` is random and also seeds the jitter.
    pub(crate) fn new(content: Announcement, id: LifeId) -> Self {
        let key = InstanceKey {
            cluster: content.cluster.clone(),
            uri: content.uri.clone(),
        };
        let schedule = Schedule::new(&key.to_record_key(), content.heartbeat, id.0);
        Self {
            key,
            id,
            first_attempt: None,
            birth: None,
            wanted: Wanted::Down,
            content,
            value: None,
            seq: 0,
            acknowledged: None,
            in_flight: None,
            progress: Progress::Idle,
            trouble: None,
            silent: false,
            schedule,
        }
    }

    pub(crate) fn key(&self) -> &InstanceKey {
        &self.key
    }

    /// What would be announced if it were up.
    pub(crate) fn content(&self) -> &Announcement {
        &self.content
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            wanted: self.wanted,
            change: self.seq,
            progress: self.progress.clone(),
            trouble: self.trouble.clone(),
        }
    }

    /// The sequence number of the last change; verdicts name the one they are about.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn mark_up(&mut self, now: Duration, stamp: Stamp) {
        if self.wanted == Wanted::Down {
            self.wanted = Wanted::Up;
            self.restate(now, stamp);
        }
    }

    pub(crate) fn mark_down(&mut self, now: Duration) {
        if self.wanted == Wanted::Down {
            return;
        }
        self.wanted = Wanted::Down;
        self.value = None;
        self.seq += 1;
        if self.first_attempt.is_some() {
            self.expect_write(now);
        } else {
            // Nobody can have heard of it, so there is nothing to take back.
            self.progress = Progress::Idle;
            self.schedule.stop();
        }
    }

    /// Takes new content for the same key; equal content is no change.
    pub(crate) fn change(&mut self, content: Announcement, now: Duration, stamp: Stamp) {
        let same = Announcement {
            origin: self.content.origin,
            tracing_id: self.content.tracing_id.clone(),
            ..content.clone()
        };
        if same == self.content {
            return;
        }
        self.content = content;
        self.schedule.set_interval(self.content.heartbeat);
        if self.wanted == Wanted::Up {
            self.restate(now, stamp);
        }
    }

    /// The owner is gone. What is up is not announced any more, as if the process had died; a
    /// withdrawal that was asked for is still written.
    pub(crate) fn fall_silent(&mut self) {
        if self.wanted == Wanted::Up {
            self.silent = true;
            self.schedule.stop();
        }
    }

    /// Whether nothing is under way and nothing is left to write.
    pub(crate) fn is_finished(&self) -> bool {
        self.in_flight.is_none() && self.schedule.due().is_none()
    }

    /// When `poll` is worth calling.
    pub(crate) fn next_write(&self) -> Option<Duration> {
        self.schedule.due().filter(|_| self.in_flight.is_none())
    }

    /// What to do now.
    pub(crate) fn poll(&mut self, now: Duration) -> Next {
        if self.in_flight.is_some() {
            return Next::Wait;
        }
        match self.schedule.due() {
            None => Next::Wait,
            Some(at) if at > now => Next::At(at),
            Some(_) => Next::Write(self.write(now)),
        }
    }

    /// The log has the record that was under way.
    pub(crate) fn acknowledged(&mut self, appended: Appended, now: Duration) {
        let Some(InFlight { version, sent_at }) = self.in_flight.take() else {
            return;
        };
        self.acknowledged = Some(version);
        self.trouble = None;
        self.schedule.succeeded();
        self.learn_birth(appended, now);
        if version.seq == self.seq && self.progress == Progress::Pending {
            self.progress = Progress::Acknowledged(appended);
        }
        if self.silent {
            self.schedule.stop();
        } else if self.is_stated() {
            match self.wanted {
                // Counted from when it was sent: a process that was stopped meanwhile reads an old
                // answer, and its instance may have been taken for dead since.
                Wanted::Up => self.schedule.beat_after(sent_at),
                Wanted::Down => self.schedule.stop(),
            }
        } else {
            self.schedule.at_once(now);
        }
    }

    /// The record that was under way was not acknowledged; it may have been written all the same.
    pub(crate) fn failed(&mut self, error: &SinkError, now: Duration) {
        let Some(InFlight { version, .. }) = self.in_flight.take() else {
            return;
        };
        self.trouble = Some(error.to_string());
        if version.seq != self.seq {
            // What failed is not what is wanted any more: that has not been tried yet.
            self.schedule.succeeded();
        }
        match error {
            _ if self.silent => self.schedule.stop(),
            SinkError::Unavailable(_) => self.schedule.retry_after(now),
            SinkError::Refused(_) => self.schedule.retry_slowly_after(now),
        }
    }

    /// What the Observers make of change `seq`.
    pub(crate) fn judged(&mut self, seq: u64, verdict: Verdict) -> Consequence {
        if seq != self.seq {
            return Consequence::None;
        }
        let appended = match &self.progress {
            Progress::Acknowledged(appended)
            | Progress::Served(appended)
            | Progress::Refused { appended, .. } => *appended,
            Progress::Idle | Progress::Pending => return Consequence::None,
        };
        let was_withdrawn = matches!(verdict, Verdict::Withdrawn(_));
        self.progress = match verdict {
            Verdict::Served => Progress::Served(appended),
            Verdict::Refused(reason) | Verdict::Withdrawn(reason) => {
                Progress::Refused { appended, reason }
            }
            Verdict::Unknown(_) => return Consequence::None,
        };
        if was_withdrawn && self.wanted == Wanted::Up && !self.silent {
            Consequence::NewLife
        } else {
            Consequence::None
        }
    }

    /// Announces the instance as of a process that begins now. For who learns that another one, born
    /// later, had the instance and has withdrawn it: by the log's rules the withdrawal keeps out
    /// what is older for two time-to-live, and rightly so, for a late record cannot know. Who reads
    /// the verdict on its own record is alive.
    pub(crate) fn begin_new_life(&mut self, id: LifeId, now: Duration, stamp: Stamp) {
        self.id = id;
        self.first_attempt = None;
        self.birth = None;
        self.acknowledged = None;
        self.restate(now, stamp);
    }

    /// States the content anew, as the next change.
    fn restate(&mut self, now: Duration, stamp: Stamp) {
        self.content.origin = stamp.origin;
        self.content.tracing_id = stamp.tracing_id;
        self.value = Some(encode(&self.content));
        self.seq += 1;
        self.expect_write(now);
    }

    fn expect_write(&mut self, now: Duration) {
        self.progress = Progress::Pending;
        self.schedule.at_once(now);
    }

    fn write(&mut self, now: Duration) -> InstanceRecord {
        let first_attempt = *self.first_attempt.get_or_insert(now);
        let version = Version {
            seq: self.seq,
            has_birth: self.birth.is_some(),
        };
        let age_ms = self
            .birth
            .is_none()
            .then(|| millis(now.saturating_sub(first_attempt)));
        self.in_flight = Some(InFlight {
            version,
            sent_at: now,
        });
        InstanceRecord {
            key: self.key.clone(),
            value: self.value.clone(),
            headers: Headers {
                kind: match self.wanted {
                    Wanted::Up => RecordKind::Announce,
                    Wanted::Down => RecordKind::Withdraw,
                },
                id: Some(self.id),
                birth: self.birth,
                age_ms,
                seq: Some(self.seq),
                ..Headers::default()
            },
            delivery: if self.acknowledged == Some(version) {
                Delivery::Heartbeat
            } else {
                Delivery::Change
            },
            // Of heartbeats too: another process may have taken the instance over since.
            wants_verdict: true,
        }
    }

    /// Birth is the first append time that the log tells, less the time since the first attempt.
    /// Counting up to now, not to when the record was sent, can only make the life look older, so a
    /// record that waited long in a queue never looks younger than the process that replaced it.
    fn learn_birth(&mut self, appended: Appended, now: Duration) {
        if let (None, Some(first), Some(time)) =
            (self.birth, self.first_attempt, appended.append_time)
        {
            let birth = time.minus(now.saturating_sub(first));
            self.birth = Some(birth.max(Timestamp(0)));
        }
    }

    /// Whether the log has acknowledged what is wanted, with the birth if that is known. A
    /// withdrawal is not repeated for its birth: its age says the same.
    fn is_stated(&self) -> bool {
        self.acknowledged.is_some_and(|a| {
            a.seq == self.seq
                && (a.has_birth || self.birth.is_none() || self.wanted == Wanted::Down)
        })
    }
}

#[cfg(test)]
mod tests;
