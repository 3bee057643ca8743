//! The keys of one partition: the state and every way to change it. Which change a record makes is
//! decided in `rules`.

mod due;

use std::collections::{BTreeSet, VecDeque};

use waypost_core::{InstanceKey, LogTime, Offset, PartitionId, Timestamp};

use crate::cap::Lapse;
use crate::census::Change;
use crate::clock::{Mark, PartitionClock};
use crate::digest::{DigestedKey, KeyDigest, PartitionDigests, bucket_of};
use crate::event::{Confirmation, Life};
use crate::key_state::{
    Accepted, Burial, Gone, KeyState, Live, NewContent, Place, Rank, Refused, Standing,
};
use crate::key_table::{ClusterNames, KeyParts, KeyTable, Slot};
use crate::limits::GONE_KEYS_MAX;
use crate::wheel::Wheel;

pub use due::{BurialDue, Overdue, RestatementDue};

#[derive(Clone, Debug)]
pub(crate) struct PartitionFold {
    pub(crate) id: PartitionId,
    pub(crate) keys: KeyTable,
    pub(crate) stray_records: u64,
    wheel: Wheel,
    overdue: BTreeSet<Slot>,
    burials_due: BTreeSet<Slot>,
    /// Withdrawn keys in the order in which they are forgotten. An entry whose key has left that
    /// state since, or was withdrawn again, is passed over.
    gone_order: VecDeque<(Slot, Mark)>,
    /// Withdrawn keys that keep a copy in another partition from being served.
    barring: BTreeSet<Slot>,
    /// Live keys whose last record is not their standing announcement.
    covered: BTreeSet<Slot>,
    /// Keys that belong to another partition.
    strays: BTreeSet<InstanceKey>,
    /// Where this reader began to follow, at the partition's end; `None` before.
    followed_from: Option<Offset>,
    /// What happened since it was last asked for.
    changes: Vec<(InstanceKey, Change)>,
    live: usize,
    /// Of those, the unconfirmed ones.
    unconfirmed: usize,
    gone: usize,
    digests: PartitionDigests,
}

/// A key that is not in the table yet.
#[derive(Clone, Debug)]
pub(crate) struct NewKey {
    pub(crate) key: InstanceKey,
    /// It belongs to another partition.
    pub(crate) stray: bool,
}

