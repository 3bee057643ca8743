//! What is held, for people: the facts behind the resources.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use waypost_core::{
    AddressFamily, Announcement, ClusterDefinition, ClusterName, Health, Override,
    ServiceDefinition, ServiceName, SourceSlot,
};
use waypost_store::{ClusterSnapshot, ServedInstance, ServiceState, Store};

use super::{endpoints, read_announcement};

/// Everything about one cluster.
#[derive(Clone, Debug)]
pub struct ClusterReport {
    /// Its name.
    pub name: ClusterName,
    /// Its definition; `None` for an implicit cluster.
    pub definition: Option<Arc<ClusterDefinition>>,
    /// Sources that define it, highest priority first; the first one's definition is served.
    pub sources: Vec<SourceSlot>,
    /// Services that lead to it, in name order.
    pub services: Vec<ServiceName>,
    /// Its instances in the order of their URIs.
    pub instances: Vec<InstanceReport>,
    /// How many instances are healthy, draining, unhealthy.
    pub health: HealthCount,
    /// Below this share of healthy instances health is ignored, percent (0: never).
    pub min_healthy_percent: u8,
    /// Whether it is ignored now.
    pub is_fail_open: bool,
    /// Its D2 partitions, empty if it is not partitioned.
    pub d2_partitions: Vec<i32>,
}

impl ClusterReport {
    /// Whether it is served without a definition, because instances announce it.
    #[must_use]
    pub fn is_implicit(&self) -> bool {
        self.definition.is_none()
    }

    /// Instances that gRPC and Envoy clients are not told of for want of an address.
    pub fn unresolved(&self) -> impl Iterator<Item = &InstanceReport> {
        self.instances.iter().filter(|i| i.is_unresolved())
    }

    /// Instances that have an address but none of a family, so that clients of that family alone are not
    /// told of them.
    pub fn without(&self, family: fn(&IpAddr) -> bool) -> impl Iterator<Item = &InstanceReport> {
        let lacks = move |instance: &&InstanceReport| {
            let mut addresses = instance.addresses.iter();
            !instance.is_unresolved() && !addresses.any(|address| family(&address.ip()))
        };
        self.instances.iter().filter(lacks)
    }
}

/// Instances by health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCount {
    /// Taking traffic.
    pub healthy: usize,
    /// About to leave.
    pub draining: usize,
    /// Failing their own health check.
    pub unhealthy: usize,
}

/// One instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceReport {
    /// What is served of it: what it announces, or what an operator set above that.
    pub announcement: Announcement,
    /// What an operator set.
    pub overridden: Option<OverrideReport>,
    /// Sources that announce it, highest priority first; the first one's is served.
    pub sources: Vec<SourceSlot>,
    /// Whether clients that see no unhealthy instances see it.
    pub is_visible: bool,
    /// Where gRPC and Envoy clients of both address families are told to reach it; empty if it
    /// announces a host name only.
    pub addresses: Vec<SocketAddr>,
}

impl InstanceReport {
    /// Whether gRPC and Envoy clients are not told of it for want of an address.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// What an operator set for an instance, and what it announces below that.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideReport {
    /// What was set, by whom, when and why.
    pub above: Arc<Override>,
    /// What the instance announces.
    pub announced: Announcement,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReport {
    /// Its name.
    pub name: ServiceName,
    /// The cluster that serves it.
    pub cluster: ClusterName,
    /// Its definition; `None` for an implicit service.
    pub definition: Option<Arc<ServiceDefinition>>,
    /// Sources that define it, highest priority first.
    pub sources: Vec<SourceSlot>,
}

/// Reports one cluster, or `None` if it is not known.
#[must_use]
pub fn find_cluster(store: &Store, name: &str) -> Option<ClusterReport> {
    let snapshot = store.find_cluster(name)?;
    let mut health = HealthCount::default();
    let mut instances = Vec::with_capacity(snapshot.instances.len());
    for instance in &snapshot.instances {
        match instance.health {
            Health::Healthy => health.healthy += 1,
            Health::Draining => health.draining += 1,
            Health::Unhealthy => health.unhealthy += 1,
        }
        instances.extend(find_instance(store, &snapshot, instance));
    }
    Some(ClusterReport {
        sources: store.cluster_sources(name),
        services: store.services_leading_to(name),
        name: snapshot.name,
        definition: snapshot.definition.map(|(_, definition)| definition),
        instances,
        health,
        min_healthy_percent: snapshot.facts.min_healthy_percent,
        is_fail_open: snapshot.fail_open,
        d2_partitions: snapshot.d2_partitions,
    })
}

/// Reports one instance of a cluster, or `None` if what it announces cannot be read.
#[must_use]
pub fn find_instance(
    store: &Store,
    cluster: &ClusterSnapshot,
    instance: &ServedInstance,
) -> Option<InstanceReport> {
    let announcement = read_announcement(instance)?;
    let name = cluster.name.as_str();
    Some(InstanceReport {
        sources: store.instance_sources(name, instance.uri.as_str()),
        is_visible: cluster.is_visible(instance),
        addresses: endpoints::addresses(&announcement, AddressFamily::Both),
        overridden: find_override(store, name, instance),
        announcement,
    })
}

fn find_override(
    store: &Store,
    cluster: &str,
    instance: &ServedInstance,
) -> Option<OverrideReport> {
    let above = Arc::clone(instance.overridden.as_ref()?);
    let value = store.find_announced(cluster, instance.uri.as_str())?;
    let announced = read_announcement(&ServedInstance {
        value,
        ..instance.clone()
    })?;
    Some(OverrideReport { above, announced })
}

/// Reports one service, or `None` if it is not known.
#[must_use]
pub fn find_service(store: &Store, name: &ServiceName) -> Option<ServiceReport> {
    let (cluster, definition) = match store.find_service(name.as_str())? {
        ServiceState::Defined { definition, .. } => (definition.cluster.clone(), Some(definition)),
        ServiceState::Implicit { cluster } => (cluster, None),
    };
    Some(ServiceReport {
        name: name.clone(),
        cluster,
        definition,
        sources: store.service_sources(name.as_str()),
    })
}
