//! Everybody who wants one thing.

use std::sync::Arc;

use waypost_core::Subscriber;

/// Subscribers in slots. One that joins takes a free slot or a new one and keeps it until it
/// leaves, so joining and leaving cost the same however many there are, and a walk over the slots
/// that lets go of the lock in between misses nobody who was there all the time.
#[derive(Default)]
pub(crate) struct SubscriberSet {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    /// Tells those who had this slot one after another apart.
    turn: u32,
    subscriber: Option<Arc<dyn Subscriber>>,
}

impl SubscriberSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// `turn` is a number that the last four billion subscriptions did not have.
    pub(crate) fn join(&mut self, subscriber: Arc<dyn Subscriber>, turn: u32) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                turn,
                subscriber: None,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.turn = turn;
        slot.subscriber = Some(subscriber);
        (u64::from(turn) << 32) | u64::from(index)
    }

    /// Returns whether the token was valid; one that left already changes nothing.
    pub(crate) fn leave(&mut self, token: u64) -> bool {
        let index = u32::try_from(token & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return false;
        };
        if u64::from(slot.turn) != token >> 32 || slot.subscriber.take().is_none() {
            return false;
        }
        self.free.push(index);
        true
    }

    /// Copies out the subscribers of at most `max` slots from `start` on; returns where to go on,
    /// or `None` at the end.
    pub(crate) fn copy_from(
        &self,
        start: usize,
        max: usize,
        into: &mut Vec<Arc<dyn Subscriber>>,
    ) -> Option<usize> {
        let end = self.slots.len().min(start.saturating_add(max));
        let slots = self.slots.get(start..end).unwrap_or_default();
        into.extend(slots.iter().filter_map(|slot| slot.subscriber.clone()));
        (end < self.slots.len()).then_some(end)
    }
}