impl PartitionFold {
    pub(crate) fn new(id: PartitionId) -> Self {
        Self {
            id,
            keys: KeyTable::default(),
            stray_records: 0,
            wheel: Wheel::default(),
            overdue: BTreeSet::new(),
            burials_due: BTreeSet::new(),
            gone_order: VecDeque::new(),
            barring: BTreeSet::new(),
            covered: BTreeSet::new(),
            strays: BTreeSet::new(),
            followed_from: None,
            changes: Vec::new(),
            live: 0,
            unconfirmed: 0,
            gone: 0,
            digests: PartitionDigests::default(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn unconfirmed(&self) -> usize {
        self.unconfirmed
    }

    pub(crate) fn gone(&self) -> usize {
        self.gone
    }

    pub(crate) fn overdue_count(&self) -> usize {
        self.overdue.len()
    }

    pub(crate) fn digests(&self) -> &PartitionDigests {
        &self.digests
    }

    /// Live keys of one bucket whose hash is above `after`, in no order.
    pub(crate) fn digested_keys(&self, bucket: usize, after: Option<u64>) -> Vec<DigestedKey> {
        let digested = self.keys.iter().filter_map(KeyState::digested);
        digested
            .filter(|key| bucket_of(key.key_hash) == bucket)
            .filter(|key| after.is_none_or(|after| key.key_hash > after))
            .collect()
    }

    /// Keys that belong to another partition.
    pub(crate) fn strays(&self) -> &BTreeSet<InstanceKey> {
        &self.strays
    }

    /// An unknown key is announced.
    pub(crate) fn insert_live(
        &mut self,
        key: NewKey,
        accepted: Accepted,
        content: NewContent,
        log_time: LogTime,
    ) {
        let live = Live::new(accepted, content);
        if let Some(slot) = self.insert(key, Standing::Live(live)) {
            self.live += 1;
            self.enqueue(slot, log_time);
            self.digests.add(self.digest_of(slot));
            self.note(slot, Change::Arrived);
        }
    }

    /// An unknown key is withdrawn.
    pub(crate) fn insert_gone(
        &mut self,
        key: NewKey,
        life: Life,
        since: Mark,
        names: &mut ClusterNames,
    ) {
        let gone = Gone::new(life, since);
        if let Some(slot) = self.insert(key, Standing::Gone(gone)) {
            self.gone += 1;
            self.note(slot, Change::Reordered);
            self.remember_gone(slot, since, names);
        }
    }

    /// An instance of the log that was here before: it stands, whatever this log has said of it, and
    /// waits to be confirmed from now on.
    pub(crate) fn insert_unconfirmed(
        &mut self,
        key: &InstanceKey,
        old: &Live,
        clock: &PartitionClock,
        names: &mut ClusterNames,
    ) {
        let at = Place {
            offset: Offset::NONE,
            append_time: clock.last_append().unwrap_or(Timestamp(0)),
            mark: clock.mark(),
        };
        let content = NewContent {
            value: old.value.clone(),
            digest: old.digest,
            ttl_ms: old.ttl_ms,
        };
        let live = Live::unconfirmed(old.life(), content, at);
        let slot = match self.keys.find(KeyParts::of(key)) {
            None => {
                let key = names.intern(key.clone());
                self.insert(NewKey { key, stray: false }, Standing::Live(live))
            }
            Some(slot) => {
                let state = self.keys.get_mut(slot).filter(|s| s.live().is_none());
                let Some(state) = state else {
                    return;
                };
                state.standing = Standing::Live(live);
                state.share_uri();
                state.refused = None;
                self.burials_due.remove(&slot);
                self.gone -= 1;
                Some(slot)
            }
        };
        if let Some(slot) = slot {
            self.live += 1;
            self.unconfirmed += 1;
            self.enqueue(slot, clock.log_time());
            self.note(slot, Change::Arrived);
        }
    }

    /// A withdrawn key is announced again.
    pub(crate) fn revive(
        &mut self,
        slot: Slot,
        accepted: Accepted,
        content: NewContent,
        log_time: LogTime,
    ) {
        let Some(state) = self.keys.get_mut(slot) else {
            return;
        };
        state.standing = Standing::Live(Live::new(accepted, content));
        state.share_uri();
        state.forget_refusal_of(accepted.life);
        self.burials_due.remove(&slot);
        self.barring.remove(&slot);
        self.gone -= 1;
        self.live += 1;
        self.enqueue(slot, log_time);
        self.digests.add(self.digest_of(slot));
        self.note(slot, Change::Arrived);
    }

    /// A live key is announced again; `content` is `None` for the same bytes.
    pub(crate) fn touch(
        &mut self,
        slot: Slot,
        accepted: Accepted,
        content: Option<NewContent>,
        log_time: LogTime,
    ) {
        let Some(state) = self.keys.get_mut(slot) else {
            return;
        };
        let confirmed = |live: &Live| live.confirmation == Confirmation::Confirmed;
        let unchanged = content.is_none()
            && state.life() == accepted.life
            && state.live().is_some_and(confirmed);
        let before = if unchanged {
            KeyDigest::default()
        } else {
            state.digest()
        };
        state.forget_refusal_of(accepted.life);
        let Some(live) = state.live_mut() else {
            return;
        };
        if live.confirmation == Confirmation::Unconfirmed {
            self.unconfirmed -= 1;
        }
        let lapse = std::mem::take(&mut live.lapse);
        let was_covered = std::mem::take(&mut live.is_covered);
        let was_overdue = lapse != Lapse::None;
        let ttl_before = live.ttl_ms;
        let is_new = content.is_some();
        live.accept(accepted, content);
        let is_shorter = live.ttl_ms < ttl_before;
        if is_new {
            state.share_uri();
        }
        if was_overdue {
            self.overdue.remove(&slot);
            self.note(slot, Change::Spoke(lapse));
        }
        if was_covered {
            self.covered.remove(&slot);
        }
        // A longer time-to-live is found out when the wheel looks at the key.
        if was_overdue || is_shorter {
            self.enqueue(slot, log_time);
        }
        if !unchanged {
            self.digests.subtract(before);
            self.digests.add(self.digest_of(slot));
            self.note(slot, Change::Reordered);
        }
    }

    /// A live key is withdrawn.
    pub(crate) fn make_gone(
        &mut self,
        slot: Slot,
        life: Life,
        since: Mark,
        names: &mut ClusterNames,
    ) {
        self.digests.subtract(self.digest_of(slot));
        self.note_left(slot);
        let Some(state) = self.keys.get_mut(slot) else {
            return;
        };
        if state.is_unconfirmed() {
            self.unconfirmed -= 1;
        }
        state.standing = Standing::Gone(Gone::new(life, since));
        state.share_uri();
        self.overdue.remove(&slot);
        self.covered.remove(&slot);
        self.live -= 1;
        self.gone += 1;
        self.remember_gone(slot, since, names);
    }

    /// A withdrawn key is withdrawn again by a later life or count. A burial says nothing new, so
    /// the bar stays as it was.
    pub(crate) fn update_gone(
        &mut self,
        slot: Slot,
        life: Life,
        since: Option<Mark>,
        names: &mut ClusterNames,
    ) {
        let Some(gone) = self.keys.get_mut(slot).and_then(KeyState::gone_mut) else {
            return;
        };
        gone.life = life;
        if let Some(since) = since {
            gone.since = since;
            self.remember_gone(slot, since, names);
        }
        self.note(slot, Change::Reordered);
    }

    /// A key becomes unknown.
    pub(crate) fn remove(&mut self, slot: Slot, names: &mut ClusterNames) -> Option<KeyState> {
        self.note_left(slot);
        let state = self.keys.remove(slot)?;
        self.digests.subtract(state.digest());
        self.overdue.remove(&slot);
        self.burials_due.remove(&slot);
        self.barring.remove(&slot);
        self.covered.remove(&slot);
        if self.strays.remove(&state.key) {
            self.changes.push((state.key.clone(), Change::CopyLeft));
        }
        names.release(&state.key.cluster);
        if state.is_unconfirmed() {
            self.unconfirmed -= 1;
        }
        match state.standing {
            Standing::Live(_) => self.live -= 1,
            Standing::Gone(_) => self.gone -= 1,
        }
        Some(state)
    }

    /// An announcement was refused. If a withdrawal refused it, that one is due to be buried.
    pub(crate) fn set_refused(&mut self, slot: Slot, refused: Refused) {
        let Some(state) = self.keys.get_mut(slot) else {
            return;
        };
        if let Some(gone) = state.gone_mut() {
            gone.burial = Some(Box::new(Burial {
                refused: refused.at.offset,
                ttl_ms: refused.ttl_ms,
            }));
            self.burials_due.insert(slot);
        }
        state.refused = Some(Box::new(refused));
    }

    /// A burial with this evidence was read.
    pub(crate) fn settle_burial(&mut self, slot: Slot, evidence: Offset) {
        if let Some(gone) = self.keys.get_mut(slot).and_then(KeyState::gone_mut)
            && gone
                .burial
                .as_ref()
                .is_some_and(|due| due.refused <= evidence)
        {
            gone.burial = None;
            self.burials_due.remove(&slot);
        }
    }

    /// A tick was read: finds what is overdue now, and forgets what was withdrawn `kept_ms` ago.
    pub(crate) fn on_tick(
        &mut self,
        clock: &PartitionClock,
        kept_ms: i64,
        names: &mut ClusterNames,
    ) {
        for (queued_at, slot) in self.wheel.drain(clock.log_time()) {
            let Some(live) = self.keys.get_mut(slot).and_then(KeyState::live_mut) else {
                continue;
            };
            if live.queued_at != queued_at || live.lapse != Lapse::None {
                continue;
            }
            let rest_ms = i64::from(live.ttl_ms) - clock.age_ms(live.last().mark);
            if rest_ms <= 0 {
                live.lapse = lapse_of(live, self.followed_from);
                let change = Change::FellSilent(live.lapse);
                self.overdue.insert(slot);
                self.note(slot, change);
            } else {
                let due = LogTime(clock.log_time().0.saturating_add(rest_ms));
                live.queued_at = self.wheel.push(slot, due);
            }
        }
        self.forget_gone(clock, kept_ms, names);
        self.digests.on_tick(clock);
    }

    /// The topic has other partitions now: which keys are strays is found anew.
    pub(crate) fn find_strays(&mut self, is_stray: impl Fn(&InstanceKey) -> bool) {
        self.strays.clear();
        for state in self.keys.iter_mut() {
            state.stray = is_stray(&state.key);
            if state.stray {
                self.strays.insert(state.key.clone());
            }
        }
    }

    fn insert(&mut self, key: NewKey, standing: Standing) -> Option<Slot> {
        if key.stray {
            self.strays.insert(key.key.clone());
        }
        let mut state = KeyState {
            key: key.key,
            standing,
            refused: None,
            stray: key.stray,
            rank: Rank::Stands,
        };
        state.share_uri();
        self.keys.insert(state)
    }

    /// Something happened to a key. Of a copy that is not served only that it did.
    fn note(&mut self, slot: Slot, change: Change) {
        if let Some(state) = self.keys.get(slot) {
            let counts = state.rank == Rank::Stands;
            let change = if counts { change } else { Change::Reordered };
            self.changes.push((state.key.clone(), change));
        }
    }

    /// A key is about to be live no more, or to be forgotten.
    fn note_left(&mut self, slot: Slot) {
        let live = self.keys.get(slot).and_then(KeyState::live);
        let change = live.map_or(Change::Reordered, |live| Change::Left(live.lapse));
        self.note(slot, change);
    }

    /// Puts a live key where the wheel looks at it when it can be overdue at the earliest.
    fn enqueue(&mut self, slot: Slot, log_time: LogTime) {
        if let Some(live) = self.keys.get_mut(slot).and_then(KeyState::live_mut) {
            let due = LogTime(log_time.0.saturating_add(i64::from(live.ttl_ms)));
            live.queued_at = self.wheel.push(slot, due);
        }
    }

    fn digest_of(&self, slot: Slot) -> KeyDigest {
        let state = self.keys.get(slot);
        state.map_or_else(KeyDigest::default, KeyState::digest)
    }

    /// The withdrawn key is among those that are forgotten one day: at once the oldest, if too many
    /// are remembered.
    fn remember_gone(&mut self, slot: Slot, since: Mark, names: &mut ClusterNames) {
        self.gone_order.push_back((slot, since));
        if self.gone_order.len() > GONE_KEYS_MAX
            && let Some((oldest, since)) = self.gone_order.pop_front()
            && self.is_gone_since(oldest, since)
        {
            self.remove(oldest, names);
        }
    }

    fn forget_gone(&mut self, clock: &PartitionClock, kept_ms: i64, names: &mut ClusterNames) {
        for _ in 0..self.gone_order.len() {
            let Some((slot, since)) = self.gone_order.front().copied() else {
                break;
            };
            let stands = self.is_gone_since(slot, since);
            if stands && clock.age_ms(since) < kept_ms {
                break;
            }
            self.gone_order.pop_front();
            let is_needed = self.burials_due.contains(&slot) || self.barring.contains(&slot);
            if stands && is_needed {
                self.gone_order.push_back((slot, since));
            } else if stands {
                self.remove(slot, names);
            }
        }
    }

    fn is_gone_since(&self, slot: Slot, since: Mark) -> bool {
        let standing = self.keys.get(slot).map(|state| &state.standing);
        matches!(standing, Some(Standing::Gone(gone)) if gone.since == since)
    }
}

/// Of a key that is found to be overdue. An unconfirmed one began to wait here.
fn lapse_of(live: &Live, followed_from: Option<Offset>) -> Lapse {
    let is_older = followed_from.is_none_or(|from| live.last().offset < from);
    if is_older && live.confirmation == Confirmation::Confirmed {
        Lapse::Inherited
    } else {
        Lapse::Witnessed
    }
}
