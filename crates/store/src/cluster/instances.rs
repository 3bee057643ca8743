//! The instances of one cluster in the order of their URIs, in little more memory than they need.
//!
//! A sorted list in pieces: inserting moves a few kilobytes at most, and a search touches one entry a
//! step. The URI of an entry is that of a value in it, so there are no keys.

use std::cmp::Ordering;

use waypost_core::InstanceUri;

use super::Announced;
use crate::limits::INSTANCES_PER_PIECE;
use crate::slots::Slots;

/// No piece is empty, and no entry.
#[derive(Debug, Default)]
pub(super) struct Instances {
    pieces: Vec<Vec<Slots<Announced>>>,
    len: usize,
}

/// Where a URI stands, or would.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    piece: usize,
    index: usize,
    is_there: bool,
}

impl Instances {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In the order of URIs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceUri, &Slots<Announced>)> {
        let entries = self.pieces.iter().flatten();
        entries.filter_map(|slots| Some((slots.served()?.1.value.uri(), slots)))
    }

    pub(super) fn find(&self, uri: &[u8]) -> Option<&Slots<Announced>> {
        self.get(self.position(uri))
    }

    /// Valid until something is written.
    pub(super) fn position(&self, uri: &[u8]) -> Position {
        let ends_before = |piece: &Vec<_>| {
            let last = piece.last().map(|last| compare(last, uri));
            last.is_some_and(Ordering::is_lt)
        };
        let piece = self.pieces.partition_point(ends_before);
        let Some(entries) = self.pieces.get(piece) else {
            // After all others: at the end of the last piece.
            let piece = self.pieces.len().saturating_sub(1);
            let index = self.pieces.last().map_or(0, Vec::len);
            return Position {
                piece,
                index,
                is_there: false,
            };
        };
        let found = entries.binary_search_by(|entry| compare(entry, uri));
        Position {
            piece,
            index: found.unwrap_or_else(|index| index),
            is_there: found.is_ok(),
        }
    }

    pub(super) fn get(&self, at: Position) -> Option<&Slots<Announced>> {
        let found = self.pieces.get(at.piece)?.get(at.index);
        found.filter(|_| at.is_there)
    }

    /// Changes what the sources say of the URI that stands, or would, at `at`. Says what is served of it
    /// before and after that.
    pub(super) fn change(
        &mut self,
        at: Position,
        write: impl FnOnce(&mut Slots<Announced>),
    ) -> (Option<Announced>, Option<Announced>) {
        let mut fresh = Slots::default();
        let held = self.pieces.get_mut(at.piece).filter(|_| at.is_there);
        let held = held.and_then(|piece| piece.get_mut(at.index));
        let slots = held.unwrap_or(&mut fresh);
        let before = served(slots);
        write(slots);
        let (after, is_empty) = (served(slots), slots.is_empty());
        match (at.is_there, is_empty) {
            (true, true) => self.remove(at),
            (false, false) => self.insert(at, fresh),
            (true, false) | (false, true) => {}
        }
        (before, after)
    }

    fn insert(&mut self, at: Position, slots: Slots<Announced>) {
        self.len += 1;
        let is_last = at.piece + 1 == self.pieces.len();
        let Some(piece) = self.pieces.get_mut(at.piece) else {
            self.pieces.push(vec![slots]);
            return;
        };
        if piece.len() < INSTANCES_PER_PIECE {
            grow(piece);
            piece.insert(at.index, slots);
            return;
        }
        // Who comes in order fills every piece.
        let middle = if is_last && at.index == INSTANCES_PER_PIECE {
            INSTANCES_PER_PIECE
        } else {
            INSTANCES_PER_PIECE / 2
        };
        let mut upper = piece.split_off(middle);
        piece.shrink_to_fit();
        if at.index >= middle {
            grow(&mut upper);
            upper.insert(at.index - middle, slots);
        } else {
            grow(piece);
            piece.insert(at.index, slots);
        }
        self.pieces.insert(at.piece + 1, upper);
    }

    fn remove(&mut self, at: Position) {
        self.len -= 1;
        let Some(piece) = self.pieces.get_mut(at.piece) else {
            return;
        };
        piece.remove(at.index);
        if piece.is_empty() {
            self.pieces.remove(at.piece);
            return;
        }
        if piece.capacity() > 2 * piece.len() {
            piece.shrink_to_fit();
        }
        self.join(at.piece);
        if let Some(before) = at.piece.checked_sub(1) {
            self.join(before);
        }
    }

    /// Makes one of a piece and the next where that is half full, so that the next insertion does not part
    /// them again.
    fn join(&mut self, piece: usize) {
        let Some([first, second]) = self
            .pieces
            .get_mut(piece..)
            .and_then(<[_]>::first_chunk_mut)
        else {
            return;
        };
        if first.len() + second.len() <= INSTANCES_PER_PIECE / 2 {
            first.append(second);
            self.pieces.remove(piece + 1);
        }
    }
}

