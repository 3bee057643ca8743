//! Too many fall silent at once: the cap, what is held, and what lets it go.

use std::collections::BTreeSet;
use std::time::Duration;

use waypost_core::config::{ConfigValue, Release, Signed};
use waypost_core::record::{Delivery, Evidence};
use waypost_core::{
    ConfigKey, Headers, InstanceKey, NewRecord, Offset, RecordKind, ReleaseScope, Timestamp, Topic,
};
use waypost_fold::{Expiry, Outcome};
use waypost_sim::{Observer, Sim, TTL_S, expire, kind_of, mk_key, mk_keys, order, own_partition};

/// Longer than a time-to-live and a window together.
const LONG_S: u64 = 2 * TTL_S + 60;

fn release(sim: &mut Sim, scope: ReleaseScope) {
    let key = ConfigKey::Release(scope.clone());
    let value = ConfigValue::Release(Release {
        scope,
        signed: Signed {
            author: "ann@a".into(),
            reason: "INC-7".into(),
            at: Timestamp(5),
        },
    });
    sim.append(NewRecord {
        topic: Topic::Config,
        partition: None,
        key: key.to_record_key(),
        value: Some(waypost_proto::config::encode(&value)),
        headers: Headers::default(),
        delivery: Delivery::Change,
    });
}

/// Observers that follow a log in which these are announced.
fn world(observers: &[u64], partitions: u32, keys: &[InstanceKey]) -> Sim {
    let mut sim = Sim::new(partitions);
    for id in observers {
        sim.observe(*id);
    }
    sim.run_s(10);
    for (id, key) in (1..).zip(keys) {
        sim.announce(id, key);
    }
    sim.run_s(LONG_S);
    sim
}

fn stop_all(sim: &mut Sim) {
    for announcer in &mut sim.announcers {
        announcer.stop();
    }
}

/// How many instances every running Observer serves.
fn served(sim: &Sim) -> usize {
    let running = sim.observers.iter().filter(|o| o.is_running());
    let counts: BTreeSet<_> = running.map(|o| o.served().len()).collect();
    assert_eq!(counts.len(), 1, "they agree: {counts:?}");
    counts.into_iter().next().unwrap_or(0)
}

fn held(observer: &Observer) -> usize {
    let views = observer.fold().iter();
    views.filter(|view| view.expiry == Expiry::Held).count()
}

fn is_holding(observer: &Observer, key: &InstanceKey) -> bool {
    observer.fold().find_holding(&key.cluster).is_some()
}

fn expires(sim: &Sim) -> usize {
    sim.expires().len()
}

#[test]
fn s17_of_a_cluster_that_falls_silent_a_fifth_leaves_and_the_rest_is_held() {
    let keys = mk_keys(100);
    let all: Vec<_> = keys.iter().collect();
    let mut sim = world(&[3, 1, 2], 4, &keys);
    stop_all(&mut sim);
    sim.run_s(LONG_S);
    assert_eq!(served(&sim), 80);
    for _ in 0..5 {
        sim.run_s(5 * 60);
        assert_eq!(served(&sim), 80, "the cap does not slide");
    }
    for observer in &sim.observers {
        assert_eq!(held(observer), 80);
        let view = observer.fold().holding();
        assert_eq!(view.fleet, None);
        let [(cluster, holding)] = &view.clusters[..] else {
            panic!("{view:?}");
        };
        assert_eq!(*cluster, keys[0].cluster);
        assert_eq!((holding.live, holding.overdue, holding.cap), (80, 80, 20));
        assert!(holding.lasts > Duration::from_secs(1500), "{holding:?}");
    }
    // Every announcer was only stopped.
    for announcer in &mut sim.announcers {
        announcer.go_on();
    }
    sim.run_until("all are back", 11, |sim| sim.all_serve(&all));
    for observer in &sim.observers {
        assert!(observer.fold().holding().is_empty());
        assert_eq!(held(observer), 0);
    }
    sim.finish();
}

#[test]
fn s17_what_is_released_leaves_and_does_not_count() {
    let keys = mk_keys(100);
    let mut sim = world(&[1, 2], 4, &keys);
    stop_all(&mut sim);
    sim.run_s(LONG_S);
    assert_eq!(served(&sim), 80);
    let scope = ReleaseScope::Cluster(keys[0].cluster.clone());
    release(&mut sim, scope);
    sim.run_until("everything left", 3, |sim| sim.all_serve(&[]));
    // The one that let them go knew of the release before, the other read it after the expires.
    for observer in &sim.observers {
        let census = observer.fold().find_census(&keys[0].cluster);
        assert_eq!(census.expired_lately, 0, "{census:?}");
    }
    // Who announces after the release is capped as ever.
    for announcer in &mut sim.announcers {
        announcer.go_on();
    }
    sim.run_s(LONG_S);
    assert_eq!(served(&sim), 100);
    stop_all(&mut sim);
    sim.run_s(LONG_S);
    assert_eq!(served(&sim), 80);
    release(&mut sim, ReleaseScope::All);
    sim.run_until("everything left", 3, |sim| sim.all_serve(&[]));
    sim.finish();
}

