//! The one adapter between the store and the xDS engine: names and variants to bytes, and changes
//! of facts to the names of the resources that they touch.
//!
//! Nothing is rendered when a fact changes: the names are marked, and whoever asks first renders and
//! encodes for all who ask the same until the fact changes again (`cache`); the others of its thread
//! find that without a lock (`memo`). A resource that is asked for
//! under a name of the client's own spelling is answered under that spelling.

mod cache;
mod callees;
mod fabrics;
mod federated;
mod limits;
mod load_gate;
mod members;
mod memo;
mod router;
mod scoped;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use waypost_core::{
    AddressFamily, ClientKind, Delivery, EncodedResource, FabricId, Interest, ResourceLocator,
    ResourceName, ResourceType, Scope, Subscriber, SubscriptionToken, UpstreamTls, Variant,
};
use waypost_store::{ClusterOutline, ClusterSnapshot, ServiceState, Store, Subscribers};

use crate::render::cluster::Properties;
use crate::render::endpoints::Asker;
use crate::render::federated::FederatedName;
use crate::render::{self, Rendered, d2, endpoints, envoy, names, names::Target, server};
use cache::{Cache, Source};
use fabrics::Fabrics;
use memo::Memo;
use router::{ChangeRouter, Respelled};
use scoped::Scopes;

pub use load_gate::LoadGate;

/// Resources of a store, encoded once per version and variant. Clones are handles to the same.
#[derive(Clone)]
pub struct Locator(Arc<Inner>);

struct Inner {
    store: Store,
    subscribers: Arc<Subscribers>,
    gate: LoadGate,
    cache: Cache,
    memo: Arc<Memo>,
    scopes: Scopes,
    fabrics: Fabrics,
    properties_left_out: AtomicU64,
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locator")
            .field("gate", &self.0.gate)
            .field("subscribers", &self.0.subscribers)
            .field("encodes", &self.encodes())
            .finish_non_exhaustive()
    }
}

impl Locator {
    /// A locator over a new, empty store, which [`Locator::store`] returns. Nothing is answered
    /// before `gate` is opened.
    #[must_use]
    pub fn new(gate: LoadGate) -> Self {
        let subscribers = Arc::new(Subscribers::default());
        let memo = Arc::new(Memo::default());
        let router = ChangeRouter::new(Arc::clone(&subscribers), Arc::clone(&memo));
        let store = Store::new(render::inspect::INSPECTOR, Arc::new(router));
        Self(Arc::new(Inner {
            store,
            subscribers,
            gate,
            cache: Cache::default(),
            memo,
            scopes: Scopes::default(),
            fabrics: Fabrics::default(),
            properties_left_out: AtomicU64::new(0),
        }))
    }

    /// The store behind it: writers are taken from here, reports read it.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Who wants what, for counting.
    #[must_use]
    pub fn subscribers(&self) -> &Subscribers {
        &self.0.subscribers
    }

    /// How many times anything was rendered and encoded so far.
    #[must_use]
    pub fn encodes(&self) -> u64 {
        self.0.cache.encodes()
    }

