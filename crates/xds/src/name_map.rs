//! A map by resource name for sets that are small on most streams and large on a few.

use hashbrown::HashMap;
use waypost_core::ResourceName;

/// So many names are searched one after another: they fit a few cache lines, and names that are
/// shared are found without reading them.
const FEW_MAX: usize = 16;

/// Values by name: a list of a few, a hash table of many. Never goes back to a list by itself.
#[derive(Debug)]
pub(crate) enum NameMap<V> {
    Few(Vec<(ResourceName, V)>),
    Many(Box<HashMap<ResourceName, V>>),
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> NameMap<V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for so many more names, and for no more than those while they are few.
    pub(crate) fn reserve(&mut self, additional: usize) {
        match self {
            Self::Few(few) if few.len() + additional <= FEW_MAX => few.reserve_exact(additional),
            Self::Few(few) => *self = to_many(few, additional),
            Self::Many(many) => many.reserve(additional),
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        match self {
            Self::Few(few) => {
                let (_, value) = few.get(position(few, name)?)?;
                Some(value)
            }
            Self::Many(many) => many.get(name),
        }
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        match self {
            Self::Few(few) => {
                let index = position(few, name)?;
                let (_, value) = few.get_mut(index)?;
                Some(value)
            }
            Self::Many(many) => many.get_mut(name),
        }
    }

    /// Gives `name` a value if it has none; otherwise `change` decides about the one it has.
    pub(crate) fn insert_or(&mut self, name: ResourceName, value: V, change: impl FnOnce(&mut V)) {
        match self.get_mut(&name) {
            Some(held) => change(held),
            None => self.insert_new(name, value),
        }
    }

    /// Adds a name that is not there.
    pub(crate) fn insert_new(&mut self, name: ResourceName, value: V) {
        if let Self::Few(few) = self
            && few.len() >= FEW_MAX
        {
            *self = to_many(few, 1);
        }
        match self {
            Self::Few(few) => few.push((name, value)),
            Self::Many(many) => {
                many.insert(name, value);
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<(ResourceName, V)> {
        match self {
            Self::Few(few) => position(few, name).map(|index| few.swap_remove(index)),
            Self::Many(many) => many.remove_entry(name),
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(name, _)| name);
        few.chain(many.into_iter().flat_map(|many| many.keys()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ResourceName, &V)> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(name, value)| (name, value));
        few.chain(many.into_iter().flat_map(|many| many.iter()))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(_, value)| value);
        few.chain(many.into_iter().flat_map(|many| many.values_mut()))
    }

    /// Takes everything, in no order, and the memory with it.
    pub(crate) fn take(&mut self) -> Vec<(ResourceName, V)> {
        match std::mem::take(self) {
            Self::Few(few) => few,
            Self::Many(many) => many.into_iter().collect(),
        }
    }
}

/// Where `name` is in a list: by its address if it is shared, then by its text.
fn position<V>(few: &[(ResourceName, V)], name: &str) -> Option<usize> {
    let shared = few.iter().position(|(held, _)| std::ptr::eq(&**held, name));
    shared.or_else(|| few.iter().position(|(held, _)| **held == *name))
}

fn to_many<V>(few: &mut Vec<(ResourceName, V)>, additional: usize) -> NameMap<V> {
    let mut many = HashMap::with_capacity(few.len() + additional);
    many.extend(few.drain(..));
    NameMap::Many(Box::new(many))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_whatever_its_size(steps in prop::collection::vec((0..40_u8, 0..4_u8), 0..200)) {
            let mut map = NameMap::default();
            let mut twin = BTreeMap::new();
            for (number, step) in steps {
                let name = ResourceName::from(format!("n{number}"));
                match step {
                    0 => {
                        let removed = map.remove(&name).map(|(_, value)| value);
                        prop_assert_eq!(removed, twin.remove(&name));
                    }
                    1 => map.reserve(usize::from(number)),
                    _ => {
                        map.insert_or(name.clone(), step, |held| *held = step);
                        twin.insert(name.clone(), step);
                    }
                }
                prop_assert_eq!(map.len(), twin.len());
                prop_assert_eq!(map.get(&name), twin.get(&name));
                // A name of the same text that is not shared.
                prop_assert_eq!(map.contains(&format!("n{number}")), twin.contains_key(&name));
            }
            let mut names: Vec<_> = map.names().cloned().collect();
            names.sort();
            prop_assert!(names.iter().eq(twin.keys()));
            let mut all = map.take();
            all.sort();
            prop_assert!(all.into_iter().eq(twin));
            prop_assert!(map.is_empty());
        }
    }
}
