//! What an Envoy sees. It asks for everything of clusters and listeners; that is the clusters of the
//! services that it named, and one Listener for calls to them (docs/resources.md, "What an Envoy is
//! served"). All else it gets by name, as anybody does.

mod clusters;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;
use waypost_core::{
    ClusterName, Delivery, EncodedResource, Interest, ResourceLocator, ResourceName, ResourceType,
    Scope, Subscriber, SubscriptionToken, Variant,
};
use waypost_proto::encoded::encode_resource;
use waypost_store::{ServiceState, Store};
use waypost_xds::{APPLICATION_KEY, SERVICES_KEY};

use super::limits::SCOPES_SWEPT_MIN;
use super::{Inner, Locator};
use crate::render::outbound::{self, OUTBOUND, Routed};
use crate::render::properties::{ClusterProperties, Mirror};
use crate::render::{Rendered, envoy};
use clusters::{Called, ClustersOf, RoutesOf, find_reached};

/// The scopes that are open. Clients of the same scope share what is encoded for it.
#[derive(Default)]
pub(super) struct Scopes(Mutex<Open>);

type ScopeKey = (Arc<Scope>, Delivery);

#[derive(Default)]
struct Open {
    by_scope: HashMap<ScopeKey, Weak<Scoped>>,
    /// At this size those that nobody uses any more are swept out.
    sweep_at: usize,
}

/// One scope's view of the locator.
pub(super) struct Scoped {
    locator: Locator,
    scope: Arc<Scope>,
    delivery: Delivery,
    listener: OnceLock<EncodedResource>,
    /// With what they were made from.
    routes: Mutex<Option<(RoutesFrom, EncodedResource)>>,
    /// Subscriptions that stand for several of the locator's.
    open: Mutex<HashMap<u64, Vec<Subscription>>>,
    next_token: AtomicU64,
}

type Subscription = (ResourceType, Interest, SubscriptionToken);

/// The generation of what the application calls, then what is known of each service.
type RoutesFrom = (u64, Vec<MadeFrom>);

/// The generation of a service, and of the definition of the cluster that it leads to.
type MadeFrom = Option<(u64, u64)>;

impl Scopes {
    /// The view of a scope: the one that is open, or a new one.
    pub(super) fn get_or_open(
        &self,
        inner: &Arc<Inner>,
        scope: &Arc<Scope>,
        delivery: Delivery,
    ) -> Arc<Scoped> {
        let mut open = self.0.lock();
        let key = (Arc::clone(scope), delivery);
        if let Some(scoped) = open.by_scope.get(&key).and_then(Weak::upgrade) {
            return scoped;
        }
        if open.by_scope.len() >= open.sweep_at {
            open.by_scope.retain(|_, scoped| scoped.strong_count() > 0);
            open.sweep_at = (2 * open.by_scope.len()).max(SCOPES_SWEPT_MIN);
        }
        if scope.services.is_empty() && scope.application.is_none() {
            tracing::info!(
                "an Envoy names neither services ({SERVICES_KEY}) nor an application ({APPLICATION_KEY}) in \
                 its node's metadata: what it asks for by name it gets, but everything is nothing to it"
            );
        }
        let scoped = Arc::new(Scoped {
            locator: Locator(Arc::clone(inner)),
            scope: Arc::clone(scope),
            delivery,
            listener: OnceLock::new(),
            routes: Mutex::default(),
            open: Mutex::default(),
            next_token: AtomicU64::new(0),
        });
        open.by_scope.insert(key, Arc::downgrade(&scoped));
        scoped
    }
}

impl fmt::Debug for Scoped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped")
            .field("scope", &self.scope)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

impl Scoped {
    fn has_outbound(&self) -> bool {
        self.scope.outbound.is_some()
    }

    fn find_listener(&self) -> Option<EncodedResource> {
        let address = self.scope.outbound?;
        let encode = || {
            self.encode(
                ResourceType::Listener,
                &outbound::listener(address, self.delivery),
            )
        };
        Some(self.listener.get_or_init(encode).clone())
    }

