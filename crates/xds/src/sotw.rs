//! The rules of the state-of-the-world variant. A request always carries the whole set of names;
//! a response for LDS and CDS always carries the whole set of resources, for other types those that
//! changed or were asked for. Versions are digests of what the client is subscribed to and exists,
//! so equal data has equal versions on every replica.
//!
//! Sources: xDS protocol, "ACK/NACK and resource type instance version", "Grouping resources into
//! responses", "Resource updates"; gRFC A57.

use std::collections::BTreeMap;
use std::num::NonZero;

use hashbrown::HashSet;
use tokio::time::Instant;
use waypost_core::{EncodedResource, ResourceName, ResourceType, ResourceVersion};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::events::Transport;
use crate::limits::STALE_NAMES_DELAY;
use crate::outbox::Why;
use crate::responder::{Content, Entry};
use crate::substream::{Common, Draft, Phase, Scene};

/// One type on one `SotW` stream.
#[derive(Debug)]
pub(crate) struct SotwSubstream {
    pub(crate) common: Common,
    /// A request carried names once: from then on none means none, not everything.
    was_named: bool,
    /// A response is due even if nothing differs.
    must_answer: bool,
    /// The newest request wants everything, permitted or not.
    is_wildcard: bool,
    /// Of the request whose names are applied, if it is known.
    names_digest: Option<NonZero<u64>>,
    stale: Option<Box<StaleNames>>,
    told: Told,
}

/// What requests with an old nonce said.
#[derive(Debug)]
struct StaleNames {
    /// The names of the newest of them.
    names: Vec<String>,
    /// What any of them left out: if it is named again, the client has dropped it meanwhile.
    dropped: HashSet<ResourceName>,
    dropped_wildcard: bool,
    /// When the names are served at the latest.
    due: Instant,
}

/// What the client was told.
#[derive(Debug)]
enum Told {
    /// LDS and CDS: the set last sent.
    Whole {
        set: BTreeMap<ResourceName, EncodedResource>,
        /// The set holds removed resources that listeners and routes may still refer to.
        keeps_removed: bool,
        /// The set was rejected: the next change is sent even if it leads back to it.
        is_doubtful: bool,
    },
    /// Other types: besides explicit names, which keep their own, the members of the wildcard; and
    /// the digest of both.
    Parts {
        members: BTreeMap<ResourceName, ResourceVersion>,
        digest: u64,
    },
}

