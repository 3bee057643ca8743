//! The right to write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use waypost_core::definition::ServiceDefinition;
use waypost_core::{
    ClusterName, DefinitionKey, InstanceKey, ServiceName, SourceSlot, StoreInput, Timestamp,
};

use crate::change::{ChangeSet, ClusterChange};
use crate::cluster::{ClusterState, WriteContext};
use crate::limits::{REMEMBER, REMOVED_NAMES_MAX};
use crate::slots::Slots;
use crate::store::{ServiceEntry, Store};

/// Somebody else holds the right to write as this source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store already has a writer for the source {:?}", .0.as_str())]
pub struct WriterTaken(pub SourceSlot);

/// The right of one source to write. There is at most one per source, and every method takes it
/// exclusively, so statements of one source are applied in the order in which it makes them.
///
/// What a source held before it lost contact stays until it says otherwise. A source that has to
/// replace everything it said (a snapshot, a replay) states the removals itself, after the additions
/// and in the same batch: each name then changes once, and never to nothing in between.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    slot: SourceSlot,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store.0.taken.lock().remove(&self.slot);
    }
}

impl Writer {
    pub(crate) fn take(store: &Store, slot: SourceSlot) -> Result<Self, WriterTaken> {
        if !store.0.taken.lock().insert(slot) {
            return Err(WriterTaken(slot));
        }
        Ok(Self {
            store: store.clone(),
            slot,
        })
    }

    /// The source that this writer speaks for.
    #[must_use]
    pub fn slot(&self) -> SourceSlot {
        self.slot
    }

    /// Applies statements in order, then tells the listener once what changed, each thing once.
    /// Returns what it told; empty if nothing that is served changed.
    ///
    /// `now` is when the statements were made, by a clock of the caller's that does not run while
    /// the source stands still (the log's append times). It only decides how long names that left
    /// are remembered.
    pub fn apply(
        &mut self,
        now: Timestamp,
        batch: impl IntoIterator<Item = StoreInput>,
    ) -> ChangeSet {
        let mut changes = ChangeSet::default();
        let turn = self.store.0.turn.lock();
        for input in batch {
            let cx = self.context(now);
            match input {
                StoreInput::Instance { key, value } => {
                    self.change_cluster(cx, &key.cluster.clone(), &mut changes, |state, change| {
                        let InstanceKey { uri, .. } = key;
                        state.set_instance(cx, &uri, value, change);
                    });
                }
                StoreInput::Cluster { name, value } => {
                    self.change_cluster(cx, &name, &mut changes, |state, change| {
                        state.set_definition(cx, value, change);
                    });
                }
                StoreInput::Override { key, value } => {
                    self.change_cluster(cx, &key.cluster, &mut changes, |state, change| {
                        state.set_override(cx, &key.uri, value, change);
                    });
                }
                StoreInput::Service { name, value } => {
                    self.set_service(cx, name, value, &mut changes);
                }
                StoreInput::Callees { application, value } => {
                    let written = (cx.slot, cx.generation, cx.now);
                    let store = &self.store;
                    store.set_callees(written, application, value, &mut changes);
                }
            }
        }
        drop(turn);
        self.notify(changes)
    }

    /// Remembers that instances left at these times which were never stated here: somebody who was
    /// told of them elsewhere may come and still hold them. What is there, or is remembered already,
    /// is left as it is.
    pub fn remember_absent(
        &mut self,
        absent: impl IntoIterator<Item = (Timestamp, InstanceKey)>,
    ) -> ChangeSet {
        let mut changes = ChangeSet::default();
        let turn = self.store.0.turn.lock();
        for (at, InstanceKey { cluster, uri }) in absent {
            let cx = self.context(at);
            self.change_cluster(cx, &cluster, &mut changes, |state, change| {
                state.remember_absent(cx, &uri, change);
            });
        }
        drop(turn);
        self.notify(changes)
    }

