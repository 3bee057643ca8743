//! A record as the store holds it: a frame with a checksum of its own around a protobuf message.
//!
//! The frame names its place and carries a magic number, so that [`salvage`](super::salvage) finds
//! intact records in a file whose structure is lost.

use std::ops::RangeInclusive;

use bytes::{Buf, Bytes};
use prost::Message;
use waypost_core::partition::PartitionId;
use waypost_core::record::{Headers, Offset, Record, Topic};
use waypost_core::time::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

/// Begins every frame. Random, so that no text or number looks like it.
pub(super) const MAGIC: [u8; 8] = [0xb7, 0x57, 0x50, 0xe9, 0x1d, 0xa4, 0x0c, 0x83];

/// Magic, length of the body, checksum of the body.
pub(super) const FRAME_HEADER_BYTES: usize = 8 + 4 + 8;

/// Longest body: the largest record of any topic and what protobuf adds.
pub(super) const BODY_BYTES_MAX: usize =
    crate::limits::record_bytes_max(Topic::Config) + crate::limits::RECORD_OVERHEAD_BYTES_MAX;

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) topic: Topic,
    pub(super) partition: PartitionId,
    pub(super) offset: Offset,
}

impl Place {
    pub(super) fn of(topic: Topic, record: &Record) -> Self {
        Self {
            topic,
            partition: record.partition,
            offset: record.offset,
        }
    }

    /// Every place of a partition.
    pub(super) fn all_of(topic: Topic, partition: PartitionId) -> RangeInclusive<Self> {
        let at = |offset| Self {
            topic,
            partition,
            offset: Offset(offset),
        };
        at(0)..=at(i64::MAX)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let topic = self.topic.suffix();
        write!(
            f,
            "{topic} partition {} offset {}",
            self.partition, self.offset
        )
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("it does not begin as a record does")]
    Magic,
    #[error("it is cut short")]
    Length,
    #[error("its checksum does not match")]
    Checksum,
    #[error("its content cannot be read")]
    Content,
}

/// The number of a topic on disk. Never reused.
pub(super) fn topic_number(topic: Topic) -> u8 {
    match topic {
        Topic::Announcements => 1,
        Topic::Config => 2,
        Topic::Control => 3,
    }
}

pub(super) fn topic_of(number: u8) -> Option<Topic> {
    Topic::ALL
        .into_iter()
        .find(|topic| topic_number(*topic) == number)
}

/// Encodes `record` into `frame`, which is cleared first.
pub(super) fn encode(topic: Topic, record: &Record, frame: &mut Vec<u8>) {
    let headers = record
        .headers
        .as_ref()
        .map(Headers::to_pairs)
        .unwrap_or_default();
    let stored = StoredRecord {
        topic: u32::from(topic_number(topic)),
        partition: record.partition.0,
        offset: record.offset.0,
        append_time_ms: record.append_time.0,
        key: record.key.clone().unwrap_or_default(),
        value: record.value.clone(),
        headers: headers
            .into_iter()
            .map(|(name, value)| StoredHeader {
                name: Bytes::from_static(name.as_bytes()),
                value: value.into(),
            })
            .collect(),
    };
    frame.clear();
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&[0; FRAME_HEADER_BYTES - MAGIC.len()]);
    stored.encode_raw(frame);
    let (header, body) = frame.split_at_mut(FRAME_HEADER_BYTES);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..].copy_from_slice(&xxh3_64(body).to_le_bytes());
}

/// Reads the frame that `bytes` begin with. The record keeps what `copy` made of its body.
pub(super) fn decode(
    bytes: &[u8],
    copy: impl FnOnce(&[u8]) -> Bytes,
) -> Result<(Place, Record), FrameError> {
    let mut rest = bytes.strip_prefix(&MAGIC).ok_or(FrameError::Magic)?;
    if rest.len() < FRAME_HEADER_BYTES - MAGIC.len() {
        return Err(FrameError::Length);
    }
    let length = rest.get_u32_le() as usize;
    let checksum = rest.get_u64_le();
    let body = rest.get(..length).ok_or(FrameError::Length)?;
    if length > BODY_BYTES_MAX {
        return Err(FrameError::Length);
    }
    if xxh3_64(body) != checksum {
        return Err(FrameError::Checksum);
    }
    let stored = StoredRecord::decode(copy(body)).map_err(|_| FrameError::Content)?;
    stored.into_record().ok_or(FrameError::Content)
}

#[derive(Clone, PartialEq, Message)]
struct StoredRecord {
    #[prost(uint32, tag = "1")]
    topic: u32,
    #[prost(uint32, tag = "2")]
    partition: u32,
    #[prost(int64, tag = "3")]
    offset: i64,
    #[prost(int64, tag = "4")]
    append_time_ms: i64,
    #[prost(bytes = "bytes", tag = "5")]
    key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "6")]
    value: Option<Bytes>,
    #[prost(message, repeated, tag = "7")]
    headers: Vec<StoredHeader>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredHeader {
    /// Text; as bytes, since a string would be an allocation for each header of each record read.
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl StoredHeader {
    fn name(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(&self.name)
    }
}

impl StoredRecord {
    fn into_record(self) -> Option<(Place, Record)> {
        let topic = u8::try_from(self.topic).ok().and_then(topic_of)?;
        let partition = PartitionId(self.partition);
        let offset = Offset(self.offset);
        if self.headers.iter().any(|header| header.name().is_err()) {
            return None;
        }
        let pairs = self.headers.iter();
        let pairs = pairs.map(|h| (h.name().unwrap_or_default(), h.value.as_ref()));
        let record = Record {
            partition,
            offset,
            append_time: Timestamp(self.append_time_ms),
            key: Some(self.key),
            value: self.value,
            headers: Headers::read(pairs),
        };
        let place = Place {
            topic,
            partition,
            offset,
        };
        Some((place, record))
    }
}
