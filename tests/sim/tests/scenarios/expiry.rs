//! Time, silence and expires.

use std::time::Duration;

use waypost_core::record::Evidence;
use waypost_core::{InstanceKey, Offset};
use waypost_fold::{FoldEvent, GoneCause, Outcome, VoidReason};
use waypost_log::memory::Pause;

use waypost_sim::{
    Observer, Sim, TTL_S, count, expire, mk_announcement, mk_key, mk_keys, mk_record, order,
    own_partition,
};

fn is_expired(event: &FoldEvent) -> bool {
    matches!(event, FoldEvent::Gone { cause, .. } if *cause == GoneCause::Expired)
}

fn announce_all(sim: &mut Sim, keys: &[InstanceKey]) {
    for (i, key) in keys.iter().enumerate() {
        sim.announce(i as u64, key);
    }
}

/// Log time of every partition, as every Observer knows it.
fn log_times(sim: &Sim) -> Vec<i64> {
    let folds = sim.observers.iter().map(Observer::fold);
    let views = folds.flat_map(|fold| fold.partitions().collect::<Vec<_>>());
    views.map(|view| view.log_time.0).collect()
}

/// Log time has moved on by so much at most: a log that stands still, or a clock that jumps, adds two
/// seconds.
fn assert_passed_at_most(sim: &Sim, before: &[i64], seconds: u64) {
    for (before, now) in before.iter().zip(log_times(sim)) {
        let passed_ms = u64::try_from(now - before).unwrap();
        assert!(passed_ms <= seconds * 1000, "{passed_ms} ms");
    }
}

#[test]
fn s01_an_observer_that_was_stopped_expires_nobody_on_its_own_account() {
    for others in [0, 2] {
        let keys = mk_keys(20);
        let all: Vec<_> = keys.iter().collect();
        let mut sim = Sim::new(2);
        sim.observe(1);
        for other in 0..others {
            sim.observe(10 + other);
        }
        sim.run_s(10);
        for (i, key) in keys.iter().enumerate() {
            sim.announce(i as u64, key);
        }
        sim.run_s(40);
        assert!(sim.observers[0].is_keeper());
        sim.observers[0].stop();
        sim.run_s(3 * TTL_S);
        sim.observers[0].go_on();
        sim.run_s(3 * TTL_S);
        assert_eq!(sim.expires(), [], "with {others} others");
        assert!(sim.all_serve(&all));

        // It still does its duty: who dies while it is stopped leaves after it is back.
        sim.observers[0].stop();
        sim.announcers[0].stop();
        sim.run_s(3 * TTL_S);
        sim.observers[0].go_on();
        sim.run_until("the dead one leaves", 2 * TTL_S, |sim| {
            sim.all_serve(&all[1..])
        });
        sim.assert_agreed();
        sim.finish();
    }
}

#[test]
fn s03_a_log_that_took_nothing_for_an_hour_expires_nobody() {
    let keys = mk_keys(20);
    let all: Vec<_> = keys.iter().collect();
    let mut sim = Sim::new(2);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    for (i, key) in keys.iter().enumerate() {
        sim.announce(i as u64, key);
        sim.run_s(1);
    }
    sim.run_s(40);
    sim.log
        .pause_appends(Pause::Refuse("too few replicas".to_owned()));
    let before = log_times(&sim);
    sim.run_s(3600);
    sim.log.resume();
    sim.run_s(2 * TTL_S);
    assert_passed_at_most(&sim, &before, 2 * TTL_S + 2);
    assert_eq!(sim.expires(), []);
    assert!(sim.all_serve(&all));
    let view = sim.observers[0].fold().find(&keys[0]).unwrap();
    assert!(
        view.heartbeat_age < Duration::from_secs(11),
        "heartbeats follow"
    );
    sim.finish();
}

