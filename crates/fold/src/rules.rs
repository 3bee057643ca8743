//! What each kind of record does to its key (docs/announcement-log.md, "Order within a key",
//! "Time, the keeper, expiry" and "Compaction").

use std::sync::Arc;
use std::time::Duration;

use waypost_core::record::Evidence;
use waypost_core::{
    Announcement, Headers, InstanceKey, InstanceValue, Offset, PartitionId, Record, RecordKind,
};
use waypost_proto::announcement::decode;
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::PartitionClock;
use crate::event::{
    Confirmation, GoneCause, Life, Refusal, RefusalReason, RejectReason, VoidReason,
};
use crate::fold::FoldSettings;
use crate::key_state::{
    Accepted, AnnouncementDigest, KeyState, Live, NewContent, Place, Refused, Standing,
};
use crate::key_table::{ClusterNames, KeyParts, Slot};
use crate::limits::WITHDRAWAL_BARS_TTLS;
use crate::order::{self, Bar, Silence};
use crate::partition_fold::{NewKey, PartitionFold};

/// One record, and what is needed to judge it.
pub(crate) struct Reading<'a> {
    pub(crate) record: &'a Record,
    pub(crate) headers: &'a Headers,
    pub(crate) record_key: &'a [u8],
    /// `None` for what is no key of an instance.
    pub(crate) key: Option<KeyParts<'a>>,
    /// Of key and value.
    pub(crate) digest: AnnouncementDigest,
    /// The partition's clock, already past the record.
    pub(crate) clock: &'a PartitionClock,
    pub(crate) settings: &'a FoldSettings,
    pub(crate) names: &'a mut ClusterNames,
    /// The partition that the key belongs to, where that is known. Asked for new keys only.
    pub(crate) own_partition: &'a dyn Fn(&[u8]) -> Option<PartitionId>,
}

/// What a record did to its key.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is live, with content that was not there before.
    Live(InstanceKey),
    /// It was live and left.
    Gone(InstanceKey, GoneCause),
    /// It is said to have left and was not there.
    Absent(InstanceKey),
    /// Nothing that anybody sees.
    Unchanged,
    /// The record was refused.
    Refused(InstanceKey, Arc<Refusal>),
    /// The record was void.
    Void(InstanceKey, VoidReason),
}

impl PartitionFold {
    /// Applies a record that is no tick and no identity.
    pub(crate) fn apply(&mut self, mut r: Reading<'_>) -> Result<Step, RejectReason> {
        let slot = r.key.and_then(|key| {
            let repeated = self.keys.find_announced(key, r.digest);
            repeated.or_else(|| self.keys.find(key))
        });
        if slot.is_some_and(|slot| self.keys.get(slot).is_some_and(|state| state.stray)) {
            self.stray_records += 1;
        }
        let step = self.apply_kind(&mut r, slot);
        let is_void = matches!(step, Err(_) | Ok(Step::Refused(..) | Step::Void(..)));
        if let Some(slot) = slot.filter(|_| is_void) {
            self.cover(slot);
        }
        step
    }

    fn apply_kind(
        &mut self,
        r: &mut Reading<'_>,
        slot: Option<Slot>,
    ) -> Result<Step, RejectReason> {
        match (r.headers.kind, r.record.value.as_deref()) {
            (RecordKind::Announce, Some(value)) => self.announce(r, slot, value),
            (RecordKind::Announce, None) => self.purge(r, slot),
            (RecordKind::Withdraw, None) => self.withdraw(r, slot),
            (RecordKind::Expire, None) => self.expire(r, slot),
            (RecordKind::Withdraw | RecordKind::Expire, Some(_)) => Err(RejectReason::Form(
                "a withdrawal or expire has a null value",
            )),
            (RecordKind::Tick | RecordKind::Identity, _) => Err(RejectReason::Form(
                "ticks and identity records have keys of their own",
            )),
        }
    }

    fn announce(
        &mut self,
        r: &mut Reading<'_>,
        slot: Option<Slot>,
        value: &[u8],
    ) -> Result<Step, RejectReason> {
        let life = order::life_of_announcement(r.headers, r.record.append_time)?;
        let arriving = Arriving { life, value };
        let Some((slot, state)) = slot.and_then(|slot| Some((slot, self.keys.get(slot)?))) else {
            return self.announce_unknown(r, arriving);
        };
        match &state.standing {
            Standing::Live(_) if r.headers.evidence.is_some() && !state.is_unconfirmed() => {
                Ok(self.restated(r, slot, arriving))
            }
            Standing::Live(live) if live.digest == r.digest => self.beat(r, slot, arriving),
            Standing::Live(_) => self.change(r, slot, arriving),
            Standing::Gone(_) => self.announce_gone(r, slot, arriving),
        }
    }

