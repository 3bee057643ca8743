//! Who wins within a key, live and after compaction.

use std::time::Duration;

use waypost_core::record::Evidence;
use waypost_core::{Headers, LifeId, Offset, Timestamp};
use waypost_fold::limits::GONE_KEYS_MAX;
use waypost_fold::records::burial;
use waypost_fold::{FoldEvent, GoneCause, Life, Outcome, RefusalReason, VoidReason};

use waypost_log::memory::Acknowledgements;
use waypost_sim::{
    Sim, TTL_S, count, expire, kind_of, mk_announcement, mk_key, mk_record, order, own_partition,
    purge, withdrawal,
};

const LAG: Duration = Duration::from_secs(15 * 60);

fn is_live(event: &FoldEvent) -> bool {
    matches!(event, FoldEvent::Live { .. })
}

fn is_gone(event: &FoldEvent) -> bool {
    matches!(event, FoldEvent::Gone { .. })
}

/// What became of the record at `offset`, according to the first Observer.
fn outcome_at(sim: &Sim, key: &waypost_core::InstanceKey, offset: Offset) -> Outcome {
    let place = (own_partition(key, 1), offset);
    let outcome = sim.observers[0].find_outcome(place.0, place.1);
    outcome.unwrap().clone()
}

#[test]
fn s05_a_late_announcement_of_an_older_life_is_refused_and_buried() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.append(mk_record(&key, Some(&content), order(2, Some(2_000), 0)));
    sim.run_s(2);
    sim.append(withdrawal(&key, order(2, Some(2_000), 1)));
    sim.run_s(2);
    let late = sim.append(mk_record(&key, Some(&content), order(1, Some(1_000), 9)));
    sim.run_s(2);
    assert!(sim.all_serve(&[]));
    let Outcome::Refused(refusal) = outcome_at(&sim, &key, late) else {
        panic!("{:?}", outcome_at(&sim, &key, late));
    };
    assert_eq!(refusal.reason, RefusalReason::Withdrawn);
    assert!(refusal.to_string().contains("host-1"), "{refusal}");

    sim.finish();
    sim.run_s(60 * 60);
    sim.compact(LAG);
    let replayer = sim.replayer();
    assert_eq!(replayer.served_keys().len(), 0, "a replayer agrees");
    let burials = sim.log.records(waypost_core::Topic::Announcements);
    let burials = burials
        .iter()
        .filter(|r| kind_of(r) == Some(waypost_core::RecordKind::Withdraw));
    assert_eq!(burials.count(), 1, "the burial is the key's last record");
}

#[test]
fn s05_a_refused_announcement_that_repeats_is_buried_at_most_once_per_ttl() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.append(withdrawal(&key, order(2, Some(1_800_000_040_000), 1)));
    sim.announce(1, &key);
    sim.run_s(58);
    let records = sim.log.records(waypost_core::Topic::Announcements);
    let evidence = records
        .iter()
        .filter_map(|r| r.headers.as_ref().ok()?.evidence);
    assert!((1..=2).contains(&evidence.count()));
    // The bar falls after two times-to-live, whatever was buried meanwhile.
    sim.run_until("the living one is accepted", 20, |sim| {
        sim.all_serve(&[&key])
    });
    sim.finish();
}

#[test]
fn a_burial_ends_nothing_that_was_announced_after_its_evidence() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let older = mk_record(&key, Some(&content), order(1, Some(1_000), 0));
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.append(withdrawal(&key, order(2, Some(2_000), 1)));
    let refused = sim.append(older.clone());
    sim.run_s(65);
    sim.append(older);
    sim.run_s(1);
    assert!(sim.all_serve(&[&key]), "the bar has fallen");
    let life = sim.observers[0].fold().find(&key).unwrap().life;
    let buried = Life {
        id: Some(LifeId(2)),
        birth: life.birth.map(|birth| Timestamp(birth.0 + 1_000)),
        seq: 1,
    };
    let late = sim.append(burial(&key, own_partition(&key, 1), buried, refused));
    sim.run_s(1);
    assert!(matches!(
        outcome_at(&sim, &key, late),
        Outcome::Void(VoidReason::BuriedTooLate(_))
    ));
    assert!(sim.all_serve(&[&key]));
}

