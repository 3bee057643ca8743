//! Reading: a thread that serves librdkafka, one that asks questions, and the handle that hands on what
//! they found.

mod asker;
mod context;
mod followed;
mod position;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::time::Instant;
use waypost_core::partition::PartitionId;
use waypost_core::port::{LogError, LogReader, ReadEvent};
use waypost_core::record::{Headers, Offset, Record, Topic};
use waypost_core::time::Timestamp;

use self::context::ReaderContext;
use self::worker::Worker;
use super::client;
use super::limits::{ANSWER_MAX, EVENTS_MAX};
use super::settings::KafkaSettings;
use crate::copies::Copies;

/// Follows one topic. Its thread ends soon after this is dropped.
#[derive(Debug)]
pub(super) struct KafkaReader {
    events_rx: mpsc::Receiver<ReadEvent>,
}

impl KafkaReader {
    /// Starts to read. Reaches nothing before it returns.
    pub(super) fn open(
        settings: Arc<KafkaSettings>,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Result<Self, LogError> {
        let (events_tx, events_rx) = mpsc::channel(EVENTS_MAX);
        let worker = Worker::new(settings, topic, from, events_tx)?;
        std::thread::Builder::new()
            .name(format!("kafka-{}", topic.suffix()))
            .spawn(move || worker.run())
            .map_err(|e| LogError::Unavailable(format!("no thread to read Kafka with: {e}")))?;
        Ok(Self { events_rx })
    }
}

#[async_trait]
impl LogReader for KafkaReader {
    async fn next(&mut self) -> Result<ReadEvent, LogError> {
        self.events_rx.recv().await.ok_or(LogError::Closed)
    }
}

/// Reads one record with a consumer of its own: it is asked for rarely (a keeper that takes over),
/// and a consumer that sits idle in between would hold connections and threads. Blocks.
pub(super) fn read_at(
    settings: &KafkaSettings,
    topic: Topic,
    partition: PartitionId,
    offset: Offset,
) -> Result<Option<Record>, LogError> {
    let context = ReaderContext::default();
    let consumer: BaseConsumer<ReaderContext> = settings
        .consumer()
        .create_with_context(context)
        .map_err(|e| client::bad_client(&e))?;
    let name = settings.topic_name(topic);
    let away = |consumer: &BaseConsumer<ReaderContext>| {
        LogError::Unavailable(consumer.context().complaints.unreachable(settings))
    };
    let id = kafka_partition(partition.0 as usize);
    let (start, end) = match consumer.fetch_watermarks(&name, id, ANSWER_MAX) {
        Ok(bounds) => bounds,
        Err(error) if is_unknown(&error) => {
            return client::ask_partition_count(consumer.client(), settings, topic, ANSWER_MAX)
                .map(|_| None)
                .map_err(|e| e.to_log_error(settings, topic, &consumer.context().complaints));
        }
        Err(_) => return Err(away(&consumer)),
    };
    if offset.0 < start || offset.0 >= end {
        return Ok(None);
    }
    let mut assignment = TopicPartitionList::new();
    assignment
        .add_partition_offset(&name, id, KafkaOffset::Offset(offset.0))
        .and_then(|()| consumer.assign(&assignment))
        .map_err(|_| away(&consumer))?;
    let give_up = Instant::now() + ANSWER_MAX;
    while Instant::now() < give_up {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) if message.offset() == offset.0 => {
                return Ok(Some(to_record(&message, &mut Copies::default())));
            }
            // Past it, or at the end: compacted. Out of range: deleted meanwhile.
            Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => return Ok(None),
            Some(Err(e)) if e.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) => {
                return Ok(None);
            }
            Some(Err(_)) | None => {}
        }
    }
    Err(away(&consumer))
}

fn is_unknown(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition
        )
    )
}

fn kafka_partition(partition: usize) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}

/// Takes a record out of librdkafka's buffer.
fn to_record(message: &BorrowedMessage<'_>, copies: &mut Copies) -> Record {
    let headers = match message.headers() {
        Some(all) => {
            let all = (0..all.count()).filter_map(|index| all.try_get(index));
            Headers::read(all.map(|header| (header.key, header.value.unwrap_or_default())))
        }
        None => Ok(Headers::default()),
    };
    Record {
        partition: PartitionId(u32::try_from(message.partition()).unwrap_or_default()),
        offset: Offset(message.offset()),
        append_time: Timestamp(message.timestamp().to_millis().unwrap_or_default()),
        key: message.key().map(|key| copies.copy(key)),
        value: message.payload().map(|value| copies.copy(value)),
        headers,
    }
}
