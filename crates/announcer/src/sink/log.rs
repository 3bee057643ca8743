//! A sink that writes to the log itself.

use std::sync::Arc;

use async_trait::async_trait;
use waypost_core::{AnnouncementLog, LogError, NewRecord, Topic};

use super::{InstanceRecord, Receipt, Sink, SinkError};

/// Writes to an announcement log. It cannot know what Observers make of a record, so nothing is
/// ever reported as served or refused.
#[derive(Clone, Debug)]
pub struct LogSink {
    log: Arc<dyn AnnouncementLog>,
}

impl LogSink {
    /// A sink over `log`.
    #[must_use]
    pub fn new(log: Arc<dyn AnnouncementLog>) -> Self {
        Self { log }
    }
}

#[async_trait]
impl Sink for LogSink {
    async fn append(&self, record: InstanceRecord) -> Result<Receipt, SinkError> {
        let record = NewRecord {
            topic: Topic::Announcements,
            partition: None,
            key: record.key.to_record_key(),
            value: record.value,
            headers: record.headers,
            delivery: record.delivery,
        };
        match self.log.append(record).await {
            Ok(appended) => Ok(Receipt {
                appended,
                verdict: None,
            }),
            Err(LogError::Unavailable(why)) => Err(SinkError::Unavailable(why)),
            Err(other) => Err(SinkError::Refused(other.to_string())),
        }
    }
}
