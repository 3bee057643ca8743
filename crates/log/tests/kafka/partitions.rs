//! Partitions are added while readers and writers are at work.

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use waypost_core::partition::{PartitionId, partition_for_key};
use waypost_core::port::{AnnouncementLog as _, ReadEvent};
use waypost_core::record::Topic;
use waypost_log::suite::Follower;

use crate::support::{broker, fresh_log, mk_record, read_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_added_later_are_followed_from_their_beginning() {
    let log = fresh_log(broker().await, 2).await;
    log.append(mk_record("before", "v")).await.unwrap();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    follower.records(1).await;

    let name = log.settings().topic_name(Topic::Announcements);
    let mut config = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> = config
        .set("bootstrap.servers", log.settings().brokers())
        .create()
        .unwrap();
    let more = NewPartitions::new(&name, 5);
    let made = admin
        .create_partitions([&more], &AdminOptions::new())
        .await
        .unwrap();
    made[0].as_ref().unwrap();

    // A record in the new partition, most likely before the reader knows of it.
    let mut record = mk_record("added", "v");
    record.partition = Some(PartitionId(4));
    log.append(record).await.unwrap();
    let mut heard = None;
    let records = read_until(
        &mut follower,
        "the added partition's record",
        |event| match event {
            ReadEvent::Partitions(count) => {
                heard = Some(count);
                None
            }
            ReadEvent::Records(records) => Some(records),
            _ => None,
        },
    )
    .await;
    assert_eq!(heard, Some(5), "told of the partitions first");
    assert_eq!((records.len(), records[0].partition), (1, PartitionId(4)));

    // The writer hears of them too: soon a key goes where the new count sends it.
    let key = (0..).map(|n| format!("key-{n}"));
    let mut key = key.filter(|key| partition_for_key(key.as_bytes(), 5).0 > 1);
    let key = key.next().unwrap();
    waypost_testkit::wait::eventually("the new partition", crate::support::DEADLINE, || async {
        let appended = log.append(mk_record(&key, "v")).await?;
        anyhow::ensure!(appended.partition == partition_for_key(key.as_bytes(), 5));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.partition_count(Topic::Announcements).await, Ok(5));
}
