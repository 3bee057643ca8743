//! What loading still waits for, in readiness and for the locator; what is stale; what is said while
//! the log is away.

use std::collections::BTreeMap;

use waypost_core::PartitionId;
use waypost_fold::Missing;
use waypost_runtime::{Readiness, ReadinessTask};

use super::{Followers, Ingest, Lags};
use crate::limits::{AWAY_REMINDER_INTERVAL, FORGET_INTERVAL, LOG_WORK_IN_FLIGHT_MAX};

/// The name of the log in readiness.
const LOG: &str = "log";

/// One readiness task for each thing that loading waits for, and one for the whole, so that the
/// process is never ready by accident.
#[derive(Debug)]
pub(super) struct LoadingTasks {
    readiness: Readiness,
    base: Option<ReadinessTask>,
    by_name: BTreeMap<String, ReadinessTask>,
}

impl LoadingTasks {
    pub(super) fn new(readiness: Readiness) -> Self {
        let base = readiness.register(LOG, "not read yet");
        Self {
            readiness,
            base: Some(base),
            by_name: BTreeMap::new(),
        }
    }

    pub(super) fn set_base_reason(&self, reason: &str) {
        if let Some(base) = &self.base {
            base.set_reason(reason);
        }
    }

    fn set_missing(&mut self, missing: &[Missing]) {
        let mut before = std::mem::take(&mut self.by_name);
        for item in missing {
            let (name, reason) = name_and_reason(item);
            let task = before
                .remove(&name)
                .unwrap_or_else(|| self.readiness.register(&name, &reason));
            task.set_reason(&reason);
            self.by_name.insert(name, task);
        }
        for task in before.into_values() {
            task.done();
        }
    }

    fn done(&mut self) {
        self.set_missing(&[]);
        if let Some(base) = self.base.take() {
            base.done();
        }
    }
}

impl Ingest {
    /// Several times a second.
    pub(super) fn on_beat(&mut self, followers: &mut Followers) {
        let now = self.now();
        self.serve_snapshot_if_due();
        self.renew_readiness();
        self.renew_notices(now);
        self.remind_of_absence();
        if self.log_work.in_flight() < LOG_WORK_IN_FLIGHT_MAX {
            let requests = self.replica.due(now);
            self.work_on(requests, followers);
        }
        if now.saturating_sub(self.forgot_at) >= FORGET_INTERVAL {
            self.forgot_at = now;
            self.writer.forget(self.log_clock.now());
        }
        let lags: Lags = self.freshness.lags().collect();
        for ((topic, partition), lag) in lags {
            self.metrics.set_lag(topic, partition, lag);
        }
        let is_stale = !self.readiness.stale_reasons().is_empty();
        let is_keeper = self.replica.keeper().is_keeper(&self.replica.logs());
        self.metrics
            .set_state(self.replica.loading().is_loaded(), is_stale, is_keeper);
    }

    /// Once everything was read, opens the gate and says so.
    pub(super) fn open_gate(&mut self) {
        if !self.replica.loading().is_loaded() || *self.loaded_tx.borrow() {
            return;
        }
        self.first_statements.write(&mut self.writer);
        // What left too long ago is forgotten before anybody can ask.
        self.writer.forget(self.log_clock.now());
        self.writer.set_config_loaded();
        self.gate.open();
        self.loaded_tx.send_replace(true);
        self.loading_tasks.done();
        self.verdicts.tell(&self.progress);
        tracing::info!(
            instances = self.replica.logs().announcements.live_count(),
            replaying = self.replica.replaying().count(),
            "serving"
        );
    }

    /// Says by name what is still missing, and whether what is served may be out of date.
    pub(super) fn renew_readiness(&mut self) {
        if self.replica.loading().is_loaded() {
            match self.freshness.stale_reason(self.now()) {
                Some(reason) => self.readiness.set_stale(LOG, &reason),
                None => self.readiness.clear_stale(LOG),
            }
            return;
        }
        let missing = self.replica.loading().missing();
        self.loading_tasks.set_missing(&missing);
        let base = match self.freshness.away() {
            Some(away) => format!("cannot be read: {away}"),
            None => format!("{} things are awaited", missing.len()),
        };
        self.loading_tasks.set_base_reason(&base);
        let first = missing.first().map(ToString::to_string);
        let why = match (self.freshness.away(), first) {
            (Some(away), _) => format!("the log cannot be read: {away}"),
            (None, Some(first)) => first,
            (None, None) => "the log was not asked yet".to_owned(),
        };
        self.gate.set_reason(why);
    }

    /// While the log is away, says so every few seconds.
    pub(super) fn remind_of_absence(&mut self) {
        let now = self.now();
        let is_due = self.reminded_at.is_zero()
            || now.saturating_sub(self.reminded_at) >= AWAY_REMINDER_INTERVAL;
        if let Some(away) = self.freshness.away()
            && is_due
        {
            self.reminded_at = now;
            if self.replica.loading().is_loaded() {
                tracing::warn!(
                    "the log cannot be read: {away}; serving what was read, trying again"
                );
            } else {
                tracing::warn!("waiting for the log: {away}; trying again");
            }
        }
    }
}

fn name_and_reason(missing: &Missing) -> (String, String) {
    let place = |topic: waypost_core::Topic, partition: PartitionId| {
        format!("{}/{partition}", topic.suffix())
    };
    match missing {
        Missing::Partitions { topic } => (
            topic.suffix().to_owned(),
            "the log has not said how many partitions it has".to_owned(),
        ),
        Missing::End { topic, partition } => (
            place(*topic, *partition),
            "the log has not said where it ends".to_owned(),
        ),
        Missing::Position {
            topic,
            partition,
            position,
            end,
        } => (
            place(*topic, *partition),
            format!("at {} of {}", grouped(position.0), grouped(end.0)),
        ),
        Missing::Newborn { .. } => ("log-age".to_owned(), missing.to_string()),
    }
}

/// Digits in groups of three: `4,000`.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        let left = digits.len() - index;
        if index > 0 && left.is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use waypost_core::{Offset, Topic};

    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (120, "120"),
            (4000, "4,000"),
            (1_234_567, "1,234,567"),
            (-100, "-100"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn readiness_names_each_partition_that_is_missing_and_forgets_those_reached() {
        let readiness = Readiness::new();
        let mut tasks = LoadingTasks::new(readiness.clone());
        let missing = |partition, position| Missing::Position {
            topic: Topic::Announcements,
            partition: PartitionId(partition),
            position: Offset(position),
            end: Offset(4000),
        };
        tasks.set_missing(&[missing(3, 120), missing(4, 0)]);
        tasks.set_missing(&[missing(3, 121)]);
        let pending = readiness.pending();
        let names: Vec<_> = pending.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["announcements/3", "log"]);
        assert_eq!(pending[0].reason, "at 121 of 4,000");
        tasks.set_missing(&[]);
        assert!(!readiness.is_ready(), "ready before the whole is");
        tasks.done();
        assert!(readiness.is_ready());
    }
}
