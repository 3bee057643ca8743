//! What is kept per key. Three million of these are held in memory: they are small, and everything
//! that is rare is boxed.

use std::sync::Arc;

use waypost_core::{InstanceKey, InstanceValue, LifeId, Offset, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::cap::Lapse;
use crate::clock::{Mark, PartitionClock};
use crate::digest::{DigestedKey, KeyDigest};
use crate::event::{Confirmation, Life, Refusal};
use crate::key_table::KeyParts;
use crate::wheel::QueuedAt;

/// A key that is not unknown. Aligned to a pair of cache lines, since processors fetch those together: a
/// heartbeat looks at all of it.
#[derive(Clone, Debug)]
#[repr(align(128))]
pub(crate) struct KeyState {
    /// Its URI shares the allocation of what it announces, while it does.
    pub(crate) key: InstanceKey,
    pub(crate) standing: Standing,
    pub(crate) refused: Option<Box<Refused>>,
    /// In a partition that is not the key's own.
    pub(crate) stray: bool,
    /// Which of its copies is served.
    pub(crate) rank: Rank,
}

/// What a copy of a key is among its copies in other partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rank {
    /// The only one, or the one that is served.
    #[default]
    Stands,
    /// Another one is served.
    Loses,
}

#[derive(Clone, Debug)]
pub(crate) enum Standing {
    Live(Live),
    Gone(Gone),
}

/// Of a key and of what is announced under it. With 128 bits no two announcements share one, so of an
/// equal one it is known that it is the same again, byte for byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnnouncementDigest(pub(crate) [u8; 16]);

/// An instance that is announced.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Whose announcement stands: a [`Life`] without its padding.
    id: LifeId,
    birth: Timestamp,
    seq: u64,
    has_id: bool,
    has_birth: bool,
    pub(crate) value: InstanceValue,
    pub(crate) digest: AnnouncementDigest,
    /// The last announcement accepted: a [`Place`] without its padding.
    offset: Offset,
    append_time: Timestamp,
    mark: Mark,
    pub(crate) ttl_ms: u32,
    pub(crate) queued_at: QueuedAt,
    /// Whether it is overdue.
    pub(crate) lapse: Lapse,
    /// A record of this key without effect was read after the standing announcement: compaction
    /// would keep that one.
    pub(crate) is_covered: bool,
    pub(crate) confirmation: Confirmation,
}

/// A key that was withdrawn.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) life: Life,
    pub(crate) since: Mark,
    pub(crate) burial: Option<Box<Burial>>,
}

/// An announcement was refused because of a withdrawal, which must be written again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burial {
    pub(crate) refused: Offset,
    pub(crate) ttl_ms: u32,
}

/// An accepted announcement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) life: Life,
    pub(crate) place: Place,
}

/// Content that was not there before.
#[derive(Clone, Debug)]
pub(crate) struct NewContent {
    pub(crate) value: InstanceValue,
    pub(crate) digest: AnnouncementDigest,
    pub(crate) ttl_ms: u32,
}

/// Where and when a record was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) offset: Offset,
    pub(crate) append_time: Timestamp,
    pub(crate) mark: Mark,
}

/// The last announcement that was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Arc<Refusal>,
    pub(crate) at: Place,
    pub(crate) ttl_ms: u32,
    /// Of its value: the same one is not decoded again.
    pub(crate) value_hash: u64,
}

impl Live {
    pub(crate) fn new(accepted: Accepted, content: NewContent) -> Self {
        Self {
            confirmation: Confirmation::Confirmed,
            ..Self::unconfirmed(accepted.life, content, accepted.place)
        }
    }

    /// What was announced in a log that is gone; `at` says since when it waits to be confirmed.
    pub(crate) fn unconfirmed(life: Life, content: NewContent, at: Place) -> Self {
        let mut live = Self {
            id: LifeId(0),
            birth: Timestamp(0),
            seq: 0,
            has_id: false,
            has_birth: false,
            value: content.value,
            digest: content.digest,
            offset: at.offset,
            append_time: at.append_time,
            mark: at.mark,
            ttl_ms: content.ttl_ms,
            queued_at: QueuedAt::default(),
            lapse: Lapse::None,
            is_covered: false,
            confirmation: Confirmation::Unconfirmed,
        };
        live.set_life(life);
        live
    }

    /// The order data of the announcement that stands.
    pub(crate) fn life(&self) -> Life {
        Life {
            id: self.has_id.then_some(self.id),
            birth: self.has_birth.then_some(self.birth),
            seq: self.seq,
        }
    }

    fn set_life(&mut self, life: Life) {
        (self.has_id, self.id) = (life.id.is_some(), life.id.unwrap_or(LifeId(0)));
        (self.has_birth, self.birth) = (life.birth.is_some(), life.birth.unwrap_or_default());
        self.seq = life.seq;
    }

    pub(crate) fn accept(&mut self, accepted: Accepted, content: Option<NewContent>) {
        self.confirmation = Confirmation::Confirmed;
        self.set_life(accepted.life);
        self.offset = accepted.place.offset;
        self.append_time = accepted.place.append_time;
        self.mark = accepted.place.mark;
        if let Some(content) = content {
            self.value = content.value;
            self.digest = content.digest;
            self.ttl_ms = content.ttl_ms;
        }
    }

