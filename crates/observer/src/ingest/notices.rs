//! What is counted and said of what the folds tell that changes nothing served by itself.

use std::time::Duration;

use waypost_core::Topic;
use waypost_fold::FoldEvent;

use super::Ingest;

impl Ingest {
    pub(super) fn report(&mut self, event: FoldEvent, now: Duration) {
        match event {
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
            other => self.report_log(&other),
        }
    }

    /// What was found out about the log as a whole.
    fn report_log(&self, event: &FoldEvent) {
        match event {
            FoldEvent::Discontinued {
                topic,
                partition,
                cause,
            } => {
                self.metrics.on_replay(*topic);
                tracing::warn!(
                    topic = topic.suffix(),
                    %partition,
                    "the log does not continue here: {cause}; reading the topic again from its beginning, serving what was read"
                );
            }
            FoldEvent::Replayed { topic, sameness } => tracing::info!(
                topic = topic.suffix(),
                log = sameness.as_str(),
                "the topic was read again"
            ),
            FoldEvent::Identity {
                topic,
                identity,
                follows,
            } => {
                let topic = topic.suffix();
                tracing::debug!(topic, %identity, ?follows, "the log's identity");
            }
            _ => {}
        }
    }
}
