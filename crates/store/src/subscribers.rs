//! Who wants what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use hashbrown::HashMap;
use parking_lot::RwLock;
use waypost_core::locator::glob_prefix;
use waypost_core::{Interest, ResourceName, ResourceType, Subscriber, SubscriptionToken};

use crate::limits::NOTIFY_CHUNK;
use crate::shards::Shards;
use crate::subscriber_set::SubscriberSet;

const TYPES: usize = ResourceType::ALL.len();

/// Subscribers by what they want: a name, the members of a glob, everything of a type.
///
/// The contract with those who change things: make the change visible, then call
/// [`notify`](Self::notify). Whoever subscribed before that is called; whoever subscribes later
/// and then looks, sees the change. No lock is held while a subscriber is called, so it may be
/// called once more after it left.
#[derive(Default)]
pub struct Subscribers {
    by_type: [OfType; TYPES],
    turn: AtomicU32,
}

#[derive(Default)]
struct OfType {
    count: AtomicUsize,
    by_name: Shards<HashMap<ResourceName, SubscriberSet>>,
    by_glob: Shards<HashMap<ResourceName, SubscriberSet>>,
    wildcard: RwLock<SubscriberSet>,
}

impl std::fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = ResourceType::ALL.map(|t| (t.label(), self.count(t)));
        f.debug_map().entries(counts).finish()
    }
}

impl Subscribers {
    /// From now on `subscriber` is told of changes of what `interest` covers.
    pub fn subscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken {
        let of_type = &self.by_type[resource_type as usize];
        of_type.count.fetch_add(1, Ordering::Relaxed);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let token = match interest {
            Interest::Wildcard => of_type.wildcard.write().join(subscriber, turn),
            Interest::Explicit(name) => join(&of_type.by_name, name, subscriber, turn, || {
                ResourceName::clone(name)
            }),
            Interest::Glob(url) => {
                let prefix = glob_key(url);
                join(&of_type.by_glob, prefix, subscriber, turn, || prefix.into())
            }
        };
        // Pairs with the fence in `is_wanted`: of two threads of which one subscribes and then
        // looks, and the other changes and then asks, at least one sees what the other did.
        fence(Ordering::SeqCst);
        SubscriptionToken(token)
    }

    /// Ends a subscription; takes the same type and interest. A token that is not valid any more
    /// changes nothing.
    pub fn unsubscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        token: SubscriptionToken,
    ) {
        let of_type = &self.by_type[resource_type as usize];
        let left = match interest {
            Interest::Wildcard => of_type.wildcard.write().leave(token.0),
            Interest::Explicit(name) => leave(&of_type.by_name, name, token.0),
            Interest::Glob(url) => leave(&of_type.by_glob, glob_key(url), token.0),
        };
        if left {
            of_type.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether anybody wants anything of the type. Ask after the change is visible; if not, nobody
    /// has to be told and the name need not be made.
    #[must_use]
    pub fn is_wanted(&self, resource_type: ResourceType) -> bool {
        fence(Ordering::SeqCst);
        self.count(resource_type) > 0
    }

    /// How many subscriptions there are of the type.
    #[must_use]
    pub fn count(&self, resource_type: ResourceType) -> usize {
        self.by_type[resource_type as usize]
            .count
            .load(Ordering::Relaxed)
    }

    /// How many subscriptions there are to exactly this name.
    #[must_use]
    pub fn count_explicit(&self, resource_type: ResourceType, name: &str) -> usize {
        let by_name = self.by_type[resource_type as usize].by_name.of(name).read();
        by_name.get(name).map_or(0, SubscriberSet::len)
    }

    /// An explicit name as it was given by who subscribed to it first; `None` if nobody is.
    #[must_use]
    pub fn find_name(&self, resource_type: ResourceType, name: &str) -> Option<ResourceName> {
        let by_name = self.by_type[resource_type as usize].by_name.of(name).read();
        by_name.get_key_value(name).map(|(name, _)| name.clone())
    }

    /// Tells everybody who wants the resource that it appeared, changed or vanished.
    pub fn notify(&self, resource_type: ResourceType, name: &ResourceName) {
        let of_type = &self.by_type[resource_type as usize];
        // Subscribers find the copy of the name that they share without reading it.
        let shared = self.find_name(resource_type, name);
        let name = shared.as_ref().unwrap_or(name);
        walk(resource_type, name, |start, chunk| {
            let by_name = of_type.by_name.of(name).read();
            let set = by_name.get(&**name)?;
            set.copy_from(start, NOTIFY_CHUNK, chunk)
        });
        if let Some(prefix) = collection_prefix(name) {
            walk(resource_type, name, |start, chunk| {
                let by_glob = of_type.by_glob.of(prefix).read();
                let set = by_glob.get(prefix)?;
                set.copy_from(start, NOTIFY_CHUNK, chunk)
            });
        }
        walk(resource_type, name, |start, chunk| {
            of_type
                .wildcard
                .read()
                .copy_from(start, NOTIFY_CHUNK, chunk)
        });
    }
}

/// Calls everybody whom `copy` yields, chunk by chunk and without its lock.
fn walk(
    resource_type: ResourceType,
    name: &ResourceName,
    copy: impl Fn(usize, &mut Vec<Arc<dyn Subscriber>>) -> Option<usize>,
) {
    let mut chunk = Vec::new();
    let mut next = Some(0);
    while let Some(start) = next {
        next = copy(start, &mut chunk);
        for subscriber in chunk.drain(..) {
            subscriber.mark_changed(resource_type, name);
        }
    }
}

fn join(
    sets: &Shards<HashMap<ResourceName, SubscriberSet>>,
    key: &str,
    subscriber: Arc<dyn Subscriber>,
    turn: u32,
    owned: impl FnOnce() -> ResourceName,
) -> u64 {
    let mut sets = sets.of(key).write();
    if let Some(set) = sets.get_mut(key) {
        return set.join(subscriber, turn);
    }
    let mut set = SubscriberSet::default();
    let token = set.join(subscriber, turn);
    sets.insert(owned(), set);
    token
}

fn leave(sets: &Shards<HashMap<ResourceName, SubscriberSet>>, key: &str, token: u64) -> bool {
    let mut sets = sets.of(key).write();
    let Some(set) = sets.get_mut(key) else {
        return false;
    };
    let left = set.leave(token);
    if set.is_empty() {
        sets.remove(key);
    }
    left
}

/// Globs are kept by their prefix. A URL that is no glob has no members and is kept as it is.
fn glob_key(url: &str) -> &str {
    glob_prefix(url).unwrap_or(url)
}

/// The prefix of the one glob that covers a name: everything up to its last slash.
fn collection_prefix(name: &str) -> Option<&str> {
    let end = name.rfind('/')?;
    name.starts_with("xdstp:").then(|| &name[..=end])
}
