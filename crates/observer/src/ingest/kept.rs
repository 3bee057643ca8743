//! What an operator should look at although clients are served: in readiness and in metrics.

use std::time::Duration;

use waypost_core::Topic;
use waypost_fold::HoldingView;

use super::Ingest;
use crate::limits::NOTICE_INTERVAL;

impl Ingest {
    /// Says what is held, unconfirmed, orphaned or read again. Called several times a second, does
    /// its work once a second.
    pub(super) fn renew_notices(&mut self, now: Duration) {
        if now.saturating_sub(self.noticed_at) < NOTICE_INTERVAL {
            return;
        }
        self.noticed_at = now;
        let logs = self.replica.logs();
        let holding = logs.announcements.holding();
        let held = held_instances(&holding);
        let unconfirmed = logs.announcements.unconfirmed_count();
        let orphaned = logs.config.orphans().count();
        let first = logs.config.orphans().next().map(|(key, _)| key.to_string());
        let replaying: Vec<Topic> = self.replica.replaying().collect();

        self.metrics.set_holding(&holding, held);
        self.metrics.set_kept(unconfirmed, orphaned);
        self.metrics.set_replaying(&replaying);
        let notices = [
            ("holding", holding_notice(&holding, held)),
            (
                "unconfirmed",
                (unconfirmed > 0).then(|| {
                    format!(
                        "{unconfirmed} instance(s) of a log that is gone are served until they are announced again or their time-to-live is over"
                    )
                }),
            ),
            (
                "orphaned",
                first.map(|first| {
                    format!(
                        "{orphaned} record(s) of the config topic are in no log any more and still in force, for example {first}; `waypost config restore` writes them again, `waypost config forget` lets them go"
                    )
                }),
            ),
            (
                "replaying",
                (!replaying.is_empty()).then(|| {
                    let topics: Vec<_> = replaying.iter().map(|topic| topic.suffix()).collect();
                    format!(
                        "{} read again from the beginning; what was known is served",
                        topics.join(", ")
                    )
                }),
            ),
        ];
        for (name, text) in notices {
            match text {
                Some(text) => self.readiness.set_notice(name, &text),
                None => self.readiness.clear_notice(name),
            }
        }
    }
}

/// Instances past their time-to-live that are served because their cluster or the fleet holds.
pub(crate) fn held_instances(holding: &HoldingView) -> u64 {
    match &holding.fleet {
        Some(fleet) => u64::from(fleet.overdue),
        None => {
            let clusters = holding.clusters.iter();
            clusters.map(|(_, held)| u64::from(held.overdue)).sum()
        }
    }
}

fn holding_notice(holding: &HoldingView, held: u64) -> Option<String> {
    if holding.is_empty() {
        return None;
    }
    let clusters = holding.clusters.iter().map(|(name, _)| name.to_string());
    let fleet = holding.fleet.map(|_| "the whole fleet".to_owned());
    let scopes: Vec<_> = fleet.into_iter().chain(clusters).collect();
    Some(format!(
        "{held} instance(s) fell silent at once and are served on: {}; `waypost release` lets them go",
        scopes.join(", ")
    ))
}
