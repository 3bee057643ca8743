//! Two operators at once on a real Kafka, which cannot compare and set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::sync::Barrier;
use waypost_announcer::operator::{OperatorError, SetOutcome, evict, set_override, sign};
use waypost_announcer::{Conflicts, Told};
use waypost_core::config::{OverrideEffect, Weight};
use waypost_core::port::{AnnouncementLog, LogError, LogReader, ReadEvent};
use waypost_core::record::{Appended, NewRecord, Offset, Record, Topic};
use waypost_core::{ClusterName, InstanceKey, InstanceUri, PartitionId, Timestamp};
use waypost_log::kafka::KafkaLog;
use waypost_log::suite::Follower;

use crate::support::{broker, fresh_log, read_until};

/// A handle to a log whose first change of the config topic waits for that of the other handle, so
/// that each has read what stands when the other writes.
#[derive(Debug)]
struct Meeting {
    log: Arc<KafkaLog>,
    barrier: Arc<Barrier>,
    has_met: AtomicBool,
}

impl Meeting {
    fn new(log: &Arc<KafkaLog>) -> [Self; 2] {
        let barrier = Arc::new(Barrier::new(2));
        std::array::from_fn(|_| Self {
            log: Arc::clone(log),
            barrier: Arc::clone(&barrier),
            has_met: AtomicBool::new(false),
        })
    }
}

#[async_trait]
impl AnnouncementLog for Meeting {
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
        if !self.has_met.swap(true, Ordering::AcqRel) {
            self.barrier.wait().await;
        }
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

fn instance() -> InstanceKey {
    InstanceKey {
        cluster: ClusterName::parse("greeter").unwrap(),
        uri: InstanceUri::parse("grpc://10.0.0.7:8080").unwrap(),
    }
}

fn weight(weight: f64) -> Option<OverrideEffect> {
    Some(OverrideEffect::Weight(Weight::new(weight).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_are_both_told_who_overwrote_whom() {
    let log = fresh_log(broker().await, 1).await;
    let (ann, bob) = ("ann@ops1", "bob@ops2");
    let sign = |author| sign(author, "INC-7", Timestamp(5)).unwrap();
    let alone = set_override(&*log, &instance(), weight(1.0), &sign(ann)).await;
    assert_eq!(alone, Ok(SetOutcome::Set));

    let [anns, bobs] = Meeting::new(&log);
    let (instance, by_ann, by_bob) = (instance(), sign(ann), sign(bob));
    let (anns, bobs) = tokio::join!(
        set_override(&anns, &instance, weight(2.0), &by_ann),
        set_override(&bobs, &instance, weight(3.0), &by_bob)
    );
    let told = [anns, bobs].map(|result| match result {
        Err(OperatorError::Conflicts(Conflicts(told))) if told.len() == 1 => told[0].clone(),
        other => panic!("{other:?}"),
    });
    match &told {
        [
            Told::Overwrote { author: whom, .. },
            Told::Overwritten { author: who, .. },
        ] => assert_eq!((whom.as_str(), who.as_str()), (bob, ann)),
        [
            Told::Overwritten { author: who, .. },
            Told::Overwrote { author: whom, .. },
        ] => assert_eq!((who.as_str(), whom.as_str()), (bob, ann)),
        other => panic!("{other:?}"),
    }
    // Each saw what stands now, so the next change is none.
    let settled = set_override(&*log, &instance, None, &sign(ann)).await;
    assert_eq!(settled, Ok(SetOutcome::Cleared));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_is_a_purge_that_any_reader_understands() {
    let log = fresh_log(broker().await, 1).await;
    let signed = sign("ann@ops1", "INC-7", Timestamp(5)).unwrap();
    let purge = evict(&*log, &instance(), &signed).await.unwrap();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let record = read_until(&mut follower, "the purge", |event| match event {
        ReadEvent::Records(records) => records.into_iter().find(|r| r.offset == purge.offset),
        _ => None,
    })
    .await;
    assert_eq!(record.key, Some(instance().to_record_key()));
    assert_eq!(record.value, None);
    assert_eq!(record.headers.unwrap().to_pairs(), []);
}
