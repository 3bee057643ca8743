//! A broker, and logs on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OnceCell;
use waypost_core::port::ReadEvent;
use waypost_core::record::{Delivery, Headers, NewRecord, Topic};
use waypost_log::kafka::topics::{self, TopicsSpec};
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_log::suite::Follower;
use waypost_testkit::kafka::KafkaBroker;

/// How long a test waits for what must happen. Spent only when it fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The broker that the tests of one binary share.
pub(crate) async fn broker() -> &'static KafkaBroker {
    static BROKER: OnceCell<KafkaBroker> = OnceCell::const_new();
    BROKER
        .get_or_init(|| async { KafkaBroker::start().await.unwrap() })
        .await
}

/// Topics that no other test uses; they do not exist yet.
pub(crate) fn fresh_settings(broker: &KafkaBroker) -> KafkaSettings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
    KafkaSettings::new(&broker.bootstrap(), &prefix)
}

/// A log on `broker` whose announcements have `partitions` partitions.
pub(crate) async fn fresh_log(broker: &KafkaBroker, partitions: u32) -> Arc<KafkaLog> {
    let settings = fresh_settings(broker);
    let spec = TopicsSpec {
        announcement_partitions: partitions,
        ..TopicsSpec::development()
    };
    topics::create(&settings, &spec).await.unwrap();
    Arc::new(KafkaLog::open(settings).unwrap())
}

pub(crate) fn mk_record(key: &str, value: &str) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: Headers::default(),
        delivery: Delivery::Change,
    }
}

/// Reads until `find` finds what the test waits for; everything else is passed over.
pub(crate) async fn read_until<T>(
    follower: &mut Follower,
    what: &str,
    mut find: impl FnMut(ReadEvent) -> Option<T>,
) -> T {
    let reading = async {
        loop {
            if let Some(found) = find(follower.next().await) {
                return found;
            }
        }
    };
    let read = tokio::time::timeout(DEADLINE, reading).await;
    read.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}
