//! The records that Observers and logs write about time, identity and what left. What announcers
//! write is theirs (`waypost-announcer`).

use bytes::Bytes;
use waypost_core::record::{
    Delivery, Evidence, Headers, IDENTITY_KEY, KeeperId, LogIdentity, TICK_KEY, TickRef,
};
use waypost_core::{InstanceKey, LogTime, NewRecord, Offset, PartitionId, RecordKind, Topic};

use crate::event::Life;

/// Ticks and identity records have a value, so that compaction never takes them for deletions. Its
/// content says nothing.
const PRESENT: &[u8] = b"1";

/// The record that says which log this is: partition 0 of every topic, written when the log is
/// created.
#[must_use]
pub fn identity(topic: Topic, identity: LogIdentity, follows: Option<LogIdentity>) -> NewRecord {
    NewRecord {
        topic,
        partition: Some(PartitionId(0)),
        key: Bytes::from_static(IDENTITY_KEY),
        value: Some(Bytes::from_static(PRESENT)),
        headers: Headers {
            kind: RecordKind::Identity,
            log: Some(identity),
            follows,
            ..Headers::default()
        },
        delivery: Delivery::Change,
    }
}

/// A tick of one partition by `keeper`, who stands at `time` and has read `prev` last.
#[must_use]
pub fn tick(
    topic: Topic,
    partition: PartitionId,
    keeper: KeeperId,
    log: Option<LogIdentity>,
    prev: Option<TickRef>,
    time: LogTime,
) -> NewRecord {
    NewRecord {
        topic,
        partition: Some(partition),
        key: Bytes::from_static(TICK_KEY),
        value: Some(Bytes::from_static(PRESENT)),
        headers: Headers {
            kind: RecordKind::Tick,
            log,
            prev,
            time: Some(time),
            keeper: Some(keeper),
            ..Headers::default()
        },
        delivery: Delivery::Tick,
    }
}

/// The statement that nobody announced `key` for its time-to-live; `evidence` is the offset of the
/// last announcement read for it.
#[must_use]
pub fn expire(
    key: &InstanceKey,
    partition: PartitionId,
    life: Life,
    evidence: Evidence,
) -> NewRecord {
    removal(key, partition, RecordKind::Expire, life, evidence)
}

/// The withdrawal of `life` again, after an announcement at `refused` was refused because of it, so
/// that compaction does not leave that announcement as the last word.
#[must_use]
pub fn burial(key: &InstanceKey, partition: PartitionId, life: Life, refused: Offset) -> NewRecord {
    removal(
        key,
        partition,
        RecordKind::Withdraw,
        life,
        Evidence::At(refused),
    )
}

/// The standing announcement of a key again, as read at `offset` last, after a record without effect
/// that compaction would keep instead. It makes the instance no younger.
#[must_use]
pub fn restatement(
    key: &InstanceKey,
    partition: PartitionId,
    life: Life,
    value: Bytes,
    offset: Offset,
) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: Some(partition),
        key: key.to_record_key(),
        value: Some(value),
        headers: Headers {
            kind: RecordKind::Announce,
            id: life.id,
            birth: life.id.and(life.birth),
            seq: life.id.map(|_| life.seq),
            evidence: Some(Evidence::At(offset)),
            ..Headers::default()
        },
        delivery: Delivery::Change,
    }
}

fn removal(
    key: &InstanceKey,
    partition: PartitionId,
    kind: RecordKind,
    life: Life,
    evidence: Evidence,
) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: Some(partition),
        key: key.to_record_key(),
        value: None,
        headers: Headers {
            kind,
            id: life.id,
            birth: life.birth,
            seq: life.id.map(|_| life.seq),
            evidence: Some(evidence),
            ..Headers::default()
        },
        delivery: Delivery::Change,
    }
}
