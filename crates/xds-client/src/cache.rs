//! What is watched and held of one type. It outlives every stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::name::{Scope, Subscription, TypeUrl};

/// How sure it is that what is held is what the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The stream that is open said so and has not said anything else.
    Fresh,
    /// It was so when the last stream ended, or when it was written down.
    Stale,
    /// The server said that the resource does not exist; it is kept by [`Removals::Keep`](crate::Removals).
    Gone,
}

/// The last good content of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<V> {
    /// Its version, opaque.
    pub version: Arc<str>,
    /// Its encoded content, for whoever writes it down.
    pub body: Bytes,
    /// Its content.
    pub value: V,
    /// How sure it is.
    pub mark: Mark,
}

/// Whether a subscription was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Not on this stream, and nothing of it is held.
    Awaited,
    /// It was, or something is held.
    Given,
    /// The resource timer ran out.
    Silent,
}

/// One subscription.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) answer: Answer,
    /// A response of this stream named a member of it, or itself.
    pub(crate) is_mentioned: bool,
    /// It was told that there is nothing, and nothing has come since.
    pub(crate) is_absent: bool,
}

/// One type.
#[derive(Debug)]
pub(crate) struct TypeState<V> {
    pub(crate) watches: BTreeMap<Subscription, Watch>,
    pub(crate) held: BTreeMap<Arc<str>, Held<V>>,
    /// Versions of what came and is not held, by name; see
    /// [`VersionTable::Received`](crate::VersionTable::Received).
    pub(crate) unused_versions: BTreeMap<Arc<str>, Arc<str>>,
    /// SotW: the version of the last response that was accepted (xDS protocol: it belongs to the
    /// resources and is told on the next stream too).
    pub(crate) version_info: String,
}

impl<V> Default for TypeState<V> {
    fn default() -> Self {
        Self {
            watches: BTreeMap::new(),
            held: BTreeMap::new(),
            unused_versions: BTreeMap::new(),
            version_info: String::new(),
        }
    }
}

impl<V> TypeState<V> {
    /// Adds a subscription; whether it is new.
    pub(crate) fn watch(&mut self, subscription: &Subscription) -> bool {
        let is_new = !self.watches.contains_key(subscription);
        if is_new {
            let watch = Watch {
                answer: Answer::Awaited,
                is_mentioned: false,
                is_absent: false,
            };
            self.watches.insert(subscription.clone(), watch);
        }
        is_new
    }

    /// Takes a subscription away and drops what nothing else covers; whether there was one.
    pub(crate) fn unwatch(&mut self, subscription: &Subscription) -> bool {
        if self.watches.remove(subscription).is_none() {
            return false;
        }
        match subscription.scope() {
            Scope::Name => {
                if !self.covers(subscription.as_str()) {
                    self.held.remove(subscription.as_str());
                }
            }
            Scope::Glob | Scope::Wildcard => {
                let mut held = std::mem::take(&mut self.held);
                held.retain(|name, _| self.covers(name));
                self.held = held;
            }
        }
        true
    }

    /// Whether a resource of this name is watched, by itself or in a collection.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.watches.contains_key(name) || self.covers_as_member(name)
    }

    fn covers_as_member(&self, name: &str) -> bool {
        let glob = Subscription::glob_over(name);
        self.watches.contains_key("*") || glob.is_some_and(|glob| self.watches.contains_key(&glob))
    }

    /// Notes whether there is nothing of a name; whether that is news.
    pub(crate) fn set_absent(&mut self, name: &str, is_absent: bool) -> bool {
        let watch = self.watches.get_mut(name);
        watch.is_none_or(|watch| std::mem::replace(&mut watch.is_absent, is_absent) != is_absent)
    }

    /// Notes that a response named this resource or collection; whether the resource, or a collection
    /// that it is a member of, was waited for.
    pub(crate) fn mention(&mut self, name: &str) -> bool {
        let mut was_awaited = false;
        if let Some(watch) = self.watches.get_mut(name) {
            watch.is_mentioned = true;
            if Subscription::new(name).scope() == Scope::Name {
                was_awaited = watch.answer != Answer::Given;
                watch.answer = Answer::Given;
            }
        }
        let glob = Subscription::glob_over(name);
        if let Some(watch) = glob.and_then(|glob| self.watches.get_mut(&glob)) {
            watch.is_mentioned = true;
            was_awaited |= watch.answer != Answer::Given;
        }
        let all = self.watches.get("*");
        was_awaited || all.is_some_and(|watch| watch.answer != Answer::Given)
    }

    /// The stream is gone: nothing is sure any more, and what is missing is waited for again.
    pub(crate) fn lose_stream(&mut self) {
        for held in self
            .held
            .values_mut()
            .filter(|held| held.mark == Mark::Fresh)
        {
            held.mark = Mark::Stale;
        }
        for (subscription, watch) in &mut self.watches {
            let is_held = self.held.contains_key(subscription.as_str());
            watch.answer = if is_held {
                Answer::Given
            } else {
                Answer::Awaited
            };
            watch.is_mentioned = false;
            watch.is_absent = false;
        }
    }

    /// The versions that a client which returns tells: of what it holds, and of what it could not use
    /// where its policy keeps them. What was said to be gone is kept, not held: should it be back, it
    /// has to come.
    pub(crate) fn version_table(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let held = self
            .held
            .iter()
            .filter(|(_, held)| held.mark != Mark::Gone)
            .map(|(name, held)| (name, &held.version));
        held.chain(&self.unused_versions)
    }

    /// The names on the wire, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.watches.keys();
        names.map(|name| name.as_str().to_owned()).collect()
    }
}

/// Every type that is or was watched.
pub(crate) type Types<V> = BTreeMap<TypeUrl, TypeState<V>>;
