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

/// Hears of the services of a scope (as route configurations, which change when a service leads
/// somewhere else) and of all clusters, and tells of the scope's clusters only.
pub(super) struct ClustersOf {
    store: Store,
    subscriber: Arc<dyn Subscriber>,
    /// Where each service of the scope led when it was last looked at.
    led: Mutex<BTreeMap<Box<str>, Option<ClusterName>>>,
}

impl ClustersOf {
    pub(super) fn new(store: Store, subscriber: Arc<dyn Subscriber>) -> Self {
        Self {
            store,
            subscriber,
            led: Mutex::default(),
        }
    }

    /// Looks where the services lead. Until then no cluster counts as the scope's, so it has to come
    /// after the subscription and before the subscriber looks for itself.
    pub(super) fn look(&self, scope: &Scope) {
        let mut led = self.led.lock();
        for service in &scope.services {
            let now = find_led(&self.store, service);
            led.insert(service.clone(), now);
        }
    }

    fn service_changed(&self, service: &str) {
        let mut led = self.led.lock();
        // Looked at under the lock: of two changes the one that is kept is what was seen last.
        let now = find_led(&self.store, service);
        let before = led.insert(service.into(), now.clone()).flatten();
        drop(led);
        if before == now {
            return;
        }
        for cluster in [before, now].into_iter().flatten() {
            self.tell(&cluster.as_str().into());
        }
    }

    fn has(&self, cluster: &str) -> bool {
        let led = self.led.lock();
        led.values().flatten().any(|led| led.as_str() == cluster)
    }

    fn tell(&self, cluster: &ResourceName) {
        self.subscriber.mark_changed(ResourceType::Cluster, cluster);
    }
}

impl Subscriber for ClustersOf {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        match resource_type {
            ResourceType::RouteConfiguration => self.service_changed(name),
            ResourceType::Cluster if self.has(name) => self.tell(name),
            _ => {}
        }
    }
}
