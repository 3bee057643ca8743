//! A subscriber of one Observer that remembers what it was told, as an xDS client does.

use std::collections::BTreeMap;

use bytes::Bytes;
use waypost_core::InstanceKey;

use crate::Observer;

/// What a client heard last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, or that the Observer cannot say yet.
    Unavailable,
    /// What the Observer serves.
    Served,
}

/// A client, by what it knows.
#[derive(Clone, Debug)]
pub struct Client {
    /// The number of the Observer that it is connected to.
    pub observer: usize,
    /// What it heard on this connection.
    pub answer: Answer,
    /// Every instance that it was told has left, in order.
    pub removals: Vec<InstanceKey>,
    /// How many instances it was sent.
    pub received: usize,
    known: BTreeMap<InstanceKey, Bytes>,
}

impl Client {
    /// Connects to an Observer.
    pub(crate) fn new(observer: usize) -> Self {
        Self {
            observer,
            answer: Answer::Unavailable,
            removals: Vec::new(),
            received: 0,
            known: BTreeMap::new(),
        }
    }

    /// Connects anew, and says what it knows: versions are those of contents.
    pub fn reconnect(&mut self, observer: usize) {
        self.observer = observer;
        self.answer = Answer::Unavailable;
    }

    /// Whether it would call an instance.
    #[must_use]
    pub fn knows(&self, key: &InstanceKey) -> bool {
        self.known.contains_key(key)
    }

    /// How many instances it would call.
    #[must_use]
    pub fn known_count(&self) -> usize {
        self.known.len()
    }

    /// Hears what is different from what it knows.
    pub(crate) fn step(&mut self, observer: &Observer) {
        let Some(served) = observer.answer() else {
            return;
        };
        self.answer = Answer::Served;
        if self.known == *served {
            return;
        }
        let gone = self.known.keys().filter(|key| !served.contains_key(*key));
        self.removals.extend(gone.cloned());
        let changed = served
            .iter()
            .filter(|(key, value)| self.known.get(*key) != Some(value));
        self.received += changed.count();
        self.known.clone_from(served);
    }
}