#[test]
fn s02_a_leader_whose_clock_is_an_hour_ahead_expires_nobody_and_the_dead_leave() {
    let keys = mk_keys(6);
    let mut sim = Sim::new(2);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    announce_all(&mut sim, &keys);
    sim.run_s(40);
    let client = sim.connect(1);
    sim.run_s(1);
    for ahead_ms in [3_600_000, 0] {
        let before = log_times(&sim);
        sim.move_leaders(ahead_ms);
        sim.run_s(2 * TTL_S);
        assert_passed_at_most(&sim, &before, 2 * TTL_S + 2);
        assert_eq!(sim.expires(), [], "{ahead_ms} ms ahead");
        // Born by the clock of the leader there is, and replaced under the next.
        let first = sim.announcers.len() - 1;
        sim.announcers[first].stop();
        let restarted = sim.announce(100 + first as u64, &keys[5]);
        sim.announcers[restarted].announcement.hostname = format!("host-{ahead_ms}");
        let took_s = sim.run_until("it is accepted", 2 * TTL_S, |sim| {
            let value = sim.announcers[restarted].value();
            let mut observers = sim.observers.iter();
            observers.all(|o| o.served_value(&keys[5]) == Some(&value))
        });
        assert!(ahead_ms == 0 || took_s < 1, "born later: at once");
    }
    assert_eq!(sim.clients[client].removals, []);
    sim.move_leaders(3_600_000);
    sim.announcers[0].stop();
    sim.run_s(3);
    sim.move_leaders(0);
    sim.announcers[1].stop();
    let rest: Vec<_> = keys[2..].iter().collect();
    sim.run_until("the dead leave", 2 * TTL_S, |sim| sim.all_serve(&rest));
    sim.finish();
}

#[test]
fn s04_an_expire_whose_evidence_is_older_than_a_heartbeat_is_void() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let life = order(1, Some(1_000), 0);
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let first = sim.append(mk_record(&key, Some(&content), life));
    sim.run_s(TTL_S - 1);
    let second = sim.append(mk_record(&key, Some(&content), life));
    let void = sim.append(expire(&key, life, Evidence::At(first)));
    sim.run_s(1);
    assert!(sim.all_serve(&[&key]));
    let outcome = sim.observers[0].find_outcome(own_partition(&key, 1), void);
    let expected = Outcome::Void(VoidReason::AnnouncedSince(second));
    assert_eq!(outcome, Some(&expected));
    sim.compact(Duration::ZERO);
    sim.append(mk_record(&key, Some(&content), life));
    sim.run_s(1);
    let replayer = sim.replayer();
    assert!(replayer.serves(&key));
    assert_eq!(replayer.digests(), sim.observers[0].digests());
    sim.finish();
}

#[test]
fn s18_five_observers_see_a_death_while_the_keeper_is_killed() {
    for killed_after_s in (18..=36).step_by(3) {
        let keys = mk_keys(3);
        let mut sim = Sim::new(3);
        for id in 1..=5 {
            sim.observe(id * 1000);
        }
        sim.run_s(10);
        for (i, key) in keys.iter().enumerate() {
            sim.announce(i as u64, key);
        }
        sim.run_s(60);
        sim.announcers[0].stop();
        sim.run_s(killed_after_s);
        let keeper = sim.observers.iter().position(Observer::is_keeper);
        sim.observers[keeper.unwrap()].stop();
        sim.run_until("it leaves everywhere", 2 * TTL_S, |sim| {
            sim.all_serve(&[&keys[1], &keys[2]])
        });
        sim.run_s(60);
        sim.assert_agreed();
        let expires = sim.expires().len();
        assert!((1..=5).contains(&expires), "{expires} expires");
        sim.finish();
    }
}

#[test]
fn s19_forged_expires_of_a_living_instance_are_void_and_counted() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.announce(1, &key);
    sim.run_s(65);
    let last = sim.observers[0].fold().find(&key).unwrap().offset;
    let life = order(1, Some(1_000), 0);
    let forged = [
        (Evidence::At(Offset(last.0 - 1)), "announced_since"),
        (Evidence::At(Offset(i64::MAX)), "impossible_evidence"),
        (Evidence::At(last), "too_young"),
        (Evidence::None, "confirmed"),
    ];
    for (evidence, reason) in forged {
        sim.append(expire(&key, life, evidence));
        sim.run_s(1);
        let is_void = |e: &FoldEvent| matches!(e, FoldEvent::Void { reason: r, key: Some(k), .. } if r.as_str() == reason && *k == key);
        assert_eq!(count(&sim.observers[0], is_void), 1, "{reason}");
    }
    assert!(sim.all_serve(&[&key]));
    assert_eq!(sim.observers[0].fold().counters().void, 4);
    // Of what nobody knows there is nothing to do.
    sim.append(expire(
        &mk_key("greeter", "nobody"),
        life,
        Evidence::At(last),
    ));
    sim.run_s(1);
    assert_eq!(sim.observers[0].fold().counters().void, 4);
    sim.finish();
}

