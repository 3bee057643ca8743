//! Who ticks, how often, and what it writes beside.

use std::time::Duration;

use waypost_core::record::{Delivery, KeeperId, TICK_KEY};
use waypost_core::{NewRecord, PartitionId, Record, RecordKind, Topic};
use waypost_fold::{FoldEvent, Keeper, KeeperSettings, Role};

use waypost_sim::{Observer, Sim, TTL_S, count, kind_of, mk_key};

fn ticks(sim: &Sim, topic: Topic) -> Vec<Record> {
    let records = sim.log.records(topic).into_iter();
    let ticks = records.filter(|r| r.key.as_deref() == Some(TICK_KEY));
    ticks.collect()
}

/// The same record once more, by whoever its headers name.
fn append_again(sim: &mut Sim, tick: &Record) {
    let headers = *tick.headers.as_ref().unwrap();
    sim.append(NewRecord {
        topic: Topic::Announcements,
        partition: Some(tick.partition),
        key: tick.key.clone().unwrap(),
        value: tick.value.clone(),
        headers,
        delivery: Delivery::Tick,
    });
}

fn writers(ticks: &[Record]) -> Vec<KeeperId> {
    ticks
        .iter()
        .filter_map(|r| r.headers.as_ref().ok()?.keeper)
        .collect()
}

#[test]
fn the_keeper_ticks_every_partition_each_second_and_the_other_topics_each_minute() {
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.run_s(10);
    let before = ticks(&sim, Topic::Announcements).len();
    sim.run_s(100);
    let after = ticks(&sim, Topic::Announcements).len();
    assert!(
        (380..=400).contains(&(after - before)),
        "{}",
        after - before
    );
    for topic in [Topic::Config, Topic::Control] {
        assert_eq!(ticks(&sim, topic).len(), 2, "{topic:?}");
    }
    for view in sim.observers[0].fold().partitions() {
        assert!((100_000..112_000).contains(&view.log_time.0), "{view:?}");
        assert_eq!(view.last_tick.unwrap().keeper, KeeperId(1));
    }
}

#[test]
fn another_takes_over_after_three_missed_ticks_and_one_of_two_stops() {
    let mut sim = Sim::new(1);
    for id in [30, 20, 10] {
        sim.observe(id);
    }
    sim.run_s(30);
    let keepers = |sim: &Sim| {
        let roles = sim.observers.iter().filter(|o| o.is_running());
        roles.filter(|o| o.keeper().role() == Role::Ticking).count()
    };
    assert_eq!(keepers(&sim), 1);
    let first = sim.observers.iter().position(Observer::is_keeper).unwrap();
    sim.observers[first].stop();
    let took_s = sim.run_until("another ticks", 6, |sim| {
        let mut others = sim
            .observers
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != first);
        others.any(|(_, o)| o.is_keeper())
    });
    // The last tick was up to a second before the stop.
    assert!(took_s >= 2, "{took_s} s");
    sim.observers[first].go_on();
    sim.run_s(10);
    assert_eq!(keepers(&sim), 1);
    let all = ticks(&sim, Topic::Announcements);
    let mut last: Vec<_> = writers(&all).into_iter().rev().take(5).collect();
    last.dedup();
    assert_eq!(last.len(), 1, "one ticks: {last:?}");
}

#[test]
fn of_two_that_tick_the_larger_id_stops() {
    let mut sim = Sim::new(1);
    sim.observe(99);
    sim.run_s(10);
    assert!(sim.observers[0].is_keeper());
    // One that never heard the first: it begins to tick as well.
    sim.observe(1);
    sim.observers[1].stop();
    let mut tick = ticks(&sim, Topic::Announcements).pop().unwrap();
    tick.headers.as_mut().unwrap().keeper = Some(KeeperId(1));
    append_again(&mut sim, &tick);
    sim.run_s(1);
    assert_eq!(sim.observers[0].keeper().role(), Role::Standby);
    tick.headers.as_mut().unwrap().keeper = Some(KeeperId(200));
    sim.run_s(6);
    assert_eq!(
        sim.observers[0].keeper().role(),
        Role::Ticking,
        "nobody else does"
    );
    append_again(&mut sim, &tick);
    sim.run_s(1);
    assert_eq!(
        sim.observers[0].keeper().role(),
        Role::Ticking,
        "a larger id is no reason"
    );
}

#[test]
fn a_read_only_observer_writes_nothing() {
    let mut sim = Sim::new(1);
    sim.observe_read_only(1);
    sim.announce(1, &mk_key("greeter", "a"));
    sim.run_s(100);
    assert_eq!(ticks(&sim, Topic::Announcements), []);
    assert_eq!(sim.expires(), []);
    let observer = &sim.observers[0];
    let place = (Topic::Announcements, PartitionId(0));
    assert_eq!(observer.keeper().nudge(place, &observer.logs()), None);
    assert_eq!(observer.keeper().role(), Role::Follower);
}

#[test]
fn one_tick_is_in_flight_per_partition() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let observer = &mut sim.observers[0];
    let mut keeper = observer.keeper().clone();
    let logs = observer.logs();
    let mut now = Duration::from_secs(10);
    let mut due = |keeper: &mut Keeper, seconds: u64| {
        let mut sent = Vec::new();
        for _ in 0..seconds * 10 {
            now += Duration::from_millis(100);
            for topic in Topic::ALL {
                let end = logs.clock(topic).find(PartitionId(0)).unwrap().position();
                keeper.on_end(topic, PartitionId(0), end, &logs, now);
            }
            sent.extend(keeper.due(now, &logs));
        }
        sent.retain(|record| record.topic == Topic::Announcements);
        sent
    };
    let first = due(&mut keeper, 4);
    assert_eq!(first.len(), 1, "not another before it is settled");
    keeper.on_settled(&first[0]);
    assert_eq!(due(&mut keeper, 1).len(), 1);
    assert_eq!(
        due(&mut keeper, 5).len(),
        1,
        "one that is never settled is given up"
    );
}

