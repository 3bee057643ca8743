//! `waypost topics create|check`.

use serde::Serialize;
use tokio::time::timeout;
use waypost_log::kafka::topics::{self, Durability, Outcome, Severity, TopicsSpec};

use crate::args::{TopicsAction, TopicsArgs};
use crate::exit::{Exit, Failure};
use crate::limits::{WAITING_FIRST_REPORT, WAITING_REPORT_INTERVAL};
use crate::{kafka, output};

/// One topic of `topics create -o json`.
#[derive(Serialize)]
struct CreatedRow {
    topic: String,
    outcome: &'static str,
    partitions: u32,
    identity: String,
    settings: Vec<SettingRow>,
}

#[derive(Serialize)]
struct SettingRow {
    name: String,
    value: String,
    reason: String,
}

/// One mistake of `topics check -o json`.
#[derive(Serialize)]
struct FindingRow {
    topic: String,
    setting: String,
    actual: String,
    expected: String,
    reason: String,
    severity: &'static str,
    command: String,
}

pub(crate) async fn run(args: TopicsArgs) -> Result<Exit, Failure> {
    let settings = kafka::settings(&args.kafka, &args.topics)?;
    let spec = TopicsSpec {
        announcement_partitions: args.partitions,
        durability: match args.replication {
            _ if args.development => Durability::Development,
            1 => Durability::Development,
            copies => Durability::Replicated(copies),
        },
    };
    match args.action {
        TopicsAction::Create => {
            let created = topics::create(&settings, &spec);
            let reports = waiting_aloud(&args.kafka, created)
                .await
                .map_err(|e| Failure::failed(e.to_string()))?;
            let rows: Vec<_> = reports.into_iter().map(CreatedRow::from).collect();
            output::print(args.output.output, &rows, || show_created(&rows))?;
            Ok(Exit::Done)
        }
        TopicsAction::Check => {
            let checked = topics::check(&settings, &spec);
            let findings = waiting_aloud(&args.kafka, checked)
                .await
                .map_err(|e| Failure::failed(e.to_string()))?;
            let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
            let breaks = findings.iter().any(|f| f.severity == Severity::Breaks);
            let rows: Vec<_> = findings.into_iter().map(FindingRow::from).collect();
            output::print(args.output.output, &rows, || match lines[..] {
                [] => "all settings are as they must be".to_owned(),
                _ => lines.join("\n"),
            })?;
            Ok(if breaks { Exit::Bad } else { Exit::Done })
        }
    }
}

/// Waits, and says for whom when that takes longer than Kafka needs that is well.
async fn waiting_aloud<T>(brokers: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut patience = WAITING_FIRST_REPORT;
    loop {
        match timeout(patience, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => eprintln!("waypost: waiting for Kafka at {brokers} to answer"),
        }
        patience = WAITING_REPORT_INTERVAL;
    }
}

fn show_created(rows: &[CreatedRow]) -> String {
    let mut lines = Vec::new();
    for row in rows {
        lines.push(format!(
            "{}: {}, {} partition(s), identity {}",
            row.topic, row.outcome, row.partitions, row.identity
        ));
        for setting in &row.settings {
            lines.push(format!(
                "  {}={}  # {}",
                setting.name, setting.value, setting.reason
            ));
        }
    }
    lines.join("\n")
}

impl From<topics::Report> for CreatedRow {
    fn from(report: topics::Report) -> Self {
        let settings = report.settings.into_iter().map(|rule| SettingRow {
            name: rule.setting.to_owned(),
            value: rule.value.clone(),
            reason: rule.reason.to_owned(),
        });
        Self {
            topic: report.topic,
            outcome: match report.outcome {
                Outcome::Created => "created",
                Outcome::Existed => "existed",
            },
            partitions: report.partitions,
            identity: report.identity.to_string(),
            settings: settings.collect(),
        }
    }
}

impl From<topics::Finding> for FindingRow {
    fn from(finding: topics::Finding) -> Self {
        Self {
            topic: finding.topic,
            setting: finding.setting,
            actual: finding.actual,
            expected: finding.expected,
            reason: finding.reason.to_owned(),
            severity: match finding.severity {
                Severity::Breaks => "breaks",
                Severity::Risks => "risks",
            },
            command: finding.command,
        }
    }
}
