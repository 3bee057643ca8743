//! What librdkafka says in words. Its Rust binding passes on an error's code and, for the end of a
//! partition, which one; the position is only in the text, and that comes here first.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::kafka::client::{self, Complaints};

/// Listens to one consumer.
#[derive(Debug, Default)]
pub(super) struct ReaderContext {
    pub(super) complaints: Arc<Complaints>,
    said: Mutex<Said>,
}

/// What the error polled last said beside its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// `… at offset N …`: where the partition ended or was cut.
    pub(super) offset: Option<i64>,
    /// The log was cut below a position and has grown again.
    pub(super) is_truncation: bool,
}

impl ReaderContext {
    pub(super) fn new(complaints: Arc<Complaints>) -> Self {
        Self {
            complaints,
            said: Mutex::default(),
        }
    }

    /// What was said with the error that was polled last. The same thread polls and asks.
    pub(super) fn take_said(&self) -> Said {
        std::mem::take(&mut *self.said.lock())
    }
}

impl ClientContext for ReaderContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::PartitionEOF | RDKafkaErrorCode::AutoOffsetReset) => {
                *self.said.lock() = read_reason(reason);
            }
            // A group of one that commits nothing needs no coordinator and no right to the group.
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {}
            _ => self.complaints.note(&error, reason),
        }
    }
}

impl ConsumerContext for ReaderContext {}

/// librdkafka writes `Fetch from broker 1 reached end of partition at offset 42 (HighwaterMark 42)`
/// and `Partition log truncation detected at offset 42 (leader epoch 3): broker end offset is …`.
/// Where a later release words it differently nothing is known beyond the code, which is safe: the
/// end is then taken to be just past the last record, a truncation to be out of range or not.
fn read_reason(reason: &str) -> Said {
    let offset = reason.split_once(" at offset ").and_then(|(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    });
    Said {
        offset,
        is_truncation: reason.contains("truncation"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_from_what_librdkafka_says() {
        let eof = "Fetch from broker 1 reached end of partition at offset 42 (HighwaterMark 42)";
        let cut =
            "Partition log truncation detected at offset 42 (leader epoch 3): broker end offset";
        let range = "fetch failed due to requested offset not available on the broker: Broker: \
                     Offset out of range (broker 1)";
        let cases = [
            (eof, Some(42), false),
            (cut, Some(42), true),
            (range, None, false),
            ("at offset x", None, false),
        ];
        for (reason, offset, is_truncation) in cases {
            assert_eq!(
                read_reason(reason),
                Said {
                    offset,
                    is_truncation
                },
                "{reason}"
            );
        }
    }
}