    /// Bytes of encoded resources that are kept for the next asker, about.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.0.cache.len_bytes()
    }

    /// How many D2 properties were not translated, because they cannot be read or some client would refuse
    /// them; counted each time that a cluster is rendered.
    #[must_use]
    pub fn properties_left_out(&self) -> u64 {
        self.0.properties_left_out.load(Ordering::Relaxed)
    }

    /// The fabric that a variant is for, if its askers named one.
    #[must_use]
    pub fn find_fabric(&self, id: FabricId) -> Option<Arc<str>> {
        self.0.fabrics.find(id)
    }

    fn find_node(&self, name: &str, target: &Target<'_>) -> Option<EncodedResource> {
        match target {
            Target::Service(service) => self.of_service(ResourceType::D2Node, name, service, |s| {
                Some(d2::service_node(s))
            }),
            Target::Cluster(cluster) => {
                let key = (ResourceType::D2Node, name, Variant::default());
                self.of_definition(key, cluster, d2::cluster_node)
            }
            _ => None,
        }
    }

    fn find_directory_entry(&self, name: &str, target: &Target<'_>) -> Option<EncodedResource> {
        let resource_type = ResourceType::D2ClusterOrServiceName;
        match target {
            Target::Service(service) => self.of_service(resource_type, name, service, |_| {
                Some(d2::service_name(service))
            }),
            Target::Cluster(cluster) => {
                let key = (resource_type, name, Variant::default());
                self.of_definition(key, cluster, |_| d2::cluster_name(cluster))
            }
            _ => None,
        }
    }

    fn find_uri_map(&self, name: &str, cluster: &str) -> Option<EncodedResource> {
        if names::is_symlink(cluster) {
            return None;
        }
        let key = (ResourceType::D2UriMap, name, Variant::default());
        self.of_instances(key, cluster, d2::uri_map).or_else(|| {
            let was_there = self.0.store.is_removed_cluster(cluster);
            let source = || was_there.then_some(Source::Number(0));
            self.0.cache.get_or_encode(key, source, || {
                was_there.then(|| (d2::empty_uri_map(), Source::Number(0)))
            })
        })
    }

    fn find_uri(&self, name: &str, cluster: &str, uri: &str) -> Option<EncodedResource> {
        let key = (ResourceType::D2Uri, name, Variant::default());
        let instance = || self.0.store.find_visible_instance(cluster, uri);
        self.0.memo.get_or_find(key, cluster, || {
            self.0.cache.get_or_encode(
                key,
                || instance().map(|i| Source::Value(i.value)),
                || {
                    let instance = instance()?;
                    Some((d2::uri(&instance)?, Source::Value(instance.value)))
                },
            )
        })
    }

    fn find_cluster(
        &self,
        name: &str,
        target: &Target<'_>,
        variant: Variant,
    ) -> Option<EncodedResource> {
        let cluster = self.served_cluster(target)?;
        let store = &self.0.store;
        let key = (ResourceType::Cluster, name, variant);
        // Numbers only grow, so the larger of two changes with either.
        let number =
            |stamp: waypost_store::Stamp| Source::Number(stamp.definition.max(stamp.services));
        self.0.cache.get_or_encode(
            key,
            || store.find_stamp(cluster).map(number),
            || {
                // The outline first: what it is older than the services is made anew later.
                let outline = store.find_outline(cluster)?;
                let services = store.definitions_leading_to(cluster);
                let properties = Properties::read(&outline, &services);
                let left_out = properties.left_out() as u64;
                let counter = &self.0.properties_left_out;
                counter.fetch_add(left_out, Ordering::Relaxed);
                let rendered = render::cluster::cluster(name, &properties, variant);
                Some((rendered, number(outline.stamp)))
            },
        )
    }

    fn find_load_assignment(
        &self,
        name: &str,
        target: &Target<'_>,
        variant: Variant,
    ) -> Option<EncodedResource> {
        let cluster = self.served_cluster(target)?;
        let d2_partition = match target {
            Target::D2Partition(_, number) => *number,
            _ => 0,
        };
        let key = (ResourceType::ClusterLoadAssignment, name, variant);
        self.of_instances(key, cluster, |snapshot| {
            let fabric = self.find_fabric(variant.fabric);
            let asker = Asker {
                client: variant.client,
                addresses: variant.addresses,
                fabric: fabric.as_deref(),
            };
            endpoints::load_assignment(name, snapshot, d2_partition, asker)
        })
    }

    /// The cluster behind a name that gRPC and Envoy use, if it has that D2 partition.
    fn served_cluster<'a>(&self, target: &Target<'a>) -> Option<&'a str> {
        match target {
            Target::Cluster(cluster) => (!names::is_symlink(cluster)).then_some(*cluster),
            Target::D2Partition(cluster, number) => self
                .0
                .store
                .has_d2_partition(cluster, *number)
                .then_some(*cluster),
            _ => None,
        }
    }

    /// A resource that depends on a cluster's definition and existence alone.
    fn of_definition(
        &self,
        key: cache::KeyRef<'_>,
        cluster: &str,
        render: impl FnOnce(&ClusterOutline) -> Rendered,
    ) -> Option<EncodedResource> {
        let store = &self.0.store;
        let number = |stamp: waypost_store::Stamp| Source::Number(stamp.definition);
        self.0.cache.get_or_encode(
            key,
            || store.find_stamp(cluster).map(number),
            || {
                let outline = store.find_outline(cluster)?;
                Some((render(&outline), number(outline.stamp)))
            },
        )
    }

    /// A resource that depends on a cluster's instances, and on nothing else but its existence.
    fn of_instances(
        &self,
        key: cache::KeyRef<'_>,
        cluster: &str,
        render: impl FnOnce(&ClusterSnapshot) -> Rendered,
    ) -> Option<EncodedResource> {
        let store = &self.0.store;
        let number = |stamp: waypost_store::Stamp| Source::Number(stamp.instances);
        self.0.memo.get_or_find(key, cluster, || {
            self.0.cache.get_or_encode(
                key,
                || store.find_stamp(cluster).map(number),
                || {
                    let snapshot = store.find_cluster(cluster)?;
                    Some((render(&snapshot), number(snapshot.stamp)))
                },
            )
        })
    }

    /// A resource that depends on nothing but its name.
    fn of_its_name(
        &self,
        resource_type: ResourceType,
        name: &str,
        render: impl FnOnce() -> Rendered,
    ) -> Option<EncodedResource> {
        let key = (resource_type, name, Variant::default());
        let number = || Source::Number(0);
        let cache = &self.0.cache;
        cache.get_or_encode(key, || Some(number()), || Some((render(), number())))
    }

    fn of_service(
        &self,
        resource_type: ResourceType,
        name: &str,
        service: &str,
        render: impl FnOnce(&ServiceState) -> Option<Rendered>,
    ) -> Option<EncodedResource> {
        let store = &self.0.store;
        let key = (resource_type, name, Variant::default());
        let number = |service: &ServiceState| match service {
            ServiceState::Defined { generation, .. } => Source::Number(*generation),
            ServiceState::Implicit { .. } => Source::Number(0),
        };
        self.0.cache.get_or_encode(
            key,
            || store.find_service(service).as_ref().map(number),
            || {
                let state = store.find_service(service)?;
                Some((render(&state)?, number(&state)))
            },
        )
    }
}

