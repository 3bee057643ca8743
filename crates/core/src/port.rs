//! The announcement log as its users see it. Kafka, the embedded log and the in-memory one implement
//! it (`waypost-log`) and answer to one suite.

use std::fmt;

use async_trait::async_trait;

use crate::partition::PartitionId;
use crate::record::{Appended, NewRecord, Offset, Record, Topic};

/// Why the log did not do what was asked. Each is one line that says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log cannot be reached or does not take records now. Trying again may help.
    #[error("the log is not available: {0}")]
    Unavailable(String),
    /// This record or request will never be taken (too large, not allowed, no such topic).
    #[error("the log refused: {0}")]
    Refused(String),
    /// The log is set up wrongly; the text holds the command that mends it.
    #[error("the log is set up wrongly: {0}")]
    Misconfigured(String),
    /// Data on disk is damaged; the text says where and the way forward.
    #[error("the log is damaged: {0}")]
    Damaged(String),
    /// Another process holds the log.
    #[error("{0}")]
    InUse(String),
    /// A compare-and-set append named a revision that is no longer the last.
    #[error("conflict: the record was changed by somebody else at offset {0}")]
    Conflict(Offset),
    /// The log was closed by its owner.
    #[error("the log is closed")]
    Closed,
}

impl LogError {
    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// The log of one fabric: three topics, each of at least one partition.
#[async_trait]
pub trait AnnouncementLog: Send + Sync + fmt::Debug {
    /// How many partitions `topic` has now.
    ///
    /// # Errors
    /// The log is not available, or the topic does not exist (`Misconfigured`).
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError>;

    /// Appends one record and returns once the log has acknowledged it as `record.delivery` asks.
    /// Records of one caller to one key that are appended one after another keep their order.
    ///
    /// # Errors
    /// `Unavailable` says nothing about whether the record was written.
    async fn append(&self, record: NewRecord) -> Result<Appended, LogError>;

    /// Appends only if the last record of this key still stands at `expected` (`None`: the key has
    /// none). Kafka cannot do this and says so with `Refused`; its callers read back instead
    /// (docs/announcement-log.md, "The config topic").
    ///
    /// # Errors
    /// `Conflict` with the offset that stands.
    async fn append_if(
        &self,
        record: NewRecord,
        expected: Option<Offset>,
    ) -> Result<Appended, LogError>;

    /// Opens a reader over every partition of `topic` that exists or is added later. Partitions
    /// named in `from` start there, all others at their beginning. No consumer group is involved.
    ///
    /// # Errors
    /// The topic does not exist, or the log is damaged or closed. A log that merely cannot be
    /// reached is no error here: the reader reports it as [`ReadEvent::Unavailable`].
    async fn read(
        &self,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError>;

    /// Reads one record again, for checks that need only that one; `None` where the offset holds
    /// none any more (compacted) or none yet.
    ///
    /// # Errors
    /// The log is not available.
    async fn read_at(
        &self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Option<Record>, LogError>;
}

/// Follows one topic. Dropping it closes it.
#[async_trait]
pub trait LogReader: Send + fmt::Debug {
    /// Waits for something to happen. Cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// Only what ends the reader for good; everything else is a [`ReadEvent`].
    async fn next(&mut self) -> Result<ReadEvent, LogError>;
}

/// What a reader reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// The number of partitions, first of all and whenever it grows. New partitions are followed
    /// from their beginning without being asked for.
    Partitions(u32),
    /// Where a partition begins and ends according to the log, which the log was asked after every
    /// record already delivered was read. Sent at start, after each reconnect, and every few
    /// seconds. `end` is the offset that the next record will get.
    Bounds {
        /// Which partition.
        partition: PartitionId,
        /// The first offset that still exists.
        start: Offset,
        /// One past the last.
        end: Offset,
    },
    /// At least one record, each partition's in the order of offsets.
    Records(Vec<Record>),
    /// The reader stands at `position`, which was the end: everything below it was delivered
    /// (gaps left by compaction included).
    CaughtUp {
        /// Which partition.
        partition: PartitionId,
        /// The offset of the next record.
        position: Offset,
    },
    /// The position asked for is below the log's start or above its end. The reader does not move;
    /// its owner must open another.
    OutOfRange {
        /// Which partition.
        partition: PartitionId,
        /// Where the reader stood.
        position: Offset,
    },
    /// Nothing can be read at present. Said once, then `Available` ends it.
    Unavailable(String),
    /// Reading works again.
    Available,
}
