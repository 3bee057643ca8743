//! Writing: one librdkafka producer per way of delivery, made when first used and made anew when
//! librdkafka gives it up.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message as _, OwnedHeaders, Timestamp as KafkaTimestamp};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::oneshot;
use waypost_core::partition::PartitionId;
use waypost_core::port::LogError;
use waypost_core::record::{Appended, Delivery, Headers, NewRecord, Offset, Topic};
use waypost_core::time::Timestamp;

use super::client::{self, Complaints};
use super::settings::KafkaSettings;

type Native = ThreadedProducer<DeliveryContext>;

/// Writes records that are given up after a fixed time.
#[derive(Debug)]
pub(super) struct Producer {
    settings: Arc<KafkaSettings>,
    timeout: Duration,
    complaints: Arc<Complaints>,
    heartbeats: Arc<Heartbeats>,
    native: Mutex<Option<NativeHandle>>,
}

/// A producer of librdkafka; only says that it is there.
#[derive(Clone)]
struct NativeHandle(Arc<Native>);

impl std::fmt::Debug for NativeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ThreadedProducer")
    }
}

/// Which heartbeats wait for Kafka. While it is away each key holds one place, not one a beat.
#[derive(Debug, Default)]
struct Heartbeats {
    waiting: Mutex<HashSet<(Topic, Bytes)>>,
}

/// A heartbeat's place; given back when Kafka has answered or librdkafka has given up.
#[derive(Debug)]
struct HeartbeatPlace {
    heartbeats: Arc<Heartbeats>,
    key: (Topic, Bytes),
}

impl Drop for HeartbeatPlace {
    fn drop(&mut self) {
        self.heartbeats.waiting.lock().remove(&self.key);
    }
}

/// What travels with a record through librdkafka and comes back with its fate.
pub(super) struct Ticket {
    answer_tx: oneshot::Sender<Result<Appended, KafkaError>>,
    _place: Option<HeartbeatPlace>,
}

pub(super) struct DeliveryContext {
    complaints: Arc<Complaints>,
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.note(&error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let answer = match result {
            Ok(message) => {
                self.complaints.clear();
                Ok(Appended {
                    partition: PartitionId(u32::try_from(message.partition()).unwrap_or_default()),
                    offset: Offset(message.offset()),
                    append_time: match message.timestamp() {
                        KafkaTimestamp::LogAppendTime(ms) => Some(Timestamp(ms)),
                        KafkaTimestamp::CreateTime(_) | KafkaTimestamp::NotAvailable => None,
                    },
                })
            }
            Err((error, _)) => Err(error.clone()),
        };
        // Whoever asked may have stopped waiting.
        let _ = ticket.answer_tx.send(answer);
    }
}

impl Producer {
    pub(super) fn new(settings: Arc<KafkaSettings>, timeout: Duration) -> Self {
        Self {
            settings,
            timeout,
            complaints: Arc::default(),
            heartbeats: Arc::default(),
            native: Mutex::new(None),
        }
    }

