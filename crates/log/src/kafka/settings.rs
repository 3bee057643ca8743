//! Which Kafka, which topics, and how librdkafka is set up for them.

use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use waypost_core::record::Topic;

use super::limits;
use super::properties::{Properties, PropertiesError};

/// Where the log of a fabric lives.
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    brokers: String,
    topic_prefix: String,
    properties: Properties,
    stall_after: Duration,
}

impl KafkaSettings {
    /// The topics `TOPIC_PREFIX.announcements`, `.config` and `.control` of the cluster that
    /// `brokers` (`HOST:PORT,…`) belong to. Reaches nothing yet.
    #[must_use]
    pub fn new(brokers: &str, topic_prefix: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            topic_prefix: topic_prefix.to_owned(),
            properties: Properties::default(),
            stall_after: limits::STALL_AFTER,
        }
    }

    /// The same with librdkafka properties (TLS, SASL, …) from a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not a property that may be set.
    pub fn with_properties_file(self, path: &Path) -> Result<Self, PropertiesError> {
        Ok(self.with_properties(Properties::read(path)?))
    }

    /// The same with librdkafka properties.
    #[must_use]
    pub fn with_properties(self, properties: Properties) -> Self {
        Self { properties, ..self }
    }

    /// The same with handles of librdkafka that are made anew after `stall_after` without progress
    /// (10 s: three heartbeat intervals of the shortest time-to-live).
    #[must_use]
    pub fn with_stall_after(self, stall_after: Duration) -> Self {
        Self {
            stall_after,
            ..self
        }
    }

    /// How long a handle may make no progress before it is made anew.
    #[must_use]
    pub fn stall_after(&self) -> Duration {
        self.stall_after
    }

    /// The brokers as given.
    #[must_use]
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// The prefix of the topics' names.
    #[must_use]
    pub fn topic_prefix(&self) -> &str {
        &self.topic_prefix
    }

    /// The full name of a topic.
    #[must_use]
    pub fn topic_name(&self, topic: Topic) -> String {
        format!("{}.{}", self.topic_prefix, topic.suffix())
    }

    /// The command that creates the topics that are missing.
    #[must_use]
    pub fn create_command(&self) -> String {
        format!(
            "waypost topics create --kafka {} --topic-prefix {}",
            self.brokers, self.topic_prefix
        )
    }

    /// What every client is set up with; the properties of the user's file come before the rules'.
    fn client(&self, rules: &[(&str, String)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("client.id", "waypost")
            .set("reconnect.backoff.ms", "100")
            .set("reconnect.backoff.max.ms", "1000")
            .set("socket.keepalive.enable", "true")
            .set("log.connection.close", "false");
        for (name, value) in self.properties.iter() {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            // A topic that a broker makes up on demand has all of its settings wrong.
            .set("allow.auto.create.topics", "false")
            .set(
                "topic.metadata.refresh.interval.ms",
                millis(limits::METADATA_INTERVAL),
            )
            .set(
                "topic.metadata.propagation.max.ms",
                millis(limits::METADATA_INTERVAL),
            );
        for (name, value) in rules {
            config.set(*name, value);
        }
        config
    }

    /// A producer whose records are given up after `timeout`.
    pub(super) fn producer(&self, timeout: Duration) -> ClientConfig {
        self.client(&[
            ("acks", "all".to_owned()),
            ("enable.idempotence", "true".to_owned()),
            ("partitioner", "murmur2_random".to_owned()),
            ("message.timeout.ms", millis(timeout)),
            ("linger.ms", millis(limits::LINGER)),
            (
                "message.max.bytes",
                limits::DEFINITION_WIRE_BYTES_MAX.to_string(),
            ),
            (
                "queue.buffering.max.messages",
                limits::QUEUED_RECORDS_MAX.to_string(),
            ),
            (
                "queue.buffering.max.kbytes",
                limits::QUEUED_KIBIBYTES_MAX.to_string(),
            ),
        ])
    }

    /// A consumer that is told which partitions to read from where.
    pub(super) fn consumer(&self) -> ClientConfig {
        let mut config = self.client(&[
            ("enable.auto.commit", "false".to_owned()),
            ("enable.auto.offset.store", "false".to_owned()),
            ("auto.offset.reset", "error".to_owned()),
            ("enable.partition.eof", "true".to_owned()),
            ("isolation.level", "read_uncommitted".to_owned()),
            ("check.crcs", "true".to_owned()),
            (
                "queued.max.messages.kbytes",
                limits::FETCHED_KIBIBYTES_MAX.to_string(),
            ),
            ("fetch.max.bytes", limits::FETCH_BYTES_MAX.to_string()),
            ("fetch.wait.max.ms", millis(limits::FETCH_WAIT_MAX)),
            (
                "fetch.message.max.bytes",
                limits::DEFINITION_WIRE_BYTES_MAX.to_string(),
            ),
            // Full queues are looked at again at once: the default second is a pause in a replay.
            ("fetch.queue.backoff.ms", "10".to_owned()),
            ("fetch.error.backoff.ms", "100".to_owned()),
        ]);
        // librdkafka assigns nothing without a group; this one has no members and commits nothing.
        // It may be renamed where access rules ask for it.
        if config.get("group.id").is_none() {
            config.set("group.id", "waypost");
        }
        config
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_properties_reach_every_client_and_never_replace_a_rule() {
        let text = "client.id=me\nfetch.error.backoff.ms=7\ngroup.id=allowed";
        let settings = KafkaSettings::new("h:1", "p").with_properties(text.parse().unwrap());
        let consumer = settings.consumer();
        assert_eq!(consumer.get("client.id"), Some("me"));
        assert_eq!(consumer.get("group.id"), Some("allowed"));
        assert_eq!(consumer.get("auto.offset.reset"), Some("error"));
        assert_eq!(
            settings.producer(limits::TICK_TIMEOUT).get("client.id"),
            Some("me")
        );
        assert_eq!(
            settings
                .producer(limits::TICK_TIMEOUT)
                .get("message.timeout.ms"),
            Some("2000")
        );
    }

    #[test]
    fn librdkafka_accepts_every_setting() {
        let settings = KafkaSettings::new("h:1", "p");
        settings.consumer().create_native_config().unwrap();
        settings
            .producer(limits::RECORD_TIMEOUT)
            .create_native_config()
            .unwrap();
    }
}
