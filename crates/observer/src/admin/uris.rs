//! The instances of a cluster: what they announce, and where each fact comes from.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde_json::Value;
use waypost_admin_api::{
    AnnouncedView, EvictionView, LogFacts, Page, RefusedNote, SourceView, UriHealth, UriView,
};
use waypost_core::announcement::effective_ttl;
use waypost_core::{Announcement, Health, InstanceKey, Offset, SourceSlot};
use waypost_fold::{Confirmation, Expiry, InstanceView, Refusal};
use waypost_store::ServedInstance;

use super::error::ApiError;
use super::page::PageQuery;
use super::{AdminState, millis, operator};
use crate::render::report::{self, InstanceReport};

pub(super) async fn uris(
    State(state): State<AdminState>,
    Path(cluster): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<UriView>>, ApiError> {
    let query = PageQuery::read(query.as_deref())?;
    let found = state.store().find_cluster(&cluster).ok_or_else(|| {
        state.no_such(format!(
            "no cluster {cluster:?} is known; `waypost get clusters` lists those that are"
        ))
    })?;
    // A large cluster is asked for page by page: only what is on this one is read and reported.
    let cursor = |instance: &ServedInstance| instance.uri.to_string();
    let instances = found.instances.clone();
    let page = query.cut(instances, cursor, |instance| {
        report::find_instance(state.store(), &found, instance)
    });
    Ok(Json(Page {
        items: views(&state, page.items).await?,
        next: page.next,
    }))
}

/// What is known of these instances, the log's facts included.
pub(super) async fn views(
    state: &AdminState,
    reports: Vec<InstanceReport>,
) -> Result<Vec<UriView>, ApiError> {
    let keys = reports.iter().map(|report| key(&report.announcement));
    let keys: Vec<_> = keys.collect();
    let looked = state.questions.look(move |replica| {
        let (announcements, config) = (replica.logs().announcements, replica.logs().config);
        let look = |key| {
            (
                announcements.find(key),
                operator::find_eviction(config, key),
            )
        };
        keys.iter().map(look).collect::<Vec<_>>()
    });
    let views = reports.into_iter().zip(looked.await?);
    Ok(views
        .map(|(report, (logged, evicted))| view(state, report, logged.as_ref(), evicted))
        .collect())
}

fn key(announcement: &Announcement) -> InstanceKey {
    InstanceKey {
        cluster: announcement.cluster.clone(),
        uri: announcement.uri.clone(),
    }
}

fn view(
    state: &AdminState,
    report: InstanceReport,
    logged: Option<&InstanceView>,
    evicted: Option<EvictionView>,
) -> UriView {
    let unresolved = report.is_unresolved().then(|| {
        "it announces no address and its URI names none; gRPC and Envoy clients are not told of it"
            .to_owned()
    });
    let refusals = logged.and_then(|l| l.refusal.as_deref());
    let overridden = report.overridden.as_ref();
    let above = overridden.map(|o| operator::override_view(&o.above, true));
    let announced = overridden.map(|o| AnnouncedView {
        health: health(o.announced.health),
        weights: o.announced.weights.clone(),
    });
    let a = report.announcement;
    UriView {
        cluster: a.cluster.to_string(),
        uri: a.uri.to_string(),
        hostname: a.hostname,
        addresses: report.addresses.iter().map(ToString::to_string).collect(),
        unresolved,
        health: health(a.health),
        weights: a.weights,
        overridden: above,
        announced,
        evicted,
        metadata: serde_json::from_str(&a.metadata).unwrap_or(Value::Null),
        fabric: a.fabric,
        zone: a.zone,
        application: a.application,
        tracing_id: a.tracing_id,
        origin_at_ms: a.origin.0,
        heartbeat_ms: millis(a.heartbeat),
        ttl_ms: millis(effective_ttl(a.ttl)),
        sources: sources(&report.sources, logged),
        refused: refusals.map(|r| refused(state, r)).into_iter().collect(),
    }
}

fn health(health: Health) -> UriHealth {
    match health {
        Health::Healthy => UriHealth::Healthy,
        Health::Draining => UriHealth::Draining,
        Health::Unhealthy => UriHealth::Unhealthy,
    }
}

fn sources(slots: &[SourceSlot], logged: Option<&InstanceView>) -> Vec<SourceView> {
    let slots = slots.iter().enumerate();
    slots
        .map(|(index, slot)| SourceView {
            name: slot.as_str().to_owned(),
            served: index == 0,
            log: logged.filter(|_| *slot == SourceSlot::Log).map(log_facts),
        })
        .collect()
}

fn log_facts(logged: &InstanceView) -> LogFacts {
    LogFacts {
        partition: logged.partition.0,
        wrong_partition: logged.wrong_partition,
        offset: logged.offset.0,
        appended_at_ms: logged.append_time.0,
        heartbeat_age_ms: millis(logged.heartbeat_age),
        life_id: logged.life.id.map(|id| id.to_string()),
        born_at_ms: logged.life.birth.map_or(logged.append_time.0, |b| b.0),
        seq: logged.life.seq,
        held: logged.expiry == Expiry::Held,
        // Of a snapshot nothing was read in this log either.
        unconfirmed: logged.confirmation == Confirmation::Unconfirmed
            || logged.offset == Offset::NONE,
    }
}

fn refused(state: &AdminState, refusal: &Refusal) -> RefusedNote {
    RefusedNote {
        // The word is the name of the field already.
        reason: refusal
            .to_string()
            .trim_start_matches("refused: ")
            .to_owned(),
        life_id: refusal.life.id.map(|id| id.to_string()),
        hostname: refusal.hostname.to_string(),
        offset: refusal.offset.0,
        age_ms: state.age_ms(refusal.append_time),
    }
}
