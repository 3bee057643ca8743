//! One key in several partitions: partitions are added, and producers that choose another one.

use std::collections::BTreeSet;

use waypost_core::{InstanceKey, PartitionId, RecordKind, Topic};
use waypost_fold::FoldEvent;
use waypost_sim::{Observer, Sim, TTL_S, count, kind_of, mk_key, mk_keys, own_partition};

/// Keys whose partition of four and of eight is not the same, or is.
fn keys_that_move(moves: bool, n: usize) -> Vec<InstanceKey> {
    let keys = mk_keys(20 * n).into_iter();
    let keys = keys.filter(|key| (own_partition(key, 4) != own_partition(key, 8)) == moves);
    keys.take(n).collect()
}

/// Lets time pass; everybody who lives is served by everybody, all the time.
fn run_served(sim: &mut Sim, seconds: u64, living: &BTreeSet<InstanceKey>) {
    for _ in 0..seconds {
        sim.run_s(1);
        for observer in sim.observers.iter().filter(|o| o.is_running()) {
            let served = observer.served_keys();
            let missing: Vec<_> = living.difference(&served).collect();
            assert!(missing.is_empty(), "at {:?}: {missing:?}", sim.now());
        }
    }
}

/// How many records of this kind were ever appended.
fn written(sim: &Sim, kind: RecordKind) -> usize {
    let records = sim.log.records(Topic::Announcements);
    records.iter().filter(|r| kind_of(r) == Some(kind)).count()
}

fn copies(observer: &Observer) -> usize {
    observer.fold().wrong_partitions().count()
}

#[test]
fn s13_partitions_are_added_under_beats_withdrawals_and_restarts() {
    let (moving, staying) = (keys_that_move(true, 16), keys_that_move(false, 8));
    let mut sim = Sim::new(4);
    for id in [1, 2, 3] {
        sim.observe(id);
    }
    sim.run_s(10);
    let mut living: BTreeSet<_> = moving.iter().chain(&staying).cloned().collect();
    let announcers: Vec<_> = (1..)
        .zip(moving.iter().chain(&staying))
        .map(|(id, key)| sim.announce(id, key))
        .collect();
    // One producer does not hear of the new partitions for long.
    sim.announcers[announcers[0]].partition = Some(own_partition(&moving[0], 4));
    sim.run_s(6 * 60);
    sim.log.add_partitions(Topic::Announcements, 8);
    run_served(&mut sim, 3, &living);
    // Some withdraw, before and after they were heard of in their new partition; some are restarted
    // in place, some die.
    for (number, key) in announcers.iter().zip(&moving).skip(1).take(2) {
        sim.announcers[*number].withdraw();
        living.remove(key);
    }
    for (number, key) in announcers.iter().zip(&moving).skip(3).take(3) {
        sim.announcers[*number].stop();
        sim.announce(1_000 + *number as u64, key);
    }
    run_served(&mut sim, 15, &living);
    for (number, key) in announcers.iter().zip(&moving).skip(6).take(2) {
        sim.announcers[*number].withdraw();
        living.remove(key);
    }
    for (number, key) in announcers.iter().zip(&moving).skip(8).take(2) {
        sim.announcers[*number].stop();
        living.remove(key);
    }
    run_served(&mut sim, 4 * 60, &living);
    assert_eq!(written(&sim, RecordKind::Expire), 0, "nobody expires yet");
    let withdrawn: Vec<_> = moving
        .iter()
        .skip(1)
        .take(2)
        .chain(moving.iter().skip(6).take(2))
        .collect();
    for observer in &sim.observers {
        assert!(withdrawn.iter().all(|key| !observer.serves(key)));
        assert!(observer.fold().holding().is_empty());
    }
    // An Observer that comes now sees the same.
    sim.observe(4);
    run_served(&mut sim, 2 * 60 + TTL_S, &living);
    let expected: Vec<_> = living.iter().collect();
    assert!(sim.all_serve(&expected), "the dead have left");
    for observer in &sim.observers {
        let wrong: Vec<_> = observer
            .fold()
            .wrong_partitions()
            .map(|(k, _)| k.clone())
            .collect();
        assert_eq!(wrong, [moving[0].clone()], "the losing copies are gone");
    }
    let expires = written(&sim, RecordKind::Expire);
    assert!((14..=2 * 16).contains(&expires), "{expires} expires");

    // It hears of them at last.
    sim.announcers[announcers[0]].partition = None;
    run_served(&mut sim, 3 * TTL_S, &living);
    assert!(sim.observers.iter().all(|o| copies(o) == 0));
    sim.finish();
}

