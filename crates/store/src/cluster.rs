//! One cluster: its definition, its instances, and what a statement changes. No locks in here.

mod absent;
mod instances;
mod led;
mod outline;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use waypost_core::{
    ClusterDefinition, ClusterName, Health, InstanceUri, InstanceValue, Override, SourceSlot,
    Timestamp,
};

use self::instances::Instances;
use self::outline::Outline;
use crate::change::ClusterChange;
use crate::inspect::{ClusterFacts, Inspector, InstanceFacts};
use crate::limits::REMOVED_PER_CLUSTER_MAX;
use crate::memory::RemovedNames;
use crate::slots::Slots;
use crate::snapshot::{ClusterOutline, ClusterSnapshot, ServedInstance, Stamp};

/// What a source says of one instance, with the part that counting needs read already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) value: InstanceValue,
    pub(crate) health: Health,
}

/// What an operator set for one instance, and what is served of it while that stands.
#[derive(Debug)]
struct Overridden {
    above: Arc<Override>,
    /// `None` while nobody announces it.
    served: Option<Announced>,
}

// 3 million of these are held (DESIGN, "Scale").
const _: () = assert!(size_of::<Slots<Announced>>() <= 24);

/// What is needed to change a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteContext {
    pub(crate) inspector: Inspector,
    /// The statement's source.
    pub(crate) slot: SourceSlot,
    /// The caller's clock.
    pub(crate) now: Timestamp,
    /// A number never used before.
    pub(crate) generation: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ClusterState {
    definition: Slots<Arc<ClusterDefinition>>,
    facts: ClusterFacts,
    instances: Instances,
    /// Few, and for instances that need not exist.
    overrides: BTreeMap<InstanceUri, Overridden>,
    healthy: usize,
    /// How many instances name each D2 partition; kept at 0 once seen, so that a partition that
    /// runs empty is served empty as long as the cluster is known. Empty until one is not 0.
    by_partition: BTreeMap<i32, usize>,
    removed: RemovedNames<InstanceUri>,
    emptied_at: Option<Timestamp>,
    stamp: Stamp,
}

/// Reading.
impl ClusterState {
    /// Whether it has a definition, an instance, or had one not long ago.
    pub(crate) fn is_known(&self) -> bool {
        !self.definition.is_empty() || self.is_announced()
    }

    /// Whether it has an instance or had one not long ago.
    pub(crate) fn is_announced(&self) -> bool {
        !self.instances.is_empty() || self.emptied_at.is_some()
    }

    pub(crate) fn has_definition(&self) -> bool {
        !self.definition.is_empty()
    }