    fn announce_unknown(
        &mut self,
        r: &mut Reading<'_>,
        arriving: Arriving<'_>,
    ) -> Result<Step, RejectReason> {
        let key = InstanceKey::from_record_key(r.record_key).map_err(RejectReason::Key)?;
        let announcement = decode_for(&key, arriving.value)?;
        let content = NewContent {
            value: InstanceValue::new(&key.uri, arriving.value),
            digest: r.digest,
            ttl_ms: r.settings.ttl_ms(announcement.ttl),
        };
        let uri = content.value.uri();
        let new = self.new_key(r, InstanceKey { uri, ..key });
        let key = new.key.clone();
        self.insert_live(new, r.accept(arriving.life), content, r.clock.log_time());
        Ok(Step::Live(key))
    }

    /// A keeper wrote an announcement again. It says that this is what stands, not that anybody
    /// lives: it makes nothing younger, and takes the place of nothing else.
    fn restated(&mut self, r: &Reading<'_>, slot: Slot, arriving: Arriving<'_>) -> Step {
        let Some(state) = self.keys.get(slot) else {
            return Step::Unchanged;
        };
        let (key, standing) = (state.key.clone(), state.life());
        let is_same = standing.id == arriving.life.id && standing.seq == arriving.life.seq;
        let live = state
            .live()
            .filter(|live| is_same && *live.value == *arriving.value);
        let Some(last) = live.map(Live::last) else {
            return Step::Void(key, VoidReason::RestatesOther);
        };
        self.restate(slot, arriving.life, r.record.offset.max(last.offset));
        Step::Unchanged
    }

    /// The content that stands was announced again. A heartbeat ends here: nothing is decoded, and
    /// nothing allocated.
    fn beat(
        &mut self,
        r: &Reading<'_>,
        slot: Slot,
        arriving: Arriving<'_>,
    ) -> Result<Step, RejectReason> {
        if let Err(reason) = self.judge_on_live(r, slot, arriving.life) {
            let content = self.read_content(r, slot, arriving.value)?;
            return Ok(self.refuse(r, slot, arriving, content, reason));
        }
        self.touch(slot, r.accept(arriving.life), None, r.clock.log_time());
        Ok(Step::Unchanged)
    }

    /// Other content than what stands was announced.
    fn change(
        &mut self,
        r: &Reading<'_>,
        slot: Slot,
        arriving: Arriving<'_>,
    ) -> Result<Step, RejectReason> {
        let content = self.read_content(r, slot, arriving.value)?;
        if let Err(reason) = self.judge_on_live(r, slot, arriving.life) {
            return Ok(self.refuse(r, slot, arriving, content, reason));
        }
        let new = self.new_content(r, slot, arriving, &content);
        self.touch(slot, r.accept(arriving.life), new, r.clock.log_time());
        Ok(self.live_step(slot))
    }

    fn announce_gone(
        &mut self,
        r: &Reading<'_>,
        slot: Slot,
        arriving: Arriving<'_>,
    ) -> Result<Step, RejectReason> {
        let content = self.read_content(r, slot, arriving.value)?;
        let Some(gone) = self.keys.get_mut(slot).and_then(KeyState::gone_mut) else {
            return Ok(Step::Unchanged);
        };
        let bar_ms = i64::from(content.ttl_ms) * i64::from(WITHDRAWAL_BARS_TTLS);
        let bar = if r.clock.age_ms(gone.since) < bar_ms {
            Bar::Up
        } else {
            Bar::Down
        };
        if let Err(reason) = order::announce_on_gone(gone.life, bar, arriving.life) {
            return Ok(self.refuse(r, slot, arriving, content, reason));
        }
        if let Some(new) = self.new_content(r, slot, arriving, &content) {
            self.revive(slot, r.accept(arriving.life), new, r.clock.log_time());
        }
        Ok(self.live_step(slot))
    }

    fn judge_on_live(
        &self,
        r: &Reading<'_>,
        slot: Slot,
        arriving: Life,
    ) -> Result<(), RefusalReason> {
        let live = self.keys.get(slot).and_then(KeyState::live);
        let confirmed = |live: &&Live| live.confirmation == Confirmation::Confirmed;
        let Some(live) = live.filter(confirmed) else {
            return Ok(());
        };
        let silence = if r.clock.age_ms(live.last().mark) >= i64::from(live.ttl_ms) {
            Silence::Silent
        } else {
            Silence::Speaks
        };
        order::announce_on_live(live.life(), silence, arriving)
    }

