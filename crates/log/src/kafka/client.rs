//! What producers and readers share: librdkafka's messages, its errors, and questions to the cluster.

use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use waypost_core::port::LogError;
use waypost_core::record::Topic;

use super::settings::KafkaSettings;

/// Keeps what librdkafka last complained about, for the messages that people read: its error codes
/// alone ("all brokers are down") do not say why.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    last: Mutex<Option<String>>,
}

impl Complaints {
    /// Notes an error, unless it only sums up others.
    pub(super) fn note(&self, error: &KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.last.lock() = Some(reason.to_owned());
        }
    }

    /// Forgets them: things work.
    pub(super) fn clear(&self) {
        *self.last.lock() = None;
    }

    /// `Kafka at BROKERS does not answer: REASON`.
    pub(super) fn unreachable(&self, settings: &KafkaSettings) -> String {
        let brokers = settings.brokers();
        match self.last.lock().as_deref() {
            Some(reason) => format!("Kafka at {brokers} does not answer: {reason}"),
            None => format!("Kafka at {brokers} does not answer"),
        }
    }
}

/// Passes librdkafka's log lines on. Each failed connection is one, so they are for whoever looks;
/// what an operator must know is reported as an event or error.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(target: "librdkafka", facility, "{message}");
        }
        _ => tracing::debug!(target: "librdkafka", facility, "{message}"),
    }
}

/// How many partitions a topic has, asked from the cluster now. Blocks for up to `answer_max`.
///
/// # Errors
/// `Unavailable`, or `Misconfigured` with the command that mends it where there is no such topic.
pub(super) fn ask_partition_count<C: ClientContext>(
    client: &Client<C>,
    settings: &KafkaSettings,
    topic: Topic,
    answer_max: Duration,
) -> Result<u32, Inquiry> {
    let name = settings.topic_name(topic);
    let metadata = client
        .fetch_metadata(Some(&name), answer_max)
        .map_err(|_| Inquiry::Unanswered)?;
    let Some(found) = metadata.topics().iter().find(|t| t.name() == name) else {
        return Err(Inquiry::NoSuchTopic);
    };
    match found.error().map(RDKafkaErrorCode::from) {
        None => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition) => return Err(Inquiry::NoSuchTopic),
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => return Err(Inquiry::Forbidden),
        Some(_) => return Err(Inquiry::Unanswered),
    }
    match u32::try_from(found.partitions().len()) {
        Ok(0) | Err(_) => Err(Inquiry::Unanswered),
        Ok(count) => Ok(count),
    }
}

/// Why a question about a topic has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inquiry {
    /// Nobody answered, or the cluster is electing leaders.
    Unanswered,
    /// The cluster knows no such topic.
    NoSuchTopic,
    /// This client may not see the topic.
    Forbidden,
}

impl Inquiry {
    pub(super) fn to_log_error(
        self,
        settings: &KafkaSettings,
        topic: Topic,
        complaints: &Complaints,
    ) -> LogError {
        match self {
            Self::Unanswered => LogError::Unavailable(complaints.unreachable(settings)),
            Self::NoSuchTopic => no_such_topic(settings, topic),
            Self::Forbidden => LogError::Refused(format!(
                "Kafka at {} does not let this client use topic {}: grant it Describe, Read and Write",
                settings.brokers(),
                settings.topic_name(topic)
            )),
        }
    }
}

pub(super) fn no_such_topic(settings: &KafkaSettings, topic: Topic) -> LogError {
    LogError::Misconfigured(format!(
        "Kafka at {} has no topic {}: run `{}`",
        settings.brokers(),
        settings.topic_name(topic),
        settings.create_command()
    ))
}

/// A client that cannot be made: a property that only the whole shows to be wrong.
pub(super) fn bad_client(error: &KafkaError) -> LogError {
    LogError::Misconfigured(format!(
        "librdkafka does not take the Kafka properties: {error}"
    ))
}
