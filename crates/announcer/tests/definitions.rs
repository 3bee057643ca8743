//! Definitions against a log: what is written, what is left alone, what two writers are told.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use waypost_announcer::definitions::{
    DefinitionInput, DefinitionsError, Outcome, apply, delete, read_request,
};
use waypost_core::record::Appended;
use waypost_core::{
    AnnouncementLog, ClusterName, DefinitionKey, LogError, LogReader, NewRecord, Offset,
    PartitionId, ReadEvent, Record, ServiceName, Timestamp, Topic,
};
use waypost_log::{ManualClock, MemoryLog};
use waypost_proto::v1 as pb;
use waypost_proto::v1::definition_input::Kind;

fn mk_log() -> MemoryLog {
    MemoryLog::new(4, ManualClock::new(Timestamp(1_700_000_000_000)))
}

fn mk_cluster(name: &str, json: &str) -> DefinitionInput {
    let message = pb::DefinitionInput {
        kind: Kind::Cluster.into(),
        name: name.to_owned(),
        properties_json: json.to_owned(),
        ..Default::default()
    };
    read_request(&[message]).unwrap().remove(0)
}

fn mk_service(name: &str) -> DefinitionInput {
    DefinitionInput::Service {
        name: ServiceName::parse(name).unwrap(),
        cluster: ClusterName::parse("profile").unwrap(),
        path: "/p".to_owned(),
        properties: serde_json::Map::new(),
    }
}

fn key(name: &str) -> DefinitionKey {
    DefinitionKey::Cluster(ClusterName::parse(name).unwrap())
}

/// Every record of the config topic.
async fn records(log: &dyn AnnouncementLog) -> Vec<Record> {
    let mut reader = log.read(Topic::Config, &[]).await.unwrap();
    let mut records = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            ReadEvent::Records(more) => records.extend(more),
            ReadEvent::CaughtUp { .. } => return records,
            _ => {}
        }
    }
}

async fn outcomes(
    log: &dyn AnnouncementLog,
    definitions: &[DefinitionInput],
    now: i64,
) -> Vec<(Outcome, u32)> {
    let changes = apply(log, definitions, Timestamp(now)).await.unwrap();
    changes.iter().map(|c| (c.outcome, c.revision)).collect()
}