    fn refuse(
        &mut self,
        r: &Reading<'_>,
        slot: Slot,
        arriving: Arriving<'_>,
        content: Content,
        reason: RefusalReason,
    ) -> Step {
        let Some(state) = self.keys.get(slot) else {
            return Step::Unchanged;
        };
        let key = state.key.clone();
        let refusal = Arc::new(Refusal {
            reason,
            partition: self.id,
            offset: r.record.offset,
            append_time: r.record.append_time,
            life: arriving.life,
            standing: state.life(),
            hostname: content.hostname,
            ttl: Duration::from_millis(content.ttl_ms.into()),
        });
        let refused = Refused {
            refusal: Arc::clone(&refusal),
            at: r.place(),
            ttl_ms: content.ttl_ms,
            value_hash: xxh3_64(arriving.value),
        };
        self.set_refused(slot, refused);
        Step::Refused(key, refusal)
    }

    /// Checks content that does not stand. What was refused before is not decoded again.
    fn read_content(
        &self,
        r: &Reading<'_>,
        slot: Slot,
        value: &[u8],
    ) -> Result<Content, RejectReason> {
        let Some(state) = self.keys.get(slot) else {
            return Err(RejectReason::NoKey);
        };
        if let Some(refused) = &state.refused
            && refused.value_hash == xxh3_64(value)
        {
            return Ok(Content {
                ttl_ms: refused.ttl_ms,
                hostname: Arc::clone(&refused.refusal.hostname),
            });
        }
        let announcement = decode_for(&state.key, value)?;
        Ok(Content {
            ttl_ms: r.settings.ttl_ms(announcement.ttl),
            hostname: announcement.hostname.into(),
        })
    }

    /// A null without order data removes whatever stands and bars nothing.
    fn purge(&mut self, r: &mut Reading<'_>, slot: Option<Slot>) -> Result<Step, RejectReason> {
        let life = order::life_of_announcement(r.headers, r.record.append_time)?;
        if life.id.is_some() || r.headers.evidence.is_some() {
            return Err(RejectReason::Form(
                "an announcement with order data has a value; a null without headers is a purge",
            ));
        }
        self.leave(r, slot, GoneCause::Purged)
    }

    fn withdraw(&mut self, r: &mut Reading<'_>, slot: Option<Slot>) -> Result<Step, RejectReason> {
        let life = order::life_of_withdrawal(r.headers, r.record.append_time)?;
        let buries = match r.headers.evidence {
            Some(Evidence::None) => return Err(RejectReason::Form("a burial names an offset")),
            Some(Evidence::At(refused)) => Some(refused),
            None => None,
        };
        let now = r.clock.mark();
        let Some((slot, state)) = slot.and_then(|slot| Some((slot, self.keys.get(slot)?))) else {
            let key = InstanceKey::from_record_key(r.record_key).map_err(RejectReason::Key)?;
            let new = self.new_key(r, key);
            let key = new.key.clone();
            self.insert_gone(new, life, now, r.names);
            return Ok(Step::Absent(key));
        };
        let key = state.key.clone();
        match &state.standing {
            Standing::Live(live) => {
                if let Err(step) = judge_withdrawal(r, &key, live, life, buries) {
                    return Ok(step);
                }
                self.make_gone(slot, life, now, r.names);
                Ok(Step::Gone(key, GoneCause::Withdrawn))
            }
            Standing::Gone(gone) => {
                if order::updates_gone(gone.life, life) {
                    let since = buries.is_none().then_some(now);
                    self.update_gone(slot, life, since, r.names);
                }
                if let Some(refused) = buries {
                    self.settle_burial(slot, refused);
                }
                Ok(Step::Unchanged)
            }
        }
    }

    fn expire(&mut self, r: &mut Reading<'_>, slot: Option<Slot>) -> Result<Step, RejectReason> {
        let Some(evidence) = r.headers.evidence else {
            return Err(RejectReason::Form("an expire needs waypost-evidence"));
        };
        let state = slot.and_then(|slot| self.keys.get(slot));
        let last = state.and_then(|state| Some((state, state.last_read()?)));
        match (last, slot) {
            (Some((state, last)), _) => match judge_expire(r, state, last, evidence) {
                Ok(()) => self.leave(r, slot, GoneCause::Expired),
                Err(reason) => Ok(Step::Void(state.key.clone(), reason)),
            },
            (None, Some(_)) => Ok(Step::Unchanged),
            (None, None) => self.leave(r, None, GoneCause::Expired),
        }
    }

