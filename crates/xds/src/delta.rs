//! The rules of the incremental variant. Explicit names keep the version last sent; members of
//! globs and of the wildcard need nothing: a client does not mind the removal of what it never had.
//!
//! Sources: xDS protocol, "Incremental xDS"; data-plane-api `discovery.proto`; cncf/xds TP1 for
//! globs; rest.li `XdsClientImpl` for what its clients rely on.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use waypost_core::locator::{glob_covers, glob_prefix};
use waypost_core::{Interest, ResourceName, ResourceType, ResourceVersion};

use crate::events::Transport;
use crate::outbox::Why;
use crate::request::DeltaRequest;
use crate::responder::{Content, Entry};
use crate::settings::EndpointsOnReconnect;
use crate::subscription::parent;
use crate::substream::{Common, Draft, Phase, Scene};

/// One type on one delta stream.
#[derive(Debug)]
pub(crate) struct DeltaSubstream {
    pub(crate) common: Common,
    /// No request of the type was seen yet.
    is_new: bool,
    /// Collections that wait for their first answer.
    fresh: Vec<Fresh>,
    /// A response is due even if it says nothing.
    must_answer: bool,
    /// Removed, but listeners and routes may still refer to it at the client.
    kept_back: BTreeSet<ResourceName>,
}