impl SotwSubstream {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        let told = if resource_type.is_complete_in_sotw() {
            Told::Whole {
                set: BTreeMap::new(),
                keeps_removed: false,
                is_doubtful: false,
            }
        } else {
            Told::Parts {
                members: BTreeMap::new(),
                digest: 0,
            }
        };
        Self {
            common: Common::new(resource_type),
            was_named: false,
            must_answer: false,
            is_wildcard: false,
            names_digest: None,
            stale: None,
            told,
        }
    }

    /// Keeps the names of a request with an old nonce. It is not answered (xDS protocol, "Resource
    /// updates"), but if every request were old its names would never be served
    /// (envoyproxy/envoy#10363).
    pub(crate) fn on_stale_names(&mut self, names: Vec<String>, now: Instant) {
        let mut stale = self.stale.take().unwrap_or_else(|| {
            Box::new(StaleNames {
                names: Vec::new(),
                dropped: HashSet::new(),
                dropped_wildcard: false,
                due: now + STALE_NAMES_DELAY,
            })
        });
        let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
        let explicit = self.common.subscriptions.explicit_names();
        let dropped = explicit.filter(|name| !wanted.contains(&***name)).cloned();
        stale.dropped.extend(dropped);
        let keeps_wildcard = wanted.contains("*") || (wanted.is_empty() && !self.was_named);
        stale.dropped_wildcard |= !keeps_wildcard;
        drop(wanted);
        stale.names = names;
        self.stale = Some(stale);
    }

    /// Whether the names of a request with this digest are applied already, so that nothing would
    /// follow from them.
    pub(crate) fn has_names_of(&self, names_digest: NonZero<u64>) -> bool {
        self.stale.is_none() && self.names_digest == Some(names_digest)
    }

    /// Applies the names of a request. Once they are, the same names change nothing;
    /// `names_digest` stands for them.
    pub(crate) fn on_names(
        &mut self,
        scene: &Scene<'_>,
        names: Vec<String>,
        names_digest: Option<NonZero<u64>>,
    ) {
        self.names_digest = names_digest;
        if let Some(stale) = self.stale.take() {
            self.drop_meanwhile(scene, &stale);
        }
        let mut wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
        let is_legacy = wanted.is_empty() && !self.was_named;
        self.was_named |= !wanted.is_empty();
        let is_wildcard = wanted.remove("*") || is_legacy;
        self.set_wildcard(scene, is_wildcard, is_legacy);
        let subscriptions = &self.common.subscriptions;
        let is_same = wanted.len() == subscriptions.explicit_len()
            && wanted.iter().all(|name| subscriptions.has_explicit(name));
        if is_same {
            return;
        }
        self.drop_unwanted(scene, &wanted);
        let added = wanted.len() - self.common.subscriptions.explicit_len();
        self.common.subscriptions.reserve(added);
        self.common.pending.reserve(added);
        for name in wanted {
            let subscriptions = &mut self.common.subscriptions;
            if subscriptions.has_explicit(name) {
                continue;
            }
            let name = scene.share_name(self.common.resource_type, name);
            subscriptions.add_explicit(&scene.registrar(), &name);
            self.must_answer |= matches!(self.told, Told::Whole { .. });
            self.common.pending.add(name, Why::Asked);
        }
    }

    pub(crate) fn on_nack(&mut self) {
        match &mut self.told {
            Told::Whole { is_doubtful, .. } => *is_doubtful = true,
            Told::Parts { .. } => self.common.subscriptions.doubt(),
        }
    }

    /// What the client was told besides explicit names of types that keep their own: versions by name, and
    /// whether the names without one were left out of a whole set.
    pub(crate) fn told_set(&self) -> (Vec<(ResourceName, ResourceVersion)>, bool) {
        match &self.told {
            Told::Whole { set, .. } => {
                let versions = set.iter().map(|(name, r)| (name.clone(), r.version()));
                (versions.collect(), true)
            }
            Told::Parts { members, .. } => {
                let versions = members.iter().map(|(name, v)| (name.clone(), *v));
                (versions.collect(), false)
            }
        }
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.must_answer
    }

    pub(crate) fn holds_removals(&self) -> bool {
        matches!(&self.told, Told::Whole { keeps_removed, .. } if *keeps_removed)
    }

    pub(crate) fn stale_names_due(&self) -> Option<Instant> {
        self.stale.as_ref().map(|stale| stale.due)
    }

    /// Applies the names that were kept, if their time has come or an answer is due anyway.
    pub(crate) fn apply_stale_names(&mut self, scene: &Scene<'_>, now: Instant) {
        let is_due = self.stale_names_due().is_some_and(|due| due <= now);
        if (is_due || !self.common.pending.is_empty())
            && let Some(stale) = &mut self.stale
        {
            let names = std::mem::take(&mut stale.names);
            self.on_names(scene, names, None);
        }
    }

    pub(crate) fn gather(&mut self, scene: &Scene<'_>, phase: Phase) -> Option<Draft> {
        match self.told {
            Told::Whole { .. } => self.gather_whole(scene, phase),
            Told::Parts { .. } => self.gather_parts(scene),
        }
    }

    /// Ends the subscriptions that requests with an old nonce left out, so that they count as new
    /// if the newest names them again.
    fn drop_meanwhile(&mut self, scene: &Scene<'_>, stale: &StaleNames) {
        self.was_named |= stale.dropped_wildcard;
        if stale.dropped_wildcard {
            self.set_wildcard(scene, false, false);
        }
        let explicit = self.common.subscriptions.explicit_names();
        let kept: Vec<ResourceName> = explicit
            .filter(|name| !stale.dropped.contains(*name))
            .cloned()
            .collect();
        let kept = kept.iter().map(|name| &**name).collect();
        self.drop_unwanted(scene, &kept);
    }

    fn set_wildcard(&mut self, scene: &Scene<'_>, is_wildcard: bool, is_legacy: bool) {
        if is_wildcard == std::mem::replace(&mut self.is_wildcard, is_wildcard) {
            return;
        }
        if !is_wildcard {
            let subscriptions = &mut self.common.subscriptions;
            subscriptions.remove_wildcard(&scene.registrar());
            self.forget_members();
            return;
        }
        let legacy = scene.engine.settings.legacy_wildcard;
        if is_legacy && !legacy.contains(self.common.resource_type) {
            self.common.report_refused_wildcard(scene);
            return;
        }
        self.must_answer |= self.common.add_wildcard(scene);
        if self.common.subscriptions.has_wildcard() {
            self.ask_members(scene);
        }
    }

    /// The wildcard is gone: what the client was told of its members no longer counts.
    fn forget_members(&mut self) {
        let subscriptions = &self.common.subscriptions;
        match &mut self.told {
            Told::Whole { set, .. } => set.retain(|name, _| subscriptions.has_explicit(name)),
            Told::Parts { members, digest } => {
                for (name, version) in std::mem::take(members) {
                    *digest = digest.wrapping_sub(share(&name, Some(version)));
                }
            }
        }
    }

    fn ask_members(&mut self, scene: &Scene<'_>) {
        if matches!(self.told, Told::Whole { .. }) {
            return;
        }
        for name in scene.members(self.common.resource_type, None) {
            self.common.pending.add(name, Why::Asked);
        }
    }

    /// Ends the subscriptions of names that a request no longer carries.
    fn drop_unwanted(&mut self, scene: &Scene<'_>, wanted: &HashSet<&str>) {
        let subscriptions = &mut self.common.subscriptions;
        let gone: Vec<ResourceName> = subscriptions
            .explicit_names()
            .filter(|name| !wanted.contains(&***name))
            .cloned()
            .collect();
        for name in gone {
            let explicit = subscriptions.remove_explicit(&scene.registrar(), &name);
            let is_member = subscriptions.has_wildcard();
            if !is_member {
                self.common.pending.remove(&name);
            }
            match &mut self.told {
                Told::Whole { set, .. } if !is_member => {
                    set.remove(&name);
                }
                Told::Whole { .. } => {}
                Told::Parts { digest, .. } => {
                    let version = explicit.and_then(|explicit| explicit.version());
                    *digest = digest.wrapping_sub(share(&name, version));
                    if is_member {
                        self.common.pending.add(name, Why::Asked);
                    }
                }
            }
        }
    }

    fn gather_whole(&mut self, scene: &Scene<'_>, phase: Phase) -> Option<Draft> {
        let breaks = phase == Phase::Break;
        let marks = self.common.pending.take_sorted();
        let must_answer = std::mem::replace(&mut self.must_answer, false);
        if marks.is_empty() && !must_answer && !breaks {
            return None;
        }
        let mut current = self.find_whole(scene);
        let Told::Whole {
            set,
            keeps_removed,
            is_doubtful,
        } = &mut self.told
        else {
            return None;
        };
        *keeps_removed = false;
        if phase == (Phase::Make { hold: true })
            && self.common.resource_type == ResourceType::Cluster
        {
            for (name, resource) in &*set {
                if self.common.subscriptions.wants(name) && !current.contains_key(name) {
                    current.insert(name.clone(), resource.clone());
                    *keeps_removed = true;
                }
            }
        }
        let is_new = |(name, resource): &(&ResourceName, &EncodedResource)| {
            set.get(*name).map(EncodedResource::version) != Some(resource.version())
        };
        let mut renewed: Vec<ResourceName> = current
            .iter()
            .filter(is_new)
            .map(|(n, _)| n.clone())
            .collect();
        let differs = !renewed.is_empty() || current.len() != set.len();
        if !(must_answer || differs || (*is_doubtful && !marks.is_empty())) {
            return None;
        }
        let is_change = |name: &ResourceName| {
            !must_answer && marks.binary_search_by(|(mark, _)| mark.cmp(name)).is_ok()
        };
        let mut draft = Draft {
            is_whole: true,
            ..Draft::default()
        };
        for (name, resource) in &current {
            draft.version = draft
                .version
                .wrapping_add(share(name, Some(resource.version())));
            draft.entries.push(Entry {
                name: name.clone(),
                content: Content::Resource(resource.clone()),
                is_change: is_change(name),
            });
        }
        draft.renewed.append(&mut renewed);
        *set = current;
        *is_doubtful = false;
        Some(draft)
    }

    /// Every resource that the client is subscribed to, in name order.
    fn find_whole(&self, scene: &Scene<'_>) -> BTreeMap<ResourceName, EncodedResource> {
        let resource_type = self.common.resource_type;
        let subscriptions = &self.common.subscriptions;
        let mut names: Vec<ResourceName> = subscriptions.explicit_names().cloned().collect();
        if subscriptions.has_wildcard() {
            names.extend(scene.members(resource_type, None));
        }
        let mut current = BTreeMap::new();
        for name in names {
            let Some(resource) = scene.find(resource_type, &name) else {
                continue;
            };
            let entry = Entry {
                name: name.clone(),
                content: Content::Resource(resource.clone()),
                is_change: false,
            };
            if scene.fits(Transport::Sotw, resource_type, &entry) {
                current.insert(name, resource);
            }
        }
        current
    }

    fn gather_parts(&mut self, scene: &Scene<'_>) -> Option<Draft> {
        let must_answer = std::mem::replace(&mut self.must_answer, false);
        let resource_type = self.common.resource_type;
        let mut draft = Draft::default();
        for (name, why) in self.common.pending.take_sorted() {
            if !self.common.subscriptions.wants(&name) {
                continue;
            }
            let found = scene.find(resource_type, &name);
            let version = found.as_ref().map(EncodedResource::version);
            let is_known = why == Why::Changed && self.knows(&name, version);
            let entry = found.map(|resource| Entry {
                name: name.clone(),
                content: Content::Resource(resource),
                is_change: why == Why::Changed,
            });
            let entry = entry.filter(|_| !is_known);
            if let Some(entry) = &entry
                && !scene.fits(Transport::Sotw, resource_type, entry)
            {
                continue;
            }
            self.account(name, version);
            draft.entries.extend(entry);
        }
        if let Told::Parts { digest, .. } = self.told {
            draft.version = digest;
        }
        (must_answer || !draft.entries.is_empty()).then_some(draft)
    }

    fn knows(&self, name: &str, version: Option<ResourceVersion>) -> bool {
        let explicit = self.common.subscriptions.find_explicit(name);
        explicit.is_some_and(|explicit| explicit.knows(version))
    }

    /// The client is told of `version`: keeps that and brings the digest up to it.
    fn account(&mut self, name: ResourceName, version: Option<ResourceVersion>) {
        let Told::Parts { members, digest } = &mut self.told else {
            return;
        };
        let explicit = self.common.subscriptions.find_explicit_mut(&name);
        let before = match &explicit {
            Some(explicit) => members.remove(&name).or(explicit.version()),
            None => members.get(&name).copied(),
        };
        *digest = digest
            .wrapping_sub(share(&name, before))
            .wrapping_add(share(&name, version));
        match (explicit, version) {
            (Some(explicit), _) => explicit.told(version),
            (None, Some(version)) => {
                members.insert(name, version);
            }
            (None, None) => {
                members.remove(&name);
            }
        }
    }

    /// Looks again at an entry of an answer whose earlier messages took a while to write.
    pub(crate) fn refresh(&mut self, scene: &Scene<'_>, entry: Entry) -> Option<Entry> {
        if !self.common.subscriptions.wants(&entry.name) {
            return None;
        }
        if self.common.pending.remove(&entry.name).is_none() {
            return Some(entry);
        }
        let found = scene.find(self.common.resource_type, &entry.name);
        let version = found.as_ref().map(EncodedResource::version);
        let Some(resource) = found else {
            self.account(entry.name, version);
            return None;
        };
        let now = Entry {
            content: Content::Resource(resource),
            ..entry.clone()
        };
        if now.len(Transport::Sotw) > entry.len(Transport::Sotw) {
            self.common.pending.add(entry.name.clone(), Why::Changed);
            return Some(entry);
        }
        self.account(entry.name, version);
        Some(now)
    }
}

/// What one resource adds to the digest of its type: independent of order and of everything else.
fn share(name: &str, version: Option<ResourceVersion>) -> u64 {
    version.map_or(0, |version| xxh3_64_with_seed(name.as_bytes(), version.0))
}
