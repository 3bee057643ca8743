//! The settings of the process and the versions of all that it serves.

use axum::Json;
use axum::extract::{RawQuery, State};
use form_urlencoded::parse;
use waypost_admin_api::{ConfigDump, ResourceEntry};
use waypost_core::{ResourceLocator as _, ResourceType, Variant};

use super::AdminState;
use super::error::ApiError;
use super::page::PageQuery;
use crate::render::names;

pub(super) async fn config_dump(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<ConfigDump>, ApiError> {
    let types = read_types(query.as_deref())?;
    let query = PageQuery::read(query.as_deref())?;
    let all = types
        .into_iter()
        .flat_map(|t| resource_names(&state, t).into_iter().map(move |n| (t, n)));
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(cursor);
    let page = query.cut(all, cursor, |(resource_type, name)| {
        let resource = state
            .locator
            .find(*resource_type, name, Variant::default())?;
        Some(ResourceEntry {
            type_label: resource_type.label().to_owned(),
            name: name.clone(),
            version: resource.version().to_string(),
            size_bytes: resource.len() as u64,
        })
    });
    Ok(Json(ConfigDump {
        settings: state.settings.shown.clone(),
        resources: page.items,
        next: page.next,
    }))
}

fn cursor((resource_type, name): &(ResourceType, String)) -> String {
    format!("{} {name}", resource_type.label())
}

fn read_types(query: Option<&str>) -> Result<Vec<ResourceType>, ApiError> {
    let labels: Vec<_> = parse(query.unwrap_or_default().as_bytes())
        .filter(|(name, _)| name == "type")
        .collect();
    if labels.is_empty() {
        return Ok(ResourceType::ALL.to_vec());
    }
    let find = |label: &str| ResourceType::ALL.into_iter().find(|t| t.label() == label);
    let types = labels.iter().map(|(_, label)| {
        find(label).ok_or_else(|| {
            let known = ResourceType::ALL.map(ResourceType::label).join(", ");
            ApiError::bad_request(format!("type={label} is none of {known}"))
        })
    });
    types.collect()
}

/// The names of every resource of a type: by the store, since not every type has a directory.
fn resource_names(state: &AdminState, resource_type: ResourceType) -> Vec<String> {
    let store = state.store();
    let clusters = || store.cluster_names().into_iter();
    let services = || store.service_names().into_iter();
    match resource_type {
        ResourceType::Cluster | ResourceType::ClusterLoadAssignment => clusters()
            .flat_map(|cluster| {
                let partitions = store.d2_partitions(cluster.as_str()).into_iter();
                let numbered = partitions.map(|p| names::d2_partition(cluster.as_str(), p));
                std::iter::once(cluster.to_string())
                    .chain(numbered)
                    .collect::<Vec<_>>()
            })
            .collect(),
        ResourceType::Listener | ResourceType::RouteConfiguration => {
            services().map(|s| s.to_string()).collect()
        }
        ResourceType::D2Node | ResourceType::D2ClusterOrServiceName => {
            let clusters = clusters().map(|c| names::cluster_node(c.as_str()));
            let services = services().map(|s| names::service_node(s.as_str()));
            clusters.chain(services).collect()
        }
        ResourceType::D2CalleeServices => {
            let applications = store.applications().into_iter();
            applications.map(|a| a.to_string()).collect()
        }
        ResourceType::D2UriMap => clusters().map(|c| names::uri_map(c.as_str())).collect(),
        ResourceType::D2Uri => clusters()
            .flat_map(|cluster| {
                let uris = store.visible_uris(cluster.as_str()).into_iter();
                uris.map(|uri| names::instance(cluster.as_str(), uri.as_str()))
                    .collect::<Vec<_>>()
            })
            .collect(),
    }
}