    /// Appends a record that was admitted, and waits for all in-sync replicas or for the timeout.
    pub(super) async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        let place = self.take_place(&record)?;
        let native = self.native()?;
        let (answer_tx, answer_rx) = oneshot::channel();
        self.enqueue(
            &native,
            &record,
            Ticket {
                answer_tx,
                _place: place,
            },
        )
        .map_err(|error| self.failed(&native, record.topic, &error))?;
        match answer_rx.await {
            Ok(Ok(appended)) => Ok(appended),
            Ok(Err(error)) => Err(self.failed(&native, record.topic, &error)),
            Err(_) => Err(LogError::Unavailable(
                "the Kafka producer was made anew".to_owned(),
            )),
        }
    }

    /// Runs a blocking question to the cluster on a thread that may block.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Client<DeliveryContext>, &Complaints) -> Result<T, LogError>
        + Send
        + 'static,
    ) -> Result<T, LogError> {
        let native = self.native()?;
        let complaints = Arc::clone(&self.complaints);
        tokio::task::spawn_blocking(move || question(native.0.client(), &complaints))
            .await
            .unwrap_or(Err(LogError::Closed))
    }

    fn take_place(&self, record: &NewRecord) -> Result<Option<HeartbeatPlace>, LogError> {
        if record.delivery != Delivery::Heartbeat {
            return Ok(None);
        }
        let key = (record.topic, record.key.clone());
        if !self.heartbeats.waiting.lock().insert(key.clone()) {
            return Err(LogError::Unavailable(format!(
                "the heartbeat before this one still waits; {}",
                self.complaints.unreachable(&self.settings)
            )));
        }
        Ok(Some(HeartbeatPlace {
            heartbeats: Arc::clone(&self.heartbeats),
            key,
        }))
    }

    fn enqueue(
        &self,
        native: &NativeHandle,
        record: &NewRecord,
        ticket: Ticket,
    ) -> Result<(), KafkaError> {
        let topic = self.settings.topic_name(record.topic);
        let mut message = BaseRecord::with_opaque_to(&topic, Box::new(ticket))
            .key(record.key.as_ref())
            .headers(to_kafka_headers(&record.headers));
        message.payload = record.value.as_deref();
        message.partition = record.partition.and_then(|p| i32::try_from(p.0).ok());
        native.0.send(message).map_err(|(error, _)| error)
    }

    fn native(&self) -> Result<NativeHandle, LogError> {
        let mut native = self.native.lock();
        if let Some(made) = native.as_ref() {
            return Ok(made.clone());
        }
        let config = self.settings.producer(self.timeout);
        let context = DeliveryContext {
            complaints: Arc::clone(&self.complaints),
        };
        let made = Native::from_config_and_context(&config, context)
            .map(|made| NativeHandle(Arc::new(made)))
            .map_err(|e| client::bad_client(&e))?;
        *native = Some(made.clone());
        Ok(made)
    }

    /// Turns librdkafka's error into the port's, and drops a producer that has none but fatal ones
    /// left to give (an idempotent producer whose topic lost records).
    fn failed(&self, native: &NativeHandle, topic: Topic, error: &KafkaError) -> LogError {
        if native.0.client().fatal_error().is_some() {
            let mut current = self.native.lock();
            if current
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(&current.0, &native.0))
            {
                tracing::warn!(%error, "Kafka producer gave up; it is made anew");
                release(current.take());
            }
        }
        self.to_log_error(topic, error)
    }

    fn to_log_error(&self, topic: Topic, error: &KafkaError) -> LogError {
        use RDKafkaErrorCode as Code;
        let brokers = self.settings.brokers();
        let name = self.settings.topic_name(topic);
        match error.rdkafka_error_code() {
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => {
                client::no_such_topic(&self.settings, topic)
            }
            Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
                LogError::Refused(format!(
                    "the record is larger than topic {name} takes: `waypost topics check` says how to \
                 raise max.message.bytes"
                ))
            }
            Some(
                Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::InvalidRecord
                | Code::PolicyViolation
                | Code::UnknownPartition
                | Code::InvalidArgument,
            ) => LogError::Refused(format!("Kafka at {brokers}, topic {name}: {error}")),
            Some(Code::MessageTimedOut) => LogError::Unavailable(format!(
                "not acknowledged within {:?}; {}",
                self.timeout,
                self.complaints.unreachable(&self.settings)
            )),
            Some(Code::QueueFull) => LogError::Unavailable(format!(
                "too many records wait; {}",
                self.complaints.unreachable(&self.settings)
            )),
            _ => LogError::Unavailable(format!("Kafka at {brokers}, topic {name}: {error}")),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        release(self.native.lock().take());
    }
}

/// Dropping a librdkafka producer waits for its threads; that is not for an async task to do.
fn release(native: Option<NativeHandle>) {
    if let Some(native) = native {
        std::thread::spawn(move || drop(native));
    }
}

fn to_kafka_headers(headers: &Headers) -> OwnedHeaders {
    let pairs = headers.to_pairs();
    pairs.iter().fold(
        OwnedHeaders::new_with_capacity(pairs.len()),
        |all, (key, value)| {
            all.insert(Header {
                key,
                value: Some(value.as_str()),
            })
        },
    )
}
