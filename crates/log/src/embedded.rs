//! The log of one machine: a durable store in a directory, for `waypost dev`.
//!
//! | question | answer |
//! |---|---|
//! | What is durable? | A `Change` is acknowledged, and seen by readers, after an fsync; changes that wait together share one. A heartbeat or tick is seen at once and written with the next change, or within [`EMBEDDED_FLUSH_INTERVAL`](crate::limits::EMBEDDED_FLUSH_INTERVAL). |
//! | What is removed? | A heartbeat's earlier copy, at once. Other superseded records after the compaction lag, tombstones after the delete retention: Kafka's rules. |
//! | Which offsets? | Dense while the log is open. After a crash they go on above a reserve, so that no offset is given out twice. |
//! | Which times? | The wall clock's, never decreasing within a partition, across restarts too. |
//! | Who may open it? | One process: it holds a lock on `DIR/lock`. |
//! | What if the disk fails? | Appends are `Unavailable` with the reason; the file is opened again every second and the log goes on when it can be written. Heartbeats and changes acknowledged before are neither lost nor doubled. |
//! | What if the file is removed? | Noticed before the next write: appends are `Unavailable`, readers say so, what was read stays readable. Put back, the log goes on. |
//! | What if the file is damaged? | It is checked whole at every start and refused with the way forward; [`OnDamage::Salvage`] goes on with every intact record. |
//!
//! The store is a `redb` file, `DIR/log.redb`. One thread of its own writes; readers
//! take new records from memory and old ones from the store, on the runtime's blocking threads.

mod directory;
mod ledger;
mod opening;
mod reader;
mod recovery;
mod salvage;
mod shared;
mod store;
mod stored;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog, LogError, LogReader};
use waypost_core::record::{Appended, LogIdentity, NewRecord, Offset, Record, Topic};

use self::ledger::Retention;
use self::opening::{Opened, open_directory};
use self::reader::EmbeddedReader;
pub use self::salvage::Salvage;
use self::shared::Shared;
use self::stored::Place;
use self::writer::{AppendRequest, Guard, Request};
use crate::clock::{Clock, WallClock};
use crate::limits::{
    BOUNDS_INTERVAL, COMPACTION_LAG, DELETE_RETENTION, EMBEDDED_PARTITIONS, EMBEDDED_REQUESTS_MAX,
};

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct EmbeddedSettings {
    /// Partitions of the announcements of a log that is made now; the other topics have one. A log
    /// that exists keeps what it has.
    pub partitions: u32,
    /// How long a superseded record is kept, counted from the record that superseded it.
    pub compaction_lag: Duration,
    /// How long a tombstone is kept.
    pub delete_retention: Duration,
    /// How often readers report where partitions begin and end.
    pub bounds_interval: Duration,
    /// What becomes of a damaged file.
    pub on_damage: OnDamage,
    /// Stamps append times.
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedSettings {
    /// The settings of docs/announcement-log.md, "Topic settings", by the clock of this machine.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            partitions: EMBEDDED_PARTITIONS,
            compaction_lag: COMPACTION_LAG,
            delete_retention: DELETE_RETENTION,
            bounds_interval: BOUNDS_INTERVAL,
            on_damage: OnDamage::Refuse,
            clock: Arc::new(WallClock),
        }
    }

    fn retention(&self) -> Retention {
        Retention {
            compaction_lag: self.compaction_lag,
            delete_retention: self.delete_retention,
        }
    }
}

/// What becomes of a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// The log does not open; the error names the file and the way forward.
    Refuse,
    /// The file is kept under another name, and the log goes on with every intact record, under a
    /// new identity that follows the old one. A file that is not damaged is opened as ever.
    Salvage,
}

/// Where an open log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was made just now: no other log was ever here, so what it does not hold never was.
    Created,
    /// It was there.
    Existing,
    /// It was damaged, and this was saved.
    Salvaged(Salvage),
}

/// The log. Clones are handles of one log; it is closed when the last one is dropped or by
/// [`Self::close`]. Readers do not keep it open.
#[derive(Clone, Debug)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    requests_tx: mpsc::Sender<Request>,
    identity: LogIdentity,
    origin: Origin,
    bounds_interval: Duration,
}

