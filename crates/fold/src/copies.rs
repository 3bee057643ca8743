//! One key in several partitions: after partitions were added, or when a producer uses another
//! partitioner. Its copies are ordered as if they stood in one partition, and the first is served.
//!
//! Copies are rare, so nothing is kept for them but the set of keys that stand in a partition that
//! is not their own.

use waypost_core::{InstanceKey, PartitionId};

use crate::event::{FoldEvent, GoneCause};
use crate::key_state::KeyState;
use crate::key_table::KeyParts;
use crate::order::is_later;
use crate::partition_fold::PartitionFold;

/// Whether the key may stand in more than one partition.
pub(crate) fn exist(partitions: &[PartitionFold], key: &InstanceKey) -> bool {
    let mut strays = partitions.iter().map(PartitionFold::strays);
    strays.any(|strays| !strays.is_empty() && strays.contains(key))
}

/// The copy that stands: the latest life's; of equal ones that of the key's own partition.
pub(crate) fn find_standing<'a>(
    partitions: &'a [PartitionFold],
    key: &InstanceKey,
) -> Option<(PartitionId, &'a KeyState)> {
    let parts = KeyParts::of(key);
    let copies = partitions.iter().filter_map(|partition| {
        let slot = partition.keys.find(parts)?;
        Some((partition.id, partition.keys.get(slot)?))
    });
    copies.reduce(|first, second| {
        let later = is_later(second.1.life(), first.1.life());
        let earlier = is_later(first.1.life(), second.1.life());
        if later || (!earlier && first.1.stray) {
            second
        } else {
            first
        }
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

fn event_of(standing: &KeyState, key: InstanceKey, cause: GoneCause) -> FoldEvent {
    match standing.live() {
        Some(live) => FoldEvent::Live {
            key,
            value: live.value.clone(),
        },
        None => FoldEvent::Gone { key, cause },
    }
}
