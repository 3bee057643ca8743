//! Keys to states without a second copy of the key: a hash table of small numbers over a slab.

use std::collections::HashMap;

use allocator_api2::vec::Vec as VecIn;
use hashbrown::HashTable;
use hugealloc::HugeAlloc;
use waypost_core::{ClusterName, InstanceKey};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128_with_seed};

use crate::key_state::{AnnouncementDigest, KeyState};
use crate::limits::{RECORDS_FORESEEN, STATES_PER_PIECE};

/// Where a key's state is kept. Given to another key once that state is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

#[cfg(test)]
impl Slot {
    pub(crate) fn mk(index: u32) -> Self {
        Self(index)
    }
}

/// A record key cut at its zero byte, and its hash; nothing is copied or checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyParts<'a> {
    cluster: &'a [u8],
    uri: &'a [u8],
    hash: u64,
}

impl<'a> KeyParts<'a> {
    /// `None` without a zero byte.
    pub(crate) fn split(record_key: &'a [u8]) -> Option<Self> {
        let zero = record_key.iter().position(|byte| *byte == 0)?;
        Some(Self::new(&record_key[..zero], &record_key[zero + 1..]))
    }

    pub(crate) fn of(key: &'a InstanceKey) -> Self {
        Self::new(key.cluster.as_str().as_bytes(), key.uri.as_bytes())
    }

    /// The same in every process: digests are made of it.
    pub(crate) fn hash(self) -> u64 {
        self.hash
    }

    fn new(cluster: &'a [u8], uri: &'a [u8]) -> Self {
        let hash = xxh3_64_with_seed(uri, xxh3_64(cluster));
        Self { cluster, uri, hash }
    }

    /// Of this key and `value`, announced under it.
    pub(crate) fn digest(self, value: &[u8]) -> AnnouncementDigest {
        AnnouncementDigest(xxh3_128_with_seed(value, self.hash).to_le_bytes())
    }

    fn is(self, key: &InstanceKey) -> bool {
        self.uri == key.uri.as_bytes() && self.cluster == key.cluster.as_str().as_bytes()
    }
}

/// Where large, its memory is on huge pages: among millions of keys most of what a lookup waits for is
/// the page tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTable {
    by_hash: HashTable<u32, HugeAlloc>,
    states: States,
    free: Vec<u32>,
}

/// States by number, in pieces of one size: what grows by doubling leaves up to half of its memory
/// unused, and is copied each time. Only the first piece grows, so that few keys take little.
#[derive(Clone, Debug, Default)]
struct States(Vec<Piece>);

type Piece = VecIn<Option<KeyState>, HugeAlloc>;

impl States {
    fn get(&self, index: u32) -> Option<&KeyState> {
        let index = index as usize;
        let piece = self.0.get(index / STATES_PER_PIECE)?;
        piece.get(index % STATES_PER_PIECE)?.as_ref()
    }

    fn place_mut(&mut self, index: u32) -> Option<&mut Option<KeyState>> {
        let index = index as usize;
        let piece = self.0.get_mut(index / STATES_PER_PIECE)?;
        piece.get_mut(index % STATES_PER_PIECE)
    }

    /// Adds a place and returns its number; `None` if there are four thousand million.
    fn add_place(&mut self) -> Option<u32> {
        let full = self
            .0
            .last()
            .is_none_or(|piece| piece.len() == STATES_PER_PIECE);
        if full {
            let foreseen = match self.0.len() {
                0 => 0,
                _ => STATES_PER_PIECE,
            };
            self.0.push(Piece::with_capacity_in(foreseen, HugeAlloc));
        }
        let before = (self.0.len() - 1) * STATES_PER_PIECE;
        let piece = self.0.last_mut()?;
        let index = u32::try_from(before + piece.len()).ok()?;
        piece.push(None);
        Some(index)
    }

    fn hash_at(&self, index: u32) -> u64 {
        let state = self.get(index);
        state.map_or(0, |state| KeyParts::of(&state.key).hash())
    }
}

impl KeyTable {
    pub(crate) fn find(&self, key: KeyParts<'_>) -> Option<Slot> {
        let is_key = |index: &u32| self.states.get(*index).is_some_and(|s| key.is(&s.key));
        self.by_hash.find(key.hash, is_key).copied().map(Slot)
    }

    /// The key whose standing announcement is this one. Neither its name nor its value is read: among
    /// millions of keys each of the two is a wait for memory.
    pub(crate) fn find_announced(
        &self,
        key: KeyParts<'_>,
        digest: AnnouncementDigest,
    ) -> Option<Slot> {
        let is_same = |index: &u32| {
            let live = self.states.get(*index).and_then(KeyState::live);
            live.is_some_and(|live| live.digest == digest)
        };
        self.by_hash.find(key.hash, is_same).copied().map(Slot)
    }

    /// Fetches what a heartbeat needs of some keys into the processor's caches. Among millions of them
    /// nearly all of its time is waiting for memory, for the table and then for the state. Here the waits
    /// for several keys overlap, since no step depends on another key's.
    pub(crate) fn fetch<'a>(&self, keys: impl Iterator<Item = KeyParts<'a>>) {
        let mut hashes = [None; RECORDS_FORESEEN];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = Some(key.hash);
        }
        // Which of those with the same few bits of its hash it is, is seen when it is looked up.
        let slots = hashes.map(|hash| self.by_hash.find(hash?, |_| true).copied());
        let states = slots.map(|index| self.states.get(index?));
        let bytes = states.map(|state| state.map_or(0, KeyState::touch));
        std::hint::black_box(bytes);
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&KeyState> {
        self.states.get(slot.0)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut KeyState> {
        self.states.place_mut(slot.0)?.as_mut()
    }

    /// Adds a key that is not there yet. `None` if four thousand million are.
    pub(crate) fn insert(&mut self, state: KeyState) -> Option<Slot> {
        let hash = KeyParts::of(&state.key).hash();
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.states.add_place()?,
        };
        *self.states.place_mut(index)? = Some(state);
        let states = &self.states;
        self.by_hash
            .insert_unique(hash, index, |index| states.hash_at(*index));
        Some(Slot(index))
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<KeyState> {
        let state = self.states.place_mut(slot.0)?.take()?;
        let hash = KeyParts::of(&state.key).hash();
        if let Ok(entry) = self.by_hash.find_entry(hash, |index| *index == slot.0) {
            entry.remove();
        }
        self.free.push(slot.0);
        Some(state)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KeyState> {
        self.states.0.iter().flatten().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut KeyState> {
        self.states.0.iter_mut().flatten().flatten()
    }
}

/// One allocation per cluster name, however many instances it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterNames {
    uses_by_name: HashMap<ClusterName, u32>,
}

impl ClusterNames {
    /// `key` with the shared spelling of its cluster's name.
    pub(crate) fn intern(&mut self, key: InstanceKey) -> InstanceKey {
        let cluster = match self.uses_by_name.get_key_value(&key.cluster) {
            Some((shared, _)) => shared.clone(),
            None => key.cluster,
        };
        *self.uses_by_name.entry(cluster.clone()).or_default() += 1;
        InstanceKey {
            cluster,
            uri: key.uri,
        }
    }

    /// One use less; a name without uses is dropped.
    pub(crate) fn release(&mut self, name: &ClusterName) {
        if let Some(uses) = self.uses_by_name.get_mut(name) {
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.uses_by_name.remove(name);
            }
        }
    }
}