#[test]
fn s13_a_withdrawal_is_remembered_while_the_copy_it_ended_stands() {
    let key = keys_that_move(true, 1).remove(0);
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(60);
    // Nothing that this Observer writes about copies arrives.
    sim.observers[0].loses_expires(true);
    sim.log.add_partitions(Topic::Announcements, 8);
    sim.run_s(1);
    sim.announcers[announcer].withdraw();
    sim.run_s(1);
    for minute in 0..60 {
        assert!(sim.all_serve(&[]), "after {minute} minutes");
        sim.run_s(60);
    }
    sim.observers[0].loses_expires(false);
    sim.run_s(TTL_S + 5);
    assert_eq!(copies(&sim.observers[0]), 0);
    sim.finish();
}

#[test]
fn s13_a_whole_cluster_that_dies_while_partitions_are_new_is_capped_afterwards() {
    let keys = mk_keys(100);
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    for (id, key) in (1..).zip(&keys) {
        sim.announce(id, key);
    }
    sim.run_s(60);
    sim.log.add_partitions(Topic::Announcements, 8);
    sim.run_s(30);
    for announcer in &mut sim.announcers {
        announcer.stop();
    }
    sim.run_s(4 * 60);
    assert_eq!(sim.observers[0].served().len(), 100);
    sim.run_s(10 * 60);
    for observer in &sim.observers {
        assert_eq!(observer.served().len(), 80);
        assert_eq!(copies(observer), 0);
        let census = observer.fold().find_census(&keys[0].cluster);
        assert_eq!((census.live, census.overdue), (80, 80));
    }
}

#[test]
fn s14_two_partitioners_for_one_key_make_one_state() {
    let key = mk_key("greeter", "a");
    let own = own_partition(&key, 4);
    let other = PartitionId((own.0 + 1) % 4);
    for later_is_wrong in [false, true] {
        let mut sim = Sim::new(4);
        sim.observe(1);
        sim.observe(2);
        sim.run_s(10);
        let first = sim.announce(1, &key);
        sim.announcers[first].partition = later_is_wrong.then_some(own).or(Some(other));
        sim.run_s(5);
        let second = sim.announce(2, &key);
        sim.announcers[second].announcement.weights.insert(0, 5.0);
        sim.announcers[second].partition = Some(if later_is_wrong { other } else { own });
        sim.run_s(2);
        let published = sim.observers[0].published;
        sim.run_s(30 * 60);
        for observer in &sim.observers {
            let value = sim.announcers[second].value();
            assert_eq!(
                observer.served_value(&key),
                Some(&value),
                "the later born serves"
            );
            let wrong: Vec<_> = observer.fold().wrong_partitions().collect();
            assert_eq!(wrong, [(&key, other)], "and the wrong one is shown");
            let shown = |e: &FoldEvent| matches!(e, FoldEvent::WrongPartition { expected, .. } if *expected == own);
            assert_eq!(count(observer, shown), 1);
            assert_eq!(observer.fold().find_census(&key.cluster).live, 1);
        }
        assert_eq!(sim.observers[0].published, published, "no flapping");
        let buried = written(&sim, RecordKind::Expire) + written(&sim, RecordKind::Withdraw);
        assert!(buried <= 60, "{buried} in half an hour");

        // The later one dies: the other takes over within a time-to-live, and is never missing.
        sim.announcers[second].stop();
        let value = sim.announcers[first].value();
        let living = BTreeSet::from([key.clone()]);
        run_served(&mut sim, TTL_S + 2, &living);
        for observer in &sim.observers {
            assert_eq!(observer.served_value(&key), Some(&value));
        }
        run_served(&mut sim, 5 * TTL_S, &living);
        sim.finish();
        // It withdraws: nothing is left of the key.
        sim.announcers[first].withdraw();
        sim.run_s(2);
        assert!(sim.all_serve(&[]));
    }
}

#[test]
fn s14_a_withdrawal_bars_an_older_life_in_another_partition_for_two_ttls() {
    let key = mk_key("greeter", "a");
    let own = own_partition(&key, 4);
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    let first = sim.announce(1, &key);
    sim.announcers[first].partition = Some(PartitionId((own.0 + 1) % 4));
    sim.run_s(5);
    let second = sim.announce(2, &key);
    sim.run_s(60);
    sim.announcers[second].withdraw();
    sim.run_s(2);
    assert!(sim.all_serve(&[]));
    sim.run_s(TTL_S);
    assert!(sim.all_serve(&[]));
    sim.run_until("the living one is served again", TTL_S + 13, |sim| {
        sim.all_serve(&[&key])
    });
    sim.run_s(60 * 60);
    assert!(sim.all_serve(&[&key]));
    sim.finish();
}
