//! Questions about single records: whether the identity, and the tick read last, are still what they
//! were when they were read.

use std::collections::BTreeMap;
use std::time::Duration;

use waypost_core::record::TickRef;
use waypost_core::{LogError, Offset, PartitionId, Record, RecordKind, Topic};

use super::{Replica, Request};
use crate::continuity::{Alarm, Discontinuity};
use crate::event::FoldEvent;

/// A question that is not answered by then is asked again, and a record that was found as it was is
/// not looked at again for as long.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// What was asked, and when a partition was last known to be continued.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions {
    asked: BTreeMap<(Topic, PartitionId, Offset), Asked>,
    /// When a tick was last read, or found where it was read.
    trusted_at: BTreeMap<(Topic, PartitionId), Duration>,
    identity_trusted_at: BTreeMap<Topic, Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    what: What,
    at: Duration,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Identity,
    LastTick(TickRef),
}

impl Questions {
    /// The topic is read again: what was asked does not matter any more.
    pub(super) fn forget(&mut self, topic: Topic) {
        self.asked.retain(|(asked, _, _), _| *asked != topic);
    }

    /// Everything of the topic was read just now.
    pub(super) fn on_read_to_end(&mut self, topic: Topic, now: Duration) {
        let places = self.trusted_at.iter_mut();
        for (_, at) in places.filter(|((trusted, _), _)| *trusted == topic) {
            *at = now;
        }
        self.identity_trusted_at.insert(topic, now);
    }

    pub(super) fn trust(&mut self, topic: Topic, partition: PartitionId, now: Duration) {
        self.trusted_at.insert((topic, partition), now);
    }

    /// Whether so much time has passed since a tick was read that the log may be another by now.
    pub(super) fn is_doubtful(
        &self,
        topic: Topic,
        partition: PartitionId,
        patience: Duration,
        now: Duration,
    ) -> bool {
        let at = self.trusted_at.get(&(topic, partition));
        at.is_none_or(|at| now.saturating_sub(*at) >= patience)
    }

    pub(super) fn ask_last_tick(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        tick: TickRef,
        now: Duration,
    ) -> Option<Request> {
        self.ask(topic, partition, tick.offset, What::LastTick(tick), now)
    }

    fn ask(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
        what: What,
        now: Duration,
    ) -> Option<Request> {
        let asked = self.asked.get(&(topic, partition, offset));
        if asked.is_some_and(|asked| now.saturating_sub(asked.at) < ASK_AGAIN_AFTER) {
            return None;
        }
        self.asked
            .insert((topic, partition, offset), Asked { what, at: now });
        Some(Request::ReadAt {
            topic,
            partition,
            offset,
        })
    }
}

impl Replica {
    /// What [`Request::ReadAt`] found. An error says nothing: the question is asked again.
    pub fn on_read_at(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
        found: Result<Option<Record>, LogError>,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        let Some(asked) = self.questions.asked.remove(&(topic, partition, offset)) else {
            return;
        };
        let Ok(found) = found else {
            return;
        };
        let cause = match asked.what {
            What::Identity => {
                let ours = self.logs().clock(topic).identity();
                let headers = found.as_ref().and_then(|r| r.headers.as_ref().ok());
                let same = headers.is_some_and(|h| h.kind == RecordKind::Identity && h.log == ours);
                if same {
                    self.questions.identity_trusted_at.insert(topic, now);
                    return;
                }
                Discontinuity::IdentityGone
            }
            What::LastTick(tick) => {
                if self.last_tick(topic, partition) != Some(tick) {
                    return;
                }
                if found.is_some_and(|found| is_tick_at(&found, tick)) {
                    self.questions.trust(topic, partition, now);
                    return;
                }
                Discontinuity::LastTickGone(offset)
            }
        };
        self.begin_replay(topic, Alarm { partition, cause }, now, events);
    }

    /// Ticks that were read in the served folds.
    pub(super) fn hear_ticks(&mut self, events: &[FoldEvent], now: Duration) {
        for event in events {
            if let FoldEvent::Ticked(tick) = event {
                self.keeper.on_tick(tick, now);
                self.questions.trust(tick.topic, tick.partition, now);
            }
        }
    }

    /// A tick carries another identity: is the log another, or its writer mistaken?
    pub(super) fn doubt_identity(
        &mut self,
        topic: Topic,
        now: Duration,
        events: &mut Vec<FoldEvent>,
    ) {
        let trusted_at = self.questions.identity_trusted_at.get(&topic);
        if trusted_at.is_some_and(|at| now.saturating_sub(*at) < ASK_AGAIN_AFTER) {
            return;
        }
        let partition = PartitionId(0);
        let Some(offset) = self.reading(topic).identity_at() else {
            let cause = Discontinuity::IdentityGone;
            self.begin_replay(topic, Alarm { partition, cause }, now, events);
            return;
        };
        let question = self
            .questions
            .ask(topic, partition, offset, What::Identity, now);
        self.requests.extend(question);
    }

    fn last_tick(&self, topic: Topic, partition: PartitionId) -> Option<TickRef> {
        let clock = self.logs().clock(topic).find(partition)?;
        clock.last_tick().map(|tick| tick.at)
    }
}

fn is_tick_at(record: &Record, tick: TickRef) -> bool {
    let is_tick = |h: &waypost_core::Headers| h.kind == RecordKind::Tick;
    record.append_time == tick.append_time && record.headers.as_ref().is_ok_and(is_tick)
}
