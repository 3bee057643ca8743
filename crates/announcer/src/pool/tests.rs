//! Many instances on a paused clock, over a log that can go away.

use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use tokio::time::{advance, sleep};
use waypost_core::record::{Appended, Delivery};
use waypost_core::{ClusterName, InstanceUri, Offset, PartitionId, RecordKind, Timestamp};

use super::*;
use crate::limits::{IN_FLIGHT_MAX, RETRY_MAX};
use crate::sink::{InstanceRecord, Receipt, SinkError, Verdict};
use crate::status::{Progress, Wanted};

/// A log that can go away, and remembers what it took and when.
#[derive(Default)]
struct FakeSink {
    away: AtomicBool,
    hangs: AtomicBool,
    attempts: Mutex<Vec<Instant>>,
    under_way: AtomicUsize,
    under_way_most: AtomicUsize,
    taken: Mutex<Vec<(Instant, InstanceRecord)>>,
    /// What Observers make of what is taken; once each, then "served".
    verdicts: Mutex<Vec<Verdict>>,
}

#[async_trait]
impl Sink for FakeSink {
    async fn append(&self, record: InstanceRecord) -> Result<Receipt, SinkError> {
        self.attempts.lock().push(Instant::now());
        let under_way = self.under_way.fetch_add(1, Ordering::AcqRel) + 1;
        self.under_way_most.fetch_max(under_way, Ordering::AcqRel);
        sleep(Duration::from_millis(5)).await;
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        if self.hangs.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        if self.away.load(Ordering::Acquire) {
            return Err(SinkError::Unavailable("the log is away".to_owned()));
        }
        let mut taken = self.taken.lock();
        let verdict: Option<futures::future::BoxFuture<'_, _>> = record.wants_verdict.then(|| {
            let verdict = self.verdicts.lock().pop().unwrap_or(Verdict::Served);
            Box::pin(async { verdict }) as _
        });
        taken.push((Instant::now(), record));
        Ok(Receipt {
            appended: Appended {
                partition: PartitionId(0),
                offset: Offset(i64::try_from(taken.len()).unwrap()),
                append_time: Some(Timestamp(1_700_000_000_000)),
            },
            verdict,
        })
    }
}

impl FakeSink {
    fn taken_of(&self, key: &InstanceKey) -> Vec<InstanceRecord> {
        let taken = self.taken.lock();
        let records = taken.iter().map(|(_, r)| r).filter(|r| r.key == *key);
        records.cloned().collect()
    }
}

fn mk_announcement(n: usize) -> Announcement {
    Announcement::new(
        ClusterName::parse("greeter").unwrap(),
        InstanceUri::parse(&format!("grpc://10.0.0.1:{n}")).unwrap(),
        Timestamp(0),
    )
}

fn mk_key(n: usize) -> InstanceKey {
    let announcement = mk_announcement(n);
    InstanceKey {
        cluster: announcement.cluster,
        uri: announcement.uri,
    }
}

