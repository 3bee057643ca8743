//! Items of the file from and to what the folds know.

use bytes::Bytes;
use waypost_core::config::ConfigKey;
use waypost_core::record::LogIdentity;
use waypost_core::{ClusterName, InstanceKey, InstanceUri, LifeId, Offset, PartitionId, Timestamp};
use waypost_fold::{ConfigSnapshot, Confirmation, InstanceSnapshot, Life, Origin, TopicSnapshot};
use waypost_proto::config;
use waypost_proto::v1::{SnapshotInstance, SnapshotRecord, SnapshotTopic};

pub(super) fn from_topic(topic: &TopicSnapshot) -> SnapshotTopic {
    SnapshotTopic {
        identity: topic.identity.map(|identity| identity.0),
        positions: topic.positions.iter().map(|position| position.0).collect(),
    }
}

pub(super) fn to_topic(topic: SnapshotTopic) -> TopicSnapshot {
    TopicSnapshot {
        identity: topic.identity.map(LogIdentity),
        positions: topic.positions.into_iter().map(Offset).collect(),
    }
}

pub(super) fn from_instance(instance: &InstanceSnapshot) -> SnapshotInstance {
    SnapshotInstance {
        cluster: instance.key.cluster.to_string(),
        uri: instance.key.uri.to_string(),
        id: instance.life.id.map(|id| id.0),
        birth_ms: instance.life.birth.map(|birth| birth.0),
        seq: instance.life.seq,
        ttl_ms: instance.ttl_ms,
        value: instance.value.clone(),
        unconfirmed: instance.confirmation == Confirmation::Unconfirmed,
    }
}

pub(super) fn to_instance(instance: SnapshotInstance) -> Result<InstanceSnapshot, String> {
    let key = InstanceKey {
        cluster: ClusterName::parse(&instance.cluster).map_err(|e| e.to_string())?,
        uri: InstanceUri::parse(&instance.uri).map_err(|e| e.to_string())?,
    };
    Ok(InstanceSnapshot {
        key,
        life: Life {
            id: instance.id.map(LifeId),
            birth: instance.birth_ms.map(Timestamp),
            seq: instance.seq,
        },
        ttl_ms: instance.ttl_ms,
        // A copy: the item is a slice of the whole file.
        value: Bytes::copy_from_slice(&instance.value),
        confirmation: if instance.unconfirmed {
            Confirmation::Unconfirmed
        } else {
            Confirmation::Confirmed
        },
    })
}

pub(super) fn from_record(record: &ConfigSnapshot) -> SnapshotRecord {
    SnapshotRecord {
        key: record.key.to_record_key(),
        value: config::encode(&record.value),
        partition: record.partition.0,
        offset: record.offset.0,
        append_time_ms: record.append_time.0,
        orphaned: record.origin == Origin::Orphaned,
    }
}

/// `None` for a kind of record that this release does not know.
pub(super) fn to_record(record: &SnapshotRecord) -> Result<Option<ConfigSnapshot>, String> {
    let key = ConfigKey::from_record_key(&record.key).map_err(|e| e.to_string())?;
    let Some(key) = key else {
        return Ok(None);
    };
    let value = config::decode(&key, &record.value).map_err(|e| e.to_string())?;
    Ok(Some(ConfigSnapshot {
        key,
        value,
        partition: PartitionId(record.partition),
        offset: Offset(record.offset),
        append_time: Timestamp(record.append_time_ms),
        origin: if record.orphaned {
            Origin::Orphaned
        } else {
            Origin::Log
        },
    }))
}
