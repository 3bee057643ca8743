//! What is asked of the log in the background: records to append, and single records to look at.

use std::sync::Arc;

use tokio::task::JoinSet;
use waypost_core::{AnnouncementLog, LogError, NewRecord, Offset, PartitionId, Record, Topic};

use crate::metrics::IngestMetrics;

/// Each record is written once and never again.
#[derive(Debug)]
pub(super) struct LogWork {
    log: Arc<dyn AnnouncementLog>,
    metrics: IngestMetrics,
    tasks: JoinSet<Done>,
}

/// What has come of it.
#[derive(Debug)]
pub(super) enum Done {
    /// The log has taken the record, or it was given up.
    Settled(Box<NewRecord>),
    /// What stands at an offset.
    Found {
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
        found: Result<Option<Box<Record>>, LogError>,
    },
}

impl LogWork {
    pub(super) fn new(log: Arc<dyn AnnouncementLog>, metrics: IngestMetrics) -> Self {
        Self {
            log,
            metrics,
            tasks: JoinSet::new(),
        }
    }

    /// How much is under way.
    pub(super) fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Appends `record`.
    pub(super) fn append(&mut self, record: NewRecord) {
        let log = Arc::clone(&self.log);
        let metrics = self.metrics.clone();
        self.tasks.spawn(async move {
            let result = log.append(record.clone()).await;
            let kind = record.headers.kind;
            if let Err(error) = &result {
                tracing::debug!(%error, kind = kind.as_str(), "a record of the keeper was not taken");
            }
            metrics.on_keeper_write(kind, result.is_ok());
            Done::Settled(Box::new(record))
        });
    }

    /// Looks at one record.
    pub(super) fn read_at(&mut self, topic: Topic, partition: PartitionId, offset: Offset) {
        let log = Arc::clone(&self.log);
        self.tasks.spawn(async move {
            let found = log.read_at(topic, partition, offset).await;
            Done::Found {
                topic,
                partition,
                offset,
                found: found.map(|record| record.map(Box::new)),
            }
        });
    }

    /// Waits for something to be done; `None` while nothing is under way. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.tasks.join_next().await?.ok()
    }
}
