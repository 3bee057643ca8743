//! What the agent says on standard error. Standard output belongs to COMMAND.

use std::time::Duration;

use tokio::time::Instant;
use waypost_announcer::{Progress, Status, Wanted};
use waypost_core::record::Appended;

use crate::limits::WAITING_REPORT_INTERVAL;

/// Says each thing once.
#[derive(Debug)]
pub(super) struct Reporter {
    uri: String,
    cluster: String,
    shown: Option<Status>,
    /// The last change whose acknowledgement was told.
    acknowledged: Option<u64>,
    trouble_said_at: Option<Instant>,
}

impl Reporter {
    pub(super) fn new(cluster: &str, uri: &str) -> Self {
        Self {
            uri: uri.to_owned(),
            cluster: cluster.to_owned(),
            shown: None,
            acknowledged: None,
            trouble_said_at: None,
        }
    }

    pub(super) fn say(&self, text: &str) {
        eprintln!("waypost: {text}");
    }

    /// Tells what is new in a status.
    pub(super) fn take(&mut self, status: &Status) {
        let lines = self.lines(status, Instant::now());
        for line in lines {
            self.say(&line);
        }
    }

    fn lines(&mut self, status: &Status, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        let before = self.shown.replace(status.clone());
        lines.extend(self.trouble_line(status, now));
        if before.is_some_and(|before| says_the_same(&before, status)) {
            return lines;
        }
        match &status.progress {
            Progress::Idle | Progress::Pending => {}
            Progress::Acknowledged(appended) => {
                lines.extend(self.acknowledgement(status, *appended));
            }
            Progress::Served(appended) => {
                lines.extend(self.acknowledgement(status, *appended));
                lines.push(match status.wanted {
                    Wanted::Up => format!("served: an Observer serves {}", self.uri),
                    Wanted::Down => format!("gone: an Observer no longer serves {}", self.uri),
                });
            }
            Progress::Refused { appended, reason } => {
                lines.extend(self.acknowledgement(status, *appended));
                lines.push(format!("refused by the log's rules: {reason}"));
            }
        }
        lines
    }

    fn acknowledgement(&mut self, status: &Status, appended: Appended) -> Option<String> {
        if self.acknowledged.replace(status.change) == Some(status.change) {
            return None;
        }
        let what = match status.wanted {
            Wanted::Up => "announced",
            Wanted::Down => "withdrawn",
        };
        Some(format!(
            "{what}: the log acknowledged {} in cluster {} (partition {}, offset {})",
            self.uri, self.cluster, appended.partition, appended.offset
        ))
    }

    /// Trouble at once, then every few seconds while it lasts, then its end.
    fn trouble_line(&mut self, status: &Status, now: Instant) -> Option<String> {
        match (&status.trouble, self.trouble_said_at) {
            (None, None) => None,
            (None, Some(_)) => {
                self.trouble_said_at = None;
                Some("the log takes records again".to_owned())
            }
            (Some(_), Some(at)) if now.duration_since(at) < WAITING_REPORT_INTERVAL => None,
            (Some(why), _) => {
                self.trouble_said_at = Some(now);
                Some(format!(
                    "the log did not take the last record, trying again: {why}"
                ))
            }
        }
    }
}

/// Of a refusal each heartbeat tells another place in the log; that is no news.
fn says_the_same(a: &Status, b: &Status) -> bool {
    let both_refused = matches!(
        (&a.progress, &b.progress),
        (Progress::Refused { .. }, Progress::Refused { .. })
    );
    a.change == b.change && (both_refused || a.progress == b.progress)
}

/// Lets something through at most every few seconds.
#[derive(Debug, Default)]
pub(super) struct Seldom(Option<Instant>);

impl Seldom {
    pub(super) fn is_time(&mut self) -> bool {
        let now = Instant::now();
        let is_time = self
            .0
            .is_none_or(|at| now.duration_since(at) >= WAITING_REPORT_INTERVAL);
        if is_time {
            self.0 = Some(now);
        }
        is_time
    }
}

/// A span for people.
pub(super) fn show(duration: Duration) -> String {
    crate::values::show_duration(duration)
}

#[cfg(test)]
mod tests {
    use waypost_core::{Offset, PartitionId};

    use super::*;

    fn mk_status(change: u64, progress: Progress, trouble: Option<&str>) -> Status {
        Status {
            wanted: Wanted::Up,
            change,
            progress,
            trouble: trouble.map(str::to_owned),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_thing_is_said_once_and_trouble_again_every_few_seconds() {
        let appended = Appended {
            partition: PartitionId(1),
            offset: Offset(2),
            append_time: None,
        };
        let refused = |reason: &str| Progress::Refused {
            appended,
            reason: reason.to_owned(),
        };
        let acknowledged = "announced: the log acknowledged u in cluster c (partition 1, offset 2)";
        let away = "the log did not take the last record, trying again: no route";
        let steps = [
            (mk_status(1, Progress::Pending, None), vec![]),
            (
                mk_status(1, Progress::Pending, Some("no route")),
                vec![away],
            ),
            (mk_status(1, Progress::Pending, Some("no route")), vec![]),
            (
                mk_status(1, Progress::Acknowledged(appended), None),
                vec!["the log takes records again", acknowledged],
            ),
            (
                mk_status(1, Progress::Served(appended), None),
                vec!["served: an Observer serves u"],
            ),
            (
                mk_status(2, Progress::Served(appended), None),
                vec![acknowledged, "served: an Observer serves u"],
            ),
            (
                mk_status(2, refused("older (offset 7)"), None),
                vec!["refused by the log's rules: older (offset 7)"],
            ),
            (mk_status(2, refused("older (offset 8)"), None), vec![]),
            (
                mk_status(2, Progress::Served(appended), None),
                vec!["served: an Observer serves u"],
            ),
        ];
        let mut reporter = Reporter::new("c", "u");
        for (status, expected) in steps {
            assert_eq!(
                reporter.lines(&status, Instant::now()),
                expected,
                "{status:?}"
            );
        }
        let trouble = mk_status(2, Progress::Served(appended), Some("no route"));
        assert_eq!(reporter.lines(&trouble, Instant::now()), [away]);
        tokio::time::advance(WAITING_REPORT_INTERVAL).await;
        assert_eq!(reporter.lines(&trouble, Instant::now()), [away]);
    }
}
