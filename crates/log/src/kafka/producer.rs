//! Writing: one librdkafka producer per way of delivery, made when first used and made anew when
//! librdkafka gives it up, or when it delivers nothing to some partition for too long.

mod deliveries;
mod heartbeats;

use std::sync::Arc;
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
use tokio::time::{Instant, timeout};
use waypost_core::partition::PartitionId;
use waypost_core::port::LogError;
use waypost_core::record::{Appended, Delivery, Headers, NewRecord, Offset, Topic};
use waypost_core::time::Timestamp;

use self::deliveries::Deliveries;
use self::heartbeats::{HeartbeatPlace, Heartbeats};
use super::client::{self, Complaints};
use super::limits::{DELIVERY_SUSPECT_AFTER, METADATA_ANSWER_MAX, RETRY_INTERVAL, SILENT_STALLS};
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
    /// Held by the one who finds out if the cluster answers; when it last did not.
    asking: tokio::sync::Mutex<Option<Instant>>,
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
    _place: SharedPlace,
}

/// A heartbeat's place, if it is one; taken out when another handle gets the record.
type SharedPlace = Arc<Mutex<Option<HeartbeatPlace>>>;

type AnswerRx = oneshot::Receiver<Result<Appended, KafkaError>>;

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
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Appends a record that was admitted, and waits for all in-sync replicas or for the timeout.
    /// `partition` is where its key belongs as far as is known.
    ///
    /// A record that stays out where nothing is delivered, although the cluster answers, is given to a
    /// handle made anew too. It may then be written twice, the second time late: as any record may.
    pub(super) async fn append(
        &self,
        record: NewRecord,
        partition: PartitionId,
    ) -> Result<Appended, LogError> {
        let place = Arc::new(Mutex::new(self.take_place(&record)?));
        let native = self.native()?;
        let tried_at = Instant::now();
        let mut answer_rx = self.hand_over(&native, &record, Arc::clone(&place))?;
        if let Ok(answer) = timeout(DELIVERY_SUSPECT_AFTER, &mut answer_rx).await {
            return self.take(answer, &native, record.topic).await;
        }
        let topic = record.topic;
        let number = i32::try_from(partition.0).unwrap_or(i32::MAX);
        let is_reached = native.deliveries.has_delivered(topic, number, tried_at);
        let is_better = tokio::select! {
            biased;
            answer = &mut answer_rx => return self.take(answer, &native, topic).await,
            is_answered = self.is_answered(&native, topic), if !is_reached => is_answered,
            else => false,
        };
        if !is_better {
            return self.take(answer_rx.await, &native, topic).await;
        }
        self.drop_if_current(&native, "does not deliver to some partition");
        let place = Arc::new(Mutex::new(place.lock().take()));
        let native = self.native()?;
        let answer_rx = self.hand_over(&native, &record, place)?;
        self.take(answer_rx.await, &native, topic).await
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

    fn hand_over(
        &self,
        native: &NativeHandle,
        record: &NewRecord,
        place: SharedPlace,
    ) -> Result<AnswerRx, LogError> {
        let (answer_tx, answer_rx) = oneshot::channel();
        let ticket = Box::new(Ticket {
            answer_tx,
            topic: record.topic,
            tried_at: Instant::now(),
            _place: place,
        });
        let topic = self.settings.topic_name(record.topic);
        let mut message = BaseRecord::with_opaque_to(&topic, ticket)
            .key(record.key.as_ref())
            .headers(to_kafka_headers(&record.headers));
        message.payload = record.value.as_deref();
        message.partition = record.partition.and_then(|p| i32::try_from(p.0).ok());
        match native.producer.send(message) {
            Ok(()) => Ok(answer_rx),
            Err((error, _)) => Err(self.failed(native, record.topic, &error)),
        }
    }

    async fn take(
        &self,
        answer: Result<Result<Appended, KafkaError>, oneshot::error::RecvError>,
        native: &NativeHandle,
        topic: Topic,
    ) -> Result<Appended, LogError> {
        match answer {
            Ok(Ok(appended)) => Ok(appended),
            Ok(Err(error)) => {
                self.renew_if_stalled(native, topic).await;
                Err(self.failed(native, topic, &error))
            }
            Err(_) => Err(LogError::Unavailable(
                "the Kafka producer was made anew".to_owned(),
            )),
        }
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
        if fails_for >= SILENT_STALLS * stall_after
            || (fails_for >= stall_after && self.is_answered(native, topic).await)
        {
            self.drop_if_current(native, "delivers nothing to some partition");
        }
    }

    /// Whether another handle would do better: the cluster answers now, or one was made already. One
    /// at a time finds out, for all who wait.
    async fn is_answered(&self, native: &NativeHandle, topic: Topic) -> bool {
        let mut unanswered_at = self.asking.lock().await;
        if !self.is_current(native) {
            return true;
        }
        if unanswered_at.is_some_and(|at| at.elapsed() < RETRY_INTERVAL) {
            return false;
        }
        let (settings, asked) = (Arc::clone(&self.settings), native.clone());
        let answer = tokio::task::spawn_blocking(move || {
            let client = asked.producer.client();
            client::ask_partition_count(client, &settings, topic, METADATA_ANSWER_MAX)
        });
        let is_answered = answer.await.is_ok_and(|answer| answer.is_ok());
        *unanswered_at = (!is_answered).then(Instant::now);
        is_answered
    }

    fn is_current(&self, native: &NativeHandle) -> bool {
        let current = self.native.lock();
        let current = current.as_ref();
        current.is_some_and(|current| Arc::ptr_eq(&current.producer, &native.producer))
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
