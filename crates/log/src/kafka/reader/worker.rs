//! The thread of a reader: polls librdkafka, and asks in between where partitions begin and end.
//!
//! Questions are asked here and not beside, one partition at a time and spread over the interval:
//! what is delivered after an answer was then read after the question, which is what
//! [`ReadEvent::Bounds`] promises. Meanwhile librdkafka fetches on, so it costs latency (one round
//! trip), not throughput.

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
    BATCH_BYTES_MAX, BOUNDS_ANSWER_MAX, BOUNDS_RETRY_INTERVAL, METADATA_ANSWER_MAX,
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
    /// librdkafka stopped a partition and did not say which.
    is_one_stopped: bool,
}

struct Followed {
    position: Position,
    bounds_due: Instant,
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
            is_one_stopped: false,
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
            if self.is_one_stopped {
                self.find_the_stopped()?;
            } else {
                self.ask_bounds_that_are_due()?;
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
        let bounds = self
            .followed
            .iter()
            .map(|followed| followed.bounds_due)
            .min();
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
                drop(message);
                self.note_life();
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
        self.note_life();
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
                self.is_one_stopped = true;
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
                return Ok(());
            }
            is_found |= self.followed[index].position.is_lost;
        }
        self.is_one_stopped = false;
        if !is_found {
            tracing::warn!(
                topic = self.topic_name,
                "a position was out of range and is not any more"
            );
            self.assign_all();
        }
        Ok(())
    }

    fn ask_bounds_that_are_due(&mut self) -> Flow {
        // One in each turn, so that records are delivered in between; all of them at the start.
        let now = Instant::now();
        let due = (0..self.followed.len())
            .filter(|index| self.followed[*index].bounds_due <= now)
            .min_by_key(|index| self.followed[*index].bounds_due);
        match due {
            Some(index) => self.ask_bounds(index).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Asks where a partition begins and ends, and reports it. `false`: no answer.
    fn ask_bounds(&mut self, index: usize) -> Result<bool, Dropped> {
        self.deliver_batch()?;
        let partition = i32::try_from(index).unwrap_or(i32::MAX);
        let answer = self
            .consumer
            .fetch_watermarks(&self.topic_name, partition, BOUNDS_ANSWER_MAX);
        let Ok((start, end)) = answer else {
            self.followed[index].bounds_due = Instant::now() + BOUNDS_RETRY_INTERVAL;
            return Ok(false);
        };
        self.note_life();
        self.followed[index].bounds_due = Instant::now() + BOUNDS_INTERVAL;
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
            self.followed.push(Followed {
                position,
                bounds_due: Instant::now(),
            });
        }
        // The bounds first: a position that does not exist must not be fetched from, and one that
        // is known cannot slip between the question for the beginning and the first fetch.
        for index in known as usize..count as usize {
            self.ask_bounds(index)?;
            self.spread_bounds(index);
        }
        self.assign_all();
        Ok(())
    }

    /// Lets partitions take turns over the interval instead of all at once.
    fn spread_bounds(&mut self, index: usize) {
        let count = u32::try_from(self.followed.len())
            .unwrap_or(u32::MAX)
            .max(1);
        let turn = u32::try_from(index).unwrap_or(u32::MAX);
        if let Some(followed) = self.followed.get_mut(index) {
            followed.bounds_due += BOUNDS_INTERVAL * turn / count;
        }
    }

    fn assign_all(&self) {
        let mut assignment = TopicPartitionList::with_capacity(self.followed.len());
        for (index, followed) in self.followed.iter().enumerate() {
            if followed.position.is_lost {
                continue;
            }
            let next = followed.position.next();
            let offset = next.map_or(KafkaOffset::Beginning, KafkaOffset::Offset);
            let partition = kafka_partition(PartitionId(u32::try_from(index).unwrap_or(u32::MAX)));
            let added = assignment.add_partition_offset(&self.topic_name, partition, offset);
            debug_assert!(added.is_ok(), "an offset read from the log is one");
        }
        // What librdkafka had fetched for the assignment before it throws away.
        if let Err(error) = self.consumer.assign(&assignment) {
            tracing::error!(topic = self.topic_name, %error, "Kafka partitions cannot be assigned");
        }
    }

    /// Something came from a broker. If none was to be had before, ask at once for the rest.
    fn note_life(&mut self) {
        if !self.is_available {
            self.metadata_due = Instant::now();
        }
    }

    fn available(&mut self) -> Flow {
        self.consumer.context().complaints.clear();
        if std::mem::replace(&mut self.is_available, true) {
            return Ok(());
        }
        self.send(ReadEvent::Available)?;
        for index in 0..self.followed.len() {
            self.ask_bounds(index)?;
            self.spread_bounds(index);
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
