//! Records as announcers, operators and forgers write them.

use std::time::Duration;

use waypost_core::partition::partition_for_key;
use waypost_core::record::{Delivery, Evidence};
use waypost_core::{
    Announcement, ClusterName, Headers, InstanceKey, InstanceUri, LifeId, NewRecord, PartitionId,
    RecordKind, Timestamp, Topic,
};

use crate::{HEARTBEAT, TTL_S};

/// The instance of `cluster` on `host`.
#[must_use]
pub fn mk_key(cluster: &str, host: &str) -> InstanceKey {
    InstanceKey {
        cluster: ClusterName::parse(cluster).unwrap(),
        uri: InstanceUri::parse(&format!("grpc://{host}:8080")).unwrap(),
    }
}

/// `count` instances of one cluster.
#[must_use]
pub fn mk_keys(count: usize) -> Vec<InstanceKey> {
    let hosts = (0..count).map(|i| format!("h{i}"));
    hosts.map(|host| mk_key("greeter", &host)).collect()
}

/// What an instance says of itself.
#[must_use]
pub fn mk_announcement(key: &InstanceKey) -> Announcement {
    Announcement {
        hostname: "host-1".to_owned(),
        ttl: Duration::from_secs(TTL_S),
        heartbeat: HEARTBEAT,
        ..Announcement::new(
            key.cluster.clone(),
            key.uri.clone(),
            Timestamp(1_700_000_000_000),
        )
    }
}

/// A record of the announcements topic as an announcer writes it.
#[must_use]
pub fn mk_record(
    key: &InstanceKey,
    announcement: Option<&Announcement>,
    headers: Headers,
) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_record_key(),
        value: announcement.map(waypost_proto::announcement::encode),
        headers,
        delivery: Delivery::Change,
    }
}

/// The order data of a life.
#[must_use]
pub fn order(id: u64, birth: Option<i64>, seq: u64) -> Headers {
    Headers {
        id: Some(LifeId(id)),
        birth: birth.map(Timestamp),
        seq: Some(seq),
        ..Headers::default()
    }
}

/// A withdrawal by the life in `headers`.
#[must_use]
pub fn withdrawal(key: &InstanceKey, headers: Headers) -> NewRecord {
    let headers = Headers {
        kind: RecordKind::Withdraw,
        ..headers
    };
    mk_record(key, None, headers)
}

/// An expire, by whoever.
#[must_use]
pub fn expire(key: &InstanceKey, headers: Headers, evidence: Evidence) -> NewRecord {
    let headers = Headers {
        kind: RecordKind::Expire,
        evidence: Some(evidence),
        ..headers
    };
    mk_record(key, None, headers)
}

/// A null without order data.
#[must_use]
pub fn purge(key: &InstanceKey) -> NewRecord {
    mk_record(key, None, Headers::default())
}

/// The partition that a key belongs to, of so many.
#[must_use]
pub fn own_partition(key: &InstanceKey, partitions: u32) -> PartitionId {
    partition_for_key(&key.to_record_key(), partitions)
}
