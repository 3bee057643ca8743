//! The Kafka log on a cluster of three brokers: leaders change, a broker hangs, a topic is made anew
//! on other brokers, records are lost.
#![expect(
    clippy::unwrap_used,
    reason = "tests; helpers beside them are not recognised as such"
)]

#[path = "kafka/support.rs"]
#[expect(dead_code, reason = "shared with the other Kafka tests")]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::time::{Instant, sleep, timeout};
use waypost_core::partition::PartitionId;
use waypost_core::port::{AnnouncementLog as _, ReadEvent};
use waypost_core::record::{Appended, Offset, Topic};
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_log::suite::Follower;
use waypost_testkit::kafka::{Election, KafkaAdmin, KafkaCluster};
use waypost_testkit::wait::eventually;

use support::{DEADLINE, mk_record, read_until};

/// A handle without progress is made anew after this; 30 s where nobody waits for it.
const STALL_AFTER: Duration = Duration::from_secs(4);

/// What topics need of Kafka here.
const SETTINGS: [(&str, &str); 2] = [
    ("message.timestamp.type", "LogAppendTime"),
    ("min.insync.replicas", "1"),
];

/// The cluster, for one test at a time: each does something to its brokers.
async fn cluster() -> MutexGuard<'static, KafkaCluster> {
    static CLUSTER: OnceCell<Mutex<KafkaCluster>> = OnceCell::const_new();
    let start = || async { Mutex::new(KafkaCluster::start(3).await.unwrap()) };
    CLUSTER.get_or_init(start).await.lock().await
}

/// A log whose announcements no other test has; its topic does not exist yet.
fn fresh_log(cluster: &KafkaCluster) -> (Arc<KafkaLog>, KafkaAdmin, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let settings = KafkaSettings::new(&cluster.bootstrap(), &prefix).with_stall_after(STALL_AFTER);
    let topic = settings.topic_name(Topic::Announcements);
    let log = Arc::new(KafkaLog::open(settings).unwrap());
    (log, cluster.admin().unwrap(), topic)
}

/// Appends one record after the other until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<Vec<Appended>>,
}

impl Load {
    fn start(log: &Arc<KafkaLog>, partition: Option<PartitionId>) -> Self {
        let (log, stop) = (Arc::clone(log), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&stop);
        let count = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&count);
        let task = tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let mut record = mk_record(&format!("key-{}", n % 50), &n.to_string());
                record.partition = partition;
                if let Ok(appended) = log.append(record).await {
                    acknowledged.push(appended);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                sleep(Duration::from_millis(5)).await;
            }
            acknowledged
        });
        Self { stop, count, task }
    }

    /// Waits until this many were acknowledged.
    async fn until(&self, count: u32) {
        let reached = || async {
            let now = self.count.load(Ordering::Relaxed);
            ensure!(now >= count, "{now}");
            Ok(())
        };
        let what = format!("{count} records are acknowledged");
        eventually(&what, DEADLINE, reached).await.unwrap();
    }

    /// What was acknowledged.
    async fn stop(self) -> Vec<Appended> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Reads until `last` was read; nothing may come twice.
async fn read_all(follower: &mut Follower, last: &[Appended]) -> BTreeSet<(PartitionId, Offset)> {
    let mut read = BTreeSet::new();
    let place = |appended: &Appended| (appended.partition, appended.offset);
    read_until(follower, "everything acknowledged", |event| {
        if let ReadEvent::Records(records) = event {
            for record in records {
                assert!(read.insert((record.partition, record.offset)), "twice");
            }
        }
        last.iter()
            .all(|appended| read.contains(&place(appended)))
            .then_some(())
    })
    .await;
    read
}

async fn until_appended(log: &KafkaLog, key: &str) -> Appended {
    let append = || async { Ok(log.append(mk_record(key, "v")).await?) };
    eventually("an append works", DEADLINE, append)
        .await
        .unwrap()
}