#[test]
fn a_burial_does_not_put_the_bar_up_again() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let withdrawn = sim.append(withdrawal(&key, order(2, Some(2_000), 1)));
    sim.run_s(40);
    // Of a later count: the withdrawal that it repeats was compacted away.
    let later = Life {
        id: Some(LifeId(2)),
        birth: Some(Timestamp(2_000)),
        seq: 5,
    };
    sim.append(burial(&key, own_partition(&key, 1), later, withdrawn));
    sim.run_s(25);
    sim.append(mk_record(&key, Some(&content), order(1, Some(1_000), 0)));
    sim.run_s(1);
    assert!(sim.all_serve(&[&key]));
}

#[test]
fn withdrawn_keys_are_remembered_for_a_time_and_up_to_a_number() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let gone = |sim: &Sim| sim.observers[0].fold().partitions().next().unwrap().gone;
    sim.append(withdrawal(
        &mk_key("greeter", "a"),
        order(2, Some(2_000), 1),
    ));
    sim.run_s(5);
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let late = mk_record(&key, Some(&content), order(1, Some(1_000), 0));
    sim.append(late);
    sim.run_s(1_185);
    assert_eq!(
        gone(&sim),
        1,
        "its burial was read, which changes nothing here"
    );
    sim.run_s(15);
    assert_eq!(gone(&sim), 0, "after four of the longest time-to-live");
    for i in 0..GONE_KEYS_MAX + 10 {
        let key = mk_key("greeter", &format!("h{i}"));
        sim.append(withdrawal(&key, order(2, Some(2_000), 1)));
    }
    sim.run_s(1);
    assert_eq!(gone(&sim), GONE_KEYS_MAX);
}

#[test]
fn s06_an_old_process_that_withdraws_late_does_not_end_the_new_one() {
    for is_deaf in [false, true] {
        let key = mk_key("greeter", "a");
        let mut sim = Sim::new(1);
        sim.observe(1);
        sim.run_s(10);
        let old = sim.announce(1, &key);
        sim.announcers[old].is_deaf = is_deaf;
        sim.run_s(15);
        let new = sim.announce(2, &key);
        sim.announcers[new].announcement.hostname = "host-2".to_owned();
        sim.run_s(1);
        sim.announcers[old].withdraw();
        sim.run_s(120);
        assert!(sim.all_serve(&[&key]), "deaf: {is_deaf}");
        let gone = count(&sim.observers[0], is_gone);
        assert_eq!(gone, 0, "never gone, deaf: {is_deaf}");
        let view = sim.observers[0].fold().find(&key).unwrap();
        assert_eq!(view.life.id, Some(sim.announcers[new].id()));
        sim.compact(Duration::from_secs(30));
        assert!(sim.replayer().serves(&key), "deaf: {is_deaf}");
        sim.finish();
    }
}

#[test]
fn s07_a_host_whose_wall_clock_went_back_is_accepted_at_once() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let old = sim.announce(9, &key);
    sim.run_s(15);
    sim.announcers[old].stop();
    let new = sim.announce(1, &key);
    sim.announcers[new].announcement.origin.0 -= 24 * 3600 * 1000;
    sim.run_s(1);
    let value = waypost_proto::announcement::encode(&sim.announcers[new].announcement);
    assert_eq!(sim.observers[0].served_value(&key), Some(&value));
    sim.finish();
}

#[test]
fn s08_of_two_living_processes_the_later_born_serves_then_the_other_takes_over() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    let older = sim.announce(9, &key);
    sim.run_s(5);
    let later = sim.announce(1, &key);
    sim.announcers[later].announcement.hostname = "host-2".to_owned();
    sim.run_s(100);
    assert_eq!(count(&sim.observers[0], is_live), 2, "no flapping");
    let view = sim.observers[0].fold().find(&key).unwrap();
    assert_eq!(view.life.id, Some(sim.announcers[later].id()));
    let refusal = view.refusal.expect("the conflict is shown");
    assert_eq!(refusal.reason, RefusalReason::Older);
    assert_eq!(&*refusal.hostname, "host-1");

    sim.announcers[later].stop();
    let older_id = sim.announcers[older].id();
    let took_s = sim.run_until("the older takes over", 45, |sim| {
        let view = sim.observers[0].fold().find(&key);
        view.is_some_and(|view| view.life.id == Some(older_id))
    });
    assert!(took_s >= 20, "not before the other's ttl: {took_s} s");
    let mut views = sim.observers[0].fold().partitions();
    assert!(views.all(|view| view.overdue == 0));
    drop(views);
    sim.run_s(100);
    assert_eq!(count(&sim.observers[0], is_gone), 0, "served throughout");
    let view = sim.observers[0].fold().find(&key).unwrap();
    assert_eq!(view.refusal, None, "no conflict any more");
    assert_eq!(sim.expires(), [], "nobody tried, since the other was there");
    sim.assert_agreed();
    sim.finish();
}

