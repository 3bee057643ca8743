//! What a thread found lately. A change is sent to all subscribers of its resource one after another:
//! the first two of a thread take the locks of the cache and of the store, the others find it here
//! without a lock, and without a cache line that another thread writes.
//!
//! Only what is asked for a second time is kept: clients that come back ask for names of the whole fleet,
//! each once, and would push out what is in use.
//!
//! An entry holds until something of its owner, the cluster, changes. That is counted before anybody
//! is told, so that whoever was told finds the new state.

use std::cell::RefCell;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{DefaultHashBuilder, HashMap};
use thread_local::ThreadLocal;
use waypost_core::EncodedResource;

use super::cache::{Key, KeyRef, Probe};
use super::limits::{
    ENCODED_ENTRY_BYTES, MEMO_ASKED_ONCE_MAX, MEMO_BYTES_MAX, MEMO_COPY_BYTES_MAX, OWNER_STRIPES,
};

/// Encodings by thread, type, name and variant, bounded by bytes.
pub(super) struct Memo {
    changes: Box<[AtomicU64]>,
    hasher: DefaultHashBuilder,
    by_thread: ThreadLocal<RefCell<Found>>,
}

/// What one thread found.
struct Found {
    by_key: HashMap<Key, (Changes, EncodedResource)>,
    bytes: usize,
    /// Hashes of what was asked for once since its owner changed, each in the place that it says.
    asked_once: Box<[u64]>,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            bytes: 0,
            asked_once: vec![0; MEMO_ASKED_ONCE_MAX].into_boxed_slice(),
        }
    }
}

/// How often owners of one stripe had changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Changes(u64);

impl Default for Memo {
    fn default() -> Self {
        Self {
            changes: (0..OWNER_STRIPES).map(|_| AtomicU64::new(0)).collect(),
            hasher: DefaultHashBuilder::default(),
            by_thread: ThreadLocal::default(),
        }
    }
}

impl Memo {
    /// Something of `owner` has changed. To be called when the change is visible and before anybody
    /// is told.
    pub(super) fn forget(&self, owner: &str) {
        self.stripe(owner).fetch_add(1, Ordering::Release);
    }

    /// What this thread found of a resource since its owner changed last; otherwise what `find`
    /// gives, which is kept if it is there.
    pub(super) fn get_or_find(
        &self,
        key: KeyRef<'_>,
        owner: &str,
        find: impl FnOnce() -> Option<EncodedResource>,
    ) -> Option<EncodedResource> {
        let changes = Changes(self.stripe(owner).load(Ordering::Acquire));
        let found = self.by_thread.get_or_default();
        if let Some((since, encoded)) = found.borrow().by_key.get(&Probe::from(key))
            && *since == changes
        {
            return Some(encoded.clone());
        }
        let encoded = find()?;
        let mut found = found.borrow_mut();
        if !found.was_asked(self.hasher.hash_one((&Probe::from(key), changes.0))) {
            return Some(encoded);
        }
        let encoded = to_own(encoded);
        found.keep(key, changes, encoded.clone());
        Some(encoded)
    }

    fn stripe(&self, owner: &str) -> &AtomicU64 {
        let hash = self.hasher.hash_one(owner) % OWNER_STRIPES as u64;
        &self.changes[usize::try_from(hash).unwrap_or(0)]
    }
}

impl Found {
    /// Whether it was asked for before, as far as others have not taken its place since.
    fn was_asked(&mut self, hash: u64) -> bool {
        let place = hash % MEMO_ASKED_ONCE_MAX as u64;
        let last = &mut self.asked_once[usize::try_from(place).unwrap_or(0)];
        std::mem::replace(last, hash) == hash
    }