    /// What stands was written again, by a keeper: no announcement, so its times stay as they are.
    pub(crate) fn restate(&mut self, life: Life, offset: Offset) {
        self.set_life(life);
        self.offset = offset;
        self.is_covered = false;
    }

    /// The last announcement accepted.
    pub(crate) fn last(&self) -> Place {
        Place {
            offset: self.offset,
            append_time: self.append_time,
            mark: self.mark,
        }
    }
}

impl Gone {
    pub(crate) fn new(life: Life, since: Mark) -> Self {
        Self {
            life,
            since,
            burial: None,
        }
    }
}

impl KeyState {
    pub(crate) fn live(&self) -> Option<&Live> {
        match &self.standing {
            Standing::Live(live) => Some(live),
            Standing::Gone(_) => None,
        }
    }

    pub(crate) fn live_mut(&mut self) -> Option<&mut Live> {
        match &mut self.standing {
            Standing::Live(live) => Some(live),
            Standing::Gone(_) => None,
        }
    }

    pub(crate) fn gone_mut(&mut self) -> Option<&mut Gone> {
        match &mut self.standing {
            Standing::Gone(gone) => Some(gone),
            Standing::Live(_) => None,
        }
    }

    /// Reads its first and its last part, see [`KeyTable::fetch`](crate::key_table::KeyTable::fetch).
    pub(crate) fn touch(&self) -> u8 {
        let [first, ..] = self.live().map_or([0; 16], |live| live.digest.0);
        first ^ u8::from(self.stray) ^ u8::from(self.refused.is_some())
    }

    /// Lets the key's URI share the allocation of what stands, and keep no other alive.
    pub(crate) fn share_uri(&mut self) {
        self.key.uri = match &self.standing {
            Standing::Live(live) => live.value.uri(),
            Standing::Gone(_) => self.key.uri.clone().without_value(),
        };
    }

    /// The order data of what stands.
    pub(crate) fn life(&self) -> Life {
        match &self.standing {
            Standing::Live(live) => live.life(),
            Standing::Gone(gone) => gone.life,
        }
    }

    /// This key's part of its partition's digest: of its order data and content, if it is live and
    /// confirmed.
    pub(crate) fn digest(&self) -> KeyDigest {
        let Some(live) = self.confirmed() else {
            return KeyDigest::default();
        };
        let key_hash = KeyParts::of(&self.key).hash();
        let life = live.life();
        let mut words = [0_u8; 48];
        let parts = [
            key_hash,
            xxh3_64(&live.value),
            u64::from(life.id.is_some()),
            life.id.map_or(0, |id| id.0),
            life.birth.map_or(0, |birth| birth.0.cast_unsigned()),
            life.seq,
        ];
        for (word, part) in words.chunks_exact_mut(8).zip(parts) {
            word.copy_from_slice(&part.to_le_bytes());
        }
        KeyDigest {
            key_hash,
            value: xxh3_64(&words),
        }
    }

    /// What [`KeyState::digest`] is made of; `None` for what is in no digest.
    pub(crate) fn digested(&self) -> Option<DigestedKey> {
        let live = self.confirmed()?;
        Some(DigestedKey {
            key: self.key.clone(),
            key_hash: KeyParts::of(&self.key).hash(),
            life: live.life(),
            content: xxh3_64(&live.value),
            offset: live.last().offset,
        })
    }

    /// Whether it is live and stands unconfirmed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        let live = self.live();
        live.is_some_and(|live| live.confirmation == Confirmation::Unconfirmed)
    }

    fn confirmed(&self) -> Option<&Live> {
        let live = self.live()?;
        (live.confirmation == Confirmation::Confirmed).then_some(live)
    }

    /// Who is accepted is not refused any more.
    pub(crate) fn forget_refusal_of(&mut self, life: Life) {
        let is_same = |refused: &Refused| refused.refusal.life.id == life.id;
        if self.refused.as_deref().is_some_and(is_same) {
            self.refused = None;
        }
    }

    /// The last announcement read for a live key, accepted or refused.
    pub(crate) fn last_read(&self) -> Option<Place> {
        let accepted = self.live()?.last();
        let refused = self.refused.as_ref().map(|refused| refused.at);
        Some(match refused {
            Some(refused) if refused.offset > accepted.offset => refused,
            _ => accepted,
        })
    }

    /// Whether another announcement was refused so recently that its next heartbeat may take over:
    /// within the larger of both times-to-live.
    pub(crate) fn is_contested(&self, clock: &PartitionClock, ttl_ms: u32) -> bool {
        self.refused.as_ref().is_some_and(|refused| {
            clock.age_ms(refused.at.mark) < i64::from(refused.ttl_ms.max(ttl_ms))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_costs_a_pair_of_cache_lines_besides_its_uri_and_value() {
        assert_eq!(size_of::<Option<KeyState>>(), 128);
    }
}