/// As [`until_appended`], and no record may be given up first: librdkafka keeps one until its time is
/// over if it thinks that it knows where it belongs.
async fn until_appended_without_giving_up(log: &KafkaLog, key: &str) {
    let given_up = std::sync::Mutex::new(Vec::new());
    let append = || async {
        let appended = log.append(mk_record(key, "v")).await;
        if let Err(error) = &appended
            && error.to_string().contains("not acknowledged within")
        {
            given_up.lock().unwrap().push(error.to_string());
        }
        Ok(appended?)
    };
    eventually("an append works", DEADLINE, append)
        .await
        .unwrap();
    let given_up = given_up.into_inner().unwrap();
    assert!(given_up.is_empty(), "{given_up:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_under_load_costs_nothing_acknowledged() {
    let mut cluster = cluster().await;
    let (log, admin, topic) = fresh_log(&cluster);
    let two = [SETTINGS[0], ("min.insync.replicas", "2")];
    admin.create_topic(&topic, 3, 3, &two).await.unwrap();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let load = Load::start(&log, None);
    load.until(100).await;
    let first = until_appended(&log, "before").await;
    let leader = admin.leaders(&topic).await.unwrap()[first.partition.0 as usize];
    let broker = cluster.broker_mut(leader).unwrap();
    broker.kill().unwrap();
    let another = || async {
        let leader_now = admin.leaders(&topic).await?[first.partition.0 as usize];
        ensure!(
            leader_now >= 0 && leader_now != leader,
            "{leader_now} leads"
        );
        Ok(())
    };
    eventually("another leads", DEADLINE, another)
        .await
        .unwrap();
    let after = until_appended(&log, "before").await;
    load.until(200).await;
    let mut acknowledged = load.stop().await;
    acknowledged.extend([first, after]);
    read_all(&mut follower, &acknowledged).await;
    broker.restart().await.unwrap();
}

/// The known trap: leaders of the new topic begin at epoch 0 again, and librdkafka keeps to those of
/// the old one, on brokers that know nothing of it. (confluentinc/librdkafka#4898)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_on_another_broker_under_load_is_read_and_written_by_handles_made_anew() {
    let mut cluster = cluster().await;
    let (log, admin, topic) = fresh_log(&cluster);
    admin
        .create_topic_on(&topic, &[1, 1], &SETTINGS)
        .await
        .unwrap();
    // Its leader comes back: the epoch is above that of a new topic.
    let broker = cluster.broker_mut(1).unwrap();
    broker.stop().await.unwrap();
    broker.restart().await.unwrap();
    let leads = || async {
        let leaders = admin.leaders(&topic).await?;
        ensure!(leaders == [1, 1], "{leaders:?}");
        Ok(())
    };
    eventually("broker 1 leads again", DEADLINE, leads)
        .await
        .unwrap();

    let mut in_zero = mk_record("zero", "v");
    in_zero.partition = Some(PartitionId(0));
    let written = || async { Ok(log.append(in_zero.clone()).await?) };
    eventually("an append works", DEADLINE, written)
        .await
        .unwrap();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    let (records, positions) = follower.until_caught_up(2).await;
    assert_eq!(records.len(), 1);
    assert_eq!(positions[&PartitionId(1)], Offset(0));

    let load = Load::start(&log, Some(PartitionId(0)));
    load.until(20).await;
    admin.delete_topic(&topic).await.unwrap();
    admin
        .create_topic_on(&topic, &[2, 3], &SETTINGS)
        .await
        .unwrap();
    // Position 0 is in range in any log, so only what stands there tells.
    let other = KafkaLog::open(log.settings().clone()).unwrap();
    let mut in_one = mk_record("one", "v");
    in_one.partition = Some(PartitionId(1));
    // A broker hears of a topic after whoever made it was told that it is there.
    let told = || async { Ok(other.append(in_one.clone()).await?) };
    eventually("the new topic is known", DEADLINE, told)
        .await
        .unwrap();
    for _ in 1..200 {
        other.append(in_one.clone()).await.unwrap();
    }
    let began = Instant::now();
    until_appended_without_giving_up(&log, "after").await;
    println!("written again after {:?}", began.elapsed());
    let at_once = timeout(Duration::from_secs(3), log.append(in_one)).await;
    at_once.expect("the new handle works").unwrap();
    load.stop().await;
    let noticed = read_until(&mut follower, "the new log", |event| match event {
        ReadEvent::OutOfRange { partition, .. } => Some(partition),
        ReadEvent::Records(records) => {
            let in_one = records.iter().find(|record| record.partition.0 == 1);
            in_one.map(|record| record.partition)
        }
        _ => None,
    })
    .await;
    println!("{noticed} noticed after {:?}", began.elapsed());
}

