//! Announcements as records of the log, with the order data of whoever announces.

use waypost_core::record::{Delivery, LifeId};
use waypost_core::{Announcement, Headers, InstanceKey, NewRecord, RecordKind, Timestamp, Topic};

/// The life of one process as the announcer of one instance (docs/announcement-log.md, "Order within a
/// key").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) id: LifeId,
    pub(crate) birth: Timestamp,
    /// The count of changes; the same for all heartbeats between two of them.
    pub(crate) seq: u64,
}

/// An announcement by `life`, or, where it was announced before, its heartbeat.
pub(crate) fn announce(announcement: &Announcement, life: Life, delivery: Delivery) -> NewRecord {
    let value = waypost_proto::announcement::encode(announcement);
    NewRecord {
        value: Some(value),
        ..mk_record(&key_of(announcement), life, RecordKind::Announce, delivery)
    }
}

/// The withdrawal of an instance by `life`.
pub(crate) fn withdraw(key: &InstanceKey, life: Life) -> NewRecord {
    mk_record(key, life, RecordKind::Withdraw, Delivery::Change)
}

fn key_of(announcement: &Announcement) -> InstanceKey {
    InstanceKey {
        cluster: announcement.cluster.clone(),
        uri: announcement.uri.clone(),
    }
}

fn mk_record(key: &InstanceKey, life: Life, kind: RecordKind, delivery: Delivery) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_record_key(),
        value: None,
        headers: Headers {
            kind,
            id: Some(life.id),
            birth: Some(life.birth),
            seq: Some(life.seq),
            ..Headers::default()
        },
        delivery,
    }
}