    /// The routes, made again when a service of the scope changed, or the definition of its cluster.
    fn find_routes(&self) -> Option<EncodedResource> {
        self.scope.outbound?;
        let store = self.locator.store();
        let called = Called::of(store, &self.scope);
        let services = called.services();
        let states: Vec<_> = services.map(|s| (s, store.find_service(s))).collect();
        let made_from = states.iter().map(|(_, state)| {
            let state = state.as_ref()?;
            let generation = match state {
                ServiceState::Defined { generation, .. } => *generation,
                // It leads to the cluster of its own name, always; no definition has this number.
                ServiceState::Implicit { .. } => 0,
            };
            let cluster = envoy::find_cluster(state)?;
            let stamp = store.find_stamp(cluster.as_str());
            Some((generation, stamp.map_or(0, |stamp| stamp.definition)))
        });
        let made_from: RoutesFrom = (called.generation(), made_from.collect());
        let mut routes = self.routes.lock();
        if let Some((from, encoded)) = &*routes
            && *from == made_from
        {
            return Some(encoded.clone());
        }
        let known = states.iter().filter_map(|(name, state)| {
            let service = state.as_ref()?;
            let mirrors = find_mirrors(store, service);
            Some(Routed {
                name,
                service,
                mirrors,
            })
        });
        let rendered = outbound::routes(known);
        let encoded = self.encode(ResourceType::RouteConfiguration, &rendered);
        *routes = Some((made_from, encoded.clone()));
        Some(encoded)
    }

    fn encode(&self, resource_type: ResourceType, rendered: &Rendered) -> EncodedResource {
        self.locator.0.cache.count_encode();
        encode_resource(resource_type, OUTBOUND, &rendered.value, rendered.origin)
    }

    /// The clusters that exist of those that requests to the services go to, in order.
    fn clusters(&self) -> Vec<ResourceName> {
        let store = self.locator.store();
        let called = Called::of(store, &self.scope);
        let mut clusters: Vec<ClusterName> = called
            .services()
            .flat_map(|service| find_reached(store, service))
            .filter(|cluster| store.find_stamp(cluster.as_str()).is_some())
            .collect();
        clusters.sort_unstable();
        clusters.dedup();
        let cache = &self.locator.0.cache;
        let names = clusters.iter().map(ClusterName::as_str);
        names
            .map(|name| cache.intern(ResourceType::Cluster, name))
            .collect()
    }

    fn reaches(&self, cluster: &str) -> bool {
        let store = self.locator.store();
        let called = Called::of(store, &self.scope);
        let mut services = called.services();
        services.any(|service| {
            let mut reached = find_reached(store, service).into_iter();
            reached.any(|reached| reached.as_str() == cluster)
        })
    }

    /// Subscribes to what the services lead to, and to every cluster. Which services an application calls
    /// may change, so of one it subscribes to that and to every service.
    fn follow(&self, subscriber: &Arc<dyn Subscriber>) -> SubscriptionToken {
        let mut made = Vec::with_capacity(self.scope.services.len() + 1);
        let mut subscribe = |resource_type, interest: Interest| {
            let subscribers = self.locator.subscribers();
            let token = subscribers.subscribe(resource_type, &interest, Arc::clone(subscriber));
            made.push((resource_type, interest, token));
        };
        for service in &self.scope.services {
            let interest = Interest::Explicit((**service).into());
            subscribe(ResourceType::RouteConfiguration, interest);
        }
        if let Some(application) = &self.scope.application {
            let callees = Interest::Explicit((**application).into());
            subscribe(ResourceType::D2CalleeServices, callees);
            subscribe(ResourceType::RouteConfiguration, Interest::Wildcard);
        }
        subscribe(ResourceType::Cluster, Interest::Wildcard);
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(token, made);
        SubscriptionToken(token)
    }

    /// What is not as it is for everybody.
    fn find_own(resource_type: ResourceType, interest: &Interest) -> Option<Own> {
        match (resource_type, interest) {
            (ResourceType::Cluster, Interest::Wildcard) => Some(Own::Clusters),
            (ResourceType::Listener, _) => Some(Own::Listener),
            (ResourceType::RouteConfiguration, Interest::Wildcard) => Some(Own::Routes),
            (ResourceType::RouteConfiguration, Interest::Explicit(name)) if **name == *OUTBOUND => {
                Some(Own::Routes)
            }
            _ => None,
        }
    }
}

