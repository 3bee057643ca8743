//! Logs that are not the one that was read before.

use std::time::Duration;

use waypost_core::record::{Evidence, KeeperId, LogIdentity, TickRef};
use waypost_core::{InstanceKey, LogTime, Offset, PartitionId, Timestamp, Topic};
use waypost_fold::{FoldEvent, Sameness, records};
use waypost_log::memory::{CompactionRules, Pause};
use waypost_sim::{
    Answer, HEARTBEAT, Observer, Sim, TTL_S, count, expire, mk_announcement, mk_key, mk_keys,
    mk_record, order, withdrawal,
};

const HEARTBEAT_S: u64 = HEARTBEAT.as_secs();

fn is_replayed(event: &FoldEvent) -> bool {
    matches!(event, FoldEvent::Replayed { .. })
}

fn is_gone(event: &FoldEvent) -> bool {
    matches!(event, FoldEvent::Gone { .. })
}

/// A fabric of two Observers, each with a client, and `instances` that are announced, all at rest.
fn mk_fabric(partitions: u32, instances: usize) -> (Sim, Vec<InstanceKey>) {
    let mut sim = Sim::new(partitions);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    let keys = mk_keys(instances);
    for (i, key) in keys.iter().enumerate() {
        sim.announce(i as u64, key);
    }
    sim.run_s(40);
    sim.connect(0);
    sim.connect(1);
    sim.run_s(1);
    (sim, keys)
}

/// No client was told that anything left, nor sent anything twice.
fn assert_nothing_was_sent(sim: &Sim, instances: usize) {
    for client in &sim.clients {
        assert_eq!(client.removals, []);
        assert_eq!(
            client.received, instances,
            "equal content is not sent again"
        );
    }
}

/// This log has confirmed everything.
fn assert_whole(sim: &Sim, keys: &[InstanceKey]) {
    let all: Vec<_> = keys.iter().collect();
    assert!(sim.all_serve(&all));
    for observer in &sim.observers {
        assert_eq!(observer.fold().unconfirmed_count(), 0);
        assert_eq!(observer.replica().replaying().count(), 0);
    }
}

/// The announcements topic is deleted and made anew; somebody gives it an identity at once, or
/// nobody does.
fn make_anew(sim: &mut Sim, partitions: u32, identity: Option<u64>) {
    sim.log.recreate(Topic::Announcements, partitions);
    if let Some(identity) = identity {
        let identity = LogIdentity(identity);
        sim.append(records::identity(Topic::Announcements, identity, None));
    }
}

#[test]
fn s10_a_topic_made_anew_takes_nothing_away_and_is_whole_after_one_interval() {
    for identity in [None, Some(8)] {
        for partitions in [2, 4] {
            let (mut sim, keys) = mk_fabric(2, 20);
            make_anew(&mut sim, partitions, identity);
            // Noticed within the interval of metadata, and confirmed by the next beat of each.
            sim.run_s(3 + HEARTBEAT_S);
            assert_whole(&sim, &keys);
            assert_nothing_was_sent(&sim, keys.len());
            for observer in &sim.observers {
                assert_eq!(count(observer, is_gone), 0);
            }
            sim.run_s(2 * TTL_S);
            assert_eq!(sim.expires(), []);
            sim.finish();
            assert_nothing_was_sent(&sim, keys.len());
        }
    }
}

#[test]
fn s10_who_died_with_the_old_topic_leaves_after_a_fresh_ttl() {
    let (mut sim, keys) = mk_fabric(2, 3);
    make_anew(&mut sim, 2, None);
    sim.announcers[0].stop();
    sim.run_s(TTL_S - 2);
    assert!(sim.all_serve(&[&keys[0], &keys[1], &keys[2]]));
    sim.run_until("it leaves", 2 * TTL_S, |sim| {
        sim.all_serve(&[&keys[1], &keys[2]])
    });
    sim.finish();
}

