//! One batch of records: through the fold, into the store, to whoever waits.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use waypost_core::{InstanceKey, Offset, PartitionId, ReadEvent, Record, StoreInput, Topic};
use waypost_fold::{FoldEvent, GoneCause, Outcome, RefusalReason};

use super::Ingest;
use crate::limits::VERDICTS_HELD_MAX;
use crate::metrics::OutcomeCounts;
use crate::progress::{Progress, Verdict};

/// Verdicts on records that somebody waits for. They are told once the store serves what the record
/// says: after its batch, or after the load or replay that it is part of.
#[derive(Debug, Default)]
pub(super) struct HeldVerdicts(VecDeque<(Bytes, PartitionId, Offset, Verdict)>);

impl HeldVerdicts {
    fn hold(&mut self, key: &[u8], record: &Record, verdict: Verdict) {
        let key = Bytes::copy_from_slice(key);
        if self.0.len() == VERDICTS_HELD_MAX {
            self.0.pop_front();
        }
        self.0
            .push_back((key, record.partition, record.offset, verdict));
    }

    fn hold_if_awaited(&mut self, record: &Record, outcome: &Outcome, progress: &Progress) {
        let Some(key) = record.key.as_ref().filter(|key| progress.awaits(key)) else {
            return;
        };
        let verdict = match outcome {
            Outcome::Changed | Outcome::Unchanged | Outcome::Control | Outcome::Ignored => {
                Verdict::Served
            }
            Outcome::Refused(refusal) if refusal.reason == RefusalReason::Withdrawn => {
                Verdict::Withdrawn(refusal.to_string())
            }
            Outcome::Refused(refusal) => Verdict::Refused(refusal.to_string()),
            Outcome::Void(reason) => Verdict::Refused(reason.to_string()),
            Outcome::Rejected(reason) => Verdict::Refused(reason.to_string()),
            Outcome::AlreadyRead => return,
        };
        self.hold(key, record, verdict);
    }

    pub(super) fn tell(&mut self, progress: &Progress) {
        for (key, partition, offset, verdict) in self.0.drain(..) {
            progress.tell(&key, partition, offset, verdict);
        }
    }
}

impl Ingest {
    /// Reads what a reader said, and serves what has changed by it.
    pub(super) fn read(&mut self, topic: Topic, event: &ReadEvent, now: Duration) {
        let mut events = Vec::new();
        let (metrics, verdicts, progress) = (&self.metrics, &mut self.verdicts, &self.progress);
        let was_loaded = self.replica.loading().is_loaded();
        let log_clock = &mut self.log_clock;
        // Who waits began to before the record was written.
        let is_awaited = topic == Topic::Announcements && progress.is_awaited();
        let mut outcomes = OutcomeCounts::default();
        self.replica
            .on_event(topic, event, now, &mut events, &mut |record, outcome| {
                outcomes.count(outcome);
                if is_awaited {
                    verdicts.hold_if_awaited(record, outcome, progress);
                }
                if !was_loaded {
                    log_clock.set(record.append_time);
                }
            });
        metrics.on_records(topic, &outcomes);
        let log_time = self.replica.logs().announcements.clock().log_time_min();
        if was_loaded {
            self.log_clock.advance(log_time);
        } else {
            self.log_clock.follow(log_time);
        }
        self.serve(events);
        if self.replica.loading().is_loaded() && self.replica.replaying().next().is_none() {
            self.verdicts.tell(&self.progress);
        }
    }

    /// Serves what has changed, in one batch; until everything was read, what is said of instances
    /// waits.
    pub(super) fn serve(&mut self, events: Vec<FoldEvent>) {
        let now = self.now();
        let mut inputs = Vec::new();
        let mut absent = Vec::new();
        let is_loaded = self.replica.loading().is_loaded();
        if is_loaded {
            self.first_statements.write(&mut self.writer);
        }
        for event in events {
            match event {
                FoldEvent::Live { key, value } if !is_loaded => {
                    let at = self.log_clock.now();
                    self.first_statements.hold(at, key, Some(value));
                }
                FoldEvent::Gone { key, cause } if !is_loaded => {
                    self.on_gone(&key, cause);
                    self.first_statements.hold(self.log_clock.now(), key, None);
                }
                FoldEvent::Absent { key, at } if !is_loaded => {
                    self.first_statements.hold_absent(at, key);
                }
                FoldEvent::Absent { key, at } => absent.push((at, key)),
                FoldEvent::AbsentDefinition { key, at } => {
                    self.writer.remember_absent_definition(at, key);
                }
                event => self.on_fold_event(event, &mut inputs, now),
            }
        }
        // First, since what is stated in the same batch is newer.
        if !absent.is_empty() {
            self.writer.remember_absent(absent);
        }
        if !inputs.is_empty() {
            self.writer.apply(self.log_clock.now(), inputs);
        }
    }

    fn on_fold_event(&mut self, event: FoldEvent, inputs: &mut Vec<StoreInput>, now: Duration) {
        match event {
            FoldEvent::Live { key, value } => inputs.push(StoreInput::Instance {
                key,
                value: Some(value),
            }),
            FoldEvent::Gone { key, cause } => {
                self.on_gone(&key, cause);
                inputs.push(StoreInput::Instance { key, value: None });
            }
            FoldEvent::Config { input, .. } => inputs.push(input),
            FoldEvent::Conflict(conflict) => {
                self.metrics.on_conflict();
                tracing::warn!("{conflict}; the last record stands");
            }
            other => self.report(other, now),
        }
    }

    fn on_gone(&self, key: &InstanceKey, cause: GoneCause) {
        self.metrics.on_gone(cause);
        tracing::debug!(cluster = %key.cluster, uri = %key.uri, cause = cause.as_str(), "instance left");
    }
}