#[test]
fn s08_what_is_older_is_refused_though_it_says_the_same_bytes() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.append(mk_record(&key, Some(&content), order(2, Some(2_000), 5)));
    let cases = [
        (order(1, Some(1_000), 9), RefusalReason::Older),
        (order(2, Some(2_000), 4), RefusalReason::EarlierChange),
    ];
    for (headers, reason) in cases {
        let late = sim.append(mk_record(&key, Some(&content), headers));
        sim.run_s(2);
        let outcome = outcome_at(&sim, &key, late);
        let is_expected = matches!(&outcome, Outcome::Refused(r) if r.reason == reason);
        assert!(is_expected, "{reason:?}: {outcome:?}");
        let life = sim.observers[0].fold().find(&key).unwrap().life;
        assert_eq!((life.id, life.seq), (Some(LifeId(2)), 5), "{reason:?}");
    }
}

#[test]
fn s09_producers_without_headers_announce_beat_and_purge_among_ours() {
    let key = mk_key("greeter", "a");
    let mut content = mk_announcement(&key);
    let bare = Headers::default();
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.append(mk_record(&key, Some(&content), bare));
    for _ in 0..8 {
        sim.run_s(10);
        sim.append(mk_record(&key, Some(&content), bare));
    }
    sim.run_s(1);
    assert!(sim.all_serve(&[&key]));
    assert_eq!(count(&sim.observers[0], is_live), 1, "beats are no changes");

    // The last writer wins: ours is born later than the last of theirs, and theirs again later.
    let ours = sim.announce(5, &key);
    sim.announcers[ours].announcement.hostname = "ours".to_owned();
    sim.run_s(1);
    let our_value = waypost_proto::announcement::encode(&sim.announcers[ours].announcement);
    assert_eq!(sim.observers[0].served_value(&key), Some(&our_value));
    content.hostname = "theirs".to_owned();
    sim.append(mk_record(&key, Some(&content), bare));
    sim.run_s(12);
    let value = waypost_proto::announcement::encode(&content);
    assert_eq!(sim.observers[0].served_value(&key), Some(&value));
    assert_eq!(sim.replayer().served_value(&key), Some(&value));

    // A purge removes what stands and bars nothing: who lives is back with its next beat.
    sim.append(purge(&key));
    sim.run_s(1);
    let purged =
        |e: &FoldEvent| matches!(e, FoldEvent::Gone { cause, .. } if *cause == GoneCause::Purged);
    assert_eq!(count(&sim.observers[0], purged), 1);
    sim.run_until("ours is back", 11, |sim| sim.all_serve(&[&key]));
    sim.assert_agreed();
    sim.compact(Duration::ZERO);
    assert_eq!(sim.replayer().digests(), sim.observers[0].digests());
    sim.finish();
}

#[test]
fn a_change_of_content_is_one_change_and_its_heartbeats_are_none() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.run_s(10);
    let announcer = sim.announce(1, &key);
    sim.run_s(25);
    sim.announcers[announcer].change(0.5);
    sim.run_s(25);
    assert_eq!(count(&sim.observers[0], is_live), 2);
    let digests = sim.observers[0].digests();
    sim.run_s(60);
    assert_eq!(
        sim.observers[0].digests(),
        digests,
        "heartbeats move no digest"
    );
    assert_eq!(sim.replayer().digests(), digests);
}

#[test]
fn a_key_in_a_wrong_partition_is_served_counted_and_shown() {
    let key = mk_key("greeter", "a");
    let content = mk_announcement(&key);
    let own = own_partition(&key, 4);
    let wrong = waypost_core::PartitionId((own.0 + 1) % 4);
    let mut sim = Sim::new(4);
    sim.observe(1);
    sim.run_s(10);
    let mut record = mk_record(&key, Some(&content), order(1, Some(1_000), 0));
    record.partition = Some(wrong);
    sim.append(record.clone());
    sim.append(record);
    sim.run_s(1);
    assert!(sim.all_serve(&[&key]));
    let shown = |e: &FoldEvent| {
        matches!(e, FoldEvent::WrongPartition { partition, expected, .. }
            if (*partition, *expected) == (wrong, own))
    };
    assert_eq!(count(&sim.observers[0], shown), 1, "told once per key");
    assert_eq!(sim.observers[0].fold().counters().wrong_partition, 2);
    assert!(sim.observers[0].fold().find(&key).unwrap().wrong_partition);

    // The right copy appears, the wrong one falls silent: the key is served throughout.
    let right = sim.announce(2, &key);
    sim.announcers[right].announcement.hostname = "host-2".to_owned();
    sim.run_s(60);
    assert_eq!(count(&sim.observers[0], is_gone), 0);
    assert_eq!(sim.observers[0].fold().wrong_partitions().count(), 0);
    let value = waypost_proto::announcement::encode(&sim.announcers[right].announcement);
    assert_eq!(sim.observers[0].served_value(&key), Some(&value));
    sim.observers[0].assert_served_is_held();
}