impl EmbeddedLog {
    /// Opens the log in the directory `dir`, or makes directory and log.
    ///
    /// # Errors
    /// `InUse`: another process (or handle) has it; the text names directory and process.
    /// `Damaged`: the text names the file, the damage and the way forward. `Misconfigured`: the
    /// directory cannot be used, or a newer release wrote it.
    pub async fn open(dir: &Path, settings: EmbeddedSettings) -> Result<Self, LogError> {
        let dir = dir.to_owned();
        let bounds_interval = settings.bounds_interval;
        Self::spawn(bounds_interval, move || open_directory(&dir, &settings)).await
    }

    /// Writes everything, closes the store and frees the directory. Appends and readers end with
    /// `Closed`.
    pub async fn close(&self) {
        let (closed_tx, closed_rx) = oneshot::channel();
        // Both fail only when the log is closed already.
        if self
            .requests_tx
            .send(Request::Close(closed_tx))
            .await
            .is_ok()
        {
            let _ = closed_rx.await;
        }
    }

    /// Where this log comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether the log was made by this [`open`](Self::open): the exemption from the newborn rule
    /// (docs/announcement-log.md, "Loading").
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.origin == Origin::Created
    }

    /// Which log this is, as the identity record of each topic says.
    #[must_use]
    pub fn identity(&self) -> LogIdentity {
        self.identity
    }

    /// Opens on the writer's own thread, then lets it serve.
    async fn spawn(
        bounds_interval: Duration,
        open: impl FnOnce() -> Result<Opened, LogError> + Send + 'static,
    ) -> Result<Self, LogError> {
        let (opened_tx, opened_rx) = oneshot::channel();
        let work = move || {
            let opened = open().and_then(|opened| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build();
                let runtime = runtime.map_err(|error| LogError::Unavailable(error.to_string()))?;
                Ok((opened, runtime))
            });
            let (opened, runtime) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    // A caller that gave up needs no answer.
                    let _ = opened_tx.send(Err(error));
                    return;
                }
            };
            let (requests_tx, requests_rx) = mpsc::channel(EMBEDDED_REQUESTS_MAX);
            let log = Self {
                shared: Arc::clone(&opened.writer.shared),
                requests_tx,
                identity: opened.identity,
                origin: opened.origin,
                bounds_interval,
            };
            // If the caller gave up, the handle is dropped here and the writer ends at once.
            drop(opened_tx.send(Ok(log)));
            runtime.block_on(opened.writer.run(requests_rx));
        };
        std::thread::Builder::new()
            .name("waypost-log".to_owned())
            .spawn(work)
            .map_err(|error| LogError::Unavailable(error.to_string()))?;
        opened_rx.await.map_err(|_| LogError::Closed)?
    }

    async fn request(&self, record: NewRecord, guard: Guard) -> Result<Appended, LogError> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let request = Request::Append(AppendRequest {
            record,
            guard,
            reply_tx,
        });
        let sent = self.requests_tx.send(request).await;
        sent.map_err(|_| LogError::Closed)?;
        reply_rx.await.map_err(|_| LogError::Closed)?
    }
}

#[async_trait]
impl AnnouncementLog for EmbeddedLog {
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError> {
        Ok(self.shared.partition_count(topic))
    }

    async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        self.request(record, Guard::Always).await
    }

    async fn append_if(
        &self,
        record: NewRecord,
        expected: Option<Offset>,
    ) -> Result<Appended, LogError> {
        self.request(record, Guard::LastIs(expected)).await
    }

    async fn read(
        &self,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError> {
        if self.shared.is_closed() {
            return Err(LogError::Closed);
        }
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(EmbeddedReader::new(
            shared,
            topic,
            from,
            self.bounds_interval,
        )))
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Option<Record>, LogError> {
        let place = Place {
            topic,
            partition,
            offset,
        };
        if let Some(record) = self.shared.find_in_memory(place) {
            return Ok(record);
        }
        let shared = Arc::clone(&self.shared);
        let ask = move || {
            let found = shared.ask(|store| store.find(place));
            found.map_err(|error| shared.to_log_error(&error))
        };
        let found = tokio::task::spawn_blocking(ask).await;
        found.map_err(|_| LogError::Closed)?
    }
}
