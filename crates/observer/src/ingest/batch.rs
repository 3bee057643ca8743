//! One batch of records: through the fold, into the store, to whoever waits.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use waypost_core::{Offset, PartitionId, Record, StoreInput, Topic};
use waypost_fold::{FoldEvent, Outcome};

use super::Ingest;
use crate::limits::VERDICTS_HELD_MAX;
use crate::progress::{Progress, Verdict};

/// Verdicts on records that somebody waits for. They are told once the store serves what the record
/// says: after its batch, or after the load or replay that it is part of.
#[derive(Debug, Default)]
pub(super) struct HeldVerdicts(VecDeque<(Bytes, PartitionId, Offset, Verdict)>);

impl HeldVerdicts {
    fn hold(&mut self, key: Bytes, record: &Record, verdict: Verdict) {
        if self.0.len() == VERDICTS_HELD_MAX {
            self.0.pop_front();
        }
        self.0
            .push_back((key, record.partition, record.offset, verdict));
    }

    pub(super) fn tell(&mut self, progress: &Progress) {
        for (key, partition, offset, verdict) in self.0.drain(..) {
            progress.tell(&key, partition, offset, verdict);
        }
    }
}

impl Ingest {
    pub(super) fn on_records(&mut self, topic: Topic, records: &[Record], now: Duration) {
        let mut events = Vec::new();
        let mut touched = BTreeSet::new();
        for record in records {
            let outcome = match topic {
                Topic::Announcements => self.folds.announcements.apply(record, &mut events),
                Topic::Config => self.folds.config.apply(record, &mut events),
                Topic::Control => self.folds.control.apply(record, &mut events),
            };
            self.metrics.on_record(topic, &outcome);
            self.hold_verdict(topic, record, &outcome);
            touched.insert(record.partition);
            self.log_now = record.append_time;
        }
        let mut inputs = Vec::new();
        for event in events {
            self.on_fold_event(event, &mut inputs, now);
        }
        let inputs = self.replays.hold_back(topic, inputs);
        if !inputs.is_empty() {
            self.writer.apply(self.log_now, inputs);
        }
        for partition in touched {
            self.on_position(topic, partition, now);
        }
        if topic == Topic::Announcements {
            let log_time = self.folds.announcements.clock().log_time_min();
            self.loading.on_log_time(log_time);
        }
        if self.loading.is_loaded() && self.replays.is_empty() {
            self.verdicts.tell(&self.progress);
        }
    }

    fn hold_verdict(&mut self, topic: Topic, record: &Record, outcome: &Outcome) {
        if topic != Topic::Announcements || !self.progress.is_awaited() {
            return;
        }
        let Some(key) = record.key.as_ref().filter(|k| self.progress.awaits(k)) else {
            return;
        };
        let verdict = match outcome {
            Outcome::Changed | Outcome::Unchanged | Outcome::Control | Outcome::Ignored => {
                Verdict::Served
            }
            Outcome::Refused(refusal) => Verdict::Refused(refusal.to_string()),
            Outcome::Void(reason) => Verdict::Refused(reason.to_string()),
            Outcome::Rejected(reason) => Verdict::Refused(reason.to_string()),
            Outcome::AlreadyRead => return,
        };
        self.verdicts.hold(key.clone(), record, verdict);
    }

    fn on_fold_event(&mut self, event: FoldEvent, inputs: &mut Vec<StoreInput>, now: Duration) {
        match event {
            FoldEvent::Live { key, value } => inputs.push(StoreInput::Instance {
                key,
                value: Some(value),
            }),
            FoldEvent::Gone { key, cause } => {
                self.metrics.on_gone(cause);
                tracing::debug!(cluster = %key.cluster, uri = %key.uri, cause = cause.as_str(), "instance left");
                inputs.push(StoreInput::Instance { key, value: None });
            }
            FoldEvent::Config { input, .. } => inputs.push(input),
            FoldEvent::Conflict(conflict) => {
                self.metrics.on_conflict();
                tracing::warn!("{conflict}; the last record stands");
            }
            FoldEvent::Ticked(tick) => self.keeper.on_tick(&tick, now),
            FoldEvent::Refused { key, refusal } => {
                self.metrics.on_refused(refusal.reason);
                if self.named.may_name(now) {
                    tracing::info!(cluster = %key.cluster, uri = %key.uri, "{refusal}");
                }
            }
            FoldEvent::Void {
                topic,
                partition,
                offset,
                key,
                reason,
            } => {
                self.metrics.on_void(reason);
                if self.named.may_name(now) {
                    let topic = topic.suffix();
                    tracing::info!(topic, %partition, %offset, ?key, "{reason}");
                }
            }
            FoldEvent::Rejected {
                topic,
                partition,
                offset,
                reason,
            } => {
                self.metrics.on_rejected(&reason);
                if self.named.may_name(now) {
                    let topic = topic.suffix();
                    tracing::warn!(topic, %partition, %offset, "record skipped: {reason}");
                }
                if topic == Topic::Config {
                    self.refused_definitions
                        .remember(partition, offset, &reason);
                }
            }
            FoldEvent::WrongPartition {
                key,
                partition,
                expected,
                offset,
            } => {
                self.metrics.on_wrong_partition();
                if self.named.may_name(now) {
                    tracing::warn!(
                        cluster = %key.cluster, uri = %key.uri, %partition, %expected, %offset,
                        "announced in a partition that is not its key's own; its producer must partition by murmur2"
                    );
                }
            }
            FoldEvent::Identity {
                topic,
                identity,
                follows,
            } => {
                let topic = topic.suffix();
                tracing::debug!(topic, %identity, ?follows, "the log's identity");
            }
        }
    }
}
