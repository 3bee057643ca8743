//! Changes of facts to the names of the resources that they touch.

use std::sync::Arc;

use waypost_core::{ResourceName, ResourceType, Subscriber};
use waypost_store::{ChangeListener, ChangeSet, ClusterChange, Subscribers};

use super::memo::Memo;
use crate::render::names;

/// Has threads forget what a change touches, then marks it for everybody who wants it. Names of
/// types that nobody wants are not even made.
pub(super) struct ChangeRouter {
    subscribers: Arc<Subscribers>,
    memo: Arc<Memo>,
}

impl ChangeRouter {
    pub(super) fn new(subscribers: Arc<Subscribers>, memo: Arc<Memo>) -> Self {
        Self { subscribers, memo }
    }

    fn mark(&self, resource_type: ResourceType, name: impl FnOnce() -> String) {
        if self.subscribers.is_wanted(resource_type) {
            self.subscribers.notify(resource_type, &name().into());
        }
    }

    fn cluster_changed(&self, cluster: &str, change: &ClusterChange) {
        self.memo.forget(cluster);
        let plain = || cluster.to_owned();
        let partitions = || change.d2_partitions.iter();
        if change.definition || change.existence {
            self.mark(ResourceType::D2Node, || names::cluster_node(cluster));
        }
        if change.definition || change.existence || change.services {
            self.mark(ResourceType::Cluster, plain);
            for number in partitions() {
                self.mark(ResourceType::Cluster, || {
                    names::d2_partition(cluster, *number)
                });
            }
        }
        if change.existence {
            self.mark(ResourceType::D2ClusterOrServiceName, || {
                names::cluster_node(cluster)
            });
        }
        if change.instances || change.existence {
            self.mark(ResourceType::ClusterLoadAssignment, plain);
            for number in partitions() {
                self.mark(ResourceType::ClusterLoadAssignment, || {
                    names::d2_partition(cluster, *number)
                });
            }
        }
        if !change.visible.is_empty() || change.existence {
            self.mark(ResourceType::D2UriMap, || names::uri_map(cluster));
        }
        for uri in &change.visible {
            self.mark(ResourceType::D2Uri, || {
                names::instance(cluster, uri.as_str())
            });
        }
    }

    fn service_changed(&self, service: &str) {
        self.mark(ResourceType::D2Node, || names::service_node(service));
        self.mark(ResourceType::D2ClusterOrServiceName, || {
            names::service_node(service)
        });
        self.mark(ResourceType::Listener, || service.to_owned());
        self.mark(ResourceType::RouteConfiguration, || service.to_owned());
    }
}

impl ChangeListener for ChangeRouter {
    fn is_heard(&self) -> bool {
        let mut types = ResourceType::ALL.into_iter();
        types.any(|resource_type| self.subscribers.is_wanted(resource_type))
    }

    fn changed(&self, changes: &ChangeSet) {
        for (cluster, change) in &changes.clusters {
            self.cluster_changed(cluster.as_str(), change);
        }
        for service in &changes.services {
            self.service_changed(service.as_str());
        }
        for application in &changes.applications {
            self.mark(ResourceType::D2CalleeServices, || application.to_string());
        }
    }
}

/// A subscriber that asked for a resource under a spelling of its own and is told of it in that.
pub(super) struct Respelled {
    subscriber: Arc<dyn Subscriber>,
    name: ResourceName,
}

impl Respelled {
    pub(super) fn new(subscriber: Arc<dyn Subscriber>, name: ResourceName) -> Self {
        Self { subscriber, name }
    }
}

impl Subscriber for Respelled {
    fn mark_changed(&self, resource_type: ResourceType, _own: &ResourceName) {
        self.subscriber.mark_changed(resource_type, &self.name);
    }
}
