//! Questions about a topic (how many partitions, where each begins and ends) on a handle and a thread
//! of their own: an answer that stays out holds up no record.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::time::Instant;
use waypost_core::port::LogError;
use waypost_core::record::Topic;

use super::context::ReaderContext;
use super::kafka_partition;
use crate::kafka::client::{self, Complaints, Inquiry};
use crate::kafka::limits::{BOUNDS_ANSWER_MAX, CALLBACKS_MAX, METADATA_ANSWER_MAX, SILENT_STALLS};
use crate::kafka::settings::KafkaSettings;

/// What a reader wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// How many partitions there are.
    Partitions,
    /// Where this partition begins and ends.
    Bounds(usize),
}

/// What the cluster said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Partitions(Result<u32, Inquiry>),
    /// First offset, and the one after the last; `None`: nobody answered.
    Bounds(usize, Option<(i64, i64)>),
}

/// The thread that asks is gone.
#[derive(Debug)]
pub(super) struct Ended;

/// Asks one question at a time. Its thread ends soon after this is dropped.
#[derive(Debug)]
pub(super) struct Asker {
    questions_tx: SyncSender<Question>,
    answers_rx: Receiver<Answer>,
    is_asking: bool,
}

impl Asker {
    pub(super) fn start(
        settings: Arc<KafkaSettings>,
        topic: Topic,
        complaints: Arc<Complaints>,
    ) -> Result<Self, LogError> {
        let (questions_tx, questions_rx) = sync_channel(1);
        let (answers_tx, answers_rx) = sync_channel(1);
        let handle = Handle::new(settings, topic, complaints)?;
        std::thread::Builder::new()
            .name(format!("kafka-ask-{}", topic.suffix()))
            .spawn(move || answer_all(handle, &questions_rx, &answers_tx))
            .map_err(|e| LogError::Unavailable(format!("no thread to ask Kafka with: {e}")))?;
        Ok(Self {
            questions_tx,
            answers_rx,
            is_asking: false,
        })
    }

    /// Whether a question is out.
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Asks, if no question is out.
    pub(super) fn ask(&mut self, question: Question) {
        if !self.is_asking {
            self.is_asking = self.questions_tx.try_send(question).is_ok();
        }
    }

    /// The answer to the question that was out, if it is there.
    ///
    /// # Errors
    /// The thread has ended: nothing will ever be answered.
    pub(super) fn take_answer(&mut self) -> Result<Option<Answer>, Ended> {
        match self.answers_rx.try_recv() {
            Ok(answer) => {
                self.is_asking = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Ended),
        }
    }
}

fn answer_all(
    mut handle: Handle,
    questions_rx: &Receiver<Question>,
    answers_tx: &SyncSender<Answer>,
) {
    while let Ok(question) = questions_rx.recv() {
        if answers_tx.send(handle.answer(question)).is_err() {
            return;
        }
    }
}

/// A handle of librdkafka that fetches nothing. Made anew when what it is asked stays unanswered: it
/// may have fallen for a topic that was made anew (confluentinc/librdkafka#4898).
struct Handle {
    settings: Arc<KafkaSettings>,
    topic: Topic,
    topic_name: String,
    complaints: Arc<Complaints>,
    consumer: BaseConsumer<ReaderContext>,
    partitions: Silence,
    bounds: Vec<Silence>,
}

impl Handle {
    fn new(
        settings: Arc<KafkaSettings>,
        topic: Topic,
        complaints: Arc<Complaints>,
    ) -> Result<Self, LogError> {
        Ok(Self {
            topic_name: settings.topic_name(topic),
            consumer: mk_consumer(&settings, &complaints)?,
            settings,
            topic,
            complaints,
            partitions: Silence::default(),
            bounds: Vec::new(),
        })
    }

    fn answer(&mut self, question: Question) -> Answer {
        self.hear_callbacks();
        let answer = match question {
            Question::Partitions => Answer::Partitions(self.ask_partitions()),
            Question::Bounds(index) => Answer::Bounds(index, self.ask_bounds(index)),
        };
        self.hear_callbacks();
        if self.is_stalled() {
            self.renew();
        }
        answer
    }

    /// The cluster answers, but not for some partition; or it has not answered at all for long, and
    /// another handle may find what this one does not.
    fn is_stalled(&self) -> bool {
        let stall_after = self.settings.stall_after();
        let longest = self.bounds.iter().map(Silence::lasts).max();
        let is_answered = self.partitions.lasts().is_zero();
        (is_answered && longest.unwrap_or_default() >= stall_after)
            || self.partitions.lasts() >= SILENT_STALLS * stall_after
    }

    fn ask_partitions(&mut self) -> Result<u32, Inquiry> {
        let client = self.consumer.client();
        let asked =
            client::ask_partition_count(client, &self.settings, self.topic, METADATA_ANSWER_MAX);
        // That there is no such topic is an answer.
        self.partitions.note(asked != Err(Inquiry::Unanswered));
        if let Ok(count) = asked {
            self.bounds.resize_with(count as usize, Silence::default);
        }
        asked
    }

    fn ask_bounds(&mut self, index: usize) -> Option<(i64, i64)> {
        let partition = kafka_partition(index);
        let answer = self
            .consumer
            .fetch_watermarks(&self.topic_name, partition, BOUNDS_ANSWER_MAX);
        if let Some(silence) = self.bounds.get_mut(index) {
            silence.note(answer.is_ok());
        }
        answer.ok()
    }

    /// librdkafka's complaints are only heard while it is polled; it has nothing else to give.
    fn hear_callbacks(&self) {
        for _ in 0..CALLBACKS_MAX {
            if self.consumer.poll(Duration::ZERO).is_none() {
                return;
            }
        }
    }

    fn renew(&mut self) {
        tracing::info!(
            topic = self.topic_name,
            "questions to Kafka stay unanswered; the handle that asks them is made anew"
        );
        self.partitions = Silence::default();
        self.bounds.fill_with(Silence::default);
        match mk_consumer(&self.settings, &self.complaints) {
            Ok(consumer) => drop_aside(std::mem::replace(&mut self.consumer, consumer)),
            Err(error) => tracing::error!(topic = self.topic_name, %error, "no handle"),
        }
    }
}

/// How long questions of one kind have gone without an answer.
#[derive(Debug, Default)]
struct Silence {
    since: Option<Instant>,
}

impl Silence {
    fn note(&mut self, is_answered: bool) {
        if is_answered {
            self.since = None;
        } else {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn lasts(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// A consumer of a topic; its complaints go where those of the reader's other handles go.
pub(super) fn mk_consumer(
    settings: &KafkaSettings,
    complaints: &Arc<Complaints>,
) -> Result<BaseConsumer<ReaderContext>, LogError> {
    settings
        .consumer()
        .create_with_context(ReaderContext::new(Arc::clone(complaints)))
        .map_err(|e| client::bad_client(&e))
}

/// Dropping a handle waits for its threads, which may wait for Kafka: not for a reader to do.
pub(super) fn drop_aside(consumer: BaseConsumer<ReaderContext>) {
    std::thread::spawn(move || drop(consumer));
}