fn mk_pool(count: usize) -> (Arc<FakeSink>, AnnouncerPool, Vec<Announcer>) {
    let sink = Arc::new(FakeSink::default());
    let pool = AnnouncerPool::spawn(Arc::clone(&sink) as _, PoolOptions::default());
    let announcers = (1..=count)
        .map(|n| pool.announce(mk_announcement(n)).unwrap())
        .collect();
    (sink, pool, announcers)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_instances_beat_once_an_interval_each_at_its_own_moment() {
    let (sink, pool, _announcers) = mk_pool(1000);
    pool.settled().await.unwrap();
    sleep(Duration::from_secs(30)).await;
    sink.taken.lock().clear();
    let start = Instant::now();
    sleep(Duration::from_secs(100)).await;
    let taken = sink.taken.lock();
    let mut by_second = [0; 100];
    for (at, record) in taken.iter() {
        assert_eq!(record.delivery, Delivery::Heartbeat);
        let second = usize::try_from((*at - start).as_secs()).unwrap();
        by_second[second.min(99)] += 1;
    }
    assert!((9_900..10_100).contains(&taken.len()), "{}", taken.len());
    assert!(
        by_second.iter().all(|n| (50..200).contains(n)),
        "{by_second:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn while_the_log_is_away_only_the_latest_of_each_instance_is_kept_and_the_return_is_no_herd()
{
    let (sink, pool, announcers) = mk_pool(2000);
    sink.away.store(true, Ordering::Release);
    for round in 0..50 {
        for announcer in &announcers {
            let weight = PartitionWeights::from([(0, f64::from(round))]);
            announcer.change_weight(weight).unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert!(announcers[0].status().trouble.is_some());
    assert!(sink.under_way_most.load(Ordering::Acquire) <= IN_FLIGHT_MAX);
    sink.taken.lock().clear();
    sink.away.store(false, Ordering::Release);
    let start = Instant::now();
    pool.settled().await.unwrap();
    assert!(start.elapsed() <= RETRY_MAX + Duration::from_secs(1));
    let taken = sink.taken.lock();
    let in_half_a_second = |from: u64| {
        let window = from * 500..(from + 1) * 500;
        taken
            .iter()
            .filter(|(at, _)| window.contains(&u64::try_from((*at - start).as_millis()).unwrap()))
            .count()
    };
    let most = (0..22).map(in_half_a_second).max().unwrap();
    assert!(
        most < 1000,
        "{most} of 2000 instances returned within half a second"
    );
    for (_, record) in taken.iter().filter(|(_, r)| r.delivery == Delivery::Change) {
        let value = record.value.as_ref().unwrap();
        let value = waypost_proto::announcement::decode(value).unwrap();
        assert_eq!(value.weights[&0].to_bits(), 49.0_f64.to_bits());
    }
}

/// An hour of absence with a change a minute: what is tried is bounded by the pauses, what is held is
/// one state for each instance, and the return takes as long as a pause, not a moment.
#[tokio::test(start_paused = true)]
async fn an_hour_without_the_log_costs_a_try_in_every_pause_and_nothing_that_was_ever_overtaken() {
    const INSTANCES: usize = 300;
    const HOUR: Duration = Duration::from_secs(3600);
    let (sink, pool, announcers) = mk_pool(INSTANCES);
    pool.settled().await.unwrap();
    sleep(Duration::from_secs(20)).await;
    sink.away.store(true, Ordering::Release);
    sink.attempts.lock().clear();
    sink.taken.lock().clear();
    for minute in 0..60 {
        let weight = PartitionWeights::from([(0, f64::from(minute))]);
        announcers[0].change_weight(weight).unwrap();
        sleep(HOUR / 60).await;
    }
    let attempts = sink.attempts.lock().len();
    // A pause is half of the longest at least; each change may start with short ones.
    let most = INSTANCES * usize::try_from(HOUR.as_secs() / (RETRY_MAX.as_secs() / 2)).unwrap();
    assert!(attempts < most + 60 * 10, "{attempts} tries in an hour");
    assert!(attempts > most / 4, "{attempts} tries: is it tried at all?");

    sink.away.store(false, Ordering::Release);
    let back = Instant::now();
    sleep(RETRY_MAX + Duration::from_secs(1)).await;
    let taken = sink.taken.lock();
    let mut firsts = HashMap::new();
    for (at, record) in taken.iter() {
        firsts
            .entry(record.key.clone())
            .or_insert((*at - back, record));
    }
    assert_eq!(firsts.len(), INSTANCES, "somebody is not back");
    let in_first_second = firsts
        .values()
        .filter(|(after, _)| *after < Duration::from_secs(1));
    let in_first_second = in_first_second.count();
    assert!(in_first_second < INSTANCES / 3, "a herd: {in_first_second}");
    let changed: Vec<_> = taken.iter().filter(|(_, r)| r.key == mk_key(1)).collect();
    let weights = changed.iter().map(|(_, record)| {
        let value = record.value.as_ref().unwrap();
        waypost_proto::announcement::decode(value).unwrap().weights[&0]
    });
    assert!(
        weights
            .clone()
            .all(|weight| weight.to_bits() == 59.0_f64.to_bits()),
        "what was overtaken is never written: {:?}",
        weights.collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_later_rival_withdrew_is_announced_as_a_new_life_at_once() {
    let (sink, pool, announcers) = mk_pool(1);
    pool.settled().await.unwrap();
    announcers[0].judged().await.unwrap();
    let before = sink.taken_of(&mk_key(1));
    let rival = Verdict::Refused("older".to_owned());
    let gone = Verdict::Withdrawn("the later one was withdrawn".to_owned());
    *sink.verdicts.lock() = vec![gone, rival.clone()];
    let mut statuses = announcers[0].statuses();
    let refused = |status: &Status| matches!(status.progress, Progress::Refused { .. });
    statuses.wait_for(refused).await.unwrap();
    let heard = Instant::now();
    let of_new_life = |records: &[InstanceRecord]| {
        let id = before.last().unwrap().headers.id;
        records.iter().filter(|r| r.headers.id != id).count()
    };
    assert_eq!(
        of_new_life(&sink.taken_of(&mk_key(1))),
        0,
        "the rival lives"
    );
    while of_new_life(&sink.taken_of(&mk_key(1))) == 0 {
        sleep(Duration::from_millis(100)).await;
    }
    assert!(
        heard.elapsed() <= Duration::from_secs(12),
        "with the next beat"
    );
    statuses
        .wait_for(|status| matches!(status.progress, Progress::Served(_)))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_the_last_record_and_settles() {
    let (sink, pool, announcers) = mk_pool(100);
    pool.settled().await.unwrap();
    pool.mark_down_all();
    pool.settled().await.unwrap();
    sleep(Duration::from_secs(100)).await;
    for n in 1..=100 {
        let records = sink.taken_of(&mk_key(n));
        let kinds: Vec<_> = records.iter().map(|r| r.headers.kind).collect();
        let withdrawals = kinds.iter().filter(|k| **k == RecordKind::Withdraw).count();
        assert_eq!(
            (withdrawals, kinds.last()),
            (1, Some(&RecordKind::Withdraw)),
            "{n}"
        );
    }
    let status = announcers[0].status();
    assert_eq!(status.wanted, Wanted::Down);
    assert!(matches!(
        status.progress,
        Progress::Served(_) | Progress::Acknowledged(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_past_its_ttl_beats_at_once() {
    let (sink, pool, announcers) = mk_pool(1);
    pool.settled().await.unwrap();
    announcers[0].judged().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let before = sink.taken_of(&mk_key(1));
    advance(Duration::from_secs(3600)).await;
    sleep(Duration::from_millis(50)).await;
    let after = sink.taken_of(&mk_key(1));
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(
        after.last().unwrap().headers,
        before.last().unwrap().headers
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_given_up_and_made_again() {
    let (sink, pool, announcers) = mk_pool(1);
    sink.hangs.store(true, Ordering::Release);
    sleep(Duration::from_millis(50)).await;
    sink.hangs.store(false, Ordering::Release);
    pool.settled().await.unwrap();
    assert!(matches!(
        announcers[0].judged().await.unwrap().progress,
        Progress::Served(_)
    ));
    assert!(sink.attempts.lock().len() >= 2);
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_owner_is_gone_falls_silent_and_its_name_is_free_again() {
    let (sink, pool, mut announcers) = mk_pool(2);
    pool.settled().await.unwrap();
    assert!(matches!(
        pool.announce(mk_announcement(1)),
        Err(AnnounceError::Duplicate(_))
    ));
    announcers.remove(0);
    sleep(Duration::from_secs(1)).await;
    let silent = sink.taken_of(&mk_key(1));
    sleep(Duration::from_secs(100)).await;
    assert_eq!(
        sink.taken_of(&mk_key(1)),
        silent,
        "wrote after its owner was gone"
    );
    assert!(
        silent.iter().all(|r| r.value.is_some()),
        "withdrew by itself"
    );
    assert!(sink.taken_of(&mk_key(2)).len() > 5);
    pool.announce(mk_announcement(1)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_withdrawn_can_be_announced_again_at_once() {
    let (_sink, pool, mut announcers) = mk_pool(1);
    let announcer = announcers.remove(0);
    announcer.mark_down();
    announcer.settled().await.unwrap();
    drop(announcer);
    let again = pool.announce(mk_announcement(1)).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(again.settled().await.unwrap().is_settled());
    assert_eq!(
        pool.len(),
        1,
        "the task cleared the new one away with the old"
    );
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_last_handle_once_withdrawals_are_written() {
    let sink = Arc::new(FakeSink::default());
    let (pool, driver) = AnnouncerPool::new(Arc::clone(&sink) as _, PoolOptions::default());
    let task = tokio::spawn(driver.run());
    let announcer = pool.announce(mk_announcement(1)).unwrap();
    announcer.settled().await.unwrap();
    sink.away.store(true, Ordering::Release);
    announcer.mark_down();
    drop((announcer, pool));
    sleep(Duration::from_secs(20)).await;
    assert!(!task.is_finished(), "a withdrawal was forgotten");
    sink.away.store(false, Ordering::Release);
    task.await.unwrap();
    assert_eq!(sink.taken_of(&mk_key(1)).last().unwrap().value, None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_task_that_is_gone_is_told() {
    let (pool, driver) = AnnouncerPool::new(Arc::new(FakeSink::default()), PoolOptions::default());
    let announcer = pool.announce(mk_announcement(1)).unwrap();
    drop(driver);
    assert_eq!(announcer.settled().await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_no_observer_would_accept_leaves_everything_as_it_was() {
    let (_sink, pool, announcers) = mk_pool(1);
    pool.settled().await.unwrap();
    let before = announcers[0].announcement();
    let weight = |w| PartitionWeights::from([(0, w)]);
    assert!(announcers[0].change_weight(weight(f64::NAN)).is_err());
    assert!(announcers[0].set_metadata("[1]").is_err());
    assert!(
        announcers[0]
            .change(|a| a.ttl = Duration::from_secs(1))
            .is_err()
    );
    assert_eq!(announcers[0].announcement(), before);
    assert_eq!(announcers[0].status().change, 1);
}