    /// Remembers that the name of a definition left at a time, which was never stated here. A name
    /// that is served, or is remembered already, is left as it is.
    pub fn remember_absent_definition(&mut self, at: Timestamp, key: DefinitionKey) {
        let inner = &self.store.0;
        match key {
            DefinitionKey::Cluster(name) => {
                let is_known = inner.clusters.of(name.as_str()).read().contains_key(&name);
                let removed = &mut inner.removed.lock().clusters;
                if !is_known && !removed.contains(&name) {
                    removed.remember(name, at, REMOVED_NAMES_MAX);
                }
            }
            DefinitionKey::Service(name) => {
                let services = inner.services.of(name.as_str()).read();
                let is_known = services.contains_key(&name);
                drop(services);
                let is_known = is_known || self.is_announced(name.as_str());
                let removed = &mut inner.removed.lock().services;
                if !is_known && !removed.contains(&name) {
                    removed.remember(name, at, REMOVED_NAMES_MAX);
                }
            }
            DefinitionKey::Callees(application) => {
                self.store.remember_absent_callees(at, application);
            }
        }
    }

    /// Says that all definitions are there, so that clusters and services without one are served
    /// from now on. Never taken back.
    pub fn set_config_loaded(&mut self) -> ChangeSet {
        let mut changes = ChangeSet::default();
        let was_loaded = self.store.0.config_loaded.swap(true, Ordering::SeqCst);
        // At a start, when all that there is appears at once, nobody has subscribed yet.
        if was_loaded || !self.store.0.listener.is_heard() {
            return changes;
        }
        for name in self.store.cluster_names() {
            let Some(cluster) = self.store.find_cluster(name.as_str()) else {
                continue;
            };
            if cluster.definition.is_none() {
                let change = changes.clusters.entry(name.clone()).or_default();
                change.existence = true;
                change.instances = true;
                change.d2_partitions.extend(cluster.d2_partitions);
                change
                    .visible
                    .extend(cluster.instances.into_iter().map(|i| i.uri));
            }
            touch_service_of(&name, &mut changes);
        }
        self.notify(changes)
    }

    /// Forgets what left longer ago than is remembered: names of instances, clusters and services,
    /// and implicit clusters without instances. Looks at every cluster; meant to be called about
    /// once a minute.
    pub fn forget(&mut self, now: Timestamp) -> ChangeSet {
        let mut changes = ChangeSet::default();
        let until = now.minus(REMEMBER);
        for name in self.store.clusters_to_forget(until) {
            // One turn for each, so that other writers wait for one cluster and not for all.
            let _turn = self.store.0.turn.lock();
            let cx = self.context(now);
            self.change_cluster(cx, &name, &mut changes, |state, change| {
                state.forget_until(cx, until, change);
            });
        }
        let mut removed = self.store.0.removed.lock();
        for name in removed.clusters.drop_until(until) {
            // The empty map that stood in for a cluster that left is gone now.
            changes.clusters.entry(name).or_default().existence = true;
        }
        removed.services.drop_until(until);
        removed.applications.drop_until(until);
        drop(removed);
        self.notify(changes)
    }

