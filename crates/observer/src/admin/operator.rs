//! `GET /api/v1/operator`: what operators stated, of the fleet or of one cluster.

use axum::Json;
use axum::extract::{RawQuery, State};
use waypost_admin_api::{
    ConflictView, EvictionView, JournalView, OperatorView, OrphanView, OverrideView, ReleaseView,
};
use waypost_core::config::{Eviction, JournalEntry, OverrideEffect, Release};
use waypost_core::{ConfigKey, ConfigValue, InstanceKey, Override, ReleaseScope};
use waypost_fold::{ConfigFold, Conflict};

use super::AdminState;
use super::error::ApiError;
use crate::limits::STATEMENTS_SHOWN_MAX;

pub(super) async fn operator(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<OperatorView>, ApiError> {
    let query = query.unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let cluster = pairs.find(|(name, _)| name == "cluster");
    let cluster = cluster.map(|(_, name)| name.into_owned());
    let view = state.questions.look(move |replica| {
        let concerns = Concerns(cluster);
        of_config(replica.logs().config, &concerns)
    });
    let mut view = view.await?;
    for o in &mut view.overrides {
        o.announced = !state
            .store()
            .instance_sources(&o.cluster, &o.uri)
            .is_empty();
    }
    Ok(Json(view))
}

/// Who evicted an instance last.
pub(super) fn find_eviction(config: &ConfigFold, key: &InstanceKey) -> Option<EvictionView> {
    match config
        .find(&ConfigKey::Eviction(key.clone()))?
        .value
        .as_ref()?
    {
        ConfigValue::Eviction(eviction) => Some(eviction_view(eviction)),
        _ => None,
    }
}

/// What an operator set for an instance, as far as it is announced.
pub(super) fn override_view(o: &Override, announced: bool) -> OverrideView {
    let weight = match o.effect {
        OverrideEffect::Weight(weight) => Some(weight.get()),
        OverrideEffect::Drain => None,
    };
    OverrideView {
        cluster: o.instance.cluster.to_string(),
        uri: o.instance.uri.to_string(),
        weight,
        drain: o.effect == OverrideEffect::Drain,
        author: o.signed.author.to_string(),
        reason: o.signed.reason.to_string(),
        set_at_ms: o.signed.at.0,
        announced,
    }
}

/// The cluster that is asked for; `None` is every one.
struct Concerns(Option<String>);

impl Concerns {
    fn has(&self, key: &ConfigKey) -> bool {
        let name = key.name();
        self.0
            .as_ref()
            .is_none_or(|cluster| cluster == name || name == "*")
    }
}

fn of_config(config: &ConfigFold, concerns: &Concerns) -> OperatorView {
    let overrides = config.overrides();
    let overrides = overrides.filter(|(key, _)| concerns.has(&ConfigKey::Override((*key).clone())));
    let mut overrides: Vec<_> = overrides.map(|(_, o)| override_view(o, false)).collect();
    overrides.sort_by(|a, b| (&a.cluster, &a.uri).cmp(&(&b.cluster, &b.uri)));
    overrides.truncate(STATEMENTS_SHOWN_MAX);

    let evictions = config.evictions();
    let evictions = evictions.filter(|e| concerns.has(&ConfigKey::Eviction(e.instance.clone())));
    let mut evictions: Vec<_> = evictions.map(eviction_view).collect();
    evictions.sort_by_key(|e| std::cmp::Reverse(e.evicted_at_ms));
    evictions.truncate(STATEMENTS_SHOWN_MAX);

    let releases = config.releases();
    let releases = releases.filter(|r| concerns.has(&ConfigKey::Release(r.scope.clone())));
    let mut releases: Vec<_> = releases.map(release_view).collect();
    releases.sort_by_key(|r| std::cmp::Reverse(r.released_at_ms));
    releases.truncate(STATEMENTS_SHOWN_MAX);

    let mut orphans: Vec<_> = config.orphans().map(|(key, _)| key).collect();
    orphans.retain(|key| concerns.has(key));
    orphans.sort_unstable();
    let conflicts = config.conflicts().filter(|c| concerns.has(&c.key));
    let journal = config.journal().map(|(_, entry)| entry);
    let journal = journal.filter(|entry| concerns.has(&entry.subject));
    OperatorView {
        overrides,
        evictions,
        releases,
        conflicts: conflicts.map(|c| conflict_view(c)).collect(),
        orphaned: orphans.into_iter().map(orphan_view).collect(),
        journal: journal
            .take(STATEMENTS_SHOWN_MAX)
            .map(journal_view)
            .collect(),
    }
}

fn eviction_view(eviction: &Eviction) -> EvictionView {
    EvictionView {
        cluster: eviction.instance.cluster.to_string(),
        uri: eviction.instance.uri.to_string(),
        author: eviction.signed.author.to_string(),
        reason: eviction.signed.reason.to_string(),
        evicted_at_ms: eviction.signed.at.0,
    }
}

fn release_view(release: &Release) -> ReleaseView {
    ReleaseView {
        cluster: match &release.scope {
            ReleaseScope::All => None,
            ReleaseScope::Cluster(name) => Some(name.to_string()),
        },
        author: release.signed.author.to_string(),
        reason: release.signed.reason.to_string(),
        released_at_ms: release.signed.at.0,
    }
}

fn conflict_view(conflict: &Conflict) -> ConflictView {
    ConflictView {
        kind: conflict.key.kind().to_owned(),
        name: conflict.key.to_string(),
        text: conflict.to_string(),
        appended_at_ms: conflict.append_time.0,
    }
}

fn orphan_view(key: &ConfigKey) -> OrphanView {
    OrphanView {
        kind: key.kind().to_owned(),
        name: key.to_string(),
    }
}

fn journal_view(entry: &JournalEntry) -> JournalView {
    JournalView {
        at_ms: entry.signed.at.0,
        action: entry.action.as_str().to_owned(),
        subject: subject(&entry.subject),
        detail: entry.detail.to_string(),
        author: entry.signed.author.to_string(),
        reason: entry.signed.reason.to_string(),
    }
}

/// What a thing was done to: the action says the rest (`evicted URI`, `released cluster C`).
fn subject(key: &ConfigKey) -> String {
    match key {
        ConfigKey::Override(key) | ConfigKey::Eviction(key) => {
            format!("{} in cluster {}", key.uri, key.cluster)
        }
        ConfigKey::Release(ReleaseScope::All) => "all clusters".to_owned(),
        ConfigKey::Release(ReleaseScope::Cluster(name)) => format!("cluster {name}"),
        ConfigKey::Definition(_) | ConfigKey::Journal(_) => key.to_string(),
    }
}
