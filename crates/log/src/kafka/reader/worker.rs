//! The thread of a reader: polls librdkafka, and hands on what it finds.
//!
//! Where partitions begin and end is asked beside ([`Asker`]), one question at a time and none before
//! everything fetched was delivered: an end that is reported stands above all records reported
//! before it, or was asked for after them, which is what [`ReadEvent::Bounds`] promises.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::time::Instant;
use waypost_core::partition::PartitionId;
use waypost_core::port::{LogError, ReadEvent};
use waypost_core::record::{Offset, Record, Topic};

use super::asker::{Answer, Asker, Question, drop_aside, mk_consumer};
use super::context::ReaderContext;
use super::followed::Followed;
use super::position::Position;
use super::{kafka_partition, to_record};
use crate::copies::Copies;
use crate::kafka::client::{Complaints, Inquiry};
use crate::kafka::limits::{
    ANSWER_POLL_MAX, BATCH_BYTES_MAX, METADATA_INTERVAL, POLL_MAX, RETRY_INTERVAL, UNANSWERED_MAX,
};
use crate::kafka::settings::KafkaSettings;
use crate::limits::READ_RECORDS_MAX;

/// The owner of the reader has dropped it.
struct Dropped;

type Flow = Result<(), Dropped>;

pub(super) struct Worker {
    settings: Arc<KafkaSettings>,
    topic: Topic,
    topic_name: String,
    /// Fetches; everything else is asked by `asker`.
    consumer: BaseConsumer<ReaderContext>,
    asker: Asker,
    complaints: Arc<Complaints>,
    /// Positions asked for, of partitions not seen yet.
    from: BTreeMap<PartitionId, Offset>,
    followed: Vec<Followed>,
    events_tx: mpsc::Sender<ReadEvent>,
    batch: Vec<Record>,
    batch_bytes: usize,
    copies: Copies,
    is_available: bool,
    unanswered: u32,
    metadata_due: Instant,
    /// librdkafka stopped a partition and did not say which: how many were lost before.
    looking_for_the_stopped: Option<usize>,
    /// Time spent waiting for librdkafka: only in this can a partition be stuck, not while the owner
    /// is slow or this process sleeps.
    waited: Duration,
}

impl Worker {
    pub(super) fn new(
        settings: Arc<KafkaSettings>,
        topic: Topic,
        from: &[(PartitionId, Offset)],
        events_tx: mpsc::Sender<ReadEvent>,
    ) -> Result<Self, LogError> {
        let complaints = Arc::<Complaints>::default();
        let consumer = mk_consumer(&settings, &complaints)?;
        let asker = Asker::start(Arc::clone(&settings), topic, Arc::clone(&complaints))?;
        Ok(Self {
            topic_name: settings.topic_name(topic),
            settings,
            topic,
            consumer,
            asker,
            complaints,
            from: from.iter().copied().collect(),
            followed: Vec::new(),
            events_tx,
            batch: Vec::new(),
            batch_bytes: 0,
            copies: Copies::default(),
            is_available: true,
            unanswered: 0,
            metadata_due: Instant::now(),
            looking_for_the_stopped: None,
            waited: Duration::ZERO,
        })
    }

    /// Reads until the owner drops the reader.
    pub(super) fn run(mut self) {
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> Flow {
        if self.events_tx.is_closed() {
            return Err(Dropped);
        }
        self.take_answer()?;
        self.ask_what_is_due();
        self.poll(self.patience())?;
        // What has arrived meanwhile makes one batch.
        while !self.batch.is_empty() && !self.is_batch_full() {
            if !self.poll(Duration::ZERO)? {
                break;
            }
        }
        self.deliver_batch()?;
        self.renew_if_stuck();
        Ok(())
    }

    /// How long to wait for librdkafka.
    fn patience(&self) -> Duration {
        if self.asker.is_asking() {
            return ANSWER_POLL_MAX;
        }
        let bounds = self.followed.iter().map(|followed| followed.bounds_due);
        // While Kafka is away only metadata is asked for.
        let bounds = bounds.filter(|_| self.is_available).min();
        let due = bounds.map_or(self.metadata_due, |bounds| bounds.min(self.metadata_due));
        due.saturating_duration_since(Instant::now()).min(POLL_MAX)
    }

    fn is_batch_full(&self) -> bool {
        self.batch.len() >= READ_RECORDS_MAX || self.batch_bytes >= BATCH_BYTES_MAX
    }

    /// Takes one thing from librdkafka. `false`: there was nothing.
    fn poll(&mut self, wait: Duration) -> Result<bool, Dropped> {
        let polled = if wait.is_zero() {
            self.consumer.poll(wait)
        } else {
            let began = Instant::now();
            let polled = self.consumer.poll(wait);
            self.waited += began.elapsed().min(wait);
            polled
        };
        let error = match polled {
            None => return Ok(false),
            Some(Ok(message)) => {
                let index = usize::try_from(message.partition()).unwrap_or(usize::MAX);
                if let Some(followed) = self.followed.get_mut(index)
                    && followed.position.advance(message.offset())
                {
                    followed.moved();
                    self.batch_bytes += message.key_len() + message.payload_len();
                    self.batch.push(to_record(&message, &mut self.copies));
                }
                return Ok(true);
            }
            Some(Err(error)) => error,
        };
        match error {
            KafkaError::PartitionEOF(partition) => self.end_reached(partition)?,
            error => self.note_error(&error)?,
        }
        Ok(true)
    }

    fn end_reached(&mut self, partition: i32) -> Flow {
        let said = self.consumer.context().take_said();
        let index = usize::try_from(partition).unwrap_or(usize::MAX);
        let Some(followed) = self.followed.get_mut(index) else {
            return Ok(());
        };
        followed.moved();
        let Some(event) = followed.position.end_reached(said.offset) else {
            return Ok(());
        };
        self.deliver_batch()?;
        self.send(event)
    }

    fn note_error(&mut self, error: &KafkaError) -> Flow {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => self.unavailable(),
            Some(RDKafkaErrorCode::AutoOffsetReset) => {
                let said = self.consumer.context().take_said();
                self.look_for_the_stopped();
                if let Some(offset) = said.offset.filter(|_| said.is_truncation) {
                    self.lose_those_at(offset)?;
                }
                Ok(())
            }
            // Everything else librdkafka tries again by itself; if that fails, metadata will too.
            _ => {
                tracing::debug!(topic = self.topic_name, %error, "reading Kafka");
                Ok(())
            }
        }
    }