/// Who gets copies of requests to a service. Of nearly all nobody: then nothing is read.
fn find_mirrors(store: &Store, service: &ServiceState) -> Vec<Mirror> {
    let outline = envoy::find_cluster(service).and_then(|c| store.find_outline(c.as_str()));
    let with_mirrors = outline.filter(|outline| outline.facts.mirrors.is_some());
    let definition = with_mirrors.and_then(|outline| outline.definition);
    definition.map_or_else(Vec::new, |(_, definition)| {
        ClusterProperties::read(Some(&*definition)).mirrors
    })
}

/// What a scope has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Clusters,
    Listener,
    Routes,
}

impl ResourceLocator for Scoped {
    fn not_loaded(&self) -> Option<String> {
        self.locator.not_loaded()
    }

    fn find(
        &self,
        resource_type: ResourceType,
        name: &str,
        variant: Variant,
    ) -> Option<EncodedResource> {
        match (resource_type, name) {
            (ResourceType::Listener, OUTBOUND) => self.find_listener(),
            // Those of services are gRPC's; an Envoy could do nothing with them.
            (ResourceType::Listener, _) => None,
            (ResourceType::RouteConfiguration, OUTBOUND) => self.find_routes(),
            _ => self.locator.find(resource_type, name, variant),
        }
    }

    fn endpoints_name<'a>(&self, cluster: &'a str) -> Cow<'a, str> {
        self.locator.endpoints_name(cluster)
    }

    fn members(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
        variant: Variant,
    ) -> Vec<ResourceName> {
        match (resource_type, prefix) {
            (ResourceType::Cluster, None) => self.clusters(),
            (ResourceType::Listener | ResourceType::RouteConfiguration, None) => {
                let outbound = self.has_outbound().then(|| OUTBOUND.into());
                outbound.into_iter().collect()
            }
            _ => self.locator.members(resource_type, prefix, variant),
        }
    }

    fn is_member(&self, resource_type: ResourceType, name: &str, variant: Variant) -> bool {
        match resource_type {
            ResourceType::Cluster => self.reaches(name),
            ResourceType::Listener | ResourceType::RouteConfiguration => name == OUTBOUND,
            _ => self.locator.is_member(resource_type, name, variant),
        }
    }

    fn is_glob_empty(&self, resource_type: ResourceType, prefix: &str, variant: Variant) -> bool {
        self.locator.is_glob_empty(resource_type, prefix, variant)
    }

    fn recently_removed(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
    ) -> Vec<ResourceName> {
        match (resource_type, prefix) {
            // Clients of these say what they hold.
            (
                ResourceType::Cluster | ResourceType::Listener | ResourceType::RouteConfiguration,
                None,
            ) => Vec::new(),
            _ => self.locator.recently_removed(resource_type, prefix),
        }
    }

    fn share_name(&self, resource_type: ResourceType, name: &str) -> ResourceName {
        self.locator.share_name(resource_type, name)
    }

    fn subscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken {
        match Self::find_own(resource_type, interest) {
            None => self.locator.subscribe(resource_type, interest, subscriber),
            // It never changes.
            Some(Own::Listener) => SubscriptionToken(u64::MAX),
            Some(Own::Routes) => {
                let store = self.locator.store().clone();
                let scope = Arc::clone(&self.scope);
                let routes = Arc::new(RoutesOf::new(store, scope, subscriber, OUTBOUND.into()));
                let token = self.follow(&(Arc::clone(&routes) as Arc<dyn Subscriber>));
                routes.look();
                token
            }
            Some(Own::Clusters) => {
                let (store, scope) = (self.locator.store().clone(), Arc::clone(&self.scope));
                let clusters = Arc::new(ClustersOf::new(store, scope, subscriber));
                let subscriber = Arc::clone(&clusters) as Arc<dyn Subscriber>;
                let token = self.follow(&subscriber);
                clusters.look();
                token
            }
        }
    }

    fn unsubscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        token: SubscriptionToken,
    ) {
        if Self::find_own(resource_type, interest).is_none() {
            return self.locator.unsubscribe(resource_type, interest, token);
        }
        let made = self.open.lock().remove(&token.0);
        for (resource_type, interest, token) in made.into_iter().flatten() {
            let subscribers = self.locator.subscribers();
            subscribers.unsubscribe(resource_type, &interest, token);
        }
    }
}
