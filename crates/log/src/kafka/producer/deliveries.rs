//! Whether a producer still delivers, partition by partition: one that is stuck shows among others
//! that work.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use waypost_core::record::Topic;

/// How deliveries of one producer go. Holds at most two entries for each partition of three topics.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// By topic and partition (-1: librdkafka had not chosen one): where the last try failed.
    failures: Mutex<HashMap<(Topic, i32), Failure>>,
    /// By topic and partition: when Kafka acknowledged a record last.
    delivered_at: Mutex<HashMap<(Topic, i32), Instant>>,
}

/// Tries in a row without a delivery.
#[derive(Debug)]
struct Failure {
    first_tried_at: Instant,
    last_failed_at: Instant,
}

impl Deliveries {
    /// Kafka has a record.
    pub(super) fn succeeded(&self, topic: Topic, partition: i32) {
        let now = Instant::now();
        self.delivered_at.lock().insert((topic, partition), now);
        let mut failures = self.failures.lock();
        if !failures.is_empty() {
            failures.remove(&(topic, partition));
            failures.remove(&(topic, UNCHOSEN));
        }
    }

    /// Whether a record of this partition was acknowledged after `since`.
    pub(super) fn has_delivered(&self, topic: Topic, partition: i32, since: Instant) -> bool {
        let delivered_at = self.delivered_at.lock();
        let at = delivered_at.get(&(topic, partition));
        at.is_some_and(|at| *at > since)
    }

    /// A record that was handed over at `tried_at` was given up.
    pub(super) fn failed(&self, topic: Topic, partition: i32, tried_at: Instant) {
        let now = Instant::now();
        let mut failures = self.failures.lock();
        let failure = failures.entry((topic, partition)).or_insert(Failure {
            first_tried_at: tried_at,
            last_failed_at: now,
        });
        failure.last_failed_at = now;
    }

    /// For how long nothing that was tried was delivered to the partition where that is longest.
    pub(super) fn fails_for(&self) -> Duration {
        let failures = self.failures.lock();
        let each = failures
            .values()
            .map(|failure| failure.last_failed_at - failure.first_tried_at);
        each.max().unwrap_or_default()
    }
}

/// librdkafka's mark of a record whose partition is not chosen.
const UNCHOSEN: i32 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: Topic = Topic::Announcements;
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_fails_shows_although_others_work() {
        let deliveries = Deliveries::default();
        let tried_at = Instant::now();
        tokio::time::advance(10 * SECOND).await;
        deliveries.failed(TOPIC, 3, tried_at);
        tokio::time::advance(10 * SECOND).await;
        deliveries.failed(TOPIC, 3, Instant::now());
        deliveries.succeeded(TOPIC, 2);
        deliveries.succeeded(Topic::Config, 3);
        tokio::time::advance(10 * SECOND).await;
        assert_eq!(deliveries.fails_for(), 20 * SECOND);
        deliveries.succeeded(TOPIC, 3);
        assert_eq!(deliveries.fails_for(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_after_a_record_was_tried_shows_that_its_partition_is_reached() {
        let deliveries = Deliveries::default();
        deliveries.succeeded(TOPIC, 3);
        let tried_at = Instant::now();
        tokio::time::advance(SECOND).await;
        deliveries.succeeded(TOPIC, 2);
        assert!(!deliveries.has_delivered(TOPIC, 3, tried_at));
        deliveries.succeeded(TOPIC, 3);
        assert!(deliveries.has_delivered(TOPIC, 3, tried_at));
    }

    #[tokio::test(start_paused = true)]
    async fn any_delivery_to_a_topic_shows_that_its_partitions_are_known() {
        let deliveries = Deliveries::default();
        let tried_at = Instant::now();
        tokio::time::advance(SECOND).await;
        deliveries.failed(TOPIC, UNCHOSEN, tried_at);
        assert_eq!(deliveries.fails_for(), SECOND);
        deliveries.succeeded(TOPIC, 0);
        assert_eq!(deliveries.fails_for(), Duration::ZERO);
    }
}
