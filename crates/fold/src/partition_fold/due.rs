//! What of a partition an Observer may have to write something about.

use bytes::Bytes;
use waypost_core::record::Evidence;
use waypost_core::{InstanceKey, Offset, Timestamp};

use super::PartitionFold;
use crate::cap::Lapse;
use crate::census::Change;
use crate::clock::{Mark, PartitionClock};
use crate::event::{Confirmation, Life};
use crate::key_state::{KeyState, Live, Rank, Standing};
use crate::key_table::{KeyParts, Slot};

/// A live key past its time-to-live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Which instance.
    pub key: InstanceKey,
    /// Its order data, for the expire.
    pub life: Life,
    /// The last announcement read for it, accepted or refused; `None` if it is unconfirmed.
    pub evidence: Evidence,
    /// Its time-to-live, milliseconds.
    pub ttl_ms: i64,
    /// Log time since its last accepted announcement at the moment asked about, milliseconds.
    pub age_ms: i64,
    /// Another announcement was refused on the key so recently that its next heartbeat may take
    /// over.
    pub contested: bool,
    /// When the log took its last accepted announcement: what operators release goes by it.
    pub announced: Timestamp,
    /// Another copy of the key is served: this one's end is nobody's loss.
    pub loses: bool,
}

/// A withdrawal that must be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BurialDue {
    /// Which instance.
    pub key: InstanceKey,
    /// The withdrawal's order data.
    pub life: Life,
    /// Offset of the announcement that it refused.
    pub refused: Offset,
    /// That announcement's time-to-live, milliseconds.
    pub ttl_ms: i64,
}

/// A standing announcement that must be written again, since compaction would keep another record of
/// its key, and its announcer is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestatementDue {
    /// Which instance.
    pub key: InstanceKey,
    /// Its order data.
    pub life: Life,
    /// The bytes of its announcement.
    pub value: Bytes,
    /// Offset of its last accepted announcement.
    pub offset: Offset,
    /// Its time-to-live, milliseconds.
    pub ttl_ms: i64,
    /// Log time since its last accepted announcement, milliseconds.
    pub age_ms: i64,
    /// When the log took its last accepted announcement.
    pub announced: Timestamp,
}

impl PartitionFold {
    /// Live keys that no announcement has touched for their time-to-live, as of the moment `at`.
    pub(crate) fn overdue<'a>(
        &'a self,
        clock: &'a PartitionClock,
        at: Mark,
    ) -> impl Iterator<Item = Overdue> + 'a {
        self.overdue.iter().filter_map(move |slot| {
            let state = self.keys.get(*slot)?;
            let live = state.live()?;
            let ttl_ms = i64::from(live.ttl_ms);
            let age_ms = clock.age_ms_at(live.last().mark, at);
            (age_ms >= ttl_ms).then(|| Overdue {
                key: state.key.clone(),
                life: live.life(),
                evidence: evidence_of(state, live),
                ttl_ms,
                age_ms,
                contested: state.is_contested(clock, live.ttl_ms),
                announced: live.last().append_time,
                loses: state.rank == Rank::Loses,
            })
        })
    }

    /// What an expire of a live key must name now.
    pub(crate) fn find_evidence(&self, key: &InstanceKey) -> Option<Evidence> {
        let state = self.keys.get(self.keys.find(KeyParts::of(key))?)?;
        Some(evidence_of(state, state.live()?))
    }

    /// Withdrawals that must be written again.
    pub(crate) fn burials_due(&self) -> impl Iterator<Item = BurialDue> {
        self.burials_due.iter().filter_map(|slot| {
            let state = self.keys.get(*slot)?;
            let Standing::Gone(gone) = &state.standing else {
                return None;
            };
            let burial = gone.burial.as_ref()?;
            Some(BurialDue {
                key: state.key.clone(),
                life: gone.life,
                refused: burial.refused,
                ttl_ms: i64::from(burial.ttl_ms),
            })
        })
    }

    /// Standing announcements that must be written again: of keys that are overdue. The others are
    /// followed by their next heartbeat.
    pub(crate) fn restatements_due<'a>(
        &'a self,
        clock: &'a PartitionClock,
    ) -> impl Iterator<Item = RestatementDue> + 'a {
        let overdue = self
            .covered
            .iter()
            .filter(|slot| self.overdue.contains(slot));
        overdue.filter_map(|slot| {
            let state = self.keys.get(*slot)?;
            let live = state.live()?;
            let is_needed = state.rank == Rank::Stands && !state.is_unconfirmed();
            is_needed.then(|| RestatementDue {
                key: state.key.clone(),
                life: live.life(),
                value: live.value.to_bytes(),
                offset: live.last().offset,
                ttl_ms: i64::from(live.ttl_ms),
                age_ms: clock.age_ms(live.last().mark),
                announced: live.last().append_time,
            })
        })
    }

    /// A record of this key without effect was read.
    pub(crate) fn cover(&mut self, slot: Slot) {
        if let Some(live) = self.keys.get_mut(slot).and_then(KeyState::live_mut) {
            live.is_covered = true;
            self.covered.insert(slot);
        }
    }

    /// What stands was written again at `offset`, and not by its announcer.
    pub(crate) fn restate(&mut self, slot: Slot, life: Life, offset: Offset) {
        self.digests.subtract(self.digest_of(slot));
        if let Some(live) = self.keys.get_mut(slot).and_then(KeyState::live_mut) {
            live.restate(life, offset);
            self.covered.remove(&slot);
        }
        self.digests.add(self.digest_of(slot));
    }

    /// A live key is about to leave by an expire.
    pub(crate) fn note_expired(&mut self, slot: Slot) {
        let live = self.keys.get(slot).and_then(KeyState::live);
        if let Some(announced) = live.map(|live| live.last().append_time) {
            self.note(slot, Change::Expired(announced));
        }
    }

    /// The reader stands at the partition's end, at `position`, and has not done so for a while: of
    /// what is overdue by now others may have decided.
    pub(crate) fn follow_from(&mut self, position: Offset) {
        self.followed_from = Some(position);
        let overdue: Vec<_> = self.overdue.iter().copied().collect();
        for slot in overdue {
            if let Some(live) = self.keys.get_mut(slot).and_then(KeyState::live_mut)
                && live.lapse == Lapse::Witnessed
            {
                live.lapse = Lapse::Inherited;
                self.note(slot, Change::Missed);
            }
        }
    }

    /// Whether the reader has stood at the partition's end.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed_from.is_some()
    }

    /// What happened since this was last asked.
    pub(crate) fn take_changes(&mut self) -> Vec<(InstanceKey, Change)> {
        std::mem::take(&mut self.changes)
    }

    /// Whether a withdrawn key keeps a copy in another partition from being served, and must be
    /// remembered for that.
    pub(crate) fn set_barring(&mut self, slot: Slot, is_barring: bool) {
        if is_barring {
            self.barring.insert(slot);
        } else if !self.barring.is_empty() {
            self.barring.remove(&slot);
        }
    }

    /// Withdrawn keys that keep a copy in another partition from being served.
    pub(crate) fn barring(&self) -> impl Iterator<Item = &InstanceKey> {
        let states = self.barring.iter().filter_map(|slot| self.keys.get(*slot));
        states.map(|state| &state.key)
    }
}

fn evidence_of(state: &KeyState, live: &Live) -> Evidence {
    match live.confirmation {
        Confirmation::Confirmed => Evidence::At(state.last_read().unwrap_or(live.last()).offset),
        Confirmation::Unconfirmed => Evidence::None,
    }
}
