//! A locator over a plain map: the twin of an Observer's, for tests and examples of the engine.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use waypost_core::locator::{glob_covers, glob_prefix};
use waypost_core::{
    ClientKind, EncodedResource, Interest, ResourceLocator, ResourceName, ResourceType, Subscriber,
    SubscriptionToken, Variant,
};

/// Holds resources and tells subscribers of each change before the call that makes it returns.
/// Loaded from the start unless told otherwise.
#[derive(Default)]
pub struct MemoryLocator {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    not_loaded: Option<String>,
    resources: BTreeMap<Key, EncodedResource>,
    /// What clients of one kind get instead.
    for_client: BTreeMap<Key, Vec<(ClientKind, EncodedResource)>>,
    removed: BTreeSet<Key>,
    /// By cluster, where they are not called as it is.
    endpoints: BTreeMap<String, String>,
    subscribers: BTreeMap<u64, (ResourceType, Interest, Arc<dyn Subscriber>)>,
    next_token: u64,
}

type Key = (ResourceType, ResourceName);

impl MemoryLocator {
    /// Sets a resource for every client.
    pub fn set(&self, resource_type: ResourceType, name: &str, resource: EncodedResource) {
        let key = (resource_type, ResourceName::from(name));
        {
            let mut state = self.state.lock();
            state.removed.remove(&key);
            state.resources.insert(key.clone(), resource);
        }
        self.notify(&key);
    }

    /// Sets what clients of one kind get for a resource that all clients have.
    pub fn set_for_client(
        &self,
        resource_type: ResourceType,
        name: &str,
        client: ClientKind,
        resource: EncodedResource,
    ) {
        let key = (resource_type, ResourceName::from(name));
        {
            let mut state = self.state.lock();
            let variants = state.for_client.entry(key.clone()).or_default();
            variants.retain(|(kind, _)| *kind != client);
            variants.push((client, resource));
        }
        self.notify(&key);
    }

    /// Removes a resource; it is remembered as recently removed.
    pub fn remove(&self, resource_type: ResourceType, name: &str) {
        let key = (resource_type, ResourceName::from(name));
        {
            let mut state = self.state.lock();
            state.for_client.remove(&key);
            if state.resources.remove(&key).is_none() {
                return;
            }
            state.removed.insert(key.clone());
        }
        self.notify(&key);
    }

    /// Sets under which name clients ask for the endpoints of a cluster.
    pub fn set_endpoints_name(&self, cluster: &str, endpoints: &str) {
        let mut state = self.state.lock();
        state
            .endpoints
            .insert(cluster.to_owned(), endpoints.to_owned());
    }

    /// Forgets what was removed, as an Observer does after a while.
    pub fn forget_removed(&self) {
        self.state.lock().removed.clear();
    }

    /// Tells subscribers that a resource changed although it did not.
    pub fn touch(&self, resource_type: ResourceType, name: &str) {
        self.notify(&(resource_type, ResourceName::from(name)));
    }

    /// Sets why nothing may be answered, or that it may.
    pub fn set_not_loaded(&self, why: Option<&str>) {
        self.state.lock().not_loaded = why.map(str::to_owned);
    }

    /// Subscriptions that are open.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.state.lock().subscribers.len()
    }

    fn notify(&self, (resource_type, name): &Key) {
        let interested: Vec<_> = {
            let state = self.state.lock();
            let subscribers = state.subscribers.values();
            subscribers
                .filter(|(of, interest, _)| of == resource_type && covers(interest, name))
                .map(|(_, _, subscriber)| Arc::clone(subscriber))
                .collect()
        };
        for subscriber in interested {
            subscriber.mark_changed(*resource_type, name);
        }
    }
}

fn covers(interest: &Interest, name: &str) -> bool {
    match interest {
        Interest::Explicit(explicit) => &**explicit == name,
        Interest::Glob(url) => glob_prefix(url).is_some_and(|prefix| glob_covers(prefix, name)),
        Interest::Wildcard => true,
    }
}

fn is_in(prefix: Option<&str>, name: &str) -> bool {
    prefix.is_none_or(|prefix| glob_covers(prefix, name))
}

impl ResourceLocator for MemoryLocator {
    fn not_loaded(&self) -> Option<String> {
        self.state.lock().not_loaded.clone()
    }

    fn find(
        &self,
        resource_type: ResourceType,
        name: &str,
        variant: Variant,
    ) -> Option<EncodedResource> {
        let state = self.state.lock();
        let key = (resource_type, ResourceName::from(name));
        let all = state.resources.get(&key)?;
        let mut variants = state.for_client.get(&key).into_iter().flatten();
        let own = variants.find(|(client, _)| *client == variant.client);
        Some(own.map_or(all, |(_, resource)| resource).clone())
    }

    fn endpoints_name<'a>(&self, cluster: &'a str) -> Cow<'a, str> {
        let state = self.state.lock();
        let endpoints = state.endpoints.get(cluster);
        endpoints.map_or(Cow::Borrowed(cluster), |name| Cow::Owned(name.clone()))
    }

    fn members(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
        _variant: Variant,
    ) -> Vec<ResourceName> {
        let state = self.state.lock();
        let names = state.resources.keys();
        names
            .filter(|(of, name)| *of == resource_type && is_in(prefix, name))
            .map(|(_, name)| name.clone())
            .collect()
    }

    fn recently_removed(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
    ) -> Vec<ResourceName> {
        let state = self.state.lock();
        let names = state.removed.iter();
        names
            .filter(|(of, name)| *of == resource_type && is_in(prefix, name))
            .map(|(_, name)| name.clone())
            .collect()
    }

    fn subscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken {
        let mut state = self.state.lock();
        let token = state.next_token;
        state.next_token += 1;
        let entry = (resource_type, interest.clone(), subscriber);
        state.subscribers.insert(token, entry);
        SubscriptionToken(token)
    }

    fn unsubscribe(
        &self,
        _resource_type: ResourceType,
        _interest: &Interest,
        token: SubscriptionToken,
    ) {
        self.state.lock().subscribers.remove(&token.0);
    }
}