/// Makes room for one more, and for a few after it: doubling would leave a quarter unused on average.
fn grow<T>(piece: &mut Vec<T>) {
    if piece.len() == piece.capacity() {
        piece.reserve_exact(piece.len() / 8 + 1);
    }
}

fn served(slots: &Slots<Announced>) -> Option<Announced> {
    slots.served().map(|(_, announced)| announced.clone())
}

fn compare(entry: &Slots<Announced>, uri: &[u8]) -> Ordering {
    let value = entry.served().map(|(_, announced)| &announced.value);
    value.map_or(Ordering::Less, |value| value.uri_bytes().cmp(uri))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use waypost_core::{Health, InstanceValue, SourceSlot};

    use super::*;

    fn mk_uri(number: u16) -> InstanceUri {
        InstanceUri::parse(&format!("http://h:{number}")).unwrap()
    }

    fn set(instances: &mut Instances, slot: SourceSlot, number: u16, value: Option<u8>) {
        let uri = mk_uri(number);
        let announced = value.map(|byte| Announced {
            value: InstanceValue::new(&uri, &[byte]),
            health: Health::Healthy,
        });
        let at = instances.position(uri.as_bytes());
        let before = instances.find(uri.as_bytes()).and_then(served);
        let told = instances.change(at, |slots| slots.set(slot, announced));
        let after = instances.find(uri.as_bytes()).and_then(served);
        assert_eq!(told, (before, after));
    }

    fn check(instances: &Instances, model: &BTreeMap<InstanceUri, [Option<u8>; 2]>) {
        let held = instances.iter().map(|(uri, slots)| {
            let value = |slot| slots.get(slot).map(|announced| announced.value[0]);
            (uri, [value(SourceSlot::Log), value(SourceSlot::ZooKeeper)])
        });
        assert!(held.eq(model.clone()));
        assert_eq!(instances.len(), model.len());
        let lens = || instances.pieces.iter().map(Vec::len);
        assert!(lens().all(|len| (1..=INSTANCES_PER_PIECE).contains(&len)));
        let mut pairs = lens().zip(lens().skip(1));
        assert!(pairs.all(|(a, b)| a + b > INSTANCES_PER_PIECE / 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn instances_hold_what_a_plain_map_holds(
            steps in prop::collection::vec((0..2_usize, 0..1_000_u16, 0..500_u16, prop::option::weighted(0.6, any::<u8>())), 0..12)
        ) {
            let mut instances = Instances::default();
            let mut model: BTreeMap<InstanceUri, [Option<u8>; 2]> = BTreeMap::new();
            for (slot, from, count, value) in steps {
                let sources = [SourceSlot::Log, SourceSlot::ZooKeeper];
                for number in from..from + count {
                    set(&mut instances, sources[slot], number, value);
                    let values = model.entry(mk_uri(number)).or_default();
                    values[slot] = value;
                    if *values == [None, None] {
                        model.remove(&mk_uri(number));
                    }
                }
                check(&instances, &model);
            }
        }
    }

    #[test]
    fn who_comes_in_order_leaves_no_piece_half_empty() {
        let mut instances = Instances::default();
        for number in 10_000..20_000 {
            set(&mut instances, SourceSlot::Log, number, Some(1));
        }
        assert_eq!(
            instances.pieces.len(),
            10_000_usize.div_ceil(INSTANCES_PER_PIECE)
        );
    }
}
