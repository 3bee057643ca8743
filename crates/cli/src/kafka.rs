//! The Kafka log as flags name it.

use std::sync::Arc;

use waypost_log::kafka::{KafkaLog, KafkaSettings};

use crate::args::TopicPrefixArgs;
use crate::exit::Failure;

/// The settings of the log that the flags name. Reaches nothing.
pub(crate) fn settings(brokers: &str, args: &TopicPrefixArgs) -> Result<KafkaSettings, Failure> {
    let settings = KafkaSettings::new(brokers, &args.topic_prefix);
    match &args.kafka_config {
        None => Ok(settings),
        Some(path) => settings
            .with_properties_file(path)
            .map_err(|e| Failure::usage(e.to_string())),
    }
}

/// The log that the flags name. Reaches nothing.
pub(crate) fn open(brokers: &str, args: &TopicPrefixArgs) -> Result<Arc<KafkaLog>, Failure> {
    KafkaLog::open(settings(brokers, args)?)
        .map(Arc::new)
        .map_err(|e| Failure::failed(e.to_string()))
}
