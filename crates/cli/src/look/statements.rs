//! What operators stated, as lines and cells for people.

use waypost_admin_api::{
    ConflictView, EvictionView, JournalView, OperatorView, OverrideView, ReleaseView,
};

use super::rows;
use crate::output::show_time;

/// Journal entries that `describe cluster` shows; `get journal` shows them all.
const JOURNAL_DESCRIBED: usize = 10;

/// `weight 0.5` or `drain`.
pub(super) fn effect(o: &OverrideView) -> String {
    match o.weight {
        Some(weight) => format!("weight {weight}"),
        None => "drain".to_owned(),
    }
}

/// What was set, by whom, when and why.
pub(super) fn override_line(o: &OverrideView) -> String {
    let signed = signed(&o.author, o.set_at_ms, &o.reason);
    format!("{}, set {signed}", effect(o))
}

/// By whom, when and why.
pub(super) fn eviction_line(e: &EvictionView) -> String {
    signed(&e.author, e.evicted_at_ms, &e.reason)
}

/// What operators stated about a cluster: a title, and its lines.
pub(super) fn of_cluster(view: &OperatorView) -> Vec<(&'static str, Vec<String>)> {
    let orphaned = view.orphaned.iter().map(|o| o.name.clone());
    let journal = view.journal.iter().take(JOURNAL_DESCRIBED);
    vec![
        (
            "overrides",
            view.overrides.iter().map(override_of).collect(),
        ),
        ("evicted", view.evictions.iter().map(eviction_of).collect()),
        ("released", view.releases.iter().map(release_of).collect()),
        (
            "conflicts",
            view.conflicts.iter().map(conflict_of).collect(),
        ),
        (
            "orphaned (waypost config restore|forget)",
            orphaned.collect(),
        ),
        ("journal", journal.map(journal_of).collect()),
    ]
}

/// Why an instance that nobody announces is spoken of all the same.
pub(super) fn of_absent(view: &OperatorView, uri: &str) -> String {
    let set = view.overrides.iter().find(|o| o.uri == uri);
    let evicted = view.evictions.iter().find(|e| e.uri == uri);
    let mut notes = String::new();
    if let Some(set) = set {
        notes.push_str(&format!("; it waits for {}", override_line(set)));
    }
    if let Some(evicted) = evicted {
        notes.push_str(&format!("; it was evicted {}", eviction_line(evicted)));
    }
    notes
}

fn override_of(o: &OverrideView) -> String {
    let waits = if o.announced {
        ""
    } else {
        " (nobody announces it now)"
    };
    format!("{}: {}{waits}", o.uri, override_line(o))
}

fn eviction_of(e: &EvictionView) -> String {
    format!("{} {}", e.uri, eviction_line(e))
}

fn release_of(r: &ReleaseView) -> String {
    let scope = r.cluster.as_deref().map_or("all clusters ", |_| "");
    let signed = signed(&r.author, r.released_at_ms, &r.reason);
    format!("{scope}{signed}")
}

fn conflict_of(c: &ConflictView) -> String {
    format!("{} {}", show_time(c.appended_at_ms), c.text)
}

fn journal_of(j: &JournalView) -> String {
    let detail = match j.detail.as_str() {
        "" => String::new(),
        detail => format!(" ({detail})"),
    };
    let signed = signed(&j.author, j.at_ms, &j.reason);
    format!("{} {}{detail} {signed}", j.action, j.subject)
}

fn signed(author: &str, at_ms: i64, reason: &str) -> String {
    format!("by {author} at {}: {reason}", show_time(at_ms))
}

pub(super) const OVERRIDES: [&str; 7] =
    ["cluster", "uri", "set", "announced", "by", "at", "reason"];

pub(super) fn override_row(o: &OverrideView) -> Vec<String> {
    vec![
        o.cluster.clone(),
        o.uri.clone(),
        effect(o),
        rows::yes_or_no(o.announced),
        o.author.clone(),
        show_time(o.set_at_ms),
        o.reason.clone(),
    ]
}

pub(super) const JOURNAL: [&str; 6] = ["at", "action", "what", "detail", "by", "reason"];

pub(super) fn journal_row(j: &JournalView) -> Vec<String> {
    vec![
        show_time(j.at_ms),
        j.action.clone(),
        j.subject.clone(),
        j.detail.clone(),
        j.author.clone(),
        j.reason.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_override(weight: Option<f64>) -> OverrideView {
        OverrideView {
            cluster: "c".to_owned(),
            uri: "http://h:1".to_owned(),
            weight,
            drain: weight.is_none(),
            author: "ann@ops1".to_owned(),
            reason: "INC-7".to_owned(),
            set_at_ms: 0,
            announced: false,
        }
    }

    #[test]
    fn who_when_and_why_are_in_one_line() {
        let view = OperatorView {
            overrides: vec![mk_override(Some(0.5))],
            evictions: vec![EvictionView {
                cluster: "c".to_owned(),
                uri: "http://h:1".to_owned(),
                author: "bob@ops2".to_owned(),
                reason: "INC-8".to_owned(),
                evicted_at_ms: 1000,
            }],
            ..OperatorView::default()
        };
        let sections = of_cluster(&view);
        let lines = |title| {
            let found = sections.iter().find(|(t, _)| *t == title).unwrap();
            found.1.join("\n")
        };
        assert_eq!(
            lines("overrides"),
            "http://h:1: weight 0.5, set by ann@ops1 at 1970-01-01T00:00:00.000Z: INC-7 (nobody announces it now)"
        );
        assert_eq!(
            lines("evicted"),
            "http://h:1 by bob@ops2 at 1970-01-01T00:00:01.000Z: INC-8"
        );
        assert_eq!(lines("conflicts"), "");
        assert_eq!(
            of_absent(&view, "http://h:1"),
            "; it waits for weight 0.5, set by ann@ops1 at 1970-01-01T00:00:00.000Z: INC-7; it was evicted by bob@ops2 at 1970-01-01T00:00:01.000Z: INC-8"
        );
        assert_eq!(of_absent(&view, "http://other:1"), "");
        assert_eq!(effect(&mk_override(None)), "drain");
    }
}
