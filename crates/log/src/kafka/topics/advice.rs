//! What is wrong with a topic, and the command that mends it.

use rdkafka::metadata::Metadata;
use waypost_core::record::Topic;

use super::rules::{self, Rule};
use super::{Durability, Finding, Severity, TopicsSpec};
use crate::kafka::settings::KafkaSettings;

/// Knows the cluster that commands are for.
pub(super) struct Advice<'a> {
    settings: &'a KafkaSettings,
    brokers: Vec<i32>,
}

impl<'a> Advice<'a> {
    pub(super) fn new(settings: &'a KafkaSettings, metadata: &Metadata) -> Self {
        let mut brokers: Vec<i32> = metadata
            .brokers()
            .iter()
            .map(|broker| broker.id())
            .collect();
        brokers.sort_unstable();
        Self { settings, brokers }
    }

    pub(super) fn missing(&self, topic: Topic, spec: TopicsSpec) -> Finding {
        let copies = match spec.durability {
            Durability::Replicated(copies) => format!(" --replication {copies}"),
            Durability::Development => " --development".to_owned(),
        };
        self.finding(topic, "topic", "missing".to_owned(), "there".to_owned())
            .with(
                Severity::Breaks,
                "it is one of the three that make a log",
                format!("{}{copies}", self.settings.create_command()),
            )
    }

    /// `None`: the rule holds.
    pub(super) fn setting(&self, topic: Topic, rule: &Rule, actual: &str) -> Option<Finding> {
        if rule.holds(actual) {
            return None;
        }
        let command = self.alter(topic, rule.setting, &rule.value);
        let found = self.finding(topic, rule.setting, actual.to_owned(), rule.expected());
        Some(found.with(rule.severity, rule.reason, command))
    }

    /// Definitions and modes are ordered as a whole, so their topics have one partition. A topic
    /// never loses partitions: only another prefix helps.
    pub(super) fn partitions(&self, topic: Topic, partitions: &[Vec<i32>]) -> Option<Finding> {
        if topic == Topic::Announcements || partitions.len() == 1 {
            return None;
        }
        let command = format!(
            "waypost topics create --kafka {} --topic-prefix {}2",
            self.settings.brokers(),
            self.settings.topic_prefix()
        );
        let found = self.finding(
            topic,
            "partitions",
            partitions.len().to_string(),
            "1".to_owned(),
        );
        Some(found.with(
            Severity::Breaks,
            "definitions and modes have one order; partitions cannot be taken away, so start anew \
             under another prefix",
            command,
        ))
    }

    pub(super) fn copies(
        &self,
        topic: Topic,
        partitions: &[Vec<i32>],
        spec: TopicsSpec,
    ) -> Option<Finding> {
        let Durability::Replicated(wanted) = spec.durability else {
            return None;
        };
        let fewest = partitions.iter().map(Vec::len).min().unwrap_or_default();
        if fewest >= wanted as usize {
            return None;
        }
        let expected = format!("at least {}", rules::copies(spec.durability));
        let found = self.finding(topic, "replication.factor", fewest.to_string(), expected);
        Some(found.with(
            Severity::Risks,
            "an acknowledged record must survive the loss of a broker",
            self.reassignment(topic, partitions, wanted as usize),
        ))
    }

    /// More in-sync replicas asked for than there are: nothing is ever acknowledged. As many as there
    /// are: nothing is, once a broker is lost.
    pub(super) fn insync(
        &self,
        topic: Topic,
        partitions: &[Vec<i32>],
        insync: Option<&str>,
    ) -> Option<Finding> {
        let fewest = partitions.iter().map(Vec::len).min().unwrap_or_default();
        let insync: usize = insync?.parse().ok()?;
        let bound = fewest.saturating_sub(1).max(1);
        if insync <= bound {
            return None;
        }
        let (severity, reason) = if insync > fewest {
            (
                Severity::Breaks,
                "it is more than there are copies: Kafka refuses every record",
            )
        } else {
            (
                Severity::Risks,
                "it is as many as there are copies: losing a broker stops all writing",
            )
        };
        let setting = "min.insync.replicas";
        let found = self.finding(
            topic,
            setting,
            insync.to_string(),
            format!("at most {bound}"),
        );
        Some(found.with(
            severity,
            reason,
            self.alter(topic, setting, &bound.to_string()),
        ))
    }

    /// Keeps the replicas that are there, leaders first, and adds brokers in turn.
    fn reassignment(&self, topic: Topic, partitions: &[Vec<i32>], wanted: usize) -> String {
        let name = self.settings.topic_name(topic);
        if self.brokers.len() < wanted {
            return format!(
                "waypost topics check --kafka {} --topic-prefix {} --development  # {} broker(s)",
                self.settings.brokers(),
                self.settings.topic_prefix(),
                self.brokers.len()
            );
        }
        let entries: Vec<String> = partitions
            .iter()
            .enumerate()
            .map(|(index, replicas)| {
                let turn = self
                    .brokers
                    .iter()
                    .cycle()
                    .skip(index)
                    .take(self.brokers.len());
                let added = turn.filter(|broker| !replicas.contains(broker));
                let all: Vec<String> = replicas
                    .iter()
                    .chain(added)
                    .take(wanted)
                    .map(i32::to_string)
                    .collect();
                let all = all.join(",");
                format!(r#"{{"topic":"{name}","partition":{index},"replicas":[{all}]}}"#)
            })
            .collect();
        format!(
            "echo '{{\"version\":1,\"partitions\":[{}]}}' > {name}.json && \
             kafka-reassign-partitions.sh --bootstrap-server {} --reassignment-json-file {name}.json \
             --execute",
            entries.join(","),
            self.settings.brokers()
        )
    }

    fn alter(&self, topic: Topic, setting: &str, value: &str) -> String {
        format!(
            "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {} \
             --add-config {setting}={value}",
            self.settings.brokers(),
            self.settings.topic_name(topic),
        )
    }

    fn finding(&self, topic: Topic, setting: &str, actual: String, expected: String) -> Finding {
        Finding {
            topic: self.settings.topic_name(topic),
            setting: setting.to_owned(),
            actual,
            expected,
            reason: "",
            severity: Severity::Breaks,
            command: String::new(),
        }
    }
}

impl Finding {
    fn with(self, severity: Severity, reason: &'static str, command: String) -> Self {
        Self {
            severity,
            reason,
            command,
            ..self
        }
    }
}