impl ResourceLocator for Locator {
    fn not_loaded(&self) -> Option<String> {
        self.0.gate.not_loaded()
    }

    fn find(
        &self,
        resource_type: ResourceType,
        name: &str,
        variant: Variant,
    ) -> Option<EncodedResource> {
        if let Some(federated) = FederatedName::parse(resource_type, name) {
            return self.find_federated(resource_type, name, &federated, variant);
        }
        let target = Target::parse(resource_type, name)?;
        match (resource_type, &target) {
            (ResourceType::D2Node, _) => self.find_node(name, &target),
            (ResourceType::D2ClusterOrServiceName, _) => self.find_directory_entry(name, &target),
            (ResourceType::D2UriMap, Target::Cluster(cluster)) => self.find_uri_map(name, cluster),
            (ResourceType::D2Uri, Target::Instance(cluster, uri)) => {
                self.find_uri(name, cluster, uri)
            }
            (ResourceType::D2CalleeServices, Target::Application(application)) => {
                self.find_callees(name, application)
            }
            (ResourceType::Cluster, _) => {
                self.find_cluster(name, &target, cluster_variant(variant))
            }
            (ResourceType::ClusterLoadAssignment, _) => {
                self.find_load_assignment(name, &target, endpoints_variant(variant))
            }
            (ResourceType::Listener, Target::Service(service)) => {
                self.of_service(resource_type, name, service, |s| {
                    envoy::listener(service, s)
                })
            }
            (ResourceType::Listener, Target::Server(address)) => {
                self.of_its_name(resource_type, name, || server::listener(name, *address))
            }
            (ResourceType::RouteConfiguration, Target::Service(service)) => {
                self.of_service(resource_type, name, service, |s| {
                    envoy::route_configuration(service, s)
                })
            }
            _ => None,
        }
    }

