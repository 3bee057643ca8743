//! What can be asked of the fold, for `get uris`, `status` and metrics.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waypost_core::{InstanceKey, LogTime, Offset, PartitionId, Timestamp};

use crate::cap::Expiry;
use crate::clock::LastTick;
use crate::event::{Confirmation, Life, Outcome, Refusal};

/// A live instance: where its facts come from and how old they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceView {
    /// Which instance.
    pub key: InstanceKey,
    /// The partition whose record stands.
    pub partition: PartitionId,
    /// Who announces it.
    pub life: Life,
    /// Offset of the last announcement accepted (a heartbeat is one).
    pub offset: Offset,
    /// When the log took that announcement.
    pub append_time: Timestamp,
    /// Its age by append time: until the last record read from the partition.
    pub heartbeat_age: Duration,
    /// Its age by log time, which is what expiry goes by.
    pub log_age: Duration,
    /// The time-to-live in force, after clamping.
    pub ttl: Duration,
    /// The bytes of the announcement.
    pub value: Bytes,
    /// The last announcement or withdrawal that was refused on this key, if one was.
    pub refusal: Option<Arc<Refusal>>,
    /// Whether the key was announced in a partition that is not its own.
    pub wrong_partition: bool,
    /// Whether it is about to leave because nobody announces it, or is held.
    pub expiry: Expiry,
    /// Whether this log has said that it lives.
    pub confirmation: Confirmation,
}

/// One partition, for readiness, lag and comparing Observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Which one.
    pub partition: PartitionId,
    /// The offset of the next record to be read.
    pub position: Offset,
    /// Log time of the partition.
    pub log_time: LogTime,
    /// The tick read last.
    pub last_tick: Option<LastTick>,
    /// Live keys.
    pub live: usize,
    /// Of those, the ones that this log has not confirmed yet; they are not in the digest.
    pub unconfirmed: usize,
    /// Withdrawn keys that are still remembered.
    pub gone: usize,
    /// Live keys past their time-to-live that no record has expired yet.
    pub overdue: usize,
    /// Digest of the live keys with their order data and content, whatever the order they were
    /// read in; heartbeats do not move it. Two Observers that have read to the same position have
    /// the same one.
    pub digest: u64,
}

/// How many records had which outcome since the fold was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records that changed what is served.
    pub changed: u64,
    /// Heartbeats, and statements that held already.
    pub unchanged: u64,
    /// Announcements and withdrawals refused.
    pub refused: u64,
    /// Void expires and ticks.
    pub void: u64,
    /// Records that are not of the log's form.
    pub rejected: u64,
    /// Ticks and identity records.
    pub control: u64,
    /// Reserved keys of no use to this release.
    pub ignored: u64,
    /// Records read twice.
    pub already_read: u64,
    /// Records read in a partition that is not their key's own.
    pub wrong_partition: u64,
}

impl Counters {
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Changed => &mut self.changed,
            Outcome::Unchanged => &mut self.unchanged,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Void(_) => &mut self.void,
            Outcome::Rejected(_) => &mut self.rejected,
            Outcome::Control => &mut self.control,
            Outcome::Ignored => &mut self.ignored,
            Outcome::AlreadyRead => &mut self.already_read,
        } += 1;
    }
}
