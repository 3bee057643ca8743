//! One key in several partitions: after partitions were added, or when a producer uses another
//! partitioner. Its copies are ordered as if they stood in one partition, and the first is served
//! (docs/announcement-log.md, "When partitions are added").
//!
//! Copies are rare, so nothing is kept for them but the set of keys that stand in a partition that
//! is not their own, and of each key's copy whether it is the one that stands.

use waypost_core::{InstanceKey, PartitionId};

use crate::cap::Lapse;
use crate::census::Change;
use crate::clock::PartitionClock;
use crate::event::{Confirmation, FoldEvent, GoneCause};
use crate::key_state::{Gone, KeyState, Live, Rank, Standing};
use crate::key_table::{KeyParts, Slot};
use crate::limits::WITHDRAWAL_BARS_TTLS;
use crate::order::{is_later, updates_gone};
use crate::partition_fold::PartitionFold;
use crate::topic_clock::TopicClock;

/// Whether the key may stand in more than one partition.
pub(crate) fn exist(partitions: &[PartitionFold], key: &InstanceKey) -> bool {
    let mut strays = partitions.iter().map(PartitionFold::strays);
    strays.any(|strays| !strays.is_empty() && strays.contains(key))
}

/// The copy that stands.
pub(crate) fn find_standing<'a>(
    partitions: &'a [PartitionFold],
    key: &InstanceKey,
) -> Option<(PartitionId, &'a KeyState)> {
    let parts = KeyParts::of(key);
    let mut copies = partitions.iter().filter_map(|partition| {
        let slot = partition.keys.find(parts)?;
        Some((partition.id, partition.keys.get(slot)?))
    });
    copies.find(|(_, state)| state.rank == Rank::Stands)
}

/// Whether a live copy of the key is there that is not served.
pub(crate) fn have_loser(partitions: &[PartitionFold], key: &InstanceKey) -> bool {
    let parts = KeyParts::of(key);
    exist(partitions, key)
        && partitions.iter().any(|partition| {
            let slot = partition.keys.find(parts);
            let state = slot.and_then(|slot| partition.keys.get(slot));
            state.is_some_and(|state| state.rank == Rank::Loses && state.live().is_some())
        })
}

/// What is served of a key after its copy in `changed` became live or took other content. May
/// repeat what is served already.
pub(crate) fn after_live(
    partitions: &[PartitionFold],
    changed: PartitionId,
    key: InstanceKey,
) -> Option<FoldEvent> {
    let standing = if exist(partitions, &key) {
        find_standing(partitions, &key)?.1
    } else {
        let partition = partitions.get(changed.0 as usize)?;
        let slot = partition.keys.find(KeyParts::of(&key))?;
        partition.keys.get(slot)?
    };
    Some(event_of(standing, key, GoneCause::Withdrawn))
}

/// What is served of a key after one of its copies left.
pub(crate) fn after_gone(
    partitions: &[PartitionFold],
    key: InstanceKey,
    cause: GoneCause,
) -> FoldEvent {
    match find_standing(partitions, &key) {
        Some((_, standing)) => event_of(standing, key, cause),
        None => FoldEvent::Gone { key, cause },
    }
}

/// Finds out anew which copy of a key stands. Returns what that changes in the count of instances;
/// nothing if the same one does.
pub(crate) fn settle(
    partitions: &mut [PartitionFold],
    clocks: &TopicClock,
    key: &InstanceKey,
) -> Vec<Change> {
    let parts = KeyParts::of(key);
    let copies = partitions.iter().filter_map(|partition| {
        let slot = partition.keys.find(parts)?;
        Some(Copy {
            partition: partition.id,
            slot,
            state: partition.keys.get(slot)?,
            clock: clocks.find(partition.id)?,
        })
    });
    let copies: Vec<_> = copies.collect();
    let first = copies.iter().reduce(|a, b| if b.beats(a) { b } else { a });
    let Some(first) = first.map(|copy| copy.partition) else {
        return Vec::new();
    };
    let live = copies.iter().filter(|copy| copy.state.live().is_some());
    let live_losers = live.filter(|copy| copy.partition != first).count();
    let places: Vec<_> = copies.iter().map(|c| (c.partition, c.slot)).collect();
    let mut changes = Vec::new();
    for (partition, slot) in places {
        let Some(fold) = partitions.get_mut(partition.0 as usize) else {
            continue;
        };
        let stands = partition == first;
        let Some(state) = fold.keys.get_mut(slot) else {
            continue;
        };
        let rank = if stands { Rank::Stands } else { Rank::Loses };
        let before = std::mem::replace(&mut state.rank, rank);
        if let Some(live) = state.live().filter(|_| before != rank) {
            push_changes(rank, live.lapse, &mut changes);
        }
        let is_gone = state.live().is_none();
        fold.set_barring(slot, is_gone && stands && live_losers > 0);
    }
    changes
}