#[test]
fn s21_an_announcer_that_was_stopped_past_its_ttl_is_back_with_its_next_beat() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(60);
    sim.announcers[announcer].stop();
    let took_s = sim.run_until("it leaves", 2 * TTL_S, |sim| sim.all_serve(&[]));
    assert!(took_s >= TTL_S - 10, "not before its ttl: {took_s} s");
    assert_eq!(count(&sim.observers[1], is_expired), 1);
    sim.announcers[announcer].go_on();
    sim.run_until("it is back", 2, |sim| sim.all_serve(&[&key]));
    let view = sim.observers[0].fold().find(&key).unwrap();
    assert_eq!(view.life.id, Some(sim.announcers[announcer].id()));
    sim.assert_agreed();
    sim.finish();
}

#[test]
fn s25_too_few_replicas_for_a_minute_and_log_time_stands() {
    let keys = mk_keys(10);
    let all: Vec<_> = keys.iter().collect();
    let mut sim = Sim::new(2);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    announce_all(&mut sim, &keys);
    sim.run_s(50);
    let client = sim.connect(0);
    sim.run_s(1);
    let before = log_times(&sim);
    sim.log
        .pause_appends(Pause::Refuse("NOT_ENOUGH_REPLICAS".to_owned()));
    sim.run_s(60);
    assert_eq!(log_times(&sim), before);
    sim.log.resume();
    sim.run_s(2 * TTL_S);
    assert_passed_at_most(&sim, &before, 2 * TTL_S + 2);
    assert_eq!(sim.expires(), []);
    assert!(sim.all_serve(&all));
    assert_eq!(sim.clients[client].removals, []);
    sim.finish();
}

#[test]
fn s28_a_death_before_the_broker_clock_goes_back_is_one_everywhere() {
    for died_before_s in [0, 5, 20] {
        let keys = mk_keys(2);
        let mut sim = Sim::new(1);
        sim.observe(1);
        sim.run_s(10);
        for (i, key) in keys.iter().enumerate() {
            sim.announce(i as u64, key);
        }
        sim.run_s(60);
        sim.announcers[0].stop();
        sim.run_s(died_before_s);
        sim.jump_broker_clock(-40_000);
        sim.run_until("it leaves", 2 * TTL_S, |sim| sim.all_serve(&[&keys[1]]));
        // The expire was appended before the announcement, as it seems, and the cleaner takes away the
        // ticks between the two, a few more each time.
        for after_s in (0..100).step_by(4) {
            sim.compact(Duration::ZERO);
            let replayer = sim.replayer();
            assert!(!replayer.serves(&keys[0]), "compacted after {after_s} s");
            assert_eq!(replayer.digests(), sim.observers[0].digests());
            sim.run_s(4);
        }
        sim.observe(2);
        sim.run_s(5);
        assert!(sim.all_serve(&[&keys[1]]));
        sim.finish();
    }
}

#[test]
fn a_broker_clock_that_jumps_expires_nobody_and_the_dead_all_the_same() {
    for jump_ms in [3_600_000, -3_600_000] {
        let keys = mk_keys(2);
        let mut sim = Sim::new(1);
        sim.observe(1);
        sim.run_s(10);
        for (i, key) in keys.iter().enumerate() {
            sim.announce(i as u64, key);
        }
        // Between two heartbeats: what was announced before the jump must not age by it.
        sim.run_s(65);
        sim.jump_broker_clock(jump_ms);
        sim.run_s(2 * TTL_S);
        assert_eq!(sim.expires(), [], "after {jump_ms} ms");
        sim.announcers[0].stop();
        sim.run_until("the dead leaves", 2 * TTL_S, |sim| {
            sim.all_serve(&[&keys[1]])
        });
    }
}

#[test]
fn a_new_observer_alone_grants_everybody_a_fresh_ttl() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(60);
    sim.announcers[announcer].stop();
    sim.run_s(TTL_S - 12);
    sim.observers.clear();
    sim.observe(2);
    sim.run_s(TTL_S - 2);
    assert!(sim.all_serve(&[&key]), "followed for less than a ttl");
    sim.run_until("it leaves", TTL_S, |sim| sim.all_serve(&[]));
}

#[test]
fn after_compaction_an_expire_is_taken_at_its_word_by_who_missed_the_ticks() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(60);
    let mut sleeper = sim.replayer();
    sim.announcers[announcer].stop();
    sim.run_until("it leaves", 2 * TTL_S, |sim| sim.all_serve(&[]));
    sim.run_s(60);
    // A broker that is an hour behind appended the expire: only log time speaks for it.
    sim.compact(Duration::ZERO);
    sleeper.read(Duration::ZERO);
    assert_eq!(sleeper.served_keys(), sim.observers[0].served_keys());
    assert_eq!(sleeper.digests(), sim.observers[0].digests());
}