/// Half of the partitions have no leader that answers: what the others hold is read as if nothing
/// were. Measured from before the append until the record is handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_hangs_holds_up_no_record_of_the_others() {
    const SLOW: Duration = Duration::from_millis(250);
    let mut cluster = cluster().await;
    let (log, admin, topic) = fresh_log(&cluster);
    admin
        .create_topic_on(&topic, &[1, 2, 1, 1], &SETTINGS)
        .await
        .unwrap();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    follower.until_caught_up(4).await;
    let mut record = mk_record("k", "v");
    record.partition = Some(PartitionId(1));
    log.append(record.clone()).await.unwrap();
    follower.records(1).await;

    cluster.broker_mut(1).unwrap().pause().unwrap();
    let end = Instant::now() + Duration::from_secs(12);
    let (mut slow, mut all) = (0, 0);
    while Instant::now() < end {
        let began = Instant::now();
        log.append(record.clone()).await.unwrap();
        follower.records(1).await;
        slow += usize::from(began.elapsed() > SLOW);
        all += 1;
        sleep(Duration::from_millis(10)).await;
    }
    cluster.broker_mut(1).unwrap().resume().unwrap();
    println!("{slow} of {all} took longer than {SLOW:?}");
    assert!(all > 100, "{all} in 12 s");
    assert!(
        slow * 20 <= all,
        "{slow} of {all} took longer than {SLOW:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_an_unclean_election_loses_are_out_of_range_for_who_read_them() {
    let mut cluster = cluster().await;
    let (log, admin, topic) = fresh_log(&cluster);
    admin.create_topic(&topic, 1, 2, &SETTINGS).await.unwrap();
    let mut follower = Follower::open(&*log, Topic::Announcements).await;
    until_appended(&log, "kept").await;
    follower.records(1).await;
    let (first, second) = {
        let (leader, copies) = (admin.leaders(&topic).await.unwrap()[0], [1, 2, 3]);
        let in_sync = || async {
            let in_sync = admin.in_sync(&topic).await?.concat();
            let other = in_sync.iter().find(|id| **id != leader).copied();
            other.filter(|id| copies.contains(id)).context("one copy")
        };
        let other = eventually("two copies", DEADLINE, in_sync).await.unwrap();
        (leader, other)
    };
    cluster.broker_mut(second).unwrap().kill().unwrap();
    let alone = || async {
        let in_sync = admin.in_sync(&topic).await?;
        ensure!(in_sync == [vec![first]], "{in_sync:?}");
        Ok(())
    };
    eventually("one copy is left", DEADLINE, alone)
        .await
        .unwrap();
    for n in 0..20 {
        until_appended(&log, &format!("lost-{n}")).await;
    }
    follower.records(20).await;
    cluster.broker_mut(first).unwrap().kill().unwrap();
    cluster.broker_mut(second).unwrap().restart().await.unwrap();
    let elected = || async { cluster.elect(&topic, 0, Election::Unclean).await };
    eventually("an unclean election", DEADLINE, elected)
        .await
        .unwrap();
    let position = read_until(&mut follower, "out of range", |event| match event {
        ReadEvent::OutOfRange { position, .. } => Some(position),
        ReadEvent::Records(records) => panic!("{records:?}"),
        _ => None,
    })
    .await;
    assert_eq!(position, Offset(21));
    cluster.broker_mut(first).unwrap().restart().await.unwrap();
}
