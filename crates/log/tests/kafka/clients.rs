//! Announcements by Kafka clients that share no code with ours, as docs/announcing.md tells them.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use waypost_core::partition::partition_for_key;
use waypost_core::record::{Record, RecordKind, Topic};
use waypost_core::{Headers, InstanceKey};
use waypost_log::kafka::KafkaLog;
use waypost_log::suite::Follower;
use waypost_proto::announcement::decode;
use waypost_testkit::parts;
use waypost_testkit::process::{Finished, Process};

use crate::support::{DEADLINE, broker, fresh_log};

const PARTITIONS: u32 = 7;

/// Runs the code block of docs/announcing.md that is marked `sh NAME`.
async fn run_from_the_page(name: &str, log: &KafkaLog) -> Finished {
    parts::program("kcat").unwrap();
    let page = std::fs::read_to_string(parts::source_root().join("docs/announcing.md")).unwrap();
    let (_, rest) = page
        .split_once(&format!("```sh {name}\n"))
        .expect("the block is there");
    let (script, _) = rest.split_once("```").expect("the block ends");
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command.env("KAFKA", log.settings().brokers());
    command.env("TOPIC", log.settings().topic_name(Topic::Announcements));
    let finished = Process::run(name, command, DEADLINE).await.unwrap();
    assert!(finished.status.success(), "{}", finished.stderr);
    finished
}

fn key(record: &Record) -> InstanceKey {
    let key = record.key.as_deref().expect("has a key");
    assert_eq!(
        record.partition,
        partition_for_key(key, PARTITIONS),
        "chosen by murmur2"
    );
    InstanceKey::from_record_key(key).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcat_announces_and_purges_as_the_page_says() {
    let log = fresh_log(broker().await, PARTITIONS).await;
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    run_from_the_page("announce", &log).await;
    let announced = follower.records(1).await.remove(0);
    let key_of_announced = key(&announced);
    assert_eq!(announced.headers, Ok(Headers::default()));
    let announcement = decode(announced.value.as_ref().expect("has a value")).unwrap();
    assert_eq!(announcement.cluster, key_of_announced.cluster);
    assert_eq!(announcement.uri, key_of_announced.uri);
    assert_eq!(announcement.uri.as_str(), "grpc://10.0.0.7:8080");

    run_from_the_page("purge", &log).await;
    let purged = follower.records(1).await.remove(0);
    assert_eq!((key(&purged), purged.value), (key_of_announced, None));
    assert_eq!(purged.partition, announced.partition);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_example_announces_beats_and_withdraws_with_order_data() {
    let log = fresh_log(broker().await, PARTITIONS).await;
    let generated = TempDir::new().unwrap();
    generate_messages(generated.path()).await;
    let mut command = Command::new(parts::python(parts::Venv::Kafka).unwrap());
    command.arg(parts::source_root().join("docs/examples/announce.py"));
    command.args(["--kafka", log.settings().brokers()]);
    command.args(["--topic", &log.settings().topic_name(Topic::Announcements)]);
    command.args(["--cluster", "greeter", "--uri", "grpc://10.0.0.7:8080"]);
    command.args(["--heartbeat", "0.2", "--weight", "0.5", "--beats", "2"]);
    command.env("PYTHONPATH", generated.path());
    let finished = Process::run("announce.py", command, DEADLINE)
        .await
        .unwrap();
    assert!(finished.status.success(), "{}", finished.stderr);

    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let records = follower.records(5).await;
    assert!(records.iter().all(|record| key(record) == key(&records[0])));
    let headers: Vec<Headers> = records.iter().map(|r| r.headers.clone().unwrap()).collect();
    let [first, born, beat, _, left] = headers[..] else {
        panic!("{headers:?}")
    };
    assert_eq!(
        (first.kind, first.seq, first.birth),
        (RecordKind::Announce, Some(0), None)
    );
    assert!(first.id.is_some() && first.age_ms.is_some());
    assert!(
        born.birth
            .is_some_and(|birth| birth <= records[0].append_time)
    );
    assert_eq!((born.id, born.seq, born.age_ms), (first.id, Some(0), None));
    for beat in &records[2..4] {
        assert_eq!(
            (&beat.value, &beat.headers),
            (&records[1].value, &records[1].headers)
        );
    }
    let announcement = decode(records[1].value.as_ref().expect("has a value")).unwrap();
    assert_eq!(announcement.weights.get(&0), Some(&0.5));
    let withdrawal = (RecordKind::Withdraw, beat.id, beat.birth, Some(1));
    assert_eq!((left.kind, left.id, left.birth, left.seq), withdrawal);
    assert_eq!(records[4].value, None);
}

/// kcat and the example are librdkafka, as we are. kafka-python is Kafka's protocol written anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_not_librdkafka_chooses_the_same_partitions_and_headers_arrive() {
    const SCRIPT: &str = "
import os
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=os.environ['KAFKA'], acks='all')
for n in range(40):
    key = b'greeter\\0grpc://10.0.0.%d:8080' % n
    headers = [('waypost-id', b'%016x' % n), ('waypost-seq', b'%d' % n)]
    producer.send(os.environ['TOPIC'], key=key, value=b'v', headers=headers)
producer.close()
";
    let log = fresh_log(broker().await, PARTITIONS).await;
    let mut command = Command::new(parts::python(parts::Venv::Kafka).unwrap());
    command.args(["-c", SCRIPT]);
    command.env("KAFKA", log.settings().brokers());
    command.env("TOPIC", log.settings().topic_name(Topic::Announcements));
    let finished = Process::run("kafka-python", command, DEADLINE)
        .await
        .unwrap();
    assert!(finished.status.success(), "{}", finished.stderr);
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let mut ids = Vec::new();
    for record in follower.records(40).await {
        key(&record);
        let headers = record.headers.unwrap();
        assert_eq!(headers.id.map(|id| id.0), headers.seq);
        ids.extend(headers.seq);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
}

async fn generate_messages(into: &Path) {
    let mut command = Command::new(parts::python(parts::Venv::Kafka).unwrap());
    let protos = parts::source_root().join("crates/proto/proto");
    command.args(["-m", "grpc_tools.protoc", "-I"]).arg(&protos);
    command.arg(format!("--python_out={}", into.display()));
    command.arg("waypost/v1/announcement.proto");
    let finished = Process::run("protoc", command, DEADLINE).await.unwrap();
    assert!(finished.status.success(), "{}", finished.stderr);
}