    pub(crate) fn definition(&self) -> &Slots<Arc<ClusterDefinition>> {
        &self.definition
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(crate) fn instance_count(&self) -> usize {
        self.instances.len()
    }

    pub(crate) fn is_fail_open(&self) -> bool {
        let percent = usize::from(self.facts.min_healthy_percent);
        self.healthy * 100 < percent * self.instances.len()
    }

    pub(crate) fn visible_count(&self) -> usize {
        if self.is_fail_open() {
            self.instances.len()
        } else {
            self.healthy
        }
    }

    /// What each source announces of an instance.
    pub(crate) fn find_slots(&self, uri: &str) -> Option<&Slots<Announced>> {
        self.instances.find(uri.as_bytes())
    }

    pub(crate) fn find_instance(&self, uri: &str) -> Option<ServedInstance> {
        let slots = self.find_slots(uri)?;
        self.to_served(slots.served()?.1.value.uri(), slots)
    }

    /// Whether clients that see no unhealthy instances see one of this health.
    pub(crate) fn is_seen(&self, health: Health) -> bool {
        health == Health::Healthy || self.is_fail_open()
    }

    pub(crate) fn find_override(&self, uri: &str) -> Option<&Arc<Override>> {
        self.overrides.get(uri).map(|overridden| &overridden.above)
    }

    /// In the order of URIs.
    pub(crate) fn overrides(&self) -> impl ExactSizeIterator<Item = &Arc<Override>> {
        self.overrides.values().map(|overridden| &overridden.above)
    }

    pub(crate) fn is_partitioned(&self) -> bool {
        self.facts.d2_partition_count > 1 || self.by_partition.keys().any(|p| *p != 0)
    }

    pub(crate) fn has_d2_partition(&self, number: i32) -> bool {
        self.is_partitioned()
            && (self.declared_partitions().contains(&number)
                || self.by_partition.contains_key(&number))
    }

    pub(crate) fn d2_partitions(&self) -> BTreeSet<i32> {
        if !self.is_partitioned() {
            return BTreeSet::new();
        }
        let mut partitions: BTreeSet<i32> = self.declared_partitions().collect();
        partitions.extend(self.by_partition.keys());
        partitions
    }

    fn declared_partitions(&self) -> Range<i32> {
        0..i32::try_from(self.facts.d2_partition_count).unwrap_or(i32::MAX)
    }

    /// Whether it remembers something that left at `until` or before.
    pub(crate) fn has_to_forget(&self, until: Timestamp) -> bool {
        let oldest = self.removed.oldest().into_iter().chain(self.emptied_at);
        oldest.min().is_some_and(|at| at <= until)
    }

    pub(crate) fn removed(&self) -> &RemovedNames<InstanceUri> {
        &self.removed
    }

    /// URIs of instances that clients which see no unhealthy ones do not see.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = InstanceUri> {
        let fail_open = self.is_fail_open();
        self.unhealthy().filter(move |_| !fail_open)
    }

    /// URIs of instances that clients which see no unhealthy ones see.
    pub(crate) fn visible(&self) -> impl Iterator<Item = InstanceUri> {
        let fail_open = self.is_fail_open();
        self.instances
            .iter()
            .filter(move |(uri, slots)| fail_open || self.is_healthy(uri, slots))
            .map(|(uri, _)| uri)
    }

    pub(crate) fn outline(&self, name: &ClusterName) -> ClusterOutline {
        ClusterOutline {
            name: name.clone(),
            definition: self.definition.served().map(|(s, d)| (s, Arc::clone(d))),
            facts: self.facts.clone(),
            stamp: self.stamp,
        }
    }

    pub(crate) fn snapshot(&self, name: &ClusterName) -> ClusterSnapshot {
        ClusterSnapshot {
            name: name.clone(),
            definition: self.definition.served().map(|(s, d)| (s, Arc::clone(d))),
            facts: self.facts.clone(),
            instances: self
                .instances
                .iter()
                .filter_map(|(uri, slots)| self.to_served(uri, slots))
                .collect(),
            fail_open: self.is_fail_open(),
            d2_partitions: self.d2_partitions().into_iter().collect(),
            stamp: self.stamp,
        }
    }

    fn unhealthy(&self) -> impl Iterator<Item = InstanceUri> {
        self.instances
            .iter()
            .filter(|(uri, slots)| !self.is_healthy(uri, slots))
            .map(|(uri, _)| uri)
    }

    fn is_healthy(&self, uri: &InstanceUri, slots: &Slots<Announced>) -> bool {
        let served = self.served(uri, slots);
        served.is_some_and(|(_, announced)| announced.health == Health::Healthy)
    }

    /// What the first source announces, or what stands above it.
    fn served<'a>(
        &'a self,
        uri: &InstanceUri,
        slots: &'a Slots<Announced>,
    ) -> Option<(SourceSlot, &'a Announced)> {
        let (source, announced) = slots.served()?;
        let above = self.overrides.get(uri).and_then(|o| o.served.as_ref());
        Some((source, above.unwrap_or(announced)))
    }

    fn to_served(&self, uri: InstanceUri, slots: &Slots<Announced>) -> Option<ServedInstance> {
        let (source, announced) = self.served(&uri, slots)?;
        Some(ServedInstance {
            value: announced.value.clone(),
            health: announced.health,
            source,
            overridden: self.overrides.get(&uri).map(|o| Arc::clone(&o.above)),
            uri,
        })
    }
}

