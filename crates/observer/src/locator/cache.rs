//! Encodings that are kept for the next asker.

use std::hash::{Hash, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{DefaultHashBuilder, Equivalent, HashMap};
use parking_lot::Mutex;
use waypost_core::{
    EncodedResource, InstanceValue, ResourceName, ResourceType, Timestamp, Variant,
};
use waypost_proto::encoded::encode_resource;

use super::limits::{ENCODED_BYTES_MAX, ENCODED_ENTRY_BYTES, ENCODED_SHARDS};
use crate::render::Rendered;

/// What an encoding was made from. Made from the same, it need not be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A state that has this number, never used twice.
    Number(u64),
    /// These bytes.
    Value(InstanceValue),
}

/// Type, name and variant of a resource.
pub(super) type KeyRef<'a> = (ResourceType, &'a str, Variant);

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key(ResourceType, ResourceName, Variant);

#[derive(Hash)]
pub(super) struct Probe<'a>(ResourceType, &'a str, Variant);

impl From<KeyRef<'_>> for Key {
    fn from((resource_type, name, variant): KeyRef<'_>) -> Self {
        Self(resource_type, name.into(), variant)
    }
}

impl<'a> From<KeyRef<'a>> for Probe<'a> {
    fn from((resource_type, name, variant): KeyRef<'a>) -> Self {
        Self(resource_type, name, variant)
    }
}

impl Equivalent<Key> for Probe<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.0 == key.0 && *self.1 == *key.1 && self.2 == key.2
    }
}

/// One resource. Its lock is held while it is rendered, so that of many who ask at once one works
/// and the others wait for the result.
type Entry = Arc<Mutex<Option<(Source, EncodedResource)>>>;

/// Encodings by type, name and variant, bounded by bytes.
///
/// Each part keeps two generations: what was asked for lately, and what was before. When the young
/// one is full it becomes the old one and the old one is dropped; what is asked for meanwhile moves
/// over. So what is in use stays, at the cost of one map and no bookkeeping per use.
pub(super) struct Cache {
    shards: Box<[Mutex<Generations>]>,
    hasher: DefaultHashBuilder,
    encodes: AtomicU64,
    /// Of one generation of one part.
    bytes_max: usize,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Key, Entry>,
    old: HashMap<Key, Entry>,
    young_bytes: usize,
    old_bytes: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self::with_bytes_max(ENCODED_BYTES_MAX)
    }
}

impl Cache {
    pub(super) fn with_bytes_max(bytes_max: usize) -> Self {
        Self {
            shards: (0..ENCODED_SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            encodes: AtomicU64::new(0),
            bytes_max: bytes_max / ENCODED_SHARDS / 2,
        }
    }

    /// The encoding of a resource. `source` says what it is made from now (`None`: it does not
    /// exist) and is cheap; `render` makes it and says what it was made from.
    pub(super) fn get_or_encode(
        &self,
        key: KeyRef<'_>,
        source: impl Fn() -> Option<Source>,
        render: impl FnOnce() -> Option<(Rendered, Source)>,
    ) -> Option<EncodedResource> {
        let now = source()?;
        let entry = self.entry(key);
        let mut held = entry.lock();
        if let Some((from, encoded)) = &*held
            && *from == now
        {
            return Some(encoded.clone());
        }
        // Others may have been here while this one waited, after another change.
        let now = source()?;
        if let Some((from, encoded)) = &*held
            && *from == now
        {
            return Some(encoded.clone());
        }
        let (rendered, from) = render()?;
        let (resource_type, name, _) = key;
        let before = held.as_ref().map(|(_, encoded)| encoded);
        let origin = news(before, rendered.origin);
        let encoded = encode_resource(resource_type, name, &rendered.value, origin);
        self.count_encode();
        let (old_len, len) = (before.map_or(0, EncodedResource::len), encoded.len());
        *held = Some((from, encoded.clone()));
        drop(held);
        self.resized(key, old_len, len);
        Some(encoded)
    }

    /// The name of a resource, shared with whoever asked for it before.
    pub(super) fn intern(&self, resource_type: ResourceType, name: &str) -> ResourceName {
        let probe = Probe(resource_type, name, Variant::default());
        let shard = self.shard(&probe).lock();
        let found = shard.young.get_key_value(&probe);
        let found = found.or_else(|| shard.old.get_key_value(&probe));
        found.map_or_else(|| name.into(), |(key, _)| Arc::clone(&key.1))
    }

    /// Counts an encoding that is kept elsewhere.
    pub(super) fn count_encode(&self) {
        self.encodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn encodes(&self) -> u64 {
        self.encodes.load(Ordering::Relaxed)
    }

    pub(super) fn len_bytes(&self) -> usize {
        let bytes = |shard: &Mutex<Generations>| {
            let shard = shard.lock();
            shard.young_bytes + shard.old_bytes
        };
        self.shards.iter().map(bytes).sum()
    }

    fn shard(&self, probe: &Probe<'_>) -> &Mutex<Generations> {
        let mut hasher = std::hash::BuildHasher::build_hasher(&self.hasher);
        probe.hash(&mut hasher);
        let hash = hasher.finish() % ENCODED_SHARDS as u64;
        &self.shards[usize::try_from(hash).unwrap_or(0)]
    }

    fn entry(&self, (resource_type, name, variant): KeyRef<'_>) -> Entry {
        let probe = Probe(resource_type, name, variant);
        let mut shard = self.shard(&probe).lock();
        if let Some(entry) = shard.young.get(&probe) {
            return Arc::clone(entry);
        }
        let (key, entry) = shard.old.remove_entry(&probe).unwrap_or_else(|| {
            let key = Key(resource_type, name.into(), variant);
            (key, Entry::default())
        });
        shard.young.insert(key, Arc::clone(&entry));
        // An entry that is being made counts from the moment it is there; one that moved over counts
        // with what it holds, unless it is being made anew just now and counts then.
        let len = entry
            .try_lock()
            .and_then(|held| held.as_ref().map(|(_, e)| e.len()));
        let bytes = ENCODED_ENTRY_BYTES + name.len() + len.unwrap_or(0);
        shard.grow(bytes, self.bytes_max);
        entry
    }

    fn resized(&self, (resource_type, name, variant): KeyRef<'_>, old_len: usize, len: usize) {
        let probe = Probe(resource_type, name, variant);
        let mut shard = self.shard(&probe).lock();
        if shard.young.contains_key(&probe) {
            shard.young_bytes = shard.young_bytes.saturating_sub(old_len);
            shard.grow(len, self.bytes_max);
        }
    }
}

impl Generations {
    /// Accounts for bytes of the young generation, which becomes the old one when it is full.
    fn grow(&mut self, bytes: usize, bytes_max: usize) {
        self.young_bytes += bytes;
        if self.young_bytes > bytes_max {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
    }
}

/// The time of origin of what is new in an encoding: none if nothing in it is newer than what was
/// in the one before, as when something left.
fn news(before: Option<&EncodedResource>, newest: Timestamp) -> Timestamp {
    match before {
        Some(before) if before.origin() >= newest => Timestamp::default(),
        _ => newest,
    }
}
