//! Records read, by topic and by what became of them: the one counter on the path of every
//! heartbeat, so it is added to once a batch, and its series are looked up once.

use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use waypost_core::Topic;
use waypost_fold::Outcome;

/// Names of outcomes, in the order of [`index_of`].
const OUTCOMES: [&str; 8] = [
    "changed",
    "unchanged",
    "refused",
    "void",
    "rejected",
    "control",
    "ignored",
    "already_read",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    topic: &'static str,
    outcome: &'static str,
}

/// Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordCounters {
    pub(super) family: Family<OutcomeLabels, Counter>,
    series: Arc<[[OnceLock<Counter>; OUTCOMES.len()]; Topic::ALL.len()]>,
}

/// What became of the records of one batch.
#[derive(Clone, Debug, Default)]
pub struct OutcomeCounts([u64; OUTCOMES.len()]);

impl OutcomeCounts {
    /// One record more.
    pub fn count(&mut self, outcome: &Outcome) {
        self.0[index_of(outcome)] += 1;
    }
}

impl RecordCounters {
    pub(super) fn add(&self, topic: Topic, outcomes: &OutcomeCounts) {
        let topic_index = match topic {
            Topic::Announcements => 0,
            Topic::Config => 1,
            Topic::Control => 2,
        };
        let counted = outcomes
            .0
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        for (outcome, count) in counted {
            let series = self.series[topic_index][outcome].get_or_init(|| {
                let labels = OutcomeLabels {
                    topic: topic.suffix(),
                    outcome: OUTCOMES[outcome],
                };
                self.family.get_or_create(&labels).clone()
            });
            series.inc_by(*count);
        }
    }
}

fn index_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Changed => 0,
        Outcome::Unchanged => 1,
        Outcome::Refused(_) => 2,
        Outcome::Void(_) => 3,
        Outcome::Rejected(_) => 4,
        Outcome::Control => 5,
        Outcome::Ignored => 6,
        Outcome::AlreadyRead => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_under_its_own_name() {
        let counters = RecordCounters::default();
        let add = |topic, outcomes: &[Outcome]| {
            let mut counts = OutcomeCounts::default();
            outcomes.iter().for_each(|outcome| counts.count(outcome));
            counters.clone().add(topic, &counts);
        };
        add(Topic::Config, &[Outcome::Unchanged, Outcome::AlreadyRead]);
        add(Topic::Config, &[Outcome::Unchanged]);
        add(Topic::Announcements, &[Outcome::Control]);
        let count = |topic, outcome| {
            let labels = OutcomeLabels { topic, outcome };
            counters.family.get_or_create(&labels).get()
        };
        assert_eq!(count("config", "unchanged"), 2);
        assert_eq!(count("config", "already_read"), 1);
        assert_eq!(count("announcements", "control"), 1);
        assert_eq!(count("announcements", "unchanged"), 0);
    }
}