/// A live copy that stands is counted, one that loses is not.
fn push_changes(rank: Rank, lapse: Lapse, changes: &mut Vec<Change>) {
    match (rank, lapse) {
        (Rank::Loses, lapse) => changes.push(Change::Left(lapse)),
        (Rank::Stands, Lapse::None) => changes.push(Change::Arrived),
        (Rank::Stands, lapse) => changes.extend([Change::Arrived, Change::FellSilent(lapse)]),
    }
}

/// What is served of a key now.
pub(crate) fn event_of(standing: &KeyState, key: InstanceKey, cause: GoneCause) -> FoldEvent {
    match standing.live() {
        Some(live) => FoldEvent::Live {
            key,
            value: live.value.clone(),
        },
        None => FoldEvent::Gone { key, cause },
    }
}

struct Copy<'a> {
    partition: PartitionId,
    slot: Slot,
    state: &'a KeyState,
    clock: &'a PartitionClock,
}

impl Copy<'_> {
    /// Whether this one would stand if both stood in one partition. Of equal ones the one in the
    /// key's own partition does.
    fn beats(&self, other: &Self) -> bool {
        let is_own = !self.state.stray && other.state.stray;
        match (&self.state.standing, &other.state.standing) {
            (Standing::Live(a), Standing::Live(b)) => {
                let order = live_order(a, b);
                order.is_gt() || (order.is_eq() && is_own)
            }
            (Standing::Gone(a), Standing::Live(b)) => self.bars(a, b, other.clock),
            (Standing::Live(a), Standing::Gone(b)) => !other.bars(b, a, self.clock),
            (Standing::Gone(a), Standing::Gone(b)) => {
                let (later, earlier) = (updates_gone(b.life, a.life), updates_gone(a.life, b.life));
                later || (!earlier && is_own)
            }
        }
    }

    /// Whether the withdrawal in this copy ends, or keeps out, the life in another.
    fn bars(&self, gone: &Gone, live: &Live, clock: &PartitionClock) -> bool {
        let lives = live.life();
        let is_covered = if gone.life.id == lives.id {
            gone.life.seq >= lives.seq
        } else {
            gone.life.birth.is_some() && gone.life.birth > lives.birth
        };
        let between_ms = self.clock.age_ms(gone.since) - clock.age_ms(live.last().mark);
        let bar_ms = i64::from(live.ttl_ms) * i64::from(WITHDRAWAL_BARS_TTLS);
        is_covered && between_ms < bar_ms
    }
}

/// Which of two live copies stands, as far as order within a key says: a life's own changes by their
/// number; of two lives the later one, unless it has been silent for its time-to-live.
fn live_order(a: &Live, b: &Live) -> std::cmp::Ordering {
    let is_confirmed = |live: &Live| live.confirmation == Confirmation::Confirmed;
    let speaks = |live: &Live| live.lapse == Lapse::None;
    let by_confirmation = is_confirmed(a).cmp(&is_confirmed(b));
    let by_silence = speaks(a).cmp(&speaks(b));
    let (first, second) = (a.life(), b.life());
    if first.id == second.id && first.id.is_some() {
        let by_seq = first.seq.cmp(&second.seq);
        return by_confirmation.then(by_seq).then(by_silence);
    }
    let by_life = is_later(first, second).cmp(&is_later(second, first));
    by_confirmation.then(by_silence).then(by_life)
}

#[cfg(test)]
mod tests {
    use waypost_core::{ClusterName, InstanceUri, InstanceValue, LifeId, Offset, Timestamp};

    use super::*;
    use crate::clock::Mark;
    use crate::event::Life;
    use crate::key_state::{AnnouncementDigest, NewContent, Place};