#[test]
fn s11_a_topic_made_anew_that_is_longer_than_the_old_position_is_noticed() {
    for old_keeper_writes in [true, false] {
        let (mut sim, keys) = mk_fabric(1, 5);
        let position = sim.end(PartitionId(0));
        // Everybody sleeps while the topic is made anew and grows past where they stand.
        let keeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
        let asleep = 1 - keeper;
        sim.observers[asleep].stop();
        if !old_keeper_writes {
            sim.observers[keeper].stop();
        }
        make_anew(&mut sim, 1, Some(8));
        let other = sim.observe(3);
        while sim.end(PartitionId(0)) <= position {
            sim.run_s(1);
        }
        sim.observers[asleep].go_on();
        sim.observers[keeper].go_on();
        sim.run_s(10 + HEARTBEAT_S);
        assert_whole(&sim, &keys);
        assert_nothing_was_sent(&sim, keys.len());
        for number in [asleep, keeper, other] {
            let identity = sim.observers[number].fold().clock().identity();
            assert_eq!(identity, Some(LogIdentity(8)), "Observer {number}");
        }
        assert_eq!(count(&sim.observers[asleep], is_replayed), 1);
        sim.finish();
    }
}

#[test]
fn s12_an_unclean_election_loses_records_and_nobody_leaves() {
    for regrown in [false, true] {
        let (mut sim, keys) = mk_fabric(1, 10);
        let partition = PartitionId(0);
        if regrown {
            // Nobody hears of it before the log is longer again than everybody's position.
            let position = sim.end(partition);
            sim.observers[0].stop();
            sim.observers[1].stop();
            sim.log
                .truncate(Topic::Announcements, partition, Offset(position.0 - 100));
            let other = sim.observe(3);
            while sim.end(partition).0 <= position.0 + 20 {
                sim.run_s(1);
            }
            sim.observers[other].stop();
            sim.observers[0].go_on();
            sim.observers[1].go_on();
        } else {
            let end = Offset(sim.end(partition).0 - 100);
            sim.log.truncate(Topic::Announcements, partition, end);
        }
        sim.run_s(10 + HEARTBEAT_S);
        assert_whole(&sim, &keys);
        assert_nothing_was_sent(&sim, keys.len());
        for observer in &sim.observers[..2] {
            assert_eq!(count(observer, is_gone), 0);
            assert!(count(observer, is_replayed) >= 1, "regrown: {regrown}");
        }
        sim.run_s(2 * TTL_S);
        sim.finish();
    }
}

#[test]
fn s15_a_position_older_than_half_of_what_tombstones_last_is_read_anew() {
    // A log whose tombstones last an hour. Both ways of leaving; the tombstone of each is gone.
    for withdraws in [true, false] {
        let mut sim = Sim::new(2);
        sim.settings.tombstones_kept = Duration::from_secs(3600);
        sim.observe(1);
        sim.observe(2);
        sim.run_s(10);
        let keys = mk_keys(4);
        for (i, key) in keys.iter().enumerate() {
            sim.announce(i as u64, key);
        }
        sim.run_s(20);
        sim.connect(0);
        sim.connect(1);
        sim.run_s(1);
        sim.observers[1].stop();
        if withdraws {
            sim.announcers[0].withdraw();
        } else {
            sim.announcers[0].stop();
        }
        sim.step = Duration::from_secs(1);
        sim.run_s(10 * 60);
        let rules = CompactionRules {
            lag: Duration::from_secs(3 * TTL_S),
            delete_retention: Duration::from_secs(3600),
        };
        sim.log.compact(Topic::Announcements, rules);
        sim.run_s(3601);
        sim.log.compact(Topic::Announcements, rules);
        let tombstones = sim.log.records(Topic::Announcements).into_iter();
        assert_eq!(tombstones.filter(|r| r.value.is_none()).count(), 0);
        sim.observers[1].go_on();
        sim.run_s(10);
        assert!(!sim.observers[1].serves(&keys[0]), "withdraws: {withdraws}");
        assert_eq!(sim.clients[1].removals, keys[..1]);
        let same = |event: &FoldEvent| {
            matches!(
                event,
                FoldEvent::Replayed {
                    sameness: Sameness::Same,
                    ..
                }
            )
        };
        assert!(count(&sim.observers[1], same) >= 1);
        sim.finish();
    }
}

#[test]
fn s15_a_younger_position_is_continued_without_a_replay() {
    let (mut sim, keys) = mk_fabric(2, 4);
    sim.observers[1].stop();
    sim.announcers[0].withdraw();
    sim.run_s(30 * 60);
    sim.compact(Duration::from_secs(3 * TTL_S));
    sim.observers[1].go_on();
    sim.run_s(1);
    assert_eq!(sim.clients[1].removals, keys[..1]);
    assert_eq!(count(&sim.observers[1], is_replayed), 0);
    sim.finish();
}

