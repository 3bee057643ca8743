//! What a response changes.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use waypost_core::ResourceType;

use crate::cache::{Answer, Held, Mark, TypeState};
use crate::codec::{Codec, Rejection};
use crate::counters::Counters;
use crate::event::{Absence, Event, Kept};
use crate::limits::{HELD_MAX, REJECTIONS_TOLD_MAX};
use crate::link::Verdict;
use crate::name::{Scope, Subscription, TypeUrl};
use crate::policy::{EndOfSnapshot, Policy, Removals, Untracked, VersionTable};

/// One response in the making of its consequences.
pub(crate) struct Applier<'a, C: Codec> {
    pub(crate) policy: &'a Policy,
    pub(crate) codec: &'a C,
    pub(crate) type_url: &'a TypeUrl,
    pub(crate) state: &'a mut TypeState<C::Value>,
    pub(crate) events: &'a mut VecDeque<Event<C::Value>>,
    pub(crate) counters: &'a mut Counters,
    pub(crate) errors: Vec<String>,
}

impl<C: Codec> Applier<'_, C> {
    /// Takes what a delta response brings and removes.
    pub(crate) fn delta(mut self, response: DeltaDiscoveryResponse) -> Verdict {
        let mut names = BTreeSet::new();
        for resource in response.resources {
            let name: Arc<str> = resource.name.into();
            if !names.insert(Arc::clone(&name)) {
                self.errors.push(format!("{name} is in the response twice"));
                continue;
            }
            self.take(&name, &resource.version, resource.resource);
        }
        // A collection is said to be empty beside its last members, in any order.
        let is_name = |name: &String| Subscription::new(name).scope() == Scope::Name;
        let removed = response.removed_resources.into_iter();
        let (members, collections): (Vec<_>, Vec<_>) = removed.partition(is_name);
        for name in members.into_iter().chain(collections) {
            self.remove(&name.into());
        }
        self.complete(&response.nonce);
        self.judge(response.nonce)
    }

    /// Takes what a response of the state of the world brings and, for the types whose responses are
    /// complete, misses (xDS protocol, "Grouping resources into responses").
    pub(crate) fn sotw(mut self, response: DiscoveryResponse) -> Verdict {
        let mut names = BTreeSet::new();
        for any in response.resources {
            match unwrap(any, &response.version_info) {
                Ok((name, version, any)) => {
                    let name: Arc<str> = name.into();
                    if names.insert(Arc::clone(&name)) {
                        self.take(&name, &version, any);
                    } else {
                        self.errors.push(format!("{name} is in the response twice"));
                    }
                }
                Err(why) => self.errors.push(why),
            }
        }
        let known = self.type_url.resource_type();
        if known.is_some_and(ResourceType::is_complete_in_sotw) {
            // Each response misses it again; it is told once.
            for name in self.missing(&names) {
                if self.state.set_absent(&name, true) {
                    self.remove(&name);
                }
            }
        }
        self.complete(&response.nonce);
        let verdict = self.judge(response.nonce);
        Verdict {
            version_info: Some(response.version_info),
            ..verdict
        }
    }

    fn take(&mut self, name: &Arc<str>, version: &str, any: Option<Any>) {
        if !self.state.covers(name) {
            self.note_unused(name, version);
            return self.refuse_untracked(name);
        }
        let was_awaited = self.state.mention(name);
        self.state.set_absent(name, false);
        match self.read(name, any) {
            Ok((body, value)) => self.store(name, version, (body, value), was_awaited),
            Err(reason) => {
                self.note_unused(name, version);
                self.reject(name, reason);
            }
        }
    }

    /// Keeps the version of what is not used, where the policy does.
    fn note_unused(&mut self, name: &Arc<str>, version: &str) {
        let versions = &mut self.state.unused_versions;
        if self.policy.version_table == VersionTable::Received && versions.len() < HELD_MAX {
            versions.insert(Arc::clone(name), version.into());
        }
    }

    fn refuse_untracked(&mut self, name: &str) {
        let is_uri = self.type_url.resource_type() == Some(ResourceType::D2Uri);
        if is_uri && self.policy.untracked == Untracked::UrisRejected {
            self.counters.resources_rejected += 1;
            self.errors.push(format!("{name} was not asked for"));
        }
    }

    fn read(&self, name: &Arc<str>, any: Option<Any>) -> Result<(Bytes, C::Value), Rejection> {
        let any = any.ok_or_else(|| Rejection::new("it has no body"))?;
        let message = |url: &str| url.rsplit('/').next().map(str::to_owned);
        if message(&any.type_url) != message(self.type_url.as_str()) {
            return Err(Rejection::new(format!("it is a {}", any.type_url)));
        }
        if self.state.held.len() >= HELD_MAX && !self.state.held.contains_key(name) {
            return Err(Rejection::new(format!(
                "{HELD_MAX} resources are held already"
            )));
        }
        let body = Bytes::from(any.value);
        let value = self.codec.decode(self.type_url, name, &body)?;
        Ok((body, value))
    }

    /// Keeps the content and tells of it if it is new, was not certain, or `was_awaited`: by a watch
    /// that came after the resource did.
    fn store(
        &mut self,
        name: &Arc<str>,
        version: &str,
        (body, value): (Bytes, C::Value),
        was_awaited: bool,
    ) {
        let type_url = self.type_url.clone();
        let name = Arc::clone(name);
        let version: Arc<str> = version.into();
        self.state.unused_versions.remove(&name);
        if let Some(held) = self.state.held.get_mut(&name)
            && held.body == body
        {
            self.counters.resources_unchanged += 1;
            held.version = version;
            let mark = std::mem::replace(&mut held.mark, Mark::Fresh);
            if mark != Mark::Fresh || was_awaited {
                self.events.push_back(Event::Confirmed { type_url, name });
            }
            return;
        }
        self.counters.resources_changed += 1;
        let held = Held {
            version: Arc::clone(&version),
            body,
            value: value.clone(),
            mark: Mark::Fresh,
        };
        self.state.held.insert(Arc::clone(&name), held);
        self.events.push_back(Event::Changed {
            type_url,
            name,
            version,
            value,
        });
    }

    fn reject(&mut self, name: &Arc<str>, reason: Rejection) {
        self.counters.resources_rejected += 1;
        self.errors.push(format!("{name}: {reason}"));
        self.events.push_back(Event::Rejected {
            type_url: self.type_url.clone(),
            name: Arc::clone(name),
            reason,
            kept: kept(self.state.held.contains_key(name)),
        });
    }

    fn remove(&mut self, name: &Arc<str>) {
        let watched = self.state.watches.contains_key(name.as_ref());
        let scope = Subscription::new(name).scope();
        self.state.unused_versions.remove(name);
        if !self.state.covers(name) {
            return self.refuse_untracked(name);
        }
        self.state.mention(name);
        let kept = match (watched, scope) {
            (true, Scope::Glob | Scope::Wildcard) => kept(self.holds_members(name)),
            (true, Scope::Name) if self.policy.removals == Removals::Keep => {
                let held = self.state.held.get_mut(name);
                kept(held.map(|held| held.mark = Mark::Gone).is_some())
            }
            (true, Scope::Name) => {
                self.state.held.remove(name);
                Kept::Nothing
            }
            // A member of a collection; of one that is not held there is nothing to tell.
            (false, _) if self.state.held.remove(name).is_none() => return,
            (false, _) => Kept::Nothing,
        };
        self.counters.resources_absent += 1;
        self.events.push_back(Event::Absent {
            type_url: self.type_url.clone(),
            name: Arc::clone(name),
            why: Absence::Stated,
            kept,
        });
    }

    fn holds_members(&self, glob: &str) -> bool {
        let prefix = glob.trim_end_matches('*');
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let next = self.state.held.range::<str, _>(from).next();
        next.is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// Names that are watched or held and that a complete response does not have.
    fn missing(&self, present: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        let named = self.state.watches.keys();
        let named = named.filter(|watch| watch.scope() == Scope::Name);
        let named = named.map(|watch| Arc::from(watch.as_str()));
        let held = self.state.held.keys().cloned();
        let all: BTreeSet<Arc<str>> = named.chain(held).collect();
        all.difference(present).cloned().collect()
    }

    /// Tells the collections whose first answer is whole.
    fn complete(&mut self, nonce: &str) {
        let counted = self.policy.end_of_snapshot == EndOfSnapshot::CountedInNonce;
        if counted && remaining_chunks(nonce) > 0 {
            return;
        }
        for (subscription, watch) in &mut self.state.watches {
            let is_whole = match subscription.scope() {
                Scope::Name => false,
                Scope::Glob => watch.is_mentioned,
                Scope::Wildcard => true,
            };
            if is_whole && watch.answer != Answer::Given {
                watch.answer = Answer::Given;
                self.events.push_back(Event::Complete {
                    type_url: self.type_url.clone(),
                    subscription: subscription.clone(),
                });
            }
        }
    }

    fn judge(mut self, nonce: String) -> Verdict {
        let more = self.errors.len().saturating_sub(REJECTIONS_TOLD_MAX);
        self.errors.truncate(REJECTIONS_TOLD_MAX);
        if more > 0 {
            self.errors.push(format!("and {more} more"));
        }
        Verdict {
            nonce,
            version_info: None,
            error: (!self.errors.is_empty()).then(|| self.errors.join("\n")),
        }
    }
}