#[test]
fn s26_the_one_who_was_refused_takes_over_and_the_key_is_served_throughout() {
    for lives_s in [1, 12, 25] {
        for dies_after_s in [0, 3, 7] {
            let key = mk_key("greeter", "a");
            let mut sim = Sim::new(1);
            sim.observe(1);
            sim.observe(2);
            sim.run_s(10);
            let older = sim.announce(4, &key);
            sim.run_s(10 + dies_after_s);
            let later = sim.announce(6, &key);
            sim.announcers[later].announcement.hostname = "host-6".to_owned();
            sim.run_s(lives_s);
            sim.announcers[later].stop();
            let older_id = sim.announcers[older].id();
            sim.run_until("the older takes over", 2 * TTL_S, |sim| {
                let mut views = sim.observers.iter().map(|o| o.fold().find(&key));
                views.all(|view| view.is_some_and(|view| view.life.id == Some(older_id)))
            });
            sim.run_s(60);
            for observer in &sim.observers {
                assert_eq!(count(observer, is_gone), 0);
            }
            sim.finish();
        }
    }
}

#[test]
fn s26_an_expire_that_races_with_the_next_beat_of_the_refused_is_void() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.announce(4, &key);
    sim.run_s(5);
    let later = sim.announce(6, &key);
    sim.announcers[later].announcement.hostname = "host-6".to_owned();
    sim.run_s(1);
    sim.announcers[later].stop();
    let life = order(6, None, 0);
    for second in 0..2 * TTL_S {
        let last_beat = sim.observers[0].fold().find(&key).unwrap();
        let last_beat = last_beat.refusal.map_or(last_beat.offset, |r| r.offset);
        let end = sim.end(own_partition(&key, 1));
        // What was read last, and what was not yet.
        for evidence in [last_beat, Offset(end.0 - 1)] {
            sim.append(expire(&key, life, Evidence::At(evidence)));
        }
        sim.run_s(1);
        assert!(sim.all_serve(&[&key]), "after {second} s");
    }
    sim.finish();
}

#[test]
fn s27_what_compaction_left_of_a_refused_life_is_not_served_for_long() {
    for is_watched in [true, false] {
        let key = mk_key("greeter", "a");
        let mut sim = Sim::new(1);
        sim.observe(1);
        sim.run_s(10);
        let first = sim.announce(6, &key);
        sim.run_s(5);
        let second = sim.announce(7, &key);
        sim.announcers[second].announcement.hostname = "host-7".to_owned();
        // The last record is a heartbeat of the first, which is refused.
        sim.run_s(7);
        sim.announcers[second].stop();
        sim.announcers[first].stop();
        if !is_watched {
            sim.observers.clear();
        }
        sim.run_s(4 * TTL_S);
        sim.compact(Duration::from_secs(3 * TTL_S));
        sim.observe(2);
        sim.run_until("nothing is served", 2 * TTL_S, |sim| {
            let mut observers = sim.observers.iter();
            observers.all(|o| o.loading().is_loaded() && !o.serves(&key))
        });
        sim.finish();
        assert!(sim.all_serve(&[]));
    }
}

#[test]
fn s29_who_never_heard_of_its_birth_does_not_withdraw_its_successor() {
    let key = mk_key("greeter", "a");
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.run_s(10);
    sim.log.set_acknowledgements(Acknowledgements::Lost);
    let old = sim.announce(1, &key);
    sim.run_s(60);
    sim.log.set_acknowledgements(Acknowledgements::Sent);
    // Its successor is heard at once; itself it is not yet.
    sim.announcers[old].is_deaf = true;
    let new = sim.announce(2, &key);
    sim.announcers[new].announcement.hostname = "host-2".to_owned();
    sim.run_s(1);
    sim.announcers[old].withdraw();
    sim.run_s(120);
    assert!(sim.all_serve(&[&key]));
    assert_eq!(count(&sim.observers[0], is_gone), 0);
    let view = sim.observers[0].fold().find(&key).unwrap();
    assert_eq!(view.life.id, Some(sim.announcers[new].id()));
    sim.finish();
}
