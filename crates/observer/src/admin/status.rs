//! `GET /api/v1/status`.

use axum::Json;
use axum::extract::State;
use waypost_admin_api::{
    Counts, HoldingScope, KeeperRole, KeeperStatus, LogStatus, ObserverInfo, OrphanedDefinition,
    PartitionStatus, Pending, RefusedDefinition, SharedSymlinks, SourceState, SourceStatus, Status,
    TopicStatus,
};
use waypost_core::{ConfigKey, SourceSlot, Topic};
use waypost_fold::Holding;
use waypost_store::Store;

use super::error::ApiError;
use super::{AdminState, millis};
use crate::ingest::{LogView, PartitionFacts, held_instances};
use crate::settings::LogWrites;
use crate::symlinks;

pub(super) async fn status(State(state): State<AdminState>) -> Result<Json<Status>, ApiError> {
    let log = state.questions.log().await?;
    let stale_reasons = state.readiness.stale_reasons();
    let pending = state.readiness.pending().into_iter();
    Ok(Json(Status {
        observer: observer(&state),
        ready: state.readiness.is_ready(),
        pending: pending
            .map(|task| Pending {
                name: task.name,
                reason: task.reason,
            })
            .collect(),
        stale: !stale_reasons.is_empty(),
        sources: vec![log_source(&state, &log, &stale_reasons)],
        stale_reasons,
        log: log_status(&state, &log),
        keeper: keeper(&state, &log),
        counts: counts(&state, &log),
        replaying: log
            .replaying
            .iter()
            .map(|t| t.suffix().to_owned())
            .collect(),
        holding_clusters: holding_clusters(&log),
        holding: holding(&log),
        orphaned: log.orphans.iter().map(orphaned).collect(),
        refused_definitions: refused_definitions(&log),
        shared_symlinks: shared_symlinks(state.store()),
    }))
}

fn observer(state: &AdminState) -> ObserverInfo {
    ObserverInfo {
        identifier: state.identifier.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fabric: state.settings.fabric.clone(),
        zone: state.settings.zone.clone(),
        read_only: state.settings.log_writes == LogWrites::ReadOnly,
        grpc_address: state.grpc_address.to_string(),
        admin_address: state.admin_address.to_string(),
        uptime_ms: millis(state.started.elapsed()),
    }
}

fn log_source(state: &AdminState, log: &LogView, stale_reasons: &[String]) -> SourceStatus {
    let source_state = match (&log.away, log.is_loaded, stale_reasons.is_empty()) {
        (Some(_), _, _) => SourceState::Unavailable,
        (None, false, _) => SourceState::Loading,
        (None, true, false) => SourceState::Lagging,
        (None, true, true) => SourceState::Live,
    };
    SourceStatus {
        name: SourceSlot::Log.as_str().to_owned(),
        state: source_state,
        lag_records: log.partitions.iter().filter_map(lag_records).sum(),
        last_record_age_ms: log.last_append.map(|time| state.age_ms(time)),
        detail: log.away.clone().or_else(|| stale_reasons.first().cloned()),
    }
}

fn log_status(state: &AdminState, log: &LogView) -> LogStatus {
    let topics = Topic::ALL.into_iter().map(|topic| {
        let of_topic = log.partitions.iter().filter(|p| p.topic == topic);
        TopicStatus {
            name: topic.suffix().to_owned(),
            partitions: of_topic.map(|p| partition_status(p, log)).collect(),
        }
    });
    LogStatus {
        kind: state.settings.log_kind,
        identity: log.identity.map(|identity| identity.to_string()),
        topics: topics.collect(),
    }
}

fn partition_status(p: &PartitionFacts, log: &LogView) -> PartitionStatus {
    PartitionStatus {
        partition: p.partition.0,
        position: p.position.0,
        end: p.end.map(|end| end.0),
        lag_records: lag_records(p),
        loaded: log.is_loaded || lag_records(p) == Some(0),
        log_time_ms: p.log_time.map(|time| time.0),
        digest: p.digest.map(|digest| format!("{digest:016x}")),
    }
}

fn lag_records(p: &PartitionFacts) -> Option<u64> {
    let behind = p.end?.0.saturating_sub(p.position.0);
    Some(u64::try_from(behind).unwrap_or(0))
}

fn keeper(state: &AdminState, log: &LogView) -> KeeperStatus {
    let role = match state.settings.log_writes {
        LogWrites::ReadOnly => KeeperRole::ReadOnly,
        LogWrites::Keep if log.current_keeper == Some(log.own_id) => KeeperRole::Keeper,
        LogWrites::Keep => KeeperRole::Standby,
    };
    let own_id = (role != KeeperRole::ReadOnly).then(|| log.own_id.to_string());
    KeeperStatus {
        role,
        own_id,
        current_id: log.current_keeper.map(|id| id.to_string()),
    }
}

fn counts(state: &AdminState, log: &LogView) -> Counts {
    let store = state.store().counts();
    Counts {
        clusters: store.clusters as u64,
        services: state.store().service_names().len() as u64,
        instances: store.instances as u64,
        streams: state.streams.len() as u64,
        held_instances: held_instances(&log.holding),
        unconfirmed_instances: log.unconfirmed as u64,
        orphaned: log.orphan_count as u64,
    }
}

fn holding_clusters(log: &LogView) -> Vec<String> {
    let clusters = log.holding.clusters.iter();
    clusters.map(|(name, _)| name.to_string()).collect()
}

fn holding(log: &LogView) -> Vec<HoldingScope> {
    let scope = |cluster: Option<String>, holding: &Holding| HoldingScope {
        cluster,
        since_at_ms: holding.since.0,
        lasts_ms: millis(holding.lasts),
        live: holding.live,
        overdue: holding.overdue,
        cap: holding.cap,
    };
    let fleet = log.holding.fleet.iter().map(|held| scope(None, held));
    let clusters = log.holding.clusters.iter();
    let clusters = clusters.map(|(name, held)| scope(Some(name.to_string()), held));
    fleet.chain(clusters).collect()
}

fn orphaned(key: &ConfigKey) -> OrphanedDefinition {
    let uri = match key {
        ConfigKey::Override(instance) | ConfigKey::Eviction(instance) => {
            Some(instance.uri.to_string())
        }
        ConfigKey::Definition(_) | ConfigKey::Release(_) | ConfigKey::Journal(_) => None,
    };
    OrphanedDefinition {
        kind: key.kind().to_owned(),
        name: key.name().to_owned(),
        uri,
    }
}

fn refused_definitions(log: &LogView) -> Vec<RefusedDefinition> {
    let refused = log.refused_definitions.iter();
    refused
        .map(|record| RefusedDefinition {
            partition: record.partition.0,
            offset: record.offset.0,
            reason: record.reason.clone(),
        })
        .collect()
}

fn shared_symlinks(store: &Store) -> Vec<SharedSymlinks> {
    let shared = symlinks::shared_targets(store).into_iter();
    shared
        .map(|(cluster, symlinks)| SharedSymlinks {
            cluster,
            symlinks: symlinks.iter().map(ToString::to_string).collect(),
        })
        .collect()
}