#[test]
fn s17_of_a_fleet_of_small_clusters_a_twentieth_leaves() {
    let keys: Vec<_> = (0..1_000)
        .map(|i| mk_key(&format!("c{}", i / 5), &format!("h{i}")))
        .collect();
    let mut sim = world(&[1, 2], 4, &keys);
    stop_all(&mut sim);
    sim.step = Duration::from_millis(250);
    sim.run_s(LONG_S + 10 * 60);
    assert_eq!(served(&sim), 950);
    for observer in &sim.observers {
        let holding = observer.fold().holding().fleet.unwrap();
        assert_eq!((holding.live, holding.overdue, holding.cap), (950, 950, 50));
        assert_eq!(held(observer), 950);
    }
    // A cluster that is released goes, the others stay.
    let one = sim.observers[0].fold().iter().next().unwrap().key.cluster;
    let of_one = sim.observers[0].fold().find_census(&one).live as usize;
    release(&mut sim, ReleaseScope::Cluster(one));
    sim.run_s(5);
    assert_eq!(served(&sim), 950 - of_one);
    release(&mut sim, ReleaseScope::All);
    sim.run_until("everything left", 5, |sim| sim.all_serve(&[]));
}

#[test]
fn s17_whoever_takes_over_goes_on_with_what_is_left_of_the_cap() {
    // The keeper dies at each moment of a mass death.
    for after_s in (16..=44).step_by(4) {
        let keys = mk_keys(100);
        let mut sim = world(&[1, 2, 3], 3, &keys);
        stop_all(&mut sim);
        sim.run_s(after_s);
        let keeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
        sim.observers[keeper].stop();
        sim.run_s(LONG_S);
        sim.observers[keeper].go_on();
        sim.run_s(LONG_S);
        assert_eq!(served(&sim), 80, "killed after {after_s} s");
        assert!(sim.observers.iter().all(|o| is_holding(o, &keys[0])));
    }
}

#[test]
fn s17_an_observer_that_slept_through_it_holds_as_well() {
    let keys = mk_keys(100);
    let mut sim = world(&[1, 2], 2, &keys);
    let sleeper = sim.observers.iter().position(|o| !o.is_keeper()).unwrap();
    sim.observers[sleeper].stop();
    stop_all(&mut sim);
    sim.run_s(10 * 60);
    sim.observers[sleeper].go_on();
    sim.observers[1 - sleeper].stop();
    sim.run_s(10 * 60);
    assert_eq!(served(&sim), 80);
    assert!(is_holding(&sim.observers[sleeper], &keys[0]));
}

#[test]
fn s17_a_restart_of_every_observer_begins_no_new_fifth() {
    for lag_s in [None, Some(0), Some(90)] {
        let keys = mk_keys(100);
        let mut sim = world(&[1, 2], 4, &keys);
        stop_all(&mut sim);
        sim.run_s(LONG_S);
        for id in [11, 21, 31] {
            if let Some(lag_s) = lag_s {
                sim.compact(Duration::from_secs(lag_s));
            }
            sim.restart(0, id);
            sim.restart(1, id + 1);
            sim.run_s(LONG_S);
            assert_eq!(served(&sim), 80, "restarted as {id}, lag {lag_s:?}");
            assert!(sim.observers.iter().all(|o| is_holding(o, &keys[0])));
        }
        release(&mut sim, ReleaseScope::All);
        sim.run_until("everything left", 3, |sim| sim.all_serve(&[]));
    }
}

#[test]
fn a_cluster_that_the_cap_has_made_small_holds_all_the_same() {
    let keys = mk_keys(11);
    let mut sim = world(&[1, 2], 1, &keys);
    stop_all(&mut sim);
    sim.run_s(20 * 60);
    assert_eq!(served(&sim), 9);
    assert!(is_holding(&sim.observers[0], &keys[0]));
}

#[test]
fn a_small_cluster_is_not_capped() {
    let keys = mk_keys(10);
    let mut sim = world(&[1], 1, &keys);
    stop_all(&mut sim);
    sim.run_until("all leave", TTL_S + 12, |sim| sim.all_serve(&[]));
}

#[test]
fn what_dies_one_by_one_leaves_one_by_one() {
    let keys = mk_keys(30);
    let mut sim = world(&[1, 2], 2, &keys);
    for number in 0..30 {
        sim.announcers[number].stop();
        sim.run_s(35);
        assert!(sim.observers[0].fold().holding().is_empty());
    }
    sim.run_s(LONG_S + 60);
    assert_eq!(served(&sim), 0);
}

#[test]
fn fewer_than_the_cap_that_are_left_over_leave_with_the_next_window() {
    let keys = mk_keys(100);
    let mut sim = world(&[1], 2, &keys);
    for announcer in &mut sim.announcers[..35] {
        announcer.stop();
    }
    sim.run_s(TTL_S + 12);
    assert_eq!(served(&sim), 80);
    sim.run_s(70);
    assert_eq!(served(&sim), 65);
    assert!(sim.observers[0].fold().holding().is_empty());
}