    /// The log was cut and has grown again: what stands at the position is not what stood there.
    fn lose_those_at(&mut self, offset: i64) -> Flow {
        self.deliver_batch()?;
        let mut events = Vec::new();
        for followed in self
            .followed
            .iter_mut()
            .filter(|f| f.position.is_at(offset))
        {
            events.extend(followed.position.lose());
        }
        events.into_iter().try_for_each(|event| self.send(event))
    }

    /// librdkafka says that some partition is out of range, not which: the log's bounds tell. Where
    /// they do not (they moved meanwhile) every partition is assigned anew at its position; the one
    /// in question goes on, or is stopped again.
    fn look_for_the_stopped(&mut self) {
        self.looking_for_the_stopped
            .get_or_insert(lost(&self.followed));
        let now = Instant::now();
        for followed in self.followed.iter_mut().filter(|f| !f.position.is_lost) {
            followed.is_suspect = true;
            followed.bounds_due = now;
        }
    }

    fn end_the_look(&mut self) {
        let is_suspect = |followed: &Followed| followed.is_suspect && !followed.position.is_lost;
        if self.followed.iter().any(is_suspect) {
            return;
        }
        if let Some(before) = self.looking_for_the_stopped.take()
            && before == lost(&self.followed)
        {
            tracing::warn!(
                topic = self.topic_name,
                "a position was out of range and is not any more"
            );
            self.assign_again();
        }
    }

    /// One question at a time, that about partitions before those about bounds.
    fn ask_what_is_due(&mut self) {
        let now = Instant::now();
        if self.asker.is_asking() {
            return;
        }
        if self.metadata_due <= now {
            self.asker.ask(Question::Partitions);
            return;
        }
        let due = (0..self.followed.len())
            .filter(|index| self.is_available && self.followed[*index].bounds_due <= now)
            .min_by_key(|index| self.followed[*index].bounds_due);
        if let Some(index) = due {
            self.followed[index].asked();
            self.asker.ask(Question::Bounds(index));
        }
    }

    /// What was asked before: everything that was fetched until now is delivered.
    fn take_answer(&mut self) -> Flow {
        match self.asker.take_answer().map_err(|_| Dropped)? {
            None => Ok(()),
            Some(Answer::Partitions(answer)) => self.take_partitions(answer),
            Some(Answer::Bounds(index, answer)) => self.take_bounds(index, answer),
        }
    }

    fn take_bounds(&mut self, index: usize, answer: Option<(i64, i64)>) -> Flow {
        let Some(followed) = self.followed.get_mut(index) else {
            return Ok(());
        };
        let events = match answer {
            Some((start, end)) => followed.take_bounds(start, end, self.waited),
            None => {
                followed.not_answered();
                Vec::new()
            }
        };
        events.into_iter().try_for_each(|event| self.send(event))?;
        self.assign_if_known(index);
        self.end_the_look();
        Ok(())
    }

    fn take_partitions(&mut self, answer: Result<u32, Inquiry>) -> Flow {
        let interval = if answer.is_ok() {
            METADATA_INTERVAL
        } else {
            RETRY_INTERVAL
        };
        self.metadata_due = Instant::now() + interval;
        match answer {
            Ok(count) => {
                self.unanswered = 0;
                self.available()?;
                self.follow(count)
            }
            Err(Inquiry::Unanswered) => {
                self.unanswered += 1;
                if self.unanswered >= UNANSWERED_MAX {
                    self.unavailable()
                } else {
                    Ok(())
                }
            }
            Err(inquiry @ (Inquiry::NoSuchTopic | Inquiry::Forbidden)) => {
                let error = inquiry.to_log_error(&self.settings, self.topic, &self.complaints);
                self.unavailable_because(error.to_string())
            }
        }
    }

