//! The handle that readers hold.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use waypost_core::{
    ApplicationName, ClusterName, InstanceUri, InstanceValue, Override, ServiceDefinition,
    ServiceName, SourceSlot, Timestamp,
};

use crate::callees::Callees;
use crate::change::ChangeListener;
use crate::cluster::{Announced, ClusterState};
use crate::inspect::Inspector;
use crate::led::Led;
use crate::limits::REMOVED_INSTANCES_MAX;
use crate::memory::RemovedNames;
use crate::shards::Shards;
use crate::slots::Slots;
use crate::snapshot::{ClusterOutline, ClusterSnapshot, ServedInstance, Stamp};
use crate::writer::{Writer, WriterTaken};

/// The state of one Observer, for reading. Clones are handles to the same state.
///
/// Every method locks a part of it for as long as it copies out what it returns, and none while
/// anything else is called. What is returned is whole and of one moment per cluster or service.
#[derive(Clone)]
pub struct Store(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) inspector: Inspector,
    pub(crate) listener: Arc<dyn ChangeListener>,
    pub(crate) clusters: Shards<HashMap<ClusterName, Arc<RwLock<ClusterState>>>>,
    pub(crate) services: Shards<HashMap<ServiceName, ServiceEntry>>,
    pub(crate) led: Led,
    pub(crate) callees: Callees,
    pub(crate) removed: Mutex<Removed>,
    pub(crate) removed_instances: AtomicUsize,
    pub(crate) removed_instances_max: usize,
    pub(crate) config_loaded: AtomicBool,
    pub(crate) generation: AtomicU64,
    /// Writers of different sources take turns; readers never wait for this.
    pub(crate) turn: Mutex<()>,
    pub(crate) taken: Mutex<BTreeSet<SourceSlot>>,
}

#[derive(Debug)]
pub(crate) struct ServiceEntry {
    pub(crate) slots: Slots<Arc<ServiceDefinition>>,
    pub(crate) generation: u64,
}

/// Clusters, services and the callees of applications that left.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) clusters: RemovedNames<ClusterName>,
    pub(crate) services: RemovedNames<ServiceName>,
    pub(crate) applications: RemovedNames<ApplicationName>,
}

/// A service at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It has a definition.
    Defined {
        /// Whose the definition is.
        source: SourceSlot,
        /// What is served.
        definition: Arc<ServiceDefinition>,
        /// Changes with the definition; never used twice in a process.
        generation: u64,
    },
    /// A cluster of this name is announced and no definition says otherwise.
    Implicit {
        /// The cluster.
        cluster: ClusterName,
    },
}

