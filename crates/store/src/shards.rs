//! A map in parts, each with its own lock.

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use crate::limits::SHARDS;

/// [`SHARDS`] values behind locks of their own.
#[derive(Debug)]
pub(crate) struct Shards<T>(Box<[RwLock<T>]>);

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| RwLock::default()).collect())
    }
}

impl<T> Shards<T> {
    /// The part that `name` belongs to.
    pub(crate) fn of(&self, name: &str) -> &RwLock<T> {
        let hash = xxh3_64(name.as_bytes()) % SHARDS as u64;
        &self.0[usize::try_from(hash).unwrap_or(0)]
    }

    /// Every part, in a fixed order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RwLock<T>> {
        self.0.iter()
    }
}