#[test]
fn holding_ends_when_enough_are_back() {
    let keys = mk_keys(100);
    let mut sim = world(&[1, 2], 2, &keys);
    stop_all(&mut sim);
    sim.run_s(LONG_S);
    let alive: Vec<_> = (0..100)
        .filter(|i| sim.observers[0].serves(&keys[*i]))
        .collect();
    for number in &alive[..70] {
        sim.announcers[*number].go_on();
    }
    sim.run_s(LONG_S);
    assert_eq!(served(&sim), 70, "ten were left, and they left");
    assert!(sim.observers.iter().all(|o| o.fold().holding().is_empty()));
}

#[test]
fn withdrawals_are_never_held() {
    let keys = mk_keys(100);
    let mut sim = world(&[1], 2, &keys);
    stop_all(&mut sim);
    sim.run_s(LONG_S);
    for announcer in &mut sim.announcers {
        announcer.go_on();
        announcer.withdraw();
    }
    sim.run_s(1);
    assert_eq!(served(&sim), 0);
    assert!(sim.observers[0].fold().holding().is_empty());
    sim.finish();
}

#[test]
fn the_safety_net_is_under_the_cap_too() {
    let keys = mk_keys(100);
    let mut sim = world(&[1, 2, 3], 2, &keys);
    let keeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
    sim.observers[keeper].loses_expires(true);
    stop_all(&mut sim);
    sim.run_s(10 * TTL_S);
    // Two write, each of them at most a fifth, and mostly the same.
    assert!(served(&sim) >= 60, "{}", served(&sim));
    assert!(served(&sim) <= 80, "{}", served(&sim));
    let before = served(&sim);
    sim.run_s(10 * TTL_S);
    assert_eq!(served(&sim), before);
    assert!(sim.observers.iter().all(|o| is_holding(o, &keys[0])));
}

#[test]
fn what_a_topic_made_anew_does_not_confirm_is_under_the_cap_too() {
    let keys = mk_keys(100);
    let mut sim = world(&[1, 2], 2, &keys);
    stop_all(&mut sim);
    sim.log.recreate(Topic::Announcements, 2);
    sim.run_s(5);
    assert_eq!(sim.observers[0].fold().unconfirmed_count(), 100);
    sim.run_s(10 * 60);
    assert_eq!(served(&sim), 80);
    assert!(sim.observers.iter().all(|o| is_holding(o, &keys[0])));
    release(&mut sim, ReleaseScope::All);
    sim.run_s(5);
    assert_eq!(served(&sim), 0);
}

#[test]
fn expires_that_are_on_their_way_count() {
    let keys = mk_keys(100);
    let mut sim = world(&[1], 2, &keys);
    // They are given to the log and never read back.
    sim.observers[0].loses_expires(true);
    stop_all(&mut sim);
    sim.run_s(TTL_S + 15);
    assert_eq!(sim.observers[0].lost_expires(), 20);
}

#[test]
fn a_held_instance_outlives_what_compaction_would_keep_instead_of_it() {
    let keys = mk_keys(100);
    let mut sim = world(&[1, 2], 2, &keys);
    stop_all(&mut sim);
    sim.run_s(LONG_S);
    let held = sim.observers[0].fold().iter().next().unwrap();
    let headers = order(held.life.id.unwrap().0, held.life.birth.map(|b| b.0), 0);
    let before = expires(&sim);
    let forged = expire(&held.key, headers, Evidence::At(Offset(0)));
    let place = (own_partition(&held.key, 2), sim.append(forged));
    sim.run_s(5);
    let outcome = sim.observers[0].find_outcome(place.0, place.1);
    assert!(matches!(outcome, Some(Outcome::Void(_))), "{outcome:?}");
    // It is written again, once, and is no younger for that.
    let written = |sim: &Sim| {
        let records = sim.log.records(Topic::Announcements).into_iter();
        let key = held.key.to_record_key();
        let restated = records.filter(|r| {
            let evidence = r.headers.as_ref().is_ok_and(|h| h.evidence.is_some());
            r.key.as_ref() == Some(&key) && evidence && kind_of(r) == Some(RecordKind::Announce)
        });
        restated.count()
    };
    assert_eq!(written(&sim), 1);
    let now = sim.observers[1].fold().find(&held.key).unwrap();
    assert_eq!(now.expiry, Expiry::Held);
    assert!(now.log_age >= held.log_age, "{now:?}");
    sim.run_s(10 * 60);
    assert_eq!(written(&sim), 1, "only once");
    assert_eq!(expires(&sim), before + 1, "nothing else expired");

    sim.compact(Duration::ZERO);
    let replayer = sim.replayer();
    assert!(replayer.serves(&held.key));
    assert_eq!(replayer.digests(), sim.observers[0].digests());
    sim.restart(0, 11);
    sim.restart(1, 12);
    sim.run_s(LONG_S);
    assert_eq!(served(&sim), 80);
    release(&mut sim, ReleaseScope::All);
    sim.run_s(TTL_S + 5);
    assert_eq!(served(&sim), 0);
}
