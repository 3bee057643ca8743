//! What every log asks of a record before it takes it.

use waypost_core::partition::{PartitionId, partition_for_key};
use waypost_core::port::LogError;
use waypost_core::record::{Headers, NewRecord, Offset, Topic};

use crate::limits::record_bytes_max;

/// Checks `record` and says which of the topic's `partitions` it belongs to.
///
/// # Errors
/// `Refused`: no key, too large, or a partition that does not exist.
pub(crate) fn admit(record: &NewRecord, partitions: u32) -> Result<PartitionId, LogError> {
    let topic = record.topic.suffix();
    if record.key.is_empty() {
        return Err(LogError::Refused(format!(
            "a record for {topic} has no key; every record needs one"
        )));
    }
    let bytes = record_bytes(record);
    let bytes_max = record_bytes_max(record.topic);
    if bytes > bytes_max {
        return Err(LogError::Refused(format!(
            "a record of {bytes} bytes for {topic} is larger than the {bytes_max} bytes that it \
             takes; make it smaller"
        )));
    }
    let partition = record
        .partition
        .unwrap_or_else(|| partition_for_key(&record.key, partitions));
    if partition.0 >= partitions {
        return Err(no_such_partition(record.topic, partition, partitions));
    }
    Ok(partition)
}

/// The refusal of a partition that does not exist.
pub(crate) fn no_such_partition(topic: Topic, partition: PartitionId, partitions: u32) -> LogError {
    LogError::Refused(format!(
        "{} has {partitions} partitions and no partition {partition}",
        topic.suffix()
    ))
}

/// Compare-and-set: whether the last record of a key, a tombstone or not, is what its writer knows.
/// A key whose last record is a tombstone has none.
///
/// # Errors
/// `Conflict` with the offset that stands.
pub(crate) fn check_expected(
    last: Option<LastRecord>,
    expected: Option<Offset>,
) -> Result<(), LogError> {
    match (last, expected) {
        (None, None) => Ok(()),
        (Some(last), None) if last.is_tombstone => Ok(()),
        (Some(last), Some(expected)) if last.offset == expected => Ok(()),
        (Some(last), _) => Err(LogError::Conflict(last.offset)),
        // What stood there was deleted, and even its tombstone is gone.
        (None, Some(expected)) => Err(LogError::Conflict(expected)),
    }
}

/// The last record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRecord {
    pub(crate) offset: Offset,
    pub(crate) is_tombstone: bool,
}

/// Size of a record as the limits count it, bytes.
fn record_bytes(record: &NewRecord) -> usize {
    let value = record.value.as_ref().map_or(0, bytes::Bytes::len);
    record.key.len() + value + headers_bytes(&record.headers)
}

fn headers_bytes(headers: &Headers) -> usize {
    let pairs = headers.to_pairs();
    pairs
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}