#[test]
fn who_does_not_know_the_end_does_not_tick() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    let observer = &sim.observers[0];
    let mut keeper = Keeper::new(KeeperId(1), KeeperSettings::default());
    for second in 0..60 {
        let due = keeper.due(Duration::from_secs(second), &observer.logs());
        assert_eq!(due, []);
    }
    assert_eq!(keeper.role(), Role::Follower);
}

#[test]
fn who_wakes_up_believes_no_end_from_before_its_sleep() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(20);
    let sleeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
    sim.observers[sleeper].stop();
    sim.run_s(6);
    assert!(sim.observers[1 - sleeper].is_keeper());
    let now = sim.now();
    let observer = &mut sim.observers[sleeper];
    let mut keeper = observer.keeper().clone();
    assert_eq!(keeper.due(now, &observer.logs()), []);
    observer.read(now);
    assert_ne!(observer.keeper().clone().due(now, &observer.logs()), []);
}

#[test]
fn an_expire_waits_until_the_end_was_reported_after_the_tick() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &mk_key("greeter", "a"));
    sim.run_s(60);
    sim.announcers[announcer].stop();
    let is_overdue = |o: &Observer| o.fold().partitions().any(|p| p.overdue > 0);
    let mut keeper = sim.observers[0].keeper().clone();
    while !is_overdue(&sim.observers[0]) {
        keeper = sim.observers[0].keeper().clone();
        sim.step();
    }
    // This one has read the tick, and knows of no end since.
    let logs = sim.observers[0].logs();
    let now = sim.now();
    let expires = |keeper: &mut Keeper| {
        let due = keeper.due(now, &logs).into_iter();
        due.filter(|r| r.headers.kind == RecordKind::Expire).count()
    };
    assert_eq!(expires(&mut keeper), 0);
    let partition = PartitionId(0);
    let end = logs
        .announcements
        .find_partition(partition)
        .unwrap()
        .position;
    keeper.on_end(Topic::Announcements, partition, end, &logs, now);
    assert_eq!(expires(&mut keeper), 1);
}

#[test]
fn an_end_that_was_reported_long_ago_says_nothing() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let observer = &sim.observers[0];
    let mut keeper = observer.keeper().clone();
    let mut last = Duration::ZERO;
    for tenth in 1..300 {
        let since = Duration::from_millis(100 * tenth);
        for record in keeper.due(sim.now() + since, &observer.logs()) {
            keeper.on_settled(&record);
            last = since;
        }
    }
    // Of a topic that stands still the end was reported up to two seconds before.
    assert!((7..=9).contains(&last.as_secs()), "{last:?}");
}

#[test]
fn a_log_without_an_identity_gets_one_before_its_first_tick() {
    let mut sim = Sim::with_unnamed_log(2);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(20);
    for topic in Topic::ALL {
        let kinds: Vec<_> = sim.log.records(topic).iter().filter_map(kind_of).collect();
        assert_eq!(kinds.first(), Some(&RecordKind::Identity), "{topic:?}");
        let written = kinds.iter().filter(|k| **k == RecordKind::Identity);
        assert_eq!(written.count(), 1, "{topic:?}");
    }
    let identities: Vec<_> = sim
        .observers
        .iter()
        .map(|o| o.fold().clock().identity())
        .collect();
    assert!(identities[0].is_some());
    assert_eq!(identities[0], identities[1]);
    assert_ne!(identities[0], sim.observers[0].config().clock().identity());
}

#[test]
fn a_tick_of_another_log_is_void() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let mut tick = ticks(&sim, Topic::Announcements).pop().unwrap();
    let headers = tick.headers.as_mut().unwrap();
    headers.log = Some(waypost_core::record::LogIdentity(666));
    headers.keeper = Some(KeeperId(0));
    append_again(&mut sim, &tick);
    sim.run_s(1);
    let is_void = |e: &FoldEvent| matches!(e, FoldEvent::Void { reason, .. } if reason.as_str() == "other_log");
    assert_eq!(count(&sim.observers[0], is_void), 1);
    assert_eq!(sim.observers[0].keeper().role(), Role::Ticking);
}

#[test]
fn what_the_keeper_does_not_hold_is_expired_by_who_holds_it_much_later() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(20);
    sim.observe(2);
    sim.run_s(20);
    // A keeper that never writes the expire stands for one that does not hold the key.
    sim.announcers[announcer].stop();
    let keeper = sim.observers.iter().position(Observer::is_keeper).unwrap();
    sim.observers[keeper].loses_expires(true);
    let took_s = sim.run_until("it leaves", 5 * TTL_S, |sim| {
        !sim.observers[1 - keeper].serves(&key)
    });
    assert!(took_s >= 2 * TTL_S, "{took_s} s");
    assert!(took_s <= 4 * TTL_S + 2, "{took_s} s");
}

#[test]
fn an_expire_is_written_once_per_ttl_for_the_same_evidence() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(40);
    sim.announcers[announcer].stop();
    sim.observers[0].loses_expires(true);
    sim.run_s(TTL_S + 2 * TTL_S - 8);
    let tried = sim.observers[0].lost_expires();
    assert!((1..=2).contains(&tried), "{tried}");
    sim.observers[0].loses_expires(false);
    sim.run_until("it leaves", TTL_S + 3, |sim| sim.all_serve(&[]));
}