    fn fabric_id(&self, fabric: &str) -> FabricId {
        self.0.fabrics.id(fabric)
    }

    fn scoped(&self, scope: &Arc<Scope>, variant: Variant) -> Option<Arc<dyn ResourceLocator>> {
        if variant.client != ClientKind::Envoy {
            return None;
        }
        Some(self.0.scopes.get_or_open(&self.0, scope, variant.delivery))
    }

    fn endpoints_name<'a>(&self, cluster: &'a str) -> Cow<'a, str> {
        let federated = FederatedName::parse(ResourceType::Cluster, cluster);
        federated.map_or(Cow::Borrowed(cluster), |name| Cow::Owned(name.endpoints()))
    }

    fn members(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
        _variant: Variant,
    ) -> Vec<ResourceName> {
        let names = members::members(&self.0.store, resource_type, prefix).into_iter();
        names
            .map(|name| self.0.cache.intern(resource_type, &name))
            .collect()
    }

    /// Listeners of gRPC servers are as many as there are addresses: they come by name only.
    fn is_member(&self, resource_type: ResourceType, name: &str, _variant: Variant) -> bool {
        let is_server = || matches!(Target::parse(resource_type, name), Some(Target::Server(_)));
        resource_type != ResourceType::Listener || !is_server()
    }

    fn is_glob_empty(&self, resource_type: ResourceType, prefix: &str, _variant: Variant) -> bool {
        match (resource_type, names::parse_uri_prefix(prefix)) {
            (ResourceType::D2Uri, Some(cluster)) => self.0.store.visible_count(cluster) == 0,
            _ => true,
        }
    }

    fn recently_removed(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
    ) -> Vec<ResourceName> {
        let names = members::recently_removed(&self.0.store, resource_type, prefix);
        names.into_iter().map(ResourceName::from).collect()
    }

    fn share_name(&self, resource_type: ResourceType, name: &str) -> ResourceName {
        let shared = self.0.subscribers.find_name(resource_type, name);
        shared.unwrap_or_else(|| name.into())
    }

    fn subscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken {
        let subscribers = &self.0.subscribers;
        match respelled(resource_type, interest) {
            Some((own, theirs)) => {
                let subscriber = Arc::new(Respelled::new(subscriber, theirs));
                subscribers.subscribe(resource_type, &own, subscriber)
            }
            None => subscribers.subscribe(resource_type, interest, subscriber),
        }
    }

    fn unsubscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        token: SubscriptionToken,
    ) {
        let respelled = respelled(resource_type, interest).map(|(own, _)| own);
        let interest = respelled.as_ref().unwrap_or(interest);
        self.0
            .subscribers
            .unsubscribe(resource_type, interest, token);
    }
}

/// The part of a variant that clusters differ by.
fn cluster_variant(variant: Variant) -> Variant {
    match variant.client {
        ClientKind::Envoy => Variant {
            addresses: AddressFamily::default(),
            fabric: FabricId::default(),
            ..variant
        },
        ClientKind::Grpc | ClientKind::D2 => Variant::default(),
    }
}

/// The part of a variant that load assignments differ by.
fn endpoints_variant(variant: Variant) -> Variant {
    let client = match variant.client {
        ClientKind::Envoy => ClientKind::Envoy,
        ClientKind::Grpc | ClientKind::D2 => ClientKind::Grpc,
    };
    Variant {
        client,
        delivery: Delivery::default(),
        upstream_tls: UpstreamTls::default(),
        ..variant
    }
}

/// For an explicit name in a spelling of the client's own: the interest in ours, and theirs.
fn respelled(resource_type: ResourceType, interest: &Interest) -> Option<(Interest, ResourceName)> {
    let Interest::Explicit(theirs) = interest else {
        return None;
    };
    let own = names::respell(resource_type, theirs)?;
    Some((Interest::Explicit(own.into()), Arc::clone(theirs)))
}