#[test]
fn s16_who_reconnects_to_an_observer_that_is_half_loaded_is_told_nothing() {
    let (mut sim, keys) = mk_fabric(4, 40);
    sim.restart(1, 3);
    sim.observers[1].block([PartitionId(2), PartitionId(3)]);
    sim.clients[1].reconnect(1);
    for _ in 0..60 {
        sim.run_s(1);
        assert_eq!(sim.clients[1].answer, Answer::Unavailable);
    }
    sim.observers[1].unblock();
    sim.run_s(1);
    assert_eq!(sim.clients[1].answer, Answer::Served);
    assert_nothing_was_sent(&sim, keys.len());
    sim.finish();
}

#[test]
fn s22_a_new_observer_on_a_topic_made_anew_waits_until_everybody_has_announced() {
    for others in [true, false] {
        let (mut sim, keys) = mk_fabric(2, 20);
        sim.settings.newborn_grace = Duration::from_secs(110);
        make_anew(&mut sim, 2, None);
        if !others {
            sim.observers[0].stop();
        }
        sim.restart(1, 3);
        sim.clients[1].reconnect(1);
        sim.run_s(100);
        assert_eq!(sim.clients[1].answer, Answer::Unavailable);
        let took_s = sim.run_until("it is loaded", 40, |sim| {
            sim.clients[1].answer == Answer::Served
        });
        assert!(took_s >= 5, "log time is ticks: {took_s} s more");
        assert_nothing_was_sent(&sim, keys.len());
        sim.finish();
    }
}

#[test]
fn s23_an_unconfirmed_instance_is_replaced_kept_or_leaves() {
    let (mut sim, keys) = mk_fabric(1, 3);
    let standing = sim.observers[0].fold().find(&keys[0]).unwrap();
    let birth = standing.life.birth.unwrap().0;
    for announcer in &mut sim.announcers {
        announcer.stop();
    }
    make_anew(&mut sim, 1, Some(8));
    sim.run_s(5);
    assert_eq!(sim.observers[0].fold().unconfirmed_count(), 3);

    // Its successor was born earlier by the new log's clock.
    let mut content = sim.announcers[0].announcement.clone();
    content.hostname = "host-2".to_owned();
    let headers = order(77, Some(birth - 3_600_000), 0);
    sim.append(mk_record(&keys[0], Some(&content), headers));
    // A withdrawal of an older life is none of its.
    let headers = order(78, Some(birth - 3_600_000), 1);
    sim.append(withdrawal(&keys[1], headers));
    // Evidence speaks of this log, which has not seen it.
    let last = Offset(sim.end(PartitionId(0)).0 - 1);
    sim.append(expire(&keys[2], order(2, None, 0), Evidence::At(last)));
    sim.run_s(1);
    let value = waypost_proto::announcement::encode(&content);
    for observer in &sim.observers {
        assert_eq!(observer.served_value(&keys[0]), Some(&value), "replaced");
        assert!(observer.serves(&keys[1]), "kept");
        assert!(observer.serves(&keys[2]), "kept");
    }
    sim.run_until("the dead leave", 3 * TTL_S, |sim| {
        let mut observers = sim.observers.iter();
        observers.all(|o| !o.serves(&keys[1]) && !o.serves(&keys[2]))
    });
    sim.finish();
}

#[test]
fn s30_a_keeper_that_resumes_exactly_at_the_end_of_a_topic_made_anew_starts_no_storm() {
    let (mut sim, keys) = mk_fabric(1, 5);
    let keeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
    let other = 1 - keeper;
    let position = sim.observers[keeper].fold().clock().find(PartitionId(0));
    let position = position.unwrap().position();
    sim.observers[keeper].stop();
    make_anew(&mut sim, 1, None);
    while sim.end(PartitionId(0)) < position {
        sim.step();
    }
    // It goes on exactly there: nothing is out of range, and nothing is new to it.
    assert_eq!(sim.end(PartitionId(0)), position);
    sim.observers[keeper].go_on();
    sim.run_s(30 + HEARTBEAT_S);
    assert_whole(&sim, &keys);
    assert_nothing_was_sent(&sim, keys.len());
    let identities = sim.observers.iter().map(|o| o.fold().clock().identity());
    let identities: Vec<_> = identities.collect();
    assert_eq!(identities[0], identities[1]);
    for number in [keeper, other] {
        let replays = count(&sim.observers[number], is_replayed);
        assert!((1..=2).contains(&replays), "Observer {number}: {replays}");
    }
    sim.finish();
}

