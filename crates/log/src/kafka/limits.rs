//! Bounds of the Kafka log, each with its reason.

use std::time::Duration;

use waypost_core::limits::{
    ANNOUNCEMENT_BYTES_MAX, DEFINITION_BYTES_MAX, HEARTBEATS_PER_TTL_MIN, TTL_MIN,
};

use crate::limits::RECORD_OVERHEAD_BYTES_MAX;

/// How old the metadata of a topic grows: partitions that are added are seen within this
/// (docs/announcement-log.md, "Partitions change"; librdkafka's default is 5 minutes).
pub(super) const METADATA_INTERVAL: Duration = Duration::from_secs(5);

/// How often a reader that cannot reach Kafka asks whether it can again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a handle of librdkafka may make no progress, where there is progress to make, before it
/// is dropped and made anew: three heartbeat intervals of the shortest time-to-live, so that nobody's
/// has passed by then. A topic that was made anew can leave a handle ignoring the cluster's metadata
/// for ever (confluentinc/librdkafka#4898).
pub(super) const STALL_AFTER: Duration = TTL_MIN;

/// A record that is not acknowledged for so long may be with a handle that is stuck: a heartbeat
/// interval of the shortest time-to-live, so that it is written by another handle before its
/// instance is taken for dead.
pub(super) const DELIVERY_SUSPECT_AFTER: Duration =
    Duration::from_millis(TTL_MIN.as_secs() * 1000 / HEARTBEATS_PER_TTL_MIN as u64);

/// After this many times as long it is made anew although the cluster does not answer it either.
pub(super) const SILENT_STALLS: u32 = 3;

/// How long a reader waits for librdkafka while an answer of the cluster is due: how much later than
/// it came it is noticed.
pub(super) const ANSWER_POLL_MAX: Duration = Duration::from_millis(5);

/// Callbacks of librdkafka that are heard between two questions.
pub(super) const CALLBACKS_MAX: usize = 64;

/// How long a reader waits for an answer about metadata. Two that stay out in a row mean that Kafka
/// is away, although connections may still be open (a suspended broker).
pub(super) const METADATA_ANSWER_MAX: Duration = Duration::from_secs(1);

/// How many metadata requests in a row may stay unanswered before the reader says so.
pub(super) const UNANSWERED_MAX: u32 = 2;

/// How long a reader waits to hear where one partition begins and ends. It asks nothing else
/// meanwhile, so a partition without a leader must not hold up the others for long.
pub(super) const BOUNDS_ANSWER_MAX: Duration = Duration::from_millis(500);

/// How long a broker holds back a fetch that finds nothing new: that much later than it might a reader
/// hears that it is at the end, and a partition that is new is fetched. librdkafka's default is 500 ms.
pub(super) const FETCH_WAIT_MAX: Duration = Duration::from_millis(100);

/// How long a partition whose bounds could not be had several times is left alone: one in twenty of
/// the time for questions at most goes into waiting for it.
pub(super) const BOUNDS_RETRY_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Longest sleep of a reader's thread: how late it notices that its owner has dropped it.
pub(super) const POLL_MAX: Duration = Duration::from_millis(200);

/// Events between a reader's thread and its owner. Each holds at most a batch of records; an owner
/// that is slower than Kafka stops the thread here, and librdkafka stops fetching soon after.
pub(super) const EVENTS_MAX: usize = 16;

/// Bytes of keys and values after which a batch is handed on although it could hold more records.
pub(super) const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// Fetched but undelivered records of one reader, kibibytes. Three readers make one Observer.
pub(super) const FETCHED_KIBIBYTES_MAX: usize = 16 * 1024;

/// One answer of a broker to a fetch, bytes: far above the largest batch, far below librdkafka's
/// default of 50 MiB.
pub(super) const FETCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a change or heartbeat is tried: the shortest time-to-live, so that what arrives still
/// says something true. librdkafka's default of 5 minutes would announce the dead.
pub(super) const RECORD_TIMEOUT: Duration = TTL_MIN;

/// How long a tick is tried (docs/announcement-log.md, "Time, the keeper, expiry").
pub(super) const TICK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a producer gathers records into one request. An announcement must not wait for company.
pub(super) const LINGER: Duration = Duration::from_millis(1);

/// Records that wait for Kafka in one process, and their kibibytes. Beyond it `append` says that
/// the log is not available instead of filling memory.
pub(super) const QUEUED_RECORDS_MAX: usize = 100_000;
/// See [`QUEUED_RECORDS_MAX`].
pub(super) const QUEUED_KIBIBYTES_MAX: usize = 64 * 1024;

/// How long a question to the cluster (partition counts, one record, topic settings) may take.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long opening a reader waits to learn whether its topic exists. Longer, and an Observer that
/// opens three while Kafka is away would not say so for a quarter of a minute.
pub(super) const OPEN_MAX: Duration = Duration::from_secs(2);

/// How long the creation of topics may take on a busy cluster.
pub(super) const CREATE_MAX: Duration = Duration::from_secs(30);

/// Largest `--kafka-config` file, bytes. Real ones hold a dozen lines.
pub(super) const PROPERTIES_BYTES_MAX: u64 = 64 * 1024;

/// What one batch of records must be allowed to hold, bytes: Kafka's own default. A producer of any
/// language may gather a megabyte of small announcements into one batch.
pub(super) const BATCH_WIRE_BYTES_MAX: usize = 1_048_588;

/// The same for a topic of definitions: one of the largest kind, and room for framing.
pub(super) const DEFINITION_WIRE_BYTES_MAX: usize = 2 * 1024 * 1024;

const _: () = assert!(ANNOUNCEMENT_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX < BATCH_WIRE_BYTES_MAX);
const _: () = assert!(DEFINITION_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX < DEFINITION_WIRE_BYTES_MAX);
const _: () = assert!(DEFINITION_WIRE_BYTES_MAX < FETCH_BYTES_MAX);
const _: () = assert!(DELIVERY_SUSPECT_AFTER.as_millis() > TICK_TIMEOUT.as_millis());
const _: () = assert!(STALL_AFTER.as_millis() >= RECORD_TIMEOUT.as_millis());