    fn life(id: u64, birth: i64, seq: u64) -> Life {
        Life {
            id: Some(LifeId(id)),
            birth: Some(Timestamp(birth)),
            seq,
        }
    }

    fn live(life: Life, lapse: Lapse) -> Standing {
        let at = Place {
            offset: Offset(1),
            append_time: Timestamp(1),
            mark: Mark::default(),
        };
        let content = NewContent {
            value: InstanceValue::new(&InstanceUri::parse("grpc://h:1").unwrap(), b""),
            digest: AnnouncementDigest::default(),
            ttl_ms: 30_000,
        };
        let mut live = Live::unconfirmed(life, content, at);
        live.confirmation = Confirmation::Confirmed;
        live.lapse = lapse;
        Standing::Live(live)
    }

    fn speaks(life: Life) -> Standing {
        live(life, Lapse::None)
    }

    fn silent(life: Life) -> Standing {
        live(life, Lapse::Witnessed)
    }

    fn gone(life: Life) -> Standing {
        Standing::Gone(Gone::new(life, Mark::default()))
    }

    fn unconfirmed(life: Life) -> Standing {
        let Standing::Live(mut live) = speaks(life) else {
            unreachable!("it is live");
        };
        live.confirmation = Confirmation::Unconfirmed;
        Standing::Live(live)
    }

    fn mk_state(standing: Standing, stray: bool) -> KeyState {
        KeyState {
            key: InstanceKey {
                cluster: ClusterName::parse("greeter").unwrap(),
                uri: InstanceUri::parse("grpc://h:1").unwrap(),
            },
            standing,
            refused: None,
            stray,
            rank: Rank::Stands,
        }
    }

    #[test]
    fn two_copies_are_ordered_as_if_they_stood_in_one_partition() {
        // The first stands, whichever of the two is in the key's own partition.
        let cases = [
            (speaks(life(2, 20, 0)), speaks(life(1, 10, 9)), "later born"),
            (speaks(life(1, 10, 0)), silent(life(2, 20, 0)), "it speaks"),
            (silent(life(2, 20, 0)), silent(life(1, 10, 0)), "both dead"),
            (silent(life(1, 10, 2)), speaks(life(1, 10, 1)), "its change"),
            (speaks(life(1, 10, 1)), silent(life(1, 10, 1)), "moved"),
            (gone(life(1, 10, 2)), speaks(life(1, 10, 1)), "withdrawn"),
            (gone(life(1, 10, 1)), speaks(life(1, 10, 1)), "buried"),
            (speaks(life(1, 10, 3)), gone(life(1, 10, 2)), "it is back"),
            (gone(life(2, 20, 1)), speaks(life(1, 10, 0)), "barred"),
            (speaks(life(2, 20, 0)), gone(life(1, 10, 1)), "restarted"),
            (silent(life(1, 10, 0)), unconfirmed(life(2, 20, 0)), "known"),
            (
                gone(life(2, 20, 1)),
                gone(life(1, 10, 1)),
                "withdrawn later",
            ),
        ];
        let clock = PartitionClock::default();
        for (first, second, what) in cases {
            for stray in [false, true] {
                let states = [
                    mk_state(first.clone(), stray),
                    mk_state(second.clone(), !stray),
                ];
                let [first, second] = [0_u32, 1].map(|index| Copy {
                    partition: PartitionId(index),
                    slot: Slot::mk(index),
                    state: &states[index as usize],
                    clock: &clock,
                });
                assert!(first.beats(&second), "{what}, stray: {stray}");
                assert!(!second.beats(&first), "{what}, stray: {stray}");
            }
        }
    }

    #[test]
    fn of_equal_copies_the_one_in_the_keys_own_partition_stands() {
        let clock = PartitionClock::default();
        let same = [
            speaks(life(1, 10, 1)),
            silent(life(1, 10, 1)),
            gone(life(1, 10, 1)),
        ];
        for standing in same {
            let states = [true, false].map(|stray| mk_state(standing.clone(), stray));
            let [stray, own] = [0_u32, 1].map(|index| Copy {
                partition: PartitionId(index),
                slot: Slot::mk(index),
                state: &states[index as usize],
                clock: &clock,
            });
            assert!(own.beats(&stray) && !stray.beats(&own), "{standing:?}");
        }
    }
}