#[test]
fn s31_a_log_that_was_cut_and_has_regrown_past_a_sleeper_is_noticed() {
    for dense_s in [5, 60] {
        let (mut sim, keys) = mk_fabric(1, 5);
        let partition = PartitionId(0);
        let keeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
        let sleeper = 1 - keeper;
        let position = sim.end(partition);
        sim.observers[sleeper].stop();
        sim.log
            .truncate(Topic::Announcements, partition, Offset(position.0 - 30));
        while sim.end(partition) <= position {
            sim.run_s(1);
        }
        // Dense with ticks, of which none is where the sleeper remembers one.
        sim.run_s(dense_s);
        sim.observers[keeper].stop();
        sim.observers[sleeper].go_on();
        sim.run_until("the sleeper is keeper", 20, |sim| {
            sim.observers[sleeper].is_keeper()
        });
        assert!(count(&sim.observers[sleeper], is_replayed) >= 1);
        sim.observers[keeper].go_on();
        sim.run_s(10 + HEARTBEAT_S);
        assert_whole(&sim, &keys);
        assert_nothing_was_sent(&sim, keys.len());
        sim.finish();
    }
}

#[test]
fn s32_every_process_at_once_and_all_is_served_as_before() {
    let (mut sim, keys) = mk_fabric(2, 20);
    sim.settings.newborn_grace = Duration::from_secs(40);
    sim.log.pause(Pause::Refuse("no broker is up".to_owned()));
    sim.run_s(30);
    sim.restart(0, 11);
    sim.restart(1, 12);
    for client in &mut sim.clients {
        client.reconnect(client.observer);
    }
    for (i, key) in keys.iter().enumerate() {
        sim.announcers[i].stop();
        sim.announce(100 + i as u64, key);
    }
    sim.run_s(5);
    sim.log.resume();
    sim.run_s(1);
    assert!(sim.clients.iter().all(|c| c.answer == Answer::Served));
    sim.run_s(HEARTBEAT_S + 5);
    assert_whole(&sim, &keys);
    assert_nothing_was_sent(&sim, keys.len());
    sim.run_s(2 * TTL_S);
    assert_eq!(sim.expires(), []);
    sim.finish();
}

#[test]
fn s34_a_tick_of_the_old_logs_keeper_makes_nobody_believe_a_forged_expire() {
    let (mut sim, keys) = mk_fabric(1, 1);
    make_anew(&mut sim, 1, None);
    // Its writer has not noticed yet, and names a tick far above the new log's end.
    let prev = TickRef {
        offset: Offset(1_000),
        append_time: Timestamp(1_800_000_040_000),
    };
    let old = Some(LogIdentity(7));
    let keeper = KeeperId(99);
    let tick = records::tick(
        Topic::Announcements,
        PartitionId(0),
        keeper,
        old,
        Some(prev),
        // As much as the first offset of a log has room for: more is no tick.
        LogTime(2_000),
    );
    sim.append(tick);
    sim.run_s(5 + HEARTBEAT_S);
    assert_whole(&sim, &keys);
    let key = mk_key("greeter", "silent");
    let life = order(1, Some(1_000), 0);
    let content = mk_announcement(&key);
    sim.append(mk_record(&key, Some(&content), life));
    for _ in 0..4 {
        sim.run_s(5);
        let evidence = Evidence::At(Offset(sim.end(PartitionId(0)).0 - 1));
        sim.append(expire(&key, life, evidence));
        sim.step();
        assert!(sim.observers.iter().all(|o| o.serves(&key)));
        assert!(sim.replayer().serves(&key));
    }
    sim.finish();
}

#[test]
fn a_log_nobody_can_read_is_served_as_it_was() {
    let (mut sim, keys) = mk_fabric(2, 5);
    sim.log.pause(Pause::Hang);
    sim.run_s(600);
    let late = sim.connect(0);
    sim.run_s(1);
    assert_eq!(sim.clients[late].known_count(), keys.len());
    sim.log.resume();
    sim.run_s(5);
    assert_eq!(sim.clients[0].removals, []);
    sim.finish();
    let key = mk_key("greeter", "late");
    sim.announce(100, &key);
    sim.run_s(1);
    assert!(sim.clients[0].knows(&key));
}
