//! Collections: which resources of a type there are, and which left not long ago.

use waypost_core::ResourceType;
use waypost_store::Store;

use crate::render::names;

/// The names of all resources of a type, or of the direct members of a glob, in name order.
pub(super) fn members(
    store: &Store,
    resource_type: ResourceType,
    prefix: Option<&str>,
) -> Vec<String> {
    match (resource_type, prefix) {
        (ResourceType::D2Uri, Some(prefix)) => match names::parse_uri_prefix(prefix) {
            Some(cluster) => in_order(instances(store, cluster)),
            None => Vec::new(),
        },
        // Only D2URI is served as glob collections.
        (_, Some(_)) => Vec::new(),
        (_, None) => in_order(all(store, resource_type)),
    }
}

/// Names that left a collection and are not back. Instances that are hidden for their health are
/// among them: a client that was away when they turned unhealthy still holds them.
pub(super) fn recently_removed(
    store: &Store,
    resource_type: ResourceType,
    prefix: Option<&str>,
) -> Vec<String> {
    match (resource_type, prefix) {
        (ResourceType::D2Uri, Some(prefix)) => match names::parse_uri_prefix(prefix) {
            Some(cluster) => in_order(removed_instances(store, cluster)),
            None => Vec::new(),
        },
        (_, Some(_)) => Vec::new(),
        (_, None) => in_order(all_removed(store, resource_type)),
    }
}

fn all(store: &Store, resource_type: ResourceType) -> Vec<String> {
    let clusters = || store.cluster_names().into_iter();
    let services = || store.service_names().into_iter();
    match resource_type {
        ResourceType::D2Node | ResourceType::D2ClusterOrServiceName => clusters()
            .map(|c| names::cluster_node(c.as_str()))
            .chain(services().map(|s| names::service_node(s.as_str())))
            .collect(),
        ResourceType::D2UriMap => clusters()
            .filter(|c| !names::is_symlink(c.as_str()))
            .map(|c| names::uri_map(c.as_str()))
            .collect(),
        ResourceType::D2Uri => clusters()
            .flat_map(|c| instances(store, c.as_str()))
            .collect(),
        ResourceType::Cluster | ResourceType::ClusterLoadAssignment => clusters()
            .filter(|c| !names::is_symlink(c.as_str()))
            .flat_map(|c| {
                let numbers = store.d2_partitions(c.as_str()).into_iter();
                let partitions: Vec<_> = numbers
                    .map(|number| names::d2_partition(c.as_str(), number))
                    .collect();
                std::iter::once(c.as_str().to_owned()).chain(partitions)
            })
            .collect(),
        ResourceType::Listener | ResourceType::RouteConfiguration => services()
            .filter(|s| {
                store
                    .leads_to(s.as_str())
                    .is_some_and(|c| !names::is_symlink(c.as_str()))
            })
            .map(|s| s.as_str().to_owned())
            .collect(),
        ResourceType::D2CalleeServices => {
            let applications = store.applications().into_iter();
            applications.map(|a| a.to_string()).collect()
        }
    }
}

fn all_removed(store: &Store, resource_type: ResourceType) -> Vec<String> {
    let clusters = || store.removed_clusters().into_iter();
    let services = || store.removed_services().into_iter();
    match resource_type {
        ResourceType::D2Node | ResourceType::D2ClusterOrServiceName => clusters()
            .map(|c| names::cluster_node(c.as_str()))
            .chain(services().map(|s| names::service_node(s.as_str())))
            .collect(),
        ResourceType::D2UriMap => clusters().map(|c| names::uri_map(c.as_str())).collect(),
        ResourceType::D2Uri => store
            .clusters_with_removed_instances()
            .into_iter()
            .flat_map(|c| removed_instances(store, c.as_str()))
            .collect(),
        ResourceType::Cluster | ResourceType::ClusterLoadAssignment => {
            clusters().map(|c| c.as_str().to_owned()).collect()
        }
        ResourceType::Listener | ResourceType::RouteConfiguration => {
            services().map(|s| s.as_str().to_owned()).collect()
        }
        ResourceType::D2CalleeServices => {
            let applications = store.removed_applications().into_iter();
            applications.map(|a| a.to_string()).collect()
        }
    }
}

fn instances(store: &Store, cluster: &str) -> Vec<String> {
    let uris = store.visible_uris(cluster).into_iter();
    uris.map(|uri| names::instance(cluster, uri.as_str()))
        .collect()
}

fn removed_instances(store: &Store, cluster: &str) -> Vec<String> {
    let uris = store.removed_instances(cluster).into_iter();
    uris.map(|uri| names::instance(cluster, uri.as_str()))
        .collect()
}

/// Whole names in byte order keep those of one cluster next to each other: they share a prefix that
/// ends in a slash.
fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}
