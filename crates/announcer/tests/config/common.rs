//! Logs, records and authors for tests of this program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Barrier;
use waypost_announcer::operator::sign;
use waypost_core::config::Signed;
use waypost_core::record::{Appended, Delivery, LogIdentity};
use waypost_core::{
    AnnouncementLog, ConfigKey, ConfigValue, Headers, LogError, LogReader, NewRecord, Offset,
    PartitionId, Record, RecordKind, Timestamp, Topic,
};
use waypost_fold::ConfigFold;
use waypost_log::{ManualClock, MemoryLog};

pub(crate) const ANN: &str = "ann@ops1";
pub(crate) const BOB: &str = "bob@ops2";

pub(crate) fn signed(author: &str, now: i64) -> Signed {
    sign(author, "INC-7: slow disk", Timestamp(now)).unwrap()
}

/// A log with an identity, as all have once somebody made or read them.
pub(crate) fn mk_log() -> MemoryLog {
    let log = MemoryLog::new(4, ManualClock::new(Timestamp(1_700_000_000_000)));
    log.write_identity(LogIdentity(7));
    log
}

/// Every record of a topic but its identity.
pub(crate) fn records(log: &MemoryLog, topic: Topic) -> Vec<Record> {
    let records = log.records(topic).into_iter();
    records
        .filter(|r| {
            r.headers
                .as_ref()
                .is_ok_and(|h| h.kind != RecordKind::Identity)
        })
        .collect()
}

/// The config topic's records as `KIND NAME` or `KIND NAME deleted`, and what they replace.
pub(crate) fn written(log: &MemoryLog) -> Vec<(String, Option<String>)> {
    let records = records(log, Topic::Config).into_iter();
    let shown = records.map(|record| {
        let key = ConfigKey::from_record_key(&record.key.unwrap())
            .unwrap()
            .unwrap();
        let replaces = record.headers.unwrap().replaces.map(|r| r.to_string());
        let what = match (&key, record.value) {
            (ConfigKey::Journal(_), Some(value)) => match decode(&key, &value) {
                ConfigValue::Journal(entry) => format!("journal: {}", entry.action.as_str()),
                other => panic!("{other:?}"),
            },
            (_, Some(_)) => key.to_string(),
            (_, None) => format!("{key} deleted"),
        };
        (what, replaces)
    });
    shown.collect()
}

pub(crate) fn decode(key: &ConfigKey, value: &[u8]) -> ConfigValue {
    waypost_proto::config::decode(key, value).unwrap()
}

/// What an Observer makes of the config topic that starts now.
pub(crate) fn fold(log: &MemoryLog) -> ConfigFold {
    let mut fold = ConfigFold::new();
    for record in log.records(Topic::Config) {
        fold.apply(&record, &mut Vec::new());
    }
    fold
}

/// A record with a value of anybody's making.
pub(crate) fn mk_raw(key: &ConfigKey, value: &[u8]) -> NewRecord {
    NewRecord {
        topic: Topic::Config,
        partition: None,
        key: key.to_record_key(),
        value: Some(Bytes::copy_from_slice(value)),
        headers: Headers::default(),
        delivery: Delivery::Change,
    }
}

/// A log that compares and sets, or that, like Kafka, cannot. Writers can be made to meet at their first record,
/// when each has read what stands and none has written.
#[derive(Debug)]
pub(crate) struct RacedLog {
    pub(crate) log: Arc<MemoryLog>,
    compares: bool,
    meeting: Option<Arc<Barrier>>,
    has_met: AtomicBool,
}

impl RacedLog {
    pub(crate) fn like_kafka() -> Self {
        Self {
            log: Arc::new(mk_log()),
            compares: false,
            meeting: None,
            has_met: AtomicBool::new(false),
        }
    }

    pub(crate) fn that_compares() -> Self {
        Self {
            compares: true,
            ..Self::like_kafka()
        }
    }

    /// As many handles to the same log, whose first records wait for each other.
    pub(crate) fn meeting<const N: usize>(&self) -> [Self; N] {
        let meeting = Arc::new(Barrier::new(N));
        std::array::from_fn(|_| Self {
            log: Arc::clone(&self.log),
            compares: self.compares,
            meeting: Some(Arc::clone(&meeting)),
            has_met: AtomicBool::new(false),
        })
    }
}

#[async_trait]
impl AnnouncementLog for RacedLog {
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError> {
        self.log.partition_count(topic).await
    }

    async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        self.log.append(record).await
    }

    async fn append_if(
        &self,
        record: NewRecord,
        expected: Option<Offset>,
    ) -> Result<Appended, LogError> {
        // Asked first for every record that replaces something.
        if let Some(meeting) = &self.meeting
            && !self.has_met.swap(true, Ordering::AcqRel)
        {
            meeting.wait().await;
        }
        if self.compares {
            self.log.append_if(record, expected).await
        } else {
            Err(LogError::Refused("cannot compare and set".to_owned()))
        }
    }

    async fn read(
        &self,
        topic: Topic,
        from: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError> {
        self.log.read(topic, from).await
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Option<Record>, LogError> {
        self.log.read_at(topic, partition, offset).await
    }
}