fn kept(is_held: bool) -> Kept {
    if is_held {
        Kept::LastGood
    } else {
        Kept::Nothing
    }
}

/// Messages that are still to come of a long answer: bytes 8 to 11 of the nonce in hexadecimal. A
/// nonce of another form counts none.
fn remaining_chunks(nonce: &str) -> u32 {
    let count = nonce.get(16..24).filter(|_| nonce.len() == 24);
    count
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .unwrap_or(0)
}

/// Name, version and payload of a resource in a SotW response, wrapped or not (xDS protocol,
/// `xds.config.supports-resource-in-sotw`).
fn unwrap(any: Any, version_info: &str) -> Result<(String, String, Option<Any>), String> {
    if any
        .type_url
        .ends_with("/envoy.service.discovery.v3.Resource")
    {
        let wrapped = Resource::decode(any.value.as_slice());
        let wrapped = wrapped.map_err(|e| format!("a wrapped resource cannot be read: {e}"))?;
        let version = if wrapped.version.is_empty() {
            version_info.to_owned()
        } else {
            wrapped.version
        };
        return Ok((wrapped.name, version, wrapped.resource));
    }
    let is_named = matches!(
        ResourceType::from_type_url(&any.type_url),
        Some(
            ResourceType::Cluster
                | ResourceType::ClusterLoadAssignment
                | ResourceType::Listener
                | ResourceType::RouteConfiguration
        )
    );
    if !is_named {
        return Err(format!("a {} without a name", any.type_url));
    }
    let named = Named::decode(any.value.as_slice());
    let named = named.map_err(|e| format!("a {} cannot be read: {e}", any.type_url))?;
    Ok((named.name, version_info.to_owned(), Some(any)))
}

/// All four Envoy types that clients are told by name have it in field 1.
#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}