#[tokio::test]
async fn only_what_differs_is_written_and_history_is_kept() {
    for log in [
        Box::new(mk_log()) as Box<dyn AnnouncementLog>,
        Box::new(Simple::new()),
    ] {
        let log = &*log;
        let one = [mk_cluster("profile", r#"{"a":1.0}"#), mk_service("reads")];
        assert_eq!(
            outcomes(log, &one, 10).await,
            [(Outcome::Created, 0), (Outcome::Created, 0)]
        );
        assert_eq!(
            outcomes(log, &one, 20).await,
            [(Outcome::Unchanged, 0), (Outcome::Unchanged, 0)]
        );
        let two = [mk_cluster("profile", r#"{"a":1}"#), mk_service("reads")];
        assert_eq!(
            outcomes(log, &two, 30).await,
            [(Outcome::Changed, 1), (Outcome::Unchanged, 0)]
        );

        let written = records(log).await;
        assert_eq!(written.len(), 3, "something was written twice");
        let last = written.last().unwrap();
        let value = pb_definition(last);
        assert_eq!(
            (value.created_ms, value.modified_ms, value.revision),
            (10, 30, 1)
        );
        assert_eq!(&value.document[..], br#"{"clusterName":"profile","a":1}"#);

        let gone = delete(log, key("profile")).await.unwrap();
        assert_eq!((gone.outcome, gone.revision), (Outcome::Deleted, 1));
        let absent = delete(log, key("profile")).await.unwrap();
        assert_eq!(absent.outcome, Outcome::Absent);
        assert_eq!(records(log).await.len(), 4);
        // What was deleted begins anew.
        assert_eq!(outcomes(log, &two[..1], 40).await, [(Outcome::Created, 0)]);
    }
}

fn pb_definition(record: &Record) -> pb::Definition {
    use prost::Message as _;
    pb::Definition::decode(record.value.clone().unwrap()).unwrap()
}

#[tokio::test]
async fn nothing_is_written_when_one_of_a_request_is_wrong() {
    let log = mk_log();
    let definitions = [mk_cluster("fine", "{}"), mk_cluster("fine", "{}")];
    let result = apply(&log, &definitions, Timestamp(1)).await;
    assert!(matches!(result, Err(DefinitionsError::Mistakes(_))));
    assert!(records(&log).await.is_empty());
}

#[tokio::test]
async fn whoever_writes_second_is_told_on_a_log_that_compares_and_on_one_that_cannot() {
    for compares in [true, false] {
        let log = Simple {
            compares,
            ..Simple::new()
        };
        outcomes(&log, &[mk_cluster("profile", "{}")], 1).await;
        let log = Simple {
            stranger_writes_next: AtomicUsize::new(1),
            ..log
        };
        let result = apply(&log, &[mk_cluster("profile", r#"{"a":1}"#)], Timestamp(2)).await;
        assert!(
            matches!(
                result,
                Err(DefinitionsError::Write {
                    source: LogError::Conflict(_),
                    ..
                })
            ),
            "compares: {compares}: {result:?}"
        );
    }
}

#[tokio::test]
async fn strangers_who_write_other_definitions_are_no_conflict() {
    let log = Simple {
        stranger_key: key("other"),
        stranger_writes_next: AtomicUsize::new(1),
        ..Simple::new()
    };
    assert_eq!(
        outcomes(&log, &[mk_cluster("profile", "{}")], 1).await,
        [(Outcome::Created, 0)]
    );
}

#[tokio::test]
async fn an_unreadable_definition_is_replaced() {
    let log = mk_log();
    let record = mk_record(&key("profile"), b"\xff\xff");
    log.append(record).await.unwrap();
    assert_eq!(
        outcomes(&log, &[mk_cluster("profile", "{}")], 5).await,
        [(Outcome::Changed, 0)]
    );
}

fn mk_record(key: &DefinitionKey, value: &'static [u8]) -> NewRecord {
    NewRecord {
        topic: Topic::Config,
        partition: None,
        key: key.to_record_key(),
        value: Some(bytes::Bytes::from_static(value)),
        headers: waypost_core::Headers::default(),
        delivery: waypost_core::record::Delivery::Change,
    }
}

/// A log that, like Kafka, cannot compare and set (unless told to), and in which a stranger writes
/// at the worst moment: after the state was read and before the record is written.
#[derive(Debug)]
struct Simple {
    log: Arc<MemoryLog>,
    compares: bool,
    stranger_key: DefinitionKey,
    stranger_writes_next: AtomicUsize,
}

impl Simple {
    fn new() -> Self {
        Self {
            log: Arc::new(mk_log()),
            compares: false,
            stranger_key: key("profile"),
            stranger_writes_next: AtomicUsize::new(0),
        }
    }

    async fn let_stranger_write(&self) {
        if self.stranger_writes_next.swap(0, Ordering::AcqRel) > 0 {
            let record = mk_record(&self.stranger_key, b"");
            self.log.append(record).await.unwrap();
        }
    }
}

#[async_trait]
impl AnnouncementLog for Simple {
    async fn partition_count(&self, topic: Topic) -> Result<u32, LogError> {
        self.log.partition_count(topic).await
    }

    async fn append(&self, record: NewRecord) -> Result<Appended, LogError> {
        self.let_stranger_write().await;
        self.log.append(record).await
    }

    async fn append_if(
        &self,
        record: NewRecord,
        expected: Option<Offset>,
    ) -> Result<Appended, LogError> {
        if !self.compares {
            return Err(LogError::Refused("cannot compare and set".to_owned()));
        }
        self.let_stranger_write().await;
        self.log.append_if(record, expected).await
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
