//! Every setting of the topics, what it must be, and why.

use std::time::Duration;

use waypost_core::record::Topic;

use super::{Durability, Severity};
use crate::kafka::limits::{BATCH_WIRE_BYTES_MAX, DEFINITION_WIRE_BYTES_MAX};
use crate::limits::{COMPACTION_LAG, DELETE_RETENTION};

/// What a setting is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// This value only.
    Exactly,
    /// This value or more.
    AtLeast,
    /// This value or less.
    AtMost,
}

/// One setting of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Kafka's name of it.
    pub setting: &'static str,
    /// What `topics create` gives it.
    pub value: String,
    /// What `topics check` accepts.
    pub comparison: Comparison,
    /// Why.
    pub reason: &'static str,
    /// How bad another value is.
    pub severity: Severity,
}

impl Rule {
    /// Whether `actual`, as Kafka spells it, will do.
    #[must_use]
    pub fn holds(&self, actual: &str) -> bool {
        let numbers = || Some((actual.parse::<f64>().ok()?, self.value.parse::<f64>().ok()?));
        match self.comparison {
            Comparison::Exactly => actual == self.value,
            Comparison::AtLeast => numbers().is_some_and(|(actual, value)| actual >= value),
            Comparison::AtMost => numbers().is_some_and(|(actual, value)| actual <= value),
        }
    }

    /// The expectation in words.
    #[must_use]
    pub fn expected(&self) -> String {
        match self.comparison {
            Comparison::Exactly => self.value.clone(),
            Comparison::AtLeast => format!("at least {}", self.value),
            Comparison::AtMost => format!("at most {}", self.value),
        }
    }
}

/// The settings of `topic`.
#[must_use]
pub fn of(topic: Topic, durability: Durability) -> Vec<Rule> {
    let mut rules: Vec<Rule> = LOG_RULES
        .iter()
        .map(|row| rule(row, Severity::Breaks))
        .collect();
    let bytes = match topic {
        Topic::Announcements | Topic::Control => BATCH_WIRE_BYTES_MAX,
        Topic::Config => DEFINITION_WIRE_BYTES_MAX,
    };
    rules.push(Rule {
        setting: "max.message.bytes",
        value: bytes.to_string(),
        comparison: Comparison::AtLeast,
        reason: "the largest record, and a full batch of any producer, must be taken",
        severity: Severity::Breaks,
    });
    let insync = match durability {
        Durability::Replicated(copies) => copies.saturating_sub(1).max(1),
        Durability::Development => 1,
    };
    rules.push(Rule {
        setting: "min.insync.replicas",
        value: insync.to_string(),
        comparison: Comparison::AtLeast,
        reason: "an acknowledged record must survive the loss of a broker",
        severity: Severity::Risks,
    });
    rules
}

/// Copies of each partition that `topics create` asks for.
pub(super) fn copies(durability: Durability) -> i32 {
    match durability {
        Durability::Replicated(copies) => i32::try_from(copies).unwrap_or(i32::MAX),
        Durability::Development => 1,
    }
}

type Row = (&'static str, &'static str, Comparison, &'static str);

/// What the rules of the log (docs/announcement-log.md, "Topic settings") need of every topic.
const LOG_RULES: [Row; 8] = [
    (
        "cleanup.policy",
        "compact",
        Comparison::Exactly,
        "the last record of each key is the state; anything else loses instances or never ends",
    ),
    (
        "message.timestamp.type",
        "LogAppendTime",
        Comparison::Exactly,
        "ages are counted on the log's clock, never on an announcer's",
    ),
    (
        "min.compaction.lag.ms",
        "900000",
        Comparison::AtLeast,
        "what a record was based on must still be there when it is judged (three of the longest ttl)",
    ),
    (
        "delete.retention.ms",
        "86400000",
        Comparison::AtLeast,
        "an Observer that was away for up to half of this must still find the withdrawals",
    ),
    (
        "segment.ms",
        "600000",
        Comparison::AtMost,
        "the newest segment is never compacted: a slow topic would grow for a week",
    ),
    (
        "segment.bytes",
        "134217728",
        Comparison::AtMost,
        "the newest segment is never compacted: replay reads all of it",
    ),
    (
        "min.cleanable.dirty.ratio",
        "0.1",
        Comparison::AtMost,
        "replay reads what is not compacted yet: at most a tenth more than the state",
    ),
    (
        "unclean.leader.election.enable",
        "false",
        Comparison::Exactly,
        "a leader without the last records takes back what was acknowledged",
    ),
];

fn rule(row: &Row, severity: Severity) -> Rule {
    let (setting, value, comparison, reason) = *row;
    Rule {
        setting,
        value: value.to_owned(),
        comparison,
        reason,
        severity,
    }
}

const _: () = assert!(COMPACTION_LAG.as_millis() == Duration::from_secs(900).as_millis());
const _: () = assert!(DELETE_RETENTION.as_millis() == Duration::from_secs(86_400).as_millis());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_accepts_what_is_as_good_and_nothing_that_is_not_a_number() {
        let cases = [
            (
                Comparison::Exactly,
                "compact",
                &["compact"][..],
                &["compact,delete", "delete"][..],
            ),
            (
                Comparison::AtLeast,
                "900000",
                &["900000", "1000000"],
                &["899999", "not set", ""],
            ),
            (
                Comparison::AtMost,
                "0.1",
                &["0.1", "0.01"],
                &["0.5", "not set"],
            ),
        ];
        for (comparison, value, good, bad) in cases {
            let rule = rule(&("s", value, comparison, ""), Severity::Breaks);
            for actual in good {
                assert!(rule.holds(actual), "{comparison:?} {value} {actual}");
            }
            for actual in bad {
                assert!(!rule.holds(actual), "{comparison:?} {value} {actual}");
            }
        }
    }

    #[test]
    fn what_create_sets_is_what_check_accepts() {
        for topic in Topic::ALL {
            for durability in [Durability::Development, Durability::Replicated(3)] {
                for rule in of(topic, durability) {
                    assert!(rule.holds(&rule.value), "{rule:?}");
                }
            }
        }
    }
}