    /// A handle that fetches nothing although there is more is dropped, and another goes on where it
    /// stood.
    fn renew_if_stuck(&mut self) {
        let longest = self.followed.iter().map(|f| f.stuck_for(self.waited)).max();
        if longest.unwrap_or_default() < self.settings.stall_after() {
            return;
        }
        tracing::warn!(
            topic = self.topic_name,
            "nothing was fetched for {:?} although there is more; the Kafka consumer is made anew",
            self.settings.stall_after()
        );
        self.followed.iter_mut().for_each(Followed::moved);
        match mk_consumer(&self.settings, &self.complaints) {
            Ok(consumer) => {
                drop_aside(std::mem::replace(&mut self.consumer, consumer));
                self.assign_again();
            }
            Err(error) => tracing::error!(topic = self.topic_name, %error, "no consumer"),
        }
    }

    /// Follows partitions that are new, and gives up those that are gone (the topic was made anew
    /// with fewer).
    fn follow(&mut self, count: u32) -> Flow {
        let known = u32::try_from(self.followed.len()).unwrap_or(u32::MAX);
        if count < known {
            let gone = self.followed.iter_mut().skip(count as usize);
            let events: Vec<_> = gone
                .filter_map(|followed| followed.position.lose())
                .collect();
            return events.into_iter().try_for_each(|event| self.send(event));
        }
        if count == known {
            return Ok(());
        }
        self.send(ReadEvent::Partitions(count))?;
        for partition in (known..count).map(PartitionId) {
            let position = Position::new(partition, self.from.remove(&partition));
            self.followed.push(Followed::new(position));
        }
        Ok(())
    }

    /// Begins to fetch a partition once it is known where.
    fn assign_if_known(&mut self, index: usize) {
        let followed = &self.followed[index];
        if followed.is_assigned || followed.position.is_lost || followed.position.next().is_none() {
            return;
        }
        let assigned = self
            .assignment([index])
            .and_then(|list| self.consumer.incremental_assign(&list));
        match assigned {
            Ok(()) => self.followed[index].is_assigned = true,
            Err(error) => self.note_not_assigned(&error),
        }
    }

    /// Begins anew to fetch every partition where it stands. What librdkafka had fetched for the
    /// assignment before it throws away.
    fn assign_again(&mut self) {
        let indexes: Vec<usize> = (0..self.followed.len())
            .filter(|index| self.followed[*index].is_assigned)
            .filter(|index| !self.followed[*index].position.is_lost)
            .collect();
        let assigned = self
            .assignment(indexes)
            .and_then(|list| self.consumer.assign(&list));
        if let Err(error) = assigned {
            self.note_not_assigned(&error);
        }
    }

    fn assignment(
        &self,
        indexes: impl IntoIterator<Item = usize>,
    ) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        for index in indexes {
            let next = self.followed[index].position.next();
            let offset = next.map_or(KafkaOffset::Beginning, KafkaOffset::Offset);
            list.add_partition_offset(&self.topic_name, kafka_partition(index), offset)?;
        }
        Ok(list)
    }

    fn note_not_assigned(&self, error: &KafkaError) {
        tracing::error!(topic = self.topic_name, %error, "Kafka partitions cannot be assigned");
    }

    fn available(&mut self) -> Flow {
        self.complaints.clear();
        if std::mem::replace(&mut self.is_available, true) {
            return Ok(());
        }
        self.send(ReadEvent::Available)?;
        for followed in &mut self.followed {
            followed.bounds_due = Instant::now();
        }
        Ok(())
    }

    fn unavailable(&mut self) -> Flow {
        let why = self.complaints.unreachable(&self.settings);
        self.unavailable_because(why)
    }

    fn unavailable_because(&mut self, why: String) -> Flow {
        if !std::mem::replace(&mut self.is_available, false) {
            return Ok(());
        }
        self.metadata_due = self.metadata_due.min(Instant::now() + RETRY_INTERVAL);
        self.deliver_batch()?;
        self.send(ReadEvent::Unavailable(why))
    }

    /// Hands on what was fetched, and says which ends that reached.
    fn deliver_batch(&mut self) -> Flow {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch_bytes = 0;
        // The next batch is probably about as large.
        let next = Vec::with_capacity(self.batch.len());
        let records = std::mem::replace(&mut self.batch, next);
        let mut reached: Vec<u32> = records.iter().map(|record| record.partition.0).collect();
        reached.sort_unstable();
        reached.dedup();
        self.send(ReadEvent::Records(records))?;
        for index in reached {
            let followed = self.followed.get_mut(index as usize);
            if let Some(event) = followed.and_then(|f| f.position.caught_up()) {
                self.send(event)?;
            }
        }
        Ok(())
    }

    /// Waits while the owner is busy: that is what bounds memory.
    fn send(&self, event: ReadEvent) -> Flow {
        self.events_tx.blocking_send(event).map_err(|_| Dropped)
    }
}

fn lost(followed: &[Followed]) -> usize {
    followed.iter().filter(|f| f.position.is_lost).count()
}