    fn keep(&mut self, key: KeyRef<'_>, changes: Changes, encoded: EncodedResource) {
        let len = encoded.len();
        if let Some(held) = self.by_key.get_mut(&Probe::from(key)) {
            self.bytes = self.bytes.saturating_sub(held.1.len()) + len;
            *held = (changes, encoded);
        } else {
            self.bytes += len + ENCODED_ENTRY_BYTES;
            self.by_key.insert(Key::from(key), (changes, encoded));
        }
        if self.bytes > MEMO_BYTES_MAX {
            self.by_key = HashMap::new();
            self.bytes = 0;
        }
    }
}

/// The encoding in memory of this thread's own: threads that count who holds the same bytes take the
/// count from each other with every message. Large ones are shared all the same.
fn to_own(encoded: EncodedResource) -> EncodedResource {
    if encoded.len() <= MEMO_COPY_BYTES_MAX {
        encoded.to_own_bytes()
    } else {
        encoded
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use waypost_core::{ResourceType, Timestamp, Variant};
    use waypost_proto::encoded::encode_resource;

    use super::*;

    fn mk_encoded(name: &str, bytes: usize) -> EncodedResource {
        encode_resource(ResourceType::D2UriMap, name, &vec![7; bytes], Timestamp(1))
    }

    /// Asks for `name` of `owner` and says whether it was looked for.
    fn ask(memo: &Memo, name: &str, owner: &str, bytes: usize) -> bool {
        let looked = Cell::new(false);
        let key = (ResourceType::D2UriMap, name, Variant::default());
        let found = memo.get_or_find(key, owner, || {
            looked.set(true);
            Some(mk_encoded(name, bytes))
        });
        assert_eq!(found, Some(mk_encoded(name, bytes)));
        looked.get()
    }

    #[test]
    fn a_thread_looks_twice_until_the_owner_changes() {
        let memo = Memo::default();
        for (bytes, looks) in [
            (10, [true, true, false, false]),
            (20, [true, true, false, false]),
        ] {
            for looked in looks {
                assert_eq!(ask(&memo, "n", "c", bytes), looked);
            }
            memo.forget("c");
        }
        assert!(std::thread::scope(|scope| {
            scope.spawn(|| ask(&memo, "n", "c", 20)).join().unwrap()
        }));
    }

    #[test]
    fn what_everybody_asks_for_once_pushes_nothing_out() {
        let memo = Memo::default();
        let is_kept = || !ask(&memo, "in use", "c", 10);
        is_kept();
        is_kept();
        for n in 0..100_000 {
            ask(&memo, &format!("n{n}"), "d", 1_000);
        }
        assert!(is_kept());
        let found = memo.by_thread.get().unwrap().borrow();
        assert_eq!(found.by_key.len(), 1);
    }

    #[test]
    fn what_is_not_there_is_looked_for_again() {
        let memo = Memo::default();
        let key = (ResourceType::D2UriMap, "n", Variant::default());
        assert_eq!(memo.get_or_find(key, "c", || None), None);
        assert!(ask(&memo, "n", "c", 10));
    }

    #[test]
    fn threads_share_no_bytes_but_those_of_large_resources() {
        for (bytes, shared) in [
            (MEMO_COPY_BYTES_MAX / 2, false),
            (MEMO_COPY_BYTES_MAX, true),
        ] {
            let made = mk_encoded("n", bytes);
            let key = (ResourceType::D2UriMap, "n", Variant::default());
            let memo = Memo::default();
            let get = || memo.get_or_find(key, "c", || Some(made.clone()));
            get();
            let found = get().unwrap().delta();
            assert_eq!(found.as_ptr() == made.delta().as_ptr(), shared, "{bytes}");
        }
    }

    #[test]
    fn what_a_thread_keeps_is_bounded() {
        let memo = Memo::default();
        for n in 0..100 {
            for _ in 0..2 {
                ask(&memo, &format!("n{n}"), "c", MEMO_BYTES_MAX / 10);
            }
            assert!(memo.by_thread.get().unwrap().borrow().bytes <= MEMO_BYTES_MAX);
        }
    }
}
