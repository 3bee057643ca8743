//! Which services lead to each cluster: the way back from a change of a service to what is made of the
//! cluster that it leads to.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use waypost_core::{ClusterName, ServiceDefinition, ServiceName};

use crate::shards::Shards;
use crate::store::{ServiceState, Store};

/// The defined services that lead to each cluster, whether anything else is known of it or not.
#[derive(Debug, Default)]
pub(crate) struct Led(Shards<HashMap<ClusterName, BTreeSet<ServiceName>>>);

impl Led {
    /// `service` led to the cluster `from` and leads to `to` now.
    pub(crate) fn turn(
        &self,
        service: &ServiceName,
        from: Option<&ClusterName>,
        to: Option<&ClusterName>,
    ) {
        if from == to {
            return;
        }
        if let Some(cluster) = to {
            let mut by_cluster = self.0.of(cluster.as_str()).write();
            let services = by_cluster.entry(cluster.clone()).or_default();
            services.insert(service.clone());
        }
        if let Some(cluster) = from {
            let mut by_cluster = self.0.of(cluster.as_str()).write();
            if let Some(services) = by_cluster.get_mut(cluster) {
                services.remove(service);
                if services.is_empty() {
                    by_cluster.remove(cluster);
                }
            }
        }
    }

    /// In name order.
    fn find(&self, cluster: &str) -> Vec<ServiceName> {
        let by_cluster = self.0.of(cluster).read();
        let services = by_cluster.get(cluster).into_iter().flatten();
        services.cloned().collect()
    }
}

impl Store {
    /// Definitions of the services that lead to a cluster, in name order. What is made of them is known to
    /// be out of date by [`Stamp::services`](crate::Stamp::services).
    #[must_use]
    pub fn definitions_leading_to(&self, cluster: &str) -> Vec<Arc<ServiceDefinition>> {
        let services = self.0.led.find(cluster).into_iter();
        let definition = |name: ServiceName| match self.find_service(name.as_str())? {
            ServiceState::Defined { definition, .. } => Some(definition),
            ServiceState::Implicit { .. } => None,
        };
        services
            .filter_map(definition)
            .filter(|definition| definition.cluster.as_str() == cluster)
            .collect()
    }

    /// The services that lead to a cluster, the implicit one too, in name order.
    #[must_use]
    pub fn services_leading_to(&self, cluster: &str) -> Vec<ServiceName> {
        let mut services = self.0.led.find(cluster);
        if let Some(ServiceState::Implicit { cluster }) = self.find_service(cluster) {
            services.extend(ServiceName::parse(cluster.as_str()));
            services.sort_unstable();
        }
        services
    }
}
