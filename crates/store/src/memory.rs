//! Names that left, remembered for a while and up to a number.

use std::collections::BTreeMap;

use waypost_core::Timestamp;

/// Names in the order in which they left. A name that comes back is forgotten at once.
#[derive(Debug)]
pub(crate) struct RemovedNames<T> {
    by_name: BTreeMap<T, u64>,
    by_order: BTreeMap<u64, (Timestamp, T)>,
    next: u64,
}

impl<T> Default for RemovedNames<T> {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T: Ord + Clone> RemovedNames<T> {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn contains<Q>(&self, name: &Q) -> bool
    where
        T: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.by_name.contains_key(name)
    }

    /// When the name left that is remembered longest.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.by_order.first_key_value().map(|(_, (at, _))| *at)
    }

    /// Names in name order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &T> {
        self.by_name.keys()
    }

    /// Remembers that `name` left, at the cost of the oldest where there would be more than `max`.
    pub(crate) fn remember(&mut self, name: T, at: Timestamp, max: usize) {
        self.forget(&name);
        let order = self.next;
        self.next += 1;
        self.by_order.insert(order, (at, name.clone()));
        self.by_name.insert(name, order);
        while self.by_name.len() > max && self.drop_oldest().is_some() {}
    }

    /// Drops and returns the name that left longest ago.
    pub(crate) fn drop_oldest(&mut self) -> Option<T> {
        let (_, (_, oldest)) = self.by_order.pop_first()?;
        self.by_name.remove(&oldest);
        Some(oldest)
    }

    /// `name` is back, or no longer of interest.
    pub(crate) fn forget(&mut self, name: &T) {
        if let Some(order) = self.by_name.remove(name) {
            self.by_order.remove(&order);
        }
    }

    /// Drops and returns what left at `until` or before. Stops at the first name that left later,
    /// so a clock that went back delays and never hastens.
    pub(crate) fn drop_until(&mut self, until: Timestamp) -> Vec<T> {
        let mut dropped = Vec::new();
        while let Some(entry) = self.by_order.first_entry() {
            if entry.get().0 > until {
                break;
            }
            let (_, name) = entry.remove();
            self.by_name.remove(&name);
            dropped.push(name);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(removed: &RemovedNames<&'static str>) -> Vec<&'static str> {
        removed.names().copied().collect()
    }

    #[test]
    fn the_oldest_name_goes_first_and_one_that_is_back_at_once() {
        let mut removed = RemovedNames::default();
        for (at, name) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
            removed.remember(name, Timestamp(at), 2);
        }
        assert_eq!(names(&removed), ["a", "c"]);
        removed.forget(&"c");
        assert_eq!(names(&removed), ["a"]);
        assert_eq!(removed.drop_until(Timestamp(2)), Vec::<&str>::new());
        assert_eq!(removed.drop_until(Timestamp(3)), ["a"]);
        assert_eq!(removed.len(), 0);
        assert!(removed.by_order.is_empty());
    }
}
