//! The keeper's records on their way to the log.

use std::sync::Arc;

use tokio::task::JoinSet;
use waypost_core::{AnnouncementLog, NewRecord};

use crate::metrics::IngestMetrics;

/// Appends in the background; each record is written once and never again.
#[derive(Debug)]
pub(super) struct KeeperWrites {
    log: Arc<dyn AnnouncementLog>,
    metrics: IngestMetrics,
    tasks: JoinSet<NewRecord>,
}

impl KeeperWrites {
    pub(super) fn new(log: Arc<dyn AnnouncementLog>, metrics: IngestMetrics) -> Self {
        Self {
            log,
            metrics,
            tasks: JoinSet::new(),
        }
    }

    /// Records that are on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Appends `record` in the background.
    pub(super) fn write(&mut self, record: NewRecord) {
        let log = Arc::clone(&self.log);
        let metrics = self.metrics.clone();
        self.tasks.spawn(async move {
            let result = log.append(record.clone()).await;
            let kind = record.headers.kind;
            if let Err(error) = &result {
                tracing::debug!(%error, kind = kind.as_str(), "a record of the keeper was not taken");
            }
            metrics.on_keeper_write(kind, result.is_ok());
            record
        });
    }

    /// Waits for one that was taken or given up; `None` while none is on its way. Cancel-safe.
    pub(super) async fn settled(&mut self) -> Option<NewRecord> {
        self.tasks.join_next().await?.ok()
    }
}
