//! The facts of several sources about one thing.

use waypost_core::SourceSlot;

const SLOTS: usize = SourceSlot::ALL.len();

/// At most one value per source. The filled slot of the highest priority is the one served.
///
/// Nearly everything has one source, so that case is held inline and several are boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots<T>(Inner<T>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner<T> {
    Empty,
    One(SourceSlot, T),
    Many(Box<[Option<T>; SLOTS]>),
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(Inner::Empty)
    }
}

impl<T> Slots<T> {
    /// The value that `slot` holds.
    #[must_use]
    pub fn get(&self, slot: SourceSlot) -> Option<&T> {
        match &self.0 {
            Inner::Empty => None,
            Inner::One(held, value) => (*held == slot).then_some(value),
            Inner::Many(values) => values[slot as usize].as_ref(),
        }
    }

    /// The value served, and whose it is.
    #[must_use]
    pub fn served(&self) -> Option<(SourceSlot, &T)> {
        self.filled().next()
    }

    /// Every filled slot, highest priority first.
    pub fn filled(&self) -> impl Iterator<Item = (SourceSlot, &T)> {
        SourceSlot::ALL
            .into_iter()
            .filter_map(|slot| self.get(slot).map(|value| (slot, value)))
    }

    /// Whether no source says anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Inner::Empty)
    }

    /// Fills or clears one slot.
    pub fn set(&mut self, slot: SourceSlot, value: Option<T>) {
        self.0 = match (std::mem::replace(&mut self.0, Inner::Empty), value) {
            (Inner::Empty, None) => Inner::Empty,
            (Inner::Empty, Some(value)) => Inner::One(slot, value),
            (Inner::One(held, _), value) if held == slot => match value {
                Some(value) => Inner::One(slot, value),
                None => Inner::Empty,
            },
            (one @ Inner::One(..), None) => one,
            (Inner::One(held, first), Some(second)) => {
                let mut values = Box::new([const { None }; SLOTS]);
                values[held as usize] = Some(first);
                values[slot as usize] = Some(second);
                Inner::Many(values)
            }
            (Inner::Many(mut values), value) => {
                values[slot as usize] = value;
                shrink(values)
            }
        };
    }
}

/// Gives the box back once a single source is left.
fn shrink<T>(mut values: Box<[Option<T>; SLOTS]>) -> Inner<T> {
    if values.iter().flatten().count() > 1 {
        return Inner::Many(values);
    }
    SourceSlot::ALL
        .into_iter()
        .find_map(|slot| {
            values[slot as usize]
                .take()
                .map(|value| Inner::One(slot, value))
        })
        .unwrap_or(Inner::Empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_hold_what_a_plain_array_holds(
            steps in prop::collection::vec((0..SLOTS, prop::option::of(0_u8..4)), 0..40)
        ) {
            let mut slots = Slots::default();
            let mut model = [None; SLOTS];
            for (index, value) in steps {
                slots.set(SourceSlot::ALL[index], value);
                model[index] = value;
                let served = SourceSlot::ALL.into_iter().zip(model)
                    .find_map(|(slot, value)| value.map(|v| (slot, v)));
                prop_assert_eq!(slots.served().map(|(s, v)| (s, *v)), served);
                prop_assert_eq!(slots.is_empty(), served.is_none());
                let several = model.iter().flatten().count() > 1;
                prop_assert_eq!(matches!(slots.0, Inner::Many(_)), several);
            }
        }
    }
}