/// How much the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Clusters that are served, implicit ones too.
    pub clusters: usize,
    /// Clusters without a definition.
    pub implicit_clusters: usize,
    /// Services with a definition.
    pub services: usize,
    /// Applications whose callees are defined.
    pub applications: usize,
    /// Instances of all clusters.
    pub instances: usize,
    /// Clusters in which health is ignored.
    pub fail_open_clusters: usize,
    /// Names of instances that left and are remembered.
    pub removed_instances: usize,
    /// What operators set for instances.
    pub overrides: usize,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store. `listener` hears of every change.
    #[must_use]
    pub fn new(inspector: Inspector, listener: Arc<dyn ChangeListener>) -> Self {
        Self::with_memory(inspector, listener, REMOVED_INSTANCES_MAX)
    }

    /// A store that remembers at most so many instances that left, of all clusters together.
    #[must_use]
    pub fn with_memory(
        inspector: Inspector,
        listener: Arc<dyn ChangeListener>,
        removed_instances_max: usize,
    ) -> Self {
        Self(Arc::new(Inner {
            removed_instances_max,
            inspector,
            listener,
            clusters: Shards::default(),
            services: Shards::default(),
            led: Led::default(),
            callees: Callees::default(),
            removed: Mutex::default(),
            removed_instances: AtomicUsize::new(0),
            config_loaded: AtomicBool::new(false),
            generation: AtomicU64::new(1),
            turn: Mutex::default(),
            taken: Mutex::default(),
        }))
    }

    /// The right to write as `slot`; free again when it is dropped.
    ///
    /// # Errors
    /// Somebody holds it.
    pub fn writer(&self, slot: SourceSlot) -> Result<Writer, WriterTaken> {
        Writer::take(self, slot)
    }

    /// Whether definitions are all there. Until then only clusters and services with a definition
    /// are served: the others may have one that was not read yet.
    #[must_use]
    pub fn is_config_loaded(&self) -> bool {
        self.0.config_loaded.load(Ordering::SeqCst)
    }

    /// The whole of a cluster, or `None` if it is not known.
    #[must_use]
    pub fn find_cluster(&self, name: &str) -> Option<ClusterSnapshot> {
        self.read_cluster(name, |name, state| state.snapshot(name))
    }

    /// A cluster without its instances, or `None` if it is not known.
    #[must_use]
    pub fn find_outline(&self, name: &str) -> Option<ClusterOutline> {
        self.read_cluster(name, |name, state| state.outline(name))
    }

    /// Which state a cluster is in, or `None` if it is not known.
    #[must_use]
    pub fn find_stamp(&self, name: &str) -> Option<Stamp> {
        self.read_cluster(name, |_, state| state.stamp())
    }

    /// Whether a partitioned cluster has this D2 partition.
    #[must_use]
    pub fn has_d2_partition(&self, cluster: &str, d2_partition: i32) -> bool {
        self.read_cluster(cluster, |_, state| state.has_d2_partition(d2_partition))
            .unwrap_or(false)
    }

    /// The D2 partitions of a cluster, in order; empty if it is unknown or not partitioned.
    #[must_use]
    pub fn d2_partitions(&self, cluster: &str) -> Vec<i32> {
        self.read_cluster(cluster, |_, state| {
            state.d2_partitions().into_iter().collect()
        })
        .unwrap_or_default()
    }

    /// One instance, if clients that see no unhealthy ones see it.
    #[must_use]
    pub fn find_visible_instance(&self, cluster: &str, uri: &str) -> Option<ServedInstance> {
        self.read_cluster(cluster, |_, state| {
            let instance = state.find_instance(uri)?;
            state.is_seen(instance.health).then_some(instance)
        })
        .flatten()
    }

    /// URIs of the instances that clients which see no unhealthy ones see, in order.
    #[must_use]
    pub fn visible_uris(&self, cluster: &str) -> Vec<InstanceUri> {
        self.read_cluster(cluster, |_, state| state.visible().collect())
            .unwrap_or_default()
    }

    /// How many instances clients that see no unhealthy ones see.
    #[must_use]
    pub fn visible_count(&self, cluster: &str) -> usize {
        self.read_cluster(cluster, |_, state| state.visible_count())
            .unwrap_or(0)
    }

    /// The sources that say something about an instance, highest priority first.
    #[must_use]
    pub fn instance_sources(&self, cluster: &str, uri: &str) -> Vec<SourceSlot> {
        self.read_cluster(cluster, |_, state| {
            let slots = state.find_slots(uri);
            slots.map_or_else(Vec::new, |s: &Slots<Announced>| {
                s.filled().map(|(slot, _)| slot).collect()
            })
        })
        .unwrap_or_default()
    }

    /// What the first source announces of an instance, whatever stands above it.
    #[must_use]
    pub fn find_announced(&self, cluster: &str, uri: &str) -> Option<InstanceValue> {
        self.read_cluster(cluster, |_, state| {
            let (_, announced) = state.find_slots(uri)?.served()?;
            Some(announced.value.clone())
        })
        .flatten()
    }

    /// What an operator set for an instance, which need not exist.
    #[must_use]
    pub fn find_override(&self, cluster: &str, uri: &str) -> Option<Arc<Override>> {
        self.read_entry(cluster, |_, state| state.find_override(uri).cloned())
            .flatten()
    }

    /// What operators set for instances of a cluster, in the order of URIs. Neither the cluster nor
    /// the instances need exist.
    #[must_use]
    pub fn overrides(&self, cluster: &str) -> Vec<Arc<Override>> {
        self.read_entry(cluster, |_, state| state.overrides().cloned().collect())
            .unwrap_or_default()
    }

    /// The sources that define a cluster, highest priority first.
    #[must_use]
    pub fn cluster_sources(&self, name: &str) -> Vec<SourceSlot> {
        self.read_cluster(name, |_, state| {
            state.definition().filled().map(|(slot, _)| slot).collect()
        })
        .unwrap_or_default()
    }

    /// A service, or `None` if it is not known.
    #[must_use]
    pub fn find_service(&self, name: &str) -> Option<ServiceState> {
        if let Some(entry) = self.0.services.of(name).read().get(name)
            && let Some((source, definition)) = entry.slots.served()
        {
            return Some(ServiceState::Defined {
                source,
                definition: Arc::clone(definition),
                generation: entry.generation,
            });
        }
        self.read_cluster(name, |name, state| {
            state.is_announced().then(|| ServiceState::Implicit {
                cluster: name.clone(),
            })
        })
        .filter(|_| self.is_config_loaded())
        .flatten()
    }

    /// The cluster that a service leads to.
    #[must_use]
    pub fn leads_to(&self, service: &str) -> Option<ClusterName> {
        match self.find_service(service)? {
            ServiceState::Defined { definition, .. } => Some(definition.cluster.clone()),
            ServiceState::Implicit { cluster } => Some(cluster),
        }
    }

    /// The sources that define a service, highest priority first.
    #[must_use]
    pub fn service_sources(&self, name: &str) -> Vec<SourceSlot> {
        let services = self.0.services.of(name).read();
        let filled = services.get(name).map(|entry| entry.slots.filled());
        filled.map_or_else(Vec::new, |filled| filled.map(|(slot, _)| slot).collect())
    }

    /// Names of all clusters that are known, in order.
    #[must_use]
    pub fn cluster_names(&self) -> Vec<ClusterName> {
        self.cluster_names_where(|_| true)
    }

    /// Those that are wanted of the names of all clusters that are known, in order.
    #[must_use]
    pub fn cluster_names_where(
        &self,
        is_wanted: impl Fn(&ClusterName) -> bool,
    ) -> Vec<ClusterName> {
        let mut names = Vec::new();
        self.for_each_cluster(|name, _| {
            if is_wanted(name) {
                names.push(name.clone());
            }
        });
        names.sort_unstable();
        names
    }

    /// Names of all services, implicit ones too, in order.
    #[must_use]
    pub fn service_names(&self) -> Vec<ServiceName> {
        let mut names = BTreeSet::new();
        for shard in self.0.services.iter() {
            names.extend(shard.read().keys().cloned());
        }
        if self.is_config_loaded() {
            self.for_each_cluster(|name, state| {
                if state.is_announced() {
                    names.extend(ServiceName::parse(name.as_str()));
                }
            });
        }
        names.into_iter().collect()
    }

    /// URIs that left a cluster not long ago and are not back, and those that only clients which
    /// are shown unhealthy instances see; in order.
    #[must_use]
    pub fn removed_instances(&self, cluster: &str) -> Vec<InstanceUri> {
        let shard = self.0.clusters.of(cluster).read();
        let Some(entry) = shard.get(cluster).map(Arc::clone) else {
            return Vec::new();
        };
        drop(shard);
        let state = entry.read();
        let mut uris: Vec<_> = state.removed().names().cloned().collect();
        uris.extend(state.hidden());
        uris.sort_unstable();
        uris
    }

    /// Every cluster that remembers an instance that left, or hides one; in order.
    #[must_use]
    pub fn clusters_with_removed_instances(&self) -> Vec<ClusterName> {
        let mut names = Vec::new();
        self.for_each_entry(|name, state| {
            if state.removed().len() > 0 || state.hidden().next().is_some() {
                names.push(name.clone());
            }
        });
        names.sort_unstable();
        names
    }

    /// Clusters that remember something which left at `until` or before.
    pub(crate) fn clusters_to_forget(&self, until: Timestamp) -> Vec<ClusterName> {
        let mut names = Vec::new();
        self.for_each_entry(|name, state| {
            if state.has_to_forget(until) {
                names.push(name.clone());
            }
        });
        names
    }

    /// Clusters that left not long ago and are not back, in order.
    #[must_use]
    pub fn removed_clusters(&self) -> Vec<ClusterName> {
        self.0.removed.lock().clusters.names().cloned().collect()
    }

    /// Services that left not long ago and are not back, in order.
    #[must_use]
    pub fn removed_services(&self) -> Vec<ServiceName> {
        self.0.removed.lock().services.names().cloned().collect()
    }

    /// Whether this cluster left not long ago.
    #[must_use]
    pub fn is_removed_cluster(&self, name: &str) -> bool {
        self.0.removed.lock().clusters.contains(name)
    }

    /// Counts everything by walking over all clusters: for a scrape, not for a request.
    #[must_use]
    pub fn counts(&self) -> StoreCounts {
        let mut counts = StoreCounts {
            removed_instances: self.0.removed_instances.load(Ordering::Relaxed),
            applications: self.count_callees(),
            ..StoreCounts::default()
        };
        self.for_each_entry(|_, state| {
            counts.overrides += state.overrides().len();
            if !self.is_served(state) {
                return;
            }
            counts.clusters += 1;
            counts.implicit_clusters += usize::from(!state.has_definition());
            counts.instances += state.instance_count();
            counts.fail_open_clusters += usize::from(state.is_fail_open());
        });
        counts.services = self.0.services.iter().map(|s| s.read().len()).sum();
        counts
    }

    /// Reads a cluster that is served.
    fn read_cluster<R>(
        &self,
        name: &str,
        read: impl FnOnce(&ClusterName, &ClusterState) -> R,
    ) -> Option<R> {
        self.read_entry(name, |name, state| {
            self.is_served(state).then(|| read(name, state))
        })
        .flatten()
    }

    /// Reads a cluster of which anything is known.
    fn read_entry<R>(
        &self,
        name: &str,
        read: impl FnOnce(&ClusterName, &ClusterState) -> R,
    ) -> Option<R> {
        let shard = self.0.clusters.of(name).read();
        let (name, entry) = shard.get_key_value(name)?;
        let (name, entry) = (name.clone(), Arc::clone(entry));
        drop(shard);
        let state = entry.read();
        Some(read(&name, &state))
    }

    fn for_each_cluster(&self, mut visit: impl FnMut(&ClusterName, &ClusterState)) {
        self.for_each_entry(|name, state| {
            if self.is_served(state) {
                visit(name, state);
            }
        });
    }

    fn for_each_entry(&self, mut visit: impl FnMut(&ClusterName, &ClusterState)) {
        for shard in self.0.clusters.iter() {
            let entries: Vec<_> = shard
                .read()
                .iter()
                .map(|(name, entry)| (name.clone(), Arc::clone(entry)))
                .collect();
            for (name, entry) in entries {
                visit(&name, &entry.read());
            }
        }
    }

    fn is_served(&self, state: &ClusterState) -> bool {
        state.has_definition() || (state.is_announced() && self.is_config_loaded())
    }
}
