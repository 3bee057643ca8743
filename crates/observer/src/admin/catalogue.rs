//! Clusters and services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde_json::Value;
use waypost_admin_api::{
    ClusterSummary, ClusterView, DefinitionView, HealthCounts, LeftOutView, LoadView,
    LocalityLoadView, Page, ServiceView,
};
use waypost_core::definition::DefinitionStat;
use waypost_core::{
    ClusterName, DefinitionKey, Health, ResourceLocator as _, ResourceType, ServiceName,
    SourceSlot, Variant,
};
use waypost_fold::Origin;
use waypost_store::{ClusterSnapshot, Store};

use super::error::ApiError;
use super::page::PageQuery;
use super::{AdminState, millis};
use crate::load_reports::{ClusterLoad, Locality, Rates};
use crate::render::properties::{ClusterProperties, LeftOut, ServiceProperties};
use crate::render::report::InstanceReport;
use crate::render::{names, report};

pub(super) async fn clusters(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<ClusterSummary>>, ApiError> {
    let query = PageQuery::read(query.as_deref())?;
    let store = state.store();
    let services = services_by_cluster(store);
    let page = query.cut(store.cluster_names(), ToString::to_string, |name| {
        let snapshot = store.find_cluster(name.as_str())?;
        let services = services.get(name).cloned().unwrap_or_default();
        Some(summary(&snapshot, services))
    });
    Ok(Json(page))
}

pub(super) async fn cluster(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<ClusterView>, ApiError> {
    let store = state.store();
    let no_such = || {
        state.no_such(format!(
            "no cluster {name:?} is known; `waypost get clusters` lists those that are"
        ))
    };
    let snapshot = store.find_cluster(&name).ok_or_else(no_such)?;
    let found = report::find_cluster(store, &name).ok_or_else(no_such)?;
    let services = found.services.iter().map(ToString::to_string).collect();
    let definition = found.definition.as_ref();
    Ok(Json(ClusterView {
        summary: summary(&snapshot, services),
        definition: match definition {
            Some(d) => {
                let left_out = ClusterProperties::read(Some(&**d)).left_out;
                let view = definition_view(&d.document, d.stat, &d.author, left_out);
                Some(with_log(&state, DefinitionKey::Cluster(d.name.clone()), view).await?)
            }
            None => None,
        },
        sources: source_names(&found.sources),
        min_healthy_percent: u32::from(found.min_healthy_percent),
        unresolved_uris: uris(found.unresolved()),
        ipv6_only_uris: uris(found.without(IpAddr::is_ipv4)),
        ipv4_only: found.without(IpAddr::is_ipv6).count() as u64,
        d2_partitions: found.d2_partitions,
        versions: versions(&state, &name),
        load: state.load_reports.find(&name).map(|load| load_view(&load)),
    }))
}

pub(super) async fn services(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<ServiceView>>, ApiError> {
    let query = PageQuery::read(query.as_deref())?;
    let page = query.cut(state.store().service_names(), ToString::to_string, |name| {
        let mut view = service_view(state.store(), name)?;
        view.definition = None;
        Some(view)
    });
    Ok(Json(page))
}

pub(super) async fn service(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<ServiceView>, ApiError> {
    let no_such = || {
        state.no_such(format!(
            "no service {name:?} is known; `waypost get services` lists those that are"
        ))
    };
    let parsed = ServiceName::parse(&name).map_err(|_| no_such())?;
    let mut view = service_view(state.store(), &parsed).ok_or_else(no_such)?;
    if let Some(definition) = view.definition.take() {
        let key = DefinitionKey::Service(parsed);
        view.definition = Some(with_log(&state, key, definition).await?);
    }
    Ok(Json(view))
}

fn uris<'a>(instances: impl Iterator<Item = &'a InstanceReport>) -> Vec<String> {
    let uris = instances.map(|instance| instance.announcement.uri.to_string());
    uris.collect()
}

/// Adds what the log says of a definition's record.
pub(super) async fn with_log(
    state: &AdminState,
    key: DefinitionKey,
    view: DefinitionView,
) -> Result<DefinitionView, ApiError> {
    let looked = state.questions.look(move |replica| {
        let held = replica.logs().config.find(&key.into())?;
        let conflict = held.conflict.as_ref().map(ToString::to_string);
        Some((held.origin == Origin::Orphaned, conflict))
    });
    let (orphaned, conflict) = looked.await?.unwrap_or_default();
    Ok(DefinitionView {
        orphaned,
        conflict,
        ..view
    })
}

/// Which services lead to each cluster, found in one walk over all services.
fn services_by_cluster(store: &Store) -> BTreeMap<ClusterName, Vec<String>> {
    let mut by_cluster: BTreeMap<ClusterName, Vec<String>> = BTreeMap::new();
    for service in store.service_names() {
        if let Some(cluster) = store.leads_to(service.as_str()) {
            let services = by_cluster.entry(cluster).or_default();
            services.push(service.to_string());
        }
    }
    by_cluster
}

fn summary(snapshot: &ClusterSnapshot, services: Vec<String>) -> ClusterSummary {
    let mut instances = HealthCounts {
        total: snapshot.instances.len() as u64,
        ..HealthCounts::default()
    };
    for instance in &snapshot.instances {
        match instance.health {
            Health::Healthy => instances.healthy += 1,
            Health::Draining => instances.draining += 1,
            Health::Unhealthy => instances.unhealthy += 1,
        }
    }
    let definition = snapshot.definition.as_ref();
    ClusterSummary {
        name: snapshot.name.to_string(),
        implicit: definition.is_none(),
        services,
        instances,
        health_ignored: snapshot.fail_open,
        revision: definition.map(|(_, d)| d.stat.revision),
        symlink_to: definition.and_then(|(_, d)| d.find_symlink_target().map(str::to_owned)),
    }
}

fn load_view(load: &ClusterLoad) -> LoadView {
    let a_second = |per_1000s: u64| per_1000s as f64 / 1_000.0;
    let of_locality = |(locality, rates): (&Locality, &Rates)| LocalityLoadView {
        fabric: locality.region.clone(),
        zone: locality.zone.clone(),
        requests_per_second: a_second(rates.issued_per_1000s),
        failures_per_second: a_second(rates.failed_per_1000s),
        in_progress: rates.in_progress,
    };
    LoadView {
        reporters: load.reporters as u64,
        localities: load.now.iter().map(of_locality).collect(),
        dropped_per_second: a_second(load.dropped_per_1000s),
        succeeded: load.totals.succeeded,
        failed: load.totals.failed,
        dropped: load.totals.dropped,
        age_ms: millis(load.last_report.elapsed()),
    }
}

fn service_view(store: &Store, name: &ServiceName) -> Option<ServiceView> {
    let found = report::find_service(store, name)?;
    let definition = found.definition.as_ref();
    Some(ServiceView {
        name: found.name.to_string(),
        cluster: found.cluster.to_string(),
        path: definition.map_or_else(String::new, |d| d.path.clone()),
        implicit: definition.is_none(),
        definition: definition.map(|d| {
            let left_out = ServiceProperties::read(d).left_out;
            definition_view(&d.document, d.stat, &d.author, left_out)
        }),
        sources: source_names(&found.sources),
    })
}

pub(super) fn definition_view(
    document: &[u8],
    stat: DefinitionStat,
    author: &str,
    left_out: Vec<LeftOut>,
) -> DefinitionView {
    let left_out = left_out.into_iter().map(|left_out| LeftOutView {
        property: left_out.property,
        why: left_out.why,
    });
    DefinitionView {
        properties: serde_json::from_slice(document).unwrap_or(Value::Null),
        created_at_ms: stat.created.0,
        modified_at_ms: stat.modified.0,
        revision: stat.revision,
        author: author.to_owned(),
        orphaned: false,
        conflict: None,
        left_out: left_out.collect(),
    }
}

/// The versions of what is made from a cluster, for the default variant.
fn versions(state: &AdminState, cluster: &str) -> BTreeMap<String, String> {
    let resources = [
        (ResourceType::Cluster, cluster.to_owned()),
        (ResourceType::ClusterLoadAssignment, cluster.to_owned()),
        (ResourceType::D2Node, names::cluster_node(cluster)),
        (ResourceType::D2UriMap, names::uri_map(cluster)),
    ];
    let found = resources.into_iter().filter_map(|(resource_type, name)| {
        let resource = state
            .locator
            .find(resource_type, &name, Variant::default())?;
        let version = resource.version().to_string();
        Some((resource_type.label().to_owned(), version))
    });
    found.collect()
}

pub(super) fn source_names(sources: &[SourceSlot]) -> Vec<String> {
    let names = sources.iter().map(|slot| slot.as_str().to_owned());
    names.collect()
}
