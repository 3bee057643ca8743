//! The keys of one partition: the state and every way to change it. Which change a record makes is
//! decided in `rules`.

use std::collections::{BTreeSet, VecDeque};

use waypost_core::record::Evidence;
use waypost_core::{InstanceKey, LogTime, Offset, PartitionId, Timestamp};

use crate::clock::{Mark, PartitionClock};
use crate::digest::{DigestedKey, KeyDigest, PartitionDigests, bucket_of};
use crate::event::{Confirmation, Life};
use crate::key_state::{Burial, Gone, KeyState, Live, Place, Refused, Standing};
use crate::key_table::{ClusterNames, KeyParts, KeyTable, Slot};
use crate::limits::GONE_KEYS_MAX;
use crate::wheel::Wheel;

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
    /// Keys that belong to another partition.
    strays: BTreeSet<InstanceKey>,
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

/// An accepted announcement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) life: Life,
    pub(crate) place: Place,
}

/// Content that was not there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewContent<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) ttl_ms: u32,
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
            strays: BTreeSet::new(),
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
                life: live.life,
                evidence: match live.confirmation {
                    Confirmation::Confirmed => {
                        Evidence::At(state.last_read().unwrap_or(live.last()).offset)
                    }
                    Confirmation::Unconfirmed => Evidence::None,
                },
                ttl_ms,
                age_ms,
                contested: state.is_contested(clock, live.ttl_ms),
            })
        })
    }

    /// Withdrawals that must be written again.
    pub(crate) fn burials_due(&self) -> impl Iterator<Item = BurialDue> {
        self.burials_due.iter().filter_map(|slot| {
            let state = self.keys.get(*slot)?;
            let Standing::Gone(gone) = &state.standing else {
                return None;
            };
            let burial = gone.burial?;
            Some(BurialDue {
                key: state.key.clone(),
                life: gone.life,
                refused: burial.refused,
                ttl_ms: i64::from(burial.ttl_ms),
            })
        })
    }

    /// An unknown key is announced.
    pub(crate) fn insert_live(
        &mut self,
        key: NewKey,
        accepted: Accepted,
        content: NewContent<'_>,
        log_time: LogTime,
    ) {
        let live = Live::new(accepted, content);
        if let Some(slot) = self.insert(key, Standing::Live(live)) {
            self.live += 1;
            self.enqueue(slot, log_time);
            self.digests.add(self.digest_of(slot));
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
        let live = Live::unconfirmed(old.life, old.value.clone(), old.ttl_ms, at);
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
        }
    }

    /// A withdrawn key is announced again.
    pub(crate) fn revive(
        &mut self,
        slot: Slot,
        accepted: Accepted,
        content: NewContent<'_>,
        log_time: LogTime,
    ) {
        let Some(state) = self.keys.get_mut(slot) else {
            return;
        };
        state.standing = Standing::Live(Live::new(accepted, content));
        state.forget_refusal_of(accepted.life);
        self.burials_due.remove(&slot);
        self.gone -= 1;
        self.live += 1;
        self.enqueue(slot, log_time);
        self.digests.add(self.digest_of(slot));
    }

    /// A live key is announced again; `content` is `None` for the same bytes.
    pub(crate) fn touch(
        &mut self,
        slot: Slot,
        accepted: Accepted,
        content: Option<NewContent<'_>>,
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
        let was_overdue = std::mem::take(&mut live.overdue);
        let ttl_before = live.ttl_ms;
        live.accept(accepted, content);
        if was_overdue {
            self.overdue.remove(&slot);
        }
        // A longer time-to-live is found out when the wheel looks at the key.
        if was_overdue || live.ttl_ms < ttl_before {
            self.enqueue(slot, log_time);
        }
        if !unchanged {
            self.digests.subtract(before);
            self.digests.add(self.digest_of(slot));
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
        let Some(state) = self.keys.get_mut(slot) else {
            return;
        };
        if state.is_unconfirmed() {
            self.unconfirmed -= 1;
        }
        state.standing = Standing::Gone(Gone::new(life, since));
        self.overdue.remove(&slot);
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
    }

    /// A key becomes unknown.
    pub(crate) fn remove(&mut self, slot: Slot, names: &mut ClusterNames) -> Option<KeyState> {
        let state = self.keys.remove(slot)?;
        self.digests.subtract(state.digest());
        self.overdue.remove(&slot);
        self.burials_due.remove(&slot);
        self.strays.remove(&state.key);
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
            gone.burial = Some(Burial {
                refused: refused.at.offset,
                ttl_ms: refused.ttl_ms,
            });
            self.burials_due.insert(slot);
        }
        state.refused = Some(Box::new(refused));
    }

    /// A burial with this evidence was read.
    pub(crate) fn settle_burial(&mut self, slot: Slot, evidence: Offset) {
        if let Some(gone) = self.keys.get_mut(slot).and_then(KeyState::gone_mut)
            && gone.burial.is_some_and(|due| due.refused <= evidence)
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
            if live.queued_at != queued_at || live.overdue {
                continue;
            }
            let rest_ms = i64::from(live.ttl_ms) - clock.age_ms(live.last().mark);
            if rest_ms <= 0 {
                live.overdue = true;
                self.overdue.insert(slot);
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
        self.keys.insert(KeyState {
            key: key.key,
            standing,
            refused: None,
            stray: key.stray,
        })
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
            if stands && self.burials_due.contains(&slot) {
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