    /// A key becomes unknown.
    fn leave(
        &mut self,
        r: &mut Reading<'_>,
        slot: Option<Slot>,
        cause: GoneCause,
    ) -> Result<Step, RejectReason> {
        let Some(slot) = slot else {
            let key = InstanceKey::from_record_key(r.record_key).map_err(RejectReason::Key)?;
            return Ok(Step::Absent(key));
        };
        if cause == GoneCause::Expired {
            self.note_expired(slot);
        }
        Ok(match self.remove(slot, r.names) {
            Some(state) if state.live().is_some() => Step::Gone(state.key, cause),
            _ => Step::Unchanged,
        })
    }

    fn new_key(&mut self, r: &mut Reading<'_>, key: InstanceKey) -> NewKey {
        let stray = (r.own_partition)(r.record_key).is_some_and(|own| own != self.id);
        self.stray_records += u64::from(stray);
        NewKey {
            key: r.names.intern(key),
            stray,
        }
    }

    /// A copy of what was announced: a reader's record may be a slice of a whole batch.
    fn new_content(
        &self,
        r: &Reading<'_>,
        slot: Slot,
        arriving: Arriving<'_>,
        content: &Content,
    ) -> Option<NewContent> {
        let state = self.keys.get(slot)?;
        Some(NewContent {
            value: InstanceValue::new(&state.key.uri, arriving.value),
            digest: r.digest,
            ttl_ms: content.ttl_ms,
        })
    }

    fn live_step(&self, slot: Slot) -> Step {
        let state = self.keys.get(slot);
        state.map_or(Step::Unchanged, |state| Step::Live(state.key.clone()))
    }
}

/// An announcement that is to be judged.
#[derive(Clone, Copy)]
struct Arriving<'a> {
    life: Life,
    value: &'a [u8],
}

/// What of an announcement's content the rules look at.
struct Content {
    ttl_ms: u32,
    hostname: Arc<str>,
}

impl Reading<'_> {
    fn place(&self) -> Place {
        Place {
            offset: self.record.offset,
            append_time: self.record.append_time,
            mark: self.clock.mark(),
        }
    }

    fn accept(&self, life: Life) -> Accepted {
        Accepted {
            life,
            place: self.place(),
        }
    }
}

fn decode_for(key: &InstanceKey, value: &[u8]) -> Result<Announcement, RejectReason> {
    let announcement = decode(value).map_err(RejectReason::Announcement)?;
    if announcement.cluster == key.cluster && announcement.uri == key.uri {
        return Ok(announcement);
    }
    Err(RejectReason::OtherInstance {
        value: format!("{} {}", announcement.cluster, announcement.uri),
        key: format!("{} {}", key.cluster, key.uri),
    })
}

/// Whether a withdrawal, or the burial of what was refused at `buries`, ends a live instance.
fn judge_withdrawal(
    r: &Reading<'_>,
    key: &InstanceKey,
    live: &Live,
    leaving: Life,
    buries: Option<Offset>,
) -> Result<(), Step> {
    if let Some(refused) = buries {
        let in_force = live.last().offset <= refused && order::bury_on_live(live.life(), leaving);
        let void = || Step::Void(key.clone(), VoidReason::BuriedTooLate(live.last().offset));
        return if in_force { Ok(()) } else { Err(void()) };
    }
    order::withdraw_on_live(live.life(), leaving).map_err(|reason| {
        let refusal = Refusal {
            reason,
            partition: r.record.partition,
            offset: r.record.offset,
            append_time: r.record.append_time,
            life: leaving,
            standing: live.life(),
            hostname: "".into(),
            ttl: Duration::ZERO,
        };
        Step::Refused(key.clone(), Arc::new(refusal))
    })
}

/// Whether an expire is in force against a live key whose last announcement read stands at `last`.
fn judge_expire(
    r: &Reading<'_>,
    state: &KeyState,
    last: Place,
    evidence: Evidence,
) -> Result<(), VoidReason> {
    let evidence = match (evidence, state.is_unconfirmed()) {
        (Evidence::None, true) => return Ok(()),
        (Evidence::None, false) => return Err(VoidReason::Confirmed),
        (Evidence::At(_), true) => return Err(VoidReason::Unconfirmed),
        (Evidence::At(evidence), false) => evidence,
    };
    if evidence >= r.record.offset {
        return Err(VoidReason::ImpossibleEvidence);
    }
    if evidence < last.offset {
        return Err(VoidReason::AnnouncedSince(last.offset));
    }
    let by_append_time = r.record.append_time.millis_since(last.append_time);
    let age_ms = by_append_time.max(r.clock.age_ms(last.mark));
    let ttl_ms = state.live().map_or(0, |live| i64::from(live.ttl_ms));
    if age_ms >= ttl_ms || r.clock.may_have_missed_since(last.offset) {
        Ok(())
    } else {
        Err(VoidReason::TooYoung { age_ms, ttl_ms })
    }
}