    fn context(&self, now: Timestamp) -> WriteContext {
        WriteContext {
            inspector: self.store.0.inspector,
            slot: self.slot,
            now,
            generation: self.store.0.generation.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn change_cluster(
        &self,
        cx: WriteContext,
        name: &ClusterName,
        changes: &mut ChangeSet,
        write: impl FnOnce(&mut ClusterState, &mut ClusterChange),
    ) {
        let inner = &self.store.0;
        let shard = inner.clusters.of(name.as_str());
        let found = shard.read().get(name).map(Arc::clone);
        let entry =
            found.unwrap_or_else(|| Arc::clone(shard.write().entry(name.clone()).or_default()));
        let mut change = ClusterChange::default();

        let mut state = entry.write();
        let (was_known, was_announced) = (state.is_known(), state.is_announced());
        let removed_before = state.removed().len();
        write(&mut state, &mut change);
        self.bound_removed(&mut state, removed_before);
        let (is_known, is_announced) = (state.is_known(), state.is_announced());
        // What an operator set outlives the cluster; names that left it do not.
        let is_overridden = state.overrides().len() > 0;
        let forgotten = if is_known { 0 } else { state.forget_removed() };
        drop(state);

        inner
            .removed_instances
            .fetch_sub(forgotten, Ordering::Relaxed);
        if !is_known && !is_overridden {
            shard.write().remove(name);
        }
        match (was_known, is_known) {
            (true, false) => {
                let removed = &mut inner.removed.lock().clusters;
                removed.remember(name.clone(), cx.now, REMOVED_NAMES_MAX);
            }
            (false, true) => inner.removed.lock().clusters.forget(name),
            _ => {}
        }
        if was_announced != is_announced {
            self.implicit_service_changed(cx, name, is_announced, changes);
        }
        if !change.is_empty() {
            merge(changes.clusters.entry(name.clone()).or_default(), change);
        }
    }

    /// Keeps the count of remembered instances, and the count below its bound.
    fn bound_removed(&self, state: &mut ClusterState, before: usize) {
        let total = &self.store.0.removed_instances;
        let after = state.removed().len();
        if after >= before {
            total.fetch_add(after - before, Ordering::Relaxed);
        } else {
            total.fetch_sub(before - after, Ordering::Relaxed);
        }
        let max = self.store.0.removed_instances_max;
        while total.load(Ordering::Relaxed) > max && state.forget_oldest() {
            total.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn set_service(
        &self,
        cx: WriteContext,
        name: ServiceName,
        value: Option<ServiceDefinition>,
        changes: &mut ChangeSet,
    ) {
        let mut services = self.store.0.services.of(name.as_str()).write();
        let mut entry = services.remove(&name).unwrap_or_else(|| ServiceEntry {
            slots: Slots::default(),
            generation: cx.generation,
        });
        let was_there = !entry.slots.is_empty();
        let old = entry.slots.served().map(|(_, d)| Arc::clone(d));
        if entry.slots.get(cx.slot).map(Arc::as_ref) != value.as_ref() {
            entry.slots.set(cx.slot, value.map(Arc::new));
        }
        let is_there = !entry.slots.is_empty();
        let new = entry.slots.served().map(|(_, d)| Arc::clone(d));
        let changed = old != new;
        if changed {
            entry.generation = cx.generation;
        }
        if is_there {
            services.insert(name.clone(), entry);
        }
        drop(services);
        if was_there != is_there {
            self.remember_service(cx, &name, is_there || self.is_announced(name.as_str()));
        }
        if changed {
            let clusters = [old, new].map(|definition| Some(definition?.cluster.clone()));
            self.lead(cx, &name, clusters, changes);
            changes.services.insert(name);
        }
    }

    /// A service that led to the first of these clusters leads to the second now; or it is defined
    /// otherwise, if that is the same.
    fn lead(
        &self,
        cx: WriteContext,
        service: &ServiceName,
        [from, to]: [Option<ClusterName>; 2],
        changes: &mut ChangeSet,
    ) {
        self.store.0.led.turn(service, from.as_ref(), to.as_ref());
        for cluster in BTreeSet::from_iter([from, to].into_iter().flatten()) {
            self.change_cluster(cx, &cluster, changes, |state, change| {
                state.services_changed(cx, change);
            });
        }
    }

    fn implicit_service_changed(
        &self,
        cx: WriteContext,
        cluster: &ClusterName,
        is_announced: bool,
        changes: &mut ChangeSet,
    ) {
        if let Some(name) = touch_service_of(cluster, changes) {
            let services = self.store.0.services.of(name.as_str()).read();
            let is_there = is_announced || services.contains_key(&name);
            drop(services);
            self.remember_service(cx, &name, is_there);
        }
    }

    fn remember_service(&self, cx: WriteContext, name: &ServiceName, is_there: bool) {
        let removed = &mut self.store.0.removed.lock().services;
        if is_there {
            removed.forget(name);
        } else {
            removed.remember(name.clone(), cx.now, REMOVED_NAMES_MAX);
        }
    }

    fn is_announced(&self, cluster: &str) -> bool {
        let entry = self
            .store
            .0
            .clusters
            .of(cluster)
            .read()
            .get(cluster)
            .map(Arc::clone);
        entry.is_some_and(|entry| entry.read().is_announced())
    }

    fn notify(&self, changes: ChangeSet) -> ChangeSet {
        if !changes.is_empty() {
            self.store.0.listener.changed(&changes);
        }
        changes
    }
}

/// Adds the implicit service of a cluster to the changes.
fn touch_service_of(cluster: &ClusterName, changes: &mut ChangeSet) -> Option<ServiceName> {
    // Clusters and services are named by the same rules, so this never fails.
    let name = ServiceName::parse(cluster.as_str()).ok()?;
    changes.services.insert(name.clone());
    Some(name)
}

fn merge(into: &mut ClusterChange, change: ClusterChange) {
    into.existence |= change.existence;
    into.definition |= change.definition;
    into.services |= change.services;
    into.instances |= change.instances;
    into.visible.extend(change.visible);
    into.d2_partitions.extend(change.d2_partitions);
}