/// A collection that was just subscribed.
#[derive(Debug)]
struct Fresh {
    collection: Collection,
    /// What the client says it holds.
    held: Option<Arc<HeldVersions>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Collection {
    Glob(ResourceName),
    Wildcard,
}

/// `initial_resource_versions`; `None` for a version that is not one of ours.
type HeldVersions = HashMap<ResourceName, Option<ResourceVersion>>;

impl DeltaSubstream {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            common: Common::new(resource_type),
            is_new: true,
            fresh: Vec::new(),
            must_answer: false,
            kept_back: BTreeSet::new(),
        }
    }

    /// Applies the changes of subscriptions of a request, whatever its nonce. A name that is both
    /// subscribed and unsubscribed ends up unsubscribed (as in go-control-plane and diderot).
    pub(crate) fn on_request(&mut self, scene: &Scene<'_>, request: DeltaRequest) {
        let held = self.held_versions(request.initial_resource_versions);
        let legacy = scene.engine.settings.legacy_wildcard;
        let is_first = std::mem::replace(&mut self.is_new, false);
        if is_first && request.resource_names_subscribe.is_empty() {
            if legacy.contains(self.common.resource_type) {
                self.subscribe_wildcard(scene, held.as_ref());
            } else {
                self.common.report_refused_wildcard(scene);
            }
        }
        let count = request.resource_names_subscribe.len();
        self.common.subscriptions.reserve(count);
        self.common.pending.reserve(count);
        for name in &request.resource_names_subscribe {
            match scene.registrar().parse(self.common.resource_type, name) {
                Interest::Wildcard => self.subscribe_wildcard(scene, held.as_ref()),
                Interest::Glob(url) => self.subscribe_glob(scene, url, held.as_ref()),
                Interest::Explicit(name) => self.subscribe_name(scene, name, held.as_deref()),
            }
        }
        for name in request.resource_names_unsubscribe {
            self.unsubscribe(scene, &name);
        }
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.must_answer || !self.fresh.is_empty()
    }

    pub(crate) fn holds_removals(&self) -> bool {
        !self.kept_back.is_empty()
    }

    /// What the client holds counts until it answered a response of the type: rest.li clients send
    /// the whole table twice when they come back, later it would be a mistake.
    fn held_versions(&self, versions: HashMap<String, String>) -> Option<Arc<HeldVersions>> {
        if versions.is_empty() || self.common.acks.has_answer() {
            return None;
        }
        let parsed = |(name, version): (String, String)| {
            (ResourceName::from(name), ResourceVersion::parse(&version))
        };
        Some(Arc::new(versions.into_iter().map(parsed).collect()))
    }

    fn subscribe_wildcard(&mut self, scene: &Scene<'_>, held: Option<&Arc<HeldVersions>>) {
        let is_new = self.common.add_wildcard(scene);
        if self.common.subscriptions.has_wildcard() {
            self.add_fresh(Collection::Wildcard, held.filter(|_| is_new));
        }
        // Its first answer is sent even if empty, so that the client knows that it has everything.
        self.must_answer = true;
    }

    fn subscribe_glob(
        &mut self,
        scene: &Scene<'_>,
        url: ResourceName,
        held: Option<&Arc<HeldVersions>>,
    ) {
        let is_new = self.common.subscriptions.add_glob(&scene.registrar(), &url);
        self.add_fresh(Collection::Glob(url), held.filter(|_| is_new));
    }

    fn add_fresh(&mut self, collection: Collection, held: Option<&Arc<HeldVersions>>) {
        let held = held.cloned();
        match self.fresh.iter_mut().find(|f| f.collection == collection) {
            // Asked again before it was answered: then with everything.
            Some(fresh) => fresh.held = None,
            None => self.fresh.push(Fresh { collection, held }),
        }
    }

    /// A name that is subscribed is answered even if the client should have it, it may have
    /// forgotten; only when it comes back and says what it has, that is believed.
    fn subscribe_name(
        &mut self,
        scene: &Scene<'_>,
        name: ResourceName,
        held: Option<&HeldVersions>,
    ) {
        let common = &mut self.common;
        let is_new = common.subscriptions.add_explicit(&scene.registrar(), &name);
        let resend = common.resource_type == ResourceType::ClusterLoadAssignment
            && scene.engine.settings.endpoints_on_reconnect == EndpointsOnReconnect::Resend;
        let held = held
            .filter(|_| is_new && !resend)
            .and_then(|held| held.get(&name).copied().flatten());
        common.pending.add(name, held.map_or(Why::Asked, Why::Held));
    }

    fn unsubscribe(&mut self, scene: &Scene<'_>, name: &str) {
        let subscriptions = &mut self.common.subscriptions;
        match Interest::parse(name) {
            Interest::Wildcard => {
                subscriptions.remove_wildcard(&scene.registrar());
                self.fresh.retain(|f| f.collection != Collection::Wildcard);
            }
            Interest::Glob(url) => {
                subscriptions.remove_glob(&scene.registrar(), &url);
                self.fresh
                    .retain(|f| f.collection != Collection::Glob(url.clone()));
            }
            Interest::Explicit(name) => {
                let removed = subscriptions.remove_explicit(&scene.registrar(), &name);
                self.common.pending.remove(&name);
                if removed.is_some() && self.common.subscriptions.is_member(&name) {
                    // The client dropped it and cannot know that a collection still has it (xDS
                    // protocol, "Unsubscribing from resources").
                    self.common.pending.add(name, Why::Asked);
                }
            }
        }
    }

    pub(crate) fn gather(&mut self, scene: &Scene<'_>, phase: Phase) -> Option<Draft> {
        if phase == Phase::Break {
            for name in std::mem::take(&mut self.kept_back) {
                self.common.pending.add_if_absent(name, Why::Changed);
            }
        }
        if self.common.pending.is_empty() && !self.has_fresh() {
            return None;
        }
        let mut globs = BTreeSet::new();
        for fresh in std::mem::take(&mut self.fresh) {
            self.expand(scene, &fresh);
            if let Collection::Glob(url) = fresh.collection {
                globs.insert(url);
            }
        }
        let pending = self.common.pending.take_sorted();
        let mut entries = Vec::with_capacity(pending.len());
        for (name, why) in pending {
            let Some(entry) = self.decide(scene, phase, name, why) else {
                continue;
            };
            if entry.content == Content::Removal {
                globs.extend(self.common.subscriptions.collection_of(&entry.name));
            }
            entries.push(entry);
        }
        if !globs.is_empty() {
            self.add_empty_globs(scene, &mut entries, globs);
        }
        let must_answer = std::mem::replace(&mut self.must_answer, false);
        (must_answer || !entries.is_empty()).then(|| Draft {
            renewed: self.renewed(&entries),
            entries,
            ..Draft::default()
        })
    }

    /// Adds the names of a collection that was just subscribed: its members, those that left it not
    /// long ago, and those that the client says it holds.
    fn expand(&mut self, scene: &Scene<'_>, fresh: &Fresh) {
        let resource_type = self.common.resource_type;
        let prefix = match &fresh.collection {
            Collection::Glob(url) => glob_prefix(url),
            Collection::Wildcard => None,
        };
        let pending = &mut self.common.pending;
        for name in scene.members(resource_type, prefix) {
            let held = fresh.held.as_ref().and_then(|held| held.get(&name));
            pending.add(name, held.copied().flatten().map_or(Why::Asked, Why::Held));
        }
        for name in scene.locator.recently_removed(resource_type, prefix) {
            pending.add(name, Why::Changed);
        }
        for name in fresh.held.iter().flat_map(|held| held.keys()) {
            if prefix.is_none_or(|prefix| glob_covers(prefix, name)) {
                pending.add_if_absent(name.clone(), Why::Changed);
            }
        }
    }

    /// What is to be said of one name at this moment; `None` for nothing.
    fn decide(
        &mut self,
        scene: &Scene<'_>,
        phase: Phase,
        name: ResourceName,
        why: Why,
    ) -> Option<Entry> {
        let resource_type = self.common.resource_type;
        if !self.common.subscriptions.wants(&name) {
            return None;
        }
        let mut explicit = self.common.subscriptions.find_explicit_mut(&name);
        let found = match explicit {
            Some(_) => scene.find(resource_type, &name),
            None => scene.find_member(resource_type, &name),
        };
        let version = found.as_ref().map(|resource| resource.version());
        let is_known = match why {
            Why::Asked => false,
            Why::Held(held) => version == Some(held),
            Why::Changed => explicit.as_ref().is_some_and(|e| e.knows(version)),
        };
        let content = match found {
            Some(resource) => Content::Resource(resource),
            None if why == Why::Changed && keeps_back(phase, resource_type) && !is_known => {
                self.kept_back.insert(name);
                return None;
            }
            None if resource_type.is_silent_about_absence()
                && !matches!(why, Why::Held(_))
                && explicit.as_ref().is_some_and(|e| !e.may_be_held()) =>
            {
                return None;
            }
            None => Content::Removal,
        };
        let entry = Entry {
            name,
            content,
            is_change: why == Why::Changed,
        };
        if !is_known && !scene.fits(Transport::Delta, resource_type, &entry) {
            return None;
        }
        if let Some(explicit) = &mut explicit {
            explicit.told(version);
        }
        (!is_known).then_some(entry)
    }

    /// The clusters of an answer, which need their endpoints again.
    fn renewed(&self, entries: &[Entry]) -> Vec<ResourceName> {
        if self.common.resource_type != ResourceType::Cluster {
            return Vec::new();
        }
        let resources = entries
            .iter()
            .filter(|entry| entry.content != Content::Removal);
        resources.map(|entry| entry.name.clone()).collect()
    }

    /// Adds the removal of each collection that is empty now. Never beside an addition to it:
    /// clients apply removals last.
    fn add_empty_globs(
        &self,
        scene: &Scene<'_>,
        entries: &mut Vec<Entry>,
        globs: BTreeSet<ResourceName>,
    ) {
        let resource_type = self.common.resource_type;
        let added_to: BTreeSet<&str> = entries.iter().filter_map(added_to).collect();
        let is_empty = |url: &ResourceName| {
            glob_prefix(url).is_some_and(|prefix| {
                !added_to.contains(prefix)
                    && scene
                        .locator
                        .is_glob_empty(resource_type, prefix, scene.variant)
            })
        };
        let empty: Vec<ResourceName> = globs.into_iter().filter(is_empty).collect();
        entries.extend(empty.into_iter().map(|name| Entry {
            name,
            content: Content::EmptyGlob,
            is_change: false,
        }));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Looks again at an entry of an answer whose earlier messages took a while to write: what was
    /// unsubscribed meanwhile is left out, what changed is sent as it is now.
    pub(crate) fn refresh(&mut self, scene: &Scene<'_>, entry: Entry) -> Option<Entry> {
        let resource_type = self.common.resource_type;
        if entry.content == Content::EmptyGlob {
            let prefix = glob_prefix(&entry.name)?;
            let subscriptions = &self.common.subscriptions;
            let wanted = subscriptions.has_glob(prefix) || subscriptions.has_wildcard();
            let locator = scene.locator;
            let is_empty = locator.is_glob_empty(resource_type, prefix, scene.variant);
            return (wanted && is_empty).then_some(entry);
        }
        if !self.common.subscriptions.wants(&entry.name) {
            return None;
        }
        if self.common.pending.remove(&entry.name).is_none() {
            return Some(entry);
        }
        let found = if self.common.subscriptions.has_explicit(&entry.name) {
            scene.find(resource_type, &entry.name)
        } else {
            scene.find_member(resource_type, &entry.name)
        };
        let version = found.as_ref().map(|resource| resource.version());
        let now = Entry {
            content: found.map_or(Content::Removal, Content::Resource),
            ..entry.clone()
        };
        if now.len(Transport::Delta) > entry.len(Transport::Delta) {
            // Grown, it may not fit: the next answer says it.
            self.common.pending.add(entry.name.clone(), Why::Changed);
            return Some(entry);
        }
        if now.content == Content::Removal {
            // Its collection may be empty: the next answer finds out.
            self.common.pending.add(entry.name.clone(), Why::Changed);
        }
        if let Some(explicit) = self.common.subscriptions.find_explicit_mut(&entry.name) {
            explicit.told(version);
        }
        Some(now)
    }
}

/// The prefix of the collection that an entry adds to.
fn added_to(entry: &Entry) -> Option<&str> {
    match entry.content {
        Content::Resource(_) => parent(&entry.name),
        Content::Removal | Content::EmptyGlob => None,
    }
}

fn keeps_back(phase: Phase, resource_type: ResourceType) -> bool {
    phase == (Phase::Make { hold: true })
        && matches!(
            resource_type,
            ResourceType::Cluster | ResourceType::ClusterLoadAssignment
        )
}
