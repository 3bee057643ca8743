//! Changes of services and clusters to the clusters of one scope that they touch.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use waypost_core::{ClusterName, ResourceName, ResourceType, Scope, Subscriber};
use waypost_store::Store;

use crate::render::envoy;

/// The cluster that a service leads to, if it is known and an Envoy can follow it.
pub(super) fn find_led(store: &Store, service: &str) -> Option<ClusterName> {
    envoy::find_cluster(&store.find_service(service)?).cloned()
}

/// The clusters that requests to a service go to: the one that it leads to, then those that get copies.
/// Whether they are known is another question.
pub(super) fn find_reached(store: &Store, service: &str) -> Vec<ClusterName> {
    let Some(led) = find_led(store, service) else {
        return Vec::new();
    };
    let outline = store.find_outline(led.as_str());
    let mirrors = outline.and_then(|outline| outline.facts.mirrors);
    let mut reached = vec![led];
    reached.extend(mirrors.iter().flat_map(|mirrors| mirrors.iter().cloned()));
    reached
}

/// Hears of the services of a scope (as route configurations, which change when a service leads
/// somewhere else) and of all clusters, and tells of the scope's clusters only.
pub(super) struct ClustersOf {
    store: Store,
    subscriber: Arc<dyn Subscriber>,
    /// What each service of the scope reached when it was last looked at.
    reached: Mutex<BTreeMap<Box<str>, Vec<ClusterName>>>,
}

impl ClustersOf {
    pub(super) fn new(store: Store, subscriber: Arc<dyn Subscriber>) -> Self {
        Self {
            store,
            subscriber,
            reached: Mutex::default(),
        }
    }

    /// Looks where the services lead. Until then no cluster counts as the scope's, so it has to come
    /// after the subscription and before the subscriber looks for itself.
    pub(super) fn look(&self, scope: &Scope) {
        let mut reached = self.reached.lock();
        for service in &scope.services {
            let now = find_reached(&self.store, service);
            reached.insert(service.clone(), now);
        }
    }

    fn service_changed(&self, service: &str) {
        let mut reached = self.reached.lock();
        // Looked at under the lock: of two changes the one that is kept is what was seen last.
        let now = find_reached(&self.store, service);
        let before = reached.insert(service.into(), now.clone());
        drop(reached);
        let before = before.unwrap_or_default();
        let gone = before.iter().filter(|cluster| !now.contains(cluster));
        let come = now.iter().filter(|cluster| !before.contains(cluster));
        for cluster in gone.chain(come) {
            self.tell(&cluster.as_str().into());
        }
    }

    /// A cluster of the scope changed: others may get copies of requests to it now.
    fn cluster_changed(&self, name: &ResourceName) {
        let reached = self.reached.lock();
        let reaching = reached.iter().filter(|(_, reached)| {
            let mut reached = reached.iter();
            reached.any(|cluster| cluster.as_str() == &**name)
        });
        let services: Vec<_> = reaching.map(|(service, _)| service.clone()).collect();
        drop(reached);
        if services.is_empty() {
            return;
        }
        self.tell(name);
        for service in services {
            self.service_changed(&service);
        }
    }

    fn tell(&self, cluster: &ResourceName) {
        self.subscriber.mark_changed(ResourceType::Cluster, cluster);
    }
}

impl Subscriber for ClustersOf {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        match resource_type {
            ResourceType::RouteConfiguration => self.service_changed(name),
            ResourceType::Cluster => self.cluster_changed(name),
            _ => {}
        }
    }
}

/// Hears of the same as [`ClustersOf`] and tells of the scope's routes: which services there are, where they
/// lead, and who gets copies.
pub(super) struct RoutesOf(ClustersOf);

impl RoutesOf {
    pub(super) fn new(store: Store, subscriber: Arc<dyn Subscriber>, name: ResourceName) -> Self {
        let subscriber = Arc::new(AsRoutes { subscriber, name });
        Self(ClustersOf::new(store, subscriber))
    }

    /// As [`ClustersOf::look`].
    pub(super) fn look(&self, scope: &Scope) {
        self.0.look(scope);
    }
}

impl Subscriber for RoutesOf {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        self.0.mark_changed(resource_type, name);
        if resource_type == ResourceType::RouteConfiguration {
            self.0.subscriber.mark_changed(resource_type, name);
        }
    }
}

/// Whatever it is told of, it tells of the scope's routes.
struct AsRoutes {
    subscriber: Arc<dyn Subscriber>,
    name: ResourceName,
}

impl Subscriber for AsRoutes {
    fn mark_changed(&self, _resource_type: ResourceType, _name: &ResourceName) {
        let routes = ResourceType::RouteConfiguration;
        self.subscriber.mark_changed(routes, &self.name);
    }
}
