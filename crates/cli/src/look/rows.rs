//! What the admin API says, as cells of a table.

use std::collections::BTreeMap;

use waypost_admin_api::{
    CalleesView, ClusterSummary, LogFacts, RefusedNote, ServiceView, SourceView, StreamView,
    UriView,
};

use super::statements;
use crate::output::show_age;

pub(super) const CLUSTERS: [&str; 7] = [
    "cluster",
    "instances",
    "healthy",
    "draining",
    "unhealthy",
    "services",
    "definition",
];

pub(super) fn cluster(c: &ClusterSummary) -> Vec<String> {
    let healthy = c.instances.healthy.to_string();
    vec![
        c.name.clone(),
        c.instances.total.to_string(),
        if c.health_ignored {
            format!("{healthy} (ignored)")
        } else {
            healthy
        },
        c.instances.draining.to_string(),
        c.instances.unhealthy.to_string(),
        c.services.join(","),
        match &c.symlink_to {
            Some(cluster) => format!("leads to {cluster}"),
            None => definition(c.implicit, c.revision),
        },
    ]
}

pub(super) const SERVICES: [&str; 4] = ["service", "cluster", "path", "definition"];

pub(super) fn service(s: &ServiceView) -> Vec<String> {
    vec![
        s.name.clone(),
        s.cluster.clone(),
        s.path.clone(),
        definition(s.implicit, s.definition.as_ref().map(|d| d.revision)),
    ]
}

pub(super) const CALLEES: [&str; 3] = ["application", "services", "definition"];

pub(super) fn callees(c: &CalleesView) -> Vec<String> {
    vec![
        c.application.clone(),
        c.services.join(","),
        definition(false, Some(c.revision)),
    ]
}

fn definition(implicit: bool, revision: Option<u32>) -> String {
    match revision {
        _ if implicit => "implicit".to_owned(),
        Some(revision) => format!("revision {revision}"),
        None => "defined".to_owned(),
    }
}

pub(super) const URIS: [&str; 8] = [
    "cluster",
    "uri",
    "health",
    "weight",
    "address",
    "source",
    "heartbeat",
    "notes",
];

pub(super) fn uri(u: &UriView) -> Vec<String> {
    vec![
        u.cluster.clone(),
        u.uri.clone(),
        u.health.as_str().to_owned(),
        weights(&u.weights),
        u.addresses.join(","),
        sources(&u.sources),
        heartbeat(&u.sources),
        notes(u),
    ]
}

/// `1` for the usual case, `0:1,3:0.5` where there are D2 partitions.
pub(super) fn weights(weights: &BTreeMap<i32, f64>) -> String {
    match weights.iter().next() {
        Some((0, weight)) if weights.len() == 1 => weight.to_string(),
        _ => {
            let parts: Vec<_> = weights.iter().map(|(p, w)| format!("{p}:{w}")).collect();
            parts.join(",")
        }
    }
}

/// The served source first, with its place in the log.
fn sources(sources: &[SourceView]) -> String {
    let parts: Vec<_> = sources
        .iter()
        .map(|source| match &source.log {
            Some(log) if log.offset < 0 => format!("{} (not read yet)", source.name),
            Some(log) => format!("{} {}@{}", source.name, log.partition, log.offset),
            None => source.name.clone(),
        })
        .collect();
    parts.join(", ")
}

fn heartbeat(sources: &[SourceView]) -> String {
    find_log(sources).filter(|log| log.offset >= 0).map_or_else(
        || "-".to_owned(),
        |log| format!("{} ago", show_age(log.heartbeat_age_ms)),
    )
}

pub(super) fn find_log(sources: &[SourceView]) -> Option<&LogFacts> {
    sources.iter().find_map(|source| source.log.as_ref())
}

pub(super) fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// Everything about an instance that is not as usual.
pub(super) fn notes(u: &UriView) -> String {
    let mut notes = Vec::new();
    notes.extend(u.overridden.as_ref().map(|o| {
        let effect = statements::effect(o);
        format!("{effect} set by {}: {}", o.author, o.reason)
    }));
    notes.extend(
        u.unresolved
            .as_ref()
            .map(|why| format!("no address: {why}")),
    );
    if let Some(log) = find_log(&u.sources) {
        let flags = [
            (log.held, "expiry held"),
            (log.unconfirmed, "unconfirmed"),
            (log.wrong_partition, "wrong partition"),
        ];
        notes.extend(
            flags
                .iter()
                .filter(|(is, _)| *is)
                .map(|(_, word)| (*word).to_owned()),
        );
    }
    notes.extend(u.refused.iter().map(refused));
    notes.join("; ")
}

pub(super) fn refused(note: &RefusedNote) -> String {
    format!("refused: {}, {} ago", note.reason, show_age(note.age_ms))
}

pub(super) const STREAMS: [&str; 8] = [
    "stream", "peer", "protocol", "client", "node", "open", "names", "nacks",
];

pub(super) fn stream(s: &StreamView) -> Vec<String> {
    let names: u64 = s.types.iter().map(|t| t.names_total).sum();
    let nacks: u64 = s.types.iter().map(|t| t.nacks).sum();
    vec![
        s.id.to_string(),
        s.peer.clone(),
        word(&s.protocol),
        word(&s.client),
        s.node_id.clone(),
        show_age(s.open_ms),
        names.to_string(),
        nacks.to_string(),
    ]
}

/// The word of a closed set, as in JSON.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
