//! Changes of services and clusters to the clusters of one scope that they touch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use waypost_core::{ClusterName, ResourceName, ResourceType, Scope, ServiceName, Subscriber};
use waypost_store::{CalleesState, Store};

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

/// What a scope calls at one moment.
pub(super) struct Called<'a> {
    named: &'a [Box<str>],
    callees: Option<CalleesState>,
}

impl<'a> Called<'a> {
    /// The services that it names, or those that its application is said to call.
    pub(super) fn of(store: &Store, scope: &'a Scope) -> Self {
        let application = scope.application.as_deref();
        Self {
            named: &scope.services,
            callees: application.and_then(|application| store.find_callees(application)),
        }
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        let callees = self
            .callees
            .iter()
            .flat_map(|c| c.definition.services.iter());
        let named = self.named.iter().map(|service| &**service);
        named.chain(callees.map(ServiceName::as_str))
    }

    /// Changes with what the application calls; 0 where that does not matter.
    pub(super) fn generation(&self) -> u64 {
        self.callees
            .as_ref()
            .map_or(0, |callees| callees.generation)
    }
}

/// Hears of the services of a scope (as route configurations, which change when a service leads
/// somewhere else), of the callees of its application and of all clusters, and tells of the scope's
/// clusters only.
pub(super) struct ClustersOf {
    store: Store,
    scope: Arc<Scope>,
    subscriber: Arc<dyn Subscriber>,
    /// What each service of the scope reached when it was last looked at.
    reached: Mutex<Reached>,
}

type Reached = BTreeMap<Box<str>, Vec<ClusterName>>;

impl ClustersOf {
    pub(super) fn new(store: Store, scope: Arc<Scope>, subscriber: Arc<dyn Subscriber>) -> Self {
        Self {
            store,
            scope,
            subscriber,
            reached: Mutex::default(),
        }
    }

    /// Looks where the services lead. Until then no cluster counts as the scope's, so it has to come
    /// after the subscription and before the subscriber looks for itself.
    pub(super) fn look(&self) {
        let mut reached = self.reached.lock();
        *reached = self.find_all();
    }

    fn find_all(&self) -> Reached {
        let called = Called::of(&self.store, &self.scope);
        let services = called.services();
        services
            .map(|service| (service.into(), find_reached(&self.store, service)))
            .collect()
    }

    fn has_service(&self, service: &str) -> bool {
        self.reached.lock().contains_key(service)
    }

    /// A service changed, be it of the scope or not.
    fn service_changed(&self, service: &str) {
        let mut reached = self.reached.lock();
        let Some(held) = reached.get_mut(service) else {
            return;
        };
        // Looked at under the lock: of two changes the one that is kept is what was seen last.
        let now = find_reached(&self.store, service);
        let before = std::mem::replace(held, now.clone());
        drop(reached);
        let gone = before.iter().filter(|cluster| !now.contains(cluster));
        let come = now.iter().filter(|cluster| !before.contains(cluster));
        for cluster in gone.chain(come) {
            self.tell(&cluster.as_str().into());
        }
    }

    /// The application calls other services.
    fn callees_changed(&self) {
        let mut reached = self.reached.lock();
        let now = self.find_all();
        let before = std::mem::replace(&mut *reached, now.clone());
        drop(reached);
        let clusters = |reached: Reached| BTreeSet::from_iter(reached.into_values().flatten());
        for cluster in clusters(before).symmetric_difference(&clusters(now)) {
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
            ResourceType::D2CalleeServices => self.callees_changed(),
            _ => {}
        }
    }
}

/// Hears of the same as [`ClustersOf`] and tells of the scope's routes: which services there are, where they
/// lead, and who gets copies.
pub(super) struct RoutesOf(ClustersOf);

impl RoutesOf {
    pub(super) fn new(
        store: Store,
        scope: Arc<Scope>,
        subscriber: Arc<dyn Subscriber>,
        name: ResourceName,
    ) -> Self {
        let subscriber = Arc::new(AsRoutes { subscriber, name });
        Self(ClustersOf::new(store, scope, subscriber))
    }

    /// As [`ClustersOf::look`].
    pub(super) fn look(&self) {
        self.0.look();
    }
}

impl Subscriber for RoutesOf {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        self.0.mark_changed(resource_type, name);
        let is_told = match resource_type {
            ResourceType::RouteConfiguration => self.0.has_service(name),
            ResourceType::D2CalleeServices => true,
            _ => false,
        };
        if is_told {
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
