//! The thread of a reader: polls librdkafka, and asks in between where partitions begin and end.
//!
//! Questions are asked here and not beside, one partition a turn: what is delivered after an answer
//! was then read after the question, which is what [`ReadEvent::Bounds`] promises. Meanwhile
//! librdkafka fetches on, so it costs latency (one round trip), not throughput.

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

use super::context::ReaderContext;
use super::position::Position;
use super::{kafka_partition, to_record};
use crate::kafka::client::{self, Inquiry};
use crate::kafka::limits::{
    BATCH_BYTES_MAX, BOUNDS_ANSWER_MAX, BOUNDS_RETRY_INTERVAL_MAX, METADATA_ANSWER_MAX,
    METADATA_INTERVAL, POLL_MAX, RETRY_INTERVAL, UNANSWERED_MAX,
};
use crate::kafka::settings::KafkaSettings;
use crate::limits::{BOUNDS_INTERVAL, READ_RECORDS_MAX};

/// The owner of the reader has dropped it.
struct Dropped;

type Flow = Result<(), Dropped>;

pub(super) struct Worker {
    settings: Arc<KafkaSettings>,
    topic: Topic,
    topic_name: String,
    consumer: BaseConsumer<ReaderContext>,
    /// Positions asked for, of partitions not seen yet.
    from: BTreeMap<PartitionId, Offset>,
    followed: Vec<Followed>,
    events_tx: mpsc::Sender<ReadEvent>,
    batch: Vec<Record>,
    batch_bytes: usize,
    is_available: bool,
    unanswered: u32,
    metadata_due: Instant,
    /// librdkafka stopped a partition and did not say which: when to look for it.
    look_for_the_stopped: Option<Instant>,
}

struct Followed {
    position: Position,
    bounds_due: Instant,
    /// Questions for its bounds in a row that stayed without an answer.
    unanswered: u32,
    /// librdkafka fetches it: not before its bounds are known, so that they come before its first
    /// record, and a position that does not exist is never fetched from.
    is_assigned: bool,
}

impl Followed {
    fn new(position: Position) -> Self {
        Self {
            position,
            bounds_due: Instant::now(),
            unanswered: 0,
            is_assigned: false,
        }
    }

    fn answered(&mut self) {
        self.unanswered = 0;
        self.bounds_due = Instant::now() + BOUNDS_INTERVAL;
    }

    fn not_answered(&mut self) {
        let backoff = RETRY_INTERVAL * (1 << self.unanswered.min(4)) / 4;
        self.unanswered = self.unanswered.saturating_add(1);
        self.bounds_due = Instant::now() + backoff.min(BOUNDS_RETRY_INTERVAL_MAX);
    }
}

impl Worker {
    pub(super) fn new(
        settings: Arc<KafkaSettings>,
        topic: Topic,
        from: &[(PartitionId, Offset)],
        events_tx: mpsc::Sender<ReadEvent>,
    ) -> Result<Self, LogError> {
        let consumer = settings
            .consumer()
            .create_with_context(ReaderContext::default())
            .map_err(|e| client::bad_client(&e))?;
        Ok(Self {
            topic_name: settings.topic_name(topic),
            settings,
            topic,
            consumer,
            from: from.iter().copied().collect(),
            followed: Vec::new(),
            events_tx,
            batch: Vec::new(),
            batch_bytes: 0,
            is_available: true,
            unanswered: 0,
            metadata_due: Instant::now(),
            look_for_the_stopped: None,
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
        if self.metadata_due <= Instant::now() {
            self.refresh_metadata()?;
        }
        if self.is_available {
            match self.look_for_the_stopped {
                Some(when) if when <= Instant::now() => self.find_the_stopped()?,
                _ => self.ask_bounds_that_are_due()?,
            }
        }
        self.poll(self.until_due())?;
        // What has arrived meanwhile makes one batch.
        while !self.batch.is_empty() && !self.is_batch_full() {
            if !self.poll(Duration::ZERO)? {
                break;
            }
        }
        self.deliver_batch()
    }

    fn until_due(&self) -> Duration {
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
        let polled = self.consumer.poll(wait);
        let error = match polled {
            None => return Ok(false),
            Some(Ok(message)) => {
                let index = usize::try_from(message.partition()).unwrap_or(usize::MAX);
                if let Some(followed) = self.followed.get_mut(index)
                    && followed.position.advance(message.offset())
                {
                    self.batch_bytes += message.key_len() + message.payload_len();
                    self.batch.push(to_record(&message));
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
                self.look_for_the_stopped = Some(Instant::now());
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
    fn find_the_stopped(&mut self) -> Flow {
        let mut is_found = false;
        for index in 0..self.followed.len() {
            if self.followed[index].position.is_lost {
                continue;
            }
            if !self.ask_bounds(index)? {
                self.look_for_the_stopped = Some(Instant::now() + RETRY_INTERVAL);
                return Ok(());
            }
            is_found |= self.followed[index].position.is_lost;
        }
        self.look_for_the_stopped = None;
        if !is_found {
            tracing::warn!(
                topic = self.topic_name,
                "a position was out of range and is not any more"
            );
            self.assign_again();
        }
        Ok(())
    }

    fn ask_bounds_that_are_due(&mut self) -> Flow {
        // One in each turn, so that records are delivered in between.
        let now = Instant::now();
        let due = (0..self.followed.len())
            .filter(|index| self.followed[*index].bounds_due <= now)
            .min_by_key(|index| self.followed[*index].bounds_due);
        if let Some(index) = due {
            self.ask_bounds(index)?;
            self.assign_if_known(index);
        }
        Ok(())
    }

    /// Asks where a partition begins and ends, and reports it. `false`: no answer.
    fn ask_bounds(&mut self, index: usize) -> Result<bool, Dropped> {
        self.deliver_batch()?;
        let partition = kafka_partition(index);
        let answer = self
            .consumer
            .fetch_watermarks(&self.topic_name, partition, BOUNDS_ANSWER_MAX);
        let Ok((start, end)) = answer else {
            self.followed[index].not_answered();
            return Ok(false);
        };
        self.followed[index].answered();
        let events = self.followed[index].position.bounds(start, end);
        events.into_iter().try_for_each(|event| self.send(event))?;
        Ok(true)
    }

    fn refresh_metadata(&mut self) -> Flow {
        let client = self.consumer.client();
        let asked =
            client::ask_partition_count(client, &self.settings, self.topic, METADATA_ANSWER_MAX);
        let interval = if asked.is_ok() {
            METADATA_INTERVAL
        } else {
            RETRY_INTERVAL
        };
        self.metadata_due = Instant::now() + interval;
        match asked {
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
                let context = self.consumer.context();
                let error = inquiry.to_log_error(&self.settings, self.topic, &context.complaints);
                self.unavailable_because(error.to_string())
            }
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
        self.consumer.context().complaints.clear();
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
        let why = self
            .consumer
            .context()
            .complaints
            .unreachable(&self.settings);
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
        let records = std::mem::take(&mut self.batch);
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
