//! Writing: one librdkafka producer per way of delivery, made when first used and made anew when
//! librdkafka gives it up, or when it delivers nothing to some partition for too long.

mod deliveries;
mod heartbeats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message as _, OwnedHeaders, Timestamp as KafkaTimestamp};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::oneshot;
use tokio::time::Instant;
use waypost_core::partition::PartitionId;
use waypost_core::port::LogError;
use waypost_core::record::{Appended, Delivery, Headers, NewRecord, Offset, Topic};
use waypost_core::time::Timestamp;

use self::deliveries::Deliveries;
use self::heartbeats::{HeartbeatPlace, Heartbeats};
use super::client::{self, Complaints, Inquiry};
use super::limits::{METADATA_ANSWER_MAX, SILENT_STALLS};
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
    /// Whether somebody finds out if the cluster answers.
    is_asking: AtomicBool,
}

/// A producer of librdkafka; only says that it is there.
#[derive(Clone)]
struct NativeHandle {
    producer: Arc<Native>,
    deliveries: Arc<Deliveries>,
}

impl std::fmt::Debug for NativeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ThreadedProducer")
    }
}

/// What travels with a record through librdkafka and comes back with its fate.
pub(super) struct Ticket {
    answer_tx: oneshot::Sender<Result<Appended, KafkaError>>,
    topic: Topic,
    tried_at: Instant,
    _place: Option<HeartbeatPlace>,
}

pub(super) struct DeliveryContext {
    complaints: Arc<Complaints>,
    deliveries: Arc<Deliveries>,
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
                self.deliveries.succeeded(ticket.topic, message.partition());
                Ok(Appended {
                    partition: PartitionId(u32::try_from(message.partition()).unwrap_or_default()),
                    offset: Offset(message.offset()),
                    append_time: match message.timestamp() {
                        KafkaTimestamp::LogAppendTime(ms) => Some(Timestamp(ms)),
                        KafkaTimestamp::CreateTime(_) | KafkaTimestamp::NotAvailable => None,
                    },
                })
            }
            Err((error, message)) => {
                if may_be_a_stall(error) {
                    self.deliveries
                        .failed(ticket.topic, message.partition(), ticket.tried_at);
                }
                Err(error.clone())
            }
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
            is_asking: AtomicBool::new(false),
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
                topic: record.topic,
                tried_at: Instant::now(),
                _place: place,
            },
        )
        .map_err(|error| self.failed(&native, record.topic, &error))?;
        match answer_rx.await {
            Ok(Ok(appended)) => Ok(appended),
            Ok(Err(error)) => {
                self.renew_if_stalled(&native, record.topic).await;
                Err(self.failed(&native, record.topic, &error))
            }
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
        tokio::task::spawn_blocking(move || question(native.producer.client(), &complaints))
            .await
            .unwrap_or(Err(LogError::Closed))
    }

    fn take_place(&self, record: &NewRecord) -> Result<Option<HeartbeatPlace>, LogError> {
        if record.delivery != Delivery::Heartbeat {
            return Ok(None);
        }
        match self.heartbeats.take_place(record.topic, &record.key) {
            Some(place) => Ok(Some(place)),
            None => Err(LogError::Unavailable(format!(
                "the heartbeat before this one still waits; {}",
                self.complaints.unreachable(&self.settings)
            ))),
        }
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
        native.producer.send(message).map_err(|(error, _)| error)
    }

    fn native(&self) -> Result<NativeHandle, LogError> {
        let mut native = self.native.lock();
        if let Some(made) = native.as_ref() {
            return Ok(made.clone());
        }
        let config = self.settings.producer(self.timeout);
        let deliveries = Arc::<Deliveries>::default();
        let context = DeliveryContext {
            complaints: Arc::clone(&self.complaints),
            deliveries: Arc::clone(&deliveries),
        };
        let made = Native::from_config_and_context(&config, context)
            .map(|made| NativeHandle {
                producer: Arc::new(made),
                deliveries,
            })
            .map_err(|e| client::bad_client(&e))?;
        *native = Some(made.clone());
        Ok(made)
    }

    /// Turns librdkafka's error into the port's, and drops a producer that has only fatal errors left
    /// to give (an idempotent producer whose topic lost records).
    fn failed(&self, native: &NativeHandle, topic: Topic, error: &KafkaError) -> LogError {
        if native.producer.client().fatal_error().is_some() {
            self.drop_if_current(native, "gave up");
        }
        self.to_log_error(topic, error)
    }

    /// Drops a producer that delivers nothing to some partition although the cluster answers: of a
    /// topic that was made anew librdkafka ignores the new leaders (confluentinc/librdkafka#4898).
    async fn renew_if_stalled(&self, native: &NativeHandle, topic: Topic) {
        let (fails_for, stall_after) = (native.deliveries.fails_for(), self.settings.stall_after());
        if fails_for < stall_after || self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        // Given back also where the caller stops waiting.
        let _asking = Asking(&self.is_asking);
        let (settings, asked) = (Arc::clone(&self.settings), native.clone());
        let answer = tokio::task::spawn_blocking(move || {
            let client = asked.producer.client();
            client::ask_partition_count(client, &settings, topic, METADATA_ANSWER_MAX)
        });
        let is_answered = answer.await.is_ok_and(|a| a != Err(Inquiry::Unanswered));
        if is_answered || fails_for >= SILENT_STALLS * stall_after {
            self.drop_if_current(native, "delivers nothing to some partition");
        }
    }

    /// What it still holds is tried to its end; only then is it gone.
    fn drop_if_current(&self, native: &NativeHandle, why: &str) {
        let mut current = self.native.lock();
        let is_current = |current: &NativeHandle| Arc::ptr_eq(&current.producer, &native.producer);
        if current.as_ref().is_some_and(is_current) {
            tracing::warn!("a Kafka producer {why}; it is made anew");
            release(current.take());
        }
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

/// The one who finds out whether the cluster answers.
struct Asking<'a>(&'a AtomicBool);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        release(self.native.lock().take());
    }
}

/// Whether another producer might deliver what this one did not. Refusals are the same for all.
fn may_be_a_stall(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    !matches!(
        error.rdkafka_error_code(),
        Some(
            Code::MessageSizeTooLarge
                | Code::InvalidMessageSize
                | Code::InvalidRecord
                | Code::PolicyViolation
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
        )
    )
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
