//! The log of a fabric: topics of an Apache Kafka cluster.
//!
//! Three topics, `PREFIX.announcements`, `PREFIX.config` and `PREFIX.control`, made and checked by
//! [`topics`]. Writers are idempotent and wait for every in-sync replica. A reader assigns itself
//! every partition: no consumer group, no committed offset. How it works inside librdkafka and where
//! that differs from Kafka's own client is said at each place.
//!
//! A handle of librdkafka can get stuck for ever, on a topic that was made anew above all. Readers and
//! writers notice what makes no progress although the cluster answers, drop the handle and go on with
//! another: a reader where it stood, a writer with the record that is out.
//!
//! Two things Kafka cannot do: append only if nothing changed meanwhile ([`KafkaLog::append_if`] is
//! refused), and keep several heartbeats of one key in a queue apart from the newest (a second one is
//! answered at once while the first waits).

mod client;
mod limits;
mod producer;
mod properties;
mod reader;
mod settings;
pub mod topics;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog, LogError, LogReader};
use waypost_core::record::{Appended, Delivery, NewRecord, Offset, Record, Topic};

use crate::admission::admit;

pub use properties::{Properties, PropertiesError};
pub use settings::KafkaSettings;

/// The announcement log in Kafka. Cheap to make: nothing is reached before it is used.
#[derive(Debug)]
pub struct KafkaLog {
    settings: Arc<KafkaSettings>,
    records: producer::Producer,
    ticks: producer::Producer,
    /// Partitions by topic as last asked, and proof that the topic exists.
    partitions: Mutex<[Option<u32>; Topic::ALL.len()]>,
    /// Held by the one writer that asks for them; why that failed last, and when.
    asking: tokio::sync::Mutex<Option<(Instant, LogError)>>,
}

impl KafkaLog {
    /// The log that `settings` name.
    ///
    /// # Errors
    /// librdkafka does not take the settings (`Misconfigured`).
    pub fn open(settings: KafkaSettings) -> Result<Self, LogError> {
        settings
            .consumer()
            .create_native_config()
            .map_err(|e| client::bad_client(&e))?;
        let settings = Arc::new(settings);
        Ok(Self {
            records: producer::Producer::new(Arc::clone(&settings), limits::RECORD_TIMEOUT),
            ticks: producer::Producer::new(Arc::clone(&settings), limits::TICK_TIMEOUT),
            settings,
            partitions: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// The settings that it was opened with.
    #[must_use]
    pub fn settings(&self) -> &KafkaSettings {
        &self.settings
    }

    /// Checks a record against the topic as last seen, and once more against the topic as it is if
    /// that fails: partitions may have been added. Gives the partition that it belongs to.
    async fn admit(&self, record: &NewRecord) -> Result<PartitionId, LogError> {
        if let Some(partition) = self.find_admitted(record) {
            return Ok(partition);
        }
        let mut failure = self.asking.lock().await;
        // While this one waited, another may have asked, for it too.
        if let Some(partition) = self.find_admitted(record) {
            return Ok(partition);
        }
        if let Some((at, error)) = failure.as_ref()
            && at.elapsed() < limits::RETRY_INTERVAL
        {
            return Err(error.clone());
        }
        let asked = self.partition_count(record.topic).await;
        *failure = asked
            .as_ref()
            .err()
            .map(|error| (Instant::now(), error.clone()));
        admit(record, asked?)
    }

    async fn ask_partition_count(&self, topic: Topic, within: Duration) -> Result<u32, LogError> {
        let settings = Arc::clone(&self.settings);
        let asked = self.records.ask(move |client, complaints| {
            client::ask_partition_count(client, &settings, topic, within)
                .map_err(|e| e.to_log_error(&settings, topic, complaints))
        });
        let count = asked.await?;
        self.partitions.lock()[topic as usize] = Some(count);
        Ok(count)
    }

    fn find_admitted(&self, record: &NewRecord) -> Option<PartitionId> {
        let known = self.partitions.lock()[record.topic as usize];
        known.and_then(|partitions| admit(record, partitions).ok())
    }
}

#[async_trait]
impl AnnouncementLog for KafkaLog {
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError> {
        self.ask_partition_count(topic, limits::ANSWER_MAX).await
    }

    async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        let partition = self.admit(&record).await?;
        match record.delivery {
            Delivery::Change | Delivery::Heartbeat => self.records.append(record, partition).await,
            Delivery::Tick => self.ticks.append(record, partition).await,
        }
    }

    async fn append_if(
        &self,
        _record: NewRecord,
        _expected: Option<Offset>,
    ) -> Result<Appended, LogError> {
        Err(LogError::Refused(
            "Kafka cannot append only if nothing changed: append, then read back to the own record \
             (docs/announcement-log.md, \"Definitions\")"
                .to_owned(),
        ))
    }

    async fn read(
        &self,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError> {
        match self.ask_partition_count(topic, limits::OPEN_MAX).await {
            // A log that cannot be reached is for the reader to report.
            Ok(_) | Err(LogError::Unavailable(_)) => {}
            Err(error) => return Err(error),
        }
        let reader = reader::KafkaReader::open(Arc::clone(&self.settings), topic, from)?;
        Ok(Box::new(reader))
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Option<Record>, LogError> {
        let settings = Arc::clone(&self.settings);
        tokio::task::spawn_blocking(move || reader::read_at(&settings, topic, partition, offset))
            .await
            .unwrap_or(Err(LogError::Closed))
    }
}