/// Writing. Each method adds what it changed to `change` and leaves it alone if that is nothing.
impl ClusterState {
    pub(crate) fn set_instance(
        &mut self,
        cx: WriteContext,
        uri: &InstanceUri,
        value: Option<InstanceValue>,
        change: &mut ClusterChange,
    ) {
        // A heartbeat ends here, unread: what arrives most costs least.
        let at = self.instances.position(uri.as_bytes());
        let held = self.instances.get(at).and_then(|s| s.get(cx.slot));
        if held.map(|a| &a.value) == value.as_ref() {
            return;
        }
        let facts = value.as_deref().map(cx.inspector.instance);
        let health = facts.as_ref().map_or(Health::Unhealthy, |f| f.health);
        let announced = value.map(|value| Announced { value, health });
        let outline = Outline::of(self);
        let above = self.find_above(uri);
        let (before, after) = self
            .instances
            .change(at, |slots| slots.set(cx.slot, announced));
        self.finish_change(cx, uri, outline, above.or(before), after, change);
    }

    pub(crate) fn set_override(
        &mut self,
        cx: WriteContext,
        uri: &InstanceUri,
        value: Option<Override>,
        change: &mut ClusterChange,
    ) {
        if self.find_override(uri.as_str()).map(Arc::as_ref) == value.as_ref() {
            return;
        }
        let outline = Outline::of(self);
        let announced = self.instances.find(uri.as_bytes()).and_then(Slots::served);
        let announced = announced.map(|(_, announced)| announced.clone());
        let before = self.find_above(uri).or_else(|| announced.clone());
        match value {
            Some(value) => {
                let above = Arc::new(value);
                let overridden = Overridden {
                    above,
                    served: None,
                };
                self.overrides.insert(uri.clone(), overridden);
            }
            None => {
                self.overrides.remove(uri);
            }
        }
        self.finish_change(cx, uri, outline, before, announced, change);
    }

    /// Tells what it changes of what is served that something was said of an instance: `outline` is how
    /// the cluster was before that, `old` what was served, `announced` what the first source says now.
    fn finish_change(
        &mut self,
        cx: WriteContext,
        uri: &InstanceUri,
        outline: Outline,
        old: Option<Announced>,
        announced: Option<Announced>,
        change: &mut ClusterChange,
    ) {
        let new = self.renew_override(cx.inspector, uri, announced);
        if old.as_ref().map(|a| &a.value) == new.as_ref().map(|a| &a.value) {
            return;
        }
        let left = partitions_of(cx.inspector, old.as_ref());
        let joined = partitions_of(cx.inspector, new.as_ref());
        self.count(old.as_ref(), new.as_ref(), &left, &joined);
        self.remember(cx.now, uri, new.is_some());
        self.stamp.instances = cx.generation;
        change.instances = true;
        let seen = |a: &Option<Announced>, fail_open: bool| {
            a.as_ref()
                .is_some_and(|a| fail_open || a.health == Health::Healthy)
        };
        if seen(&old, outline.fail_open) || seen(&new, self.is_fail_open()) {
            change.visible.insert(uri.clone());
        }
        if self.is_partitioned() {
            change.d2_partitions.extend(left);
            change.d2_partitions.extend(joined);
        }
        outline.compare(self, cx, change);
    }

    pub(crate) fn set_definition(
        &mut self,
        cx: WriteContext,
        value: Option<ClusterDefinition>,
        change: &mut ClusterChange,
    ) {
        if self.definition.get(cx.slot).map(Arc::as_ref) == value.as_ref() {
            return;
        }
        let before = Outline::of(self);
        let partitions = self.d2_partitions();
        let old = self.definition.served().map(|(_, d)| Arc::clone(d));
        self.definition.set(cx.slot, value.map(Arc::new));
        let new = self.definition.served().map(|(_, d)| Arc::clone(d));
        if old == new {
            return;
        }
        let banned_before = self.facts.banned_uris.take();
        self.facts = new.as_deref().map(cx.inspector.cluster).unwrap_or_default();
        if self.facts.banned_uris != banned_before {
            self.stamp.instances = cx.generation;
            change.instances = true;
        }
        self.stamp.definition = cx.generation;
        change.definition = true;
        change.d2_partitions.extend(partitions);
        change.d2_partitions.extend(self.d2_partitions());
        before.compare(self, cx, change);
    }

    /// Forgets what left at `until` or before; returns how many names that were.
    pub(crate) fn forget_until(
        &mut self,
        cx: WriteContext,
        until: Timestamp,
        change: &mut ClusterChange,
    ) -> usize {
        let dropped = self.removed.drop_until(until).len();
        if self.instances.is_empty() && self.emptied_at.is_some_and(|at| at <= until) {
            let before = Outline::of(self);
            change.d2_partitions.extend(self.d2_partitions());
            self.emptied_at = None;
            self.by_partition.clear();
            before.compare(self, cx, change);
        }
        dropped
    }

    /// Forgets the instance that left longest ago; false if none is remembered.
    pub(crate) fn forget_oldest(&mut self) -> bool {
        self.removed.drop_oldest().is_some()
    }

    /// Forgets every name that left; returns how many that were.
    pub(crate) fn forget_removed(&mut self) -> usize {
        let count = self.removed.len();
        self.removed = RemovedNames::default();
        count
    }

    /// What is served of an instance because of what an operator set.
    fn find_above(&self, uri: &InstanceUri) -> Option<Announced> {
        self.overrides.get(uri)?.served.clone()
    }

    /// What is served of an instance of which this is `announced`. Where an operator set something, it is
    /// made anew: once a change, not once a reader.
    fn renew_override(
        &mut self,
        inspector: Inspector,
        uri: &InstanceUri,
        announced: Option<Announced>,
    ) -> Option<Announced> {
        let Some(overridden) = self.overrides.get_mut(uri) else {
            return announced;
        };
        overridden.served = announced.map(|announced| {
            let value = (inspector.overlay)(&announced.value, &overridden.above);
            let value = InstanceValue::new(uri, &value);
            let health = (inspector.instance)(&value).health;
            Announced { value, health }
        });
        overridden.served.clone()
    }

    fn count(
        &mut self,
        old: Option<&Announced>,
        new: Option<&Announced>,
        left: &[i32],
        joined: &[i32],
    ) {
        let healthy =
            |a: Option<&Announced>| usize::from(a.is_some_and(|a| a.health == Health::Healthy));
        self.healthy = self.healthy + healthy(new) - healthy(old);
        for partition in left {
            if let Some(count) = self.by_partition.get_mut(partition) {
                *count = count.saturating_sub(1);
            }
        }
        for partition in joined {
            *self.by_partition.entry(*partition).or_default() += 1;
        }
    }

    fn remember(&mut self, now: Timestamp, uri: &InstanceUri, is_there: bool) {
        if is_there {
            self.removed.forget(uri);
            self.emptied_at = None;
        } else {
            let uri = uri.clone().without_value();
            self.removed.remember(uri, now, REMOVED_PER_CLUSTER_MAX);
            self.emptied_at = self.instances.is_empty().then_some(now);
        }
    }
}

/// The D2 partitions of an announcement, partition 0 spelled out.
fn partitions_of(inspector: Inspector, announced: Option<&Announced>) -> Vec<i32> {
    let Some(announced) = announced else {
        return Vec::new();
    };
    let InstanceFacts { d2_partitions, .. } = (inspector.instance)(&announced.value);
    if d2_partitions.is_empty() {
        vec![0]
    } else {
        d2_partitions
    }
}
