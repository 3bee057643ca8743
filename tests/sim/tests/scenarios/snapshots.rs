//! Starts from what another life of the Observer left on disk.

use std::time::Duration;

use waypost_core::record::LogIdentity;
use waypost_core::{InstanceKey, Topic};
use waypost_fold::records;
use waypost_log::memory::{CompactionRules, Pause};
use waypost_sim::{Answer, HEARTBEAT, Sim, TTL_S, mk_keys};

/// Two Observers, a client of the second, and `instances` that are announced, all at rest.
fn mk_fabric(instances: usize) -> (Sim, Vec<InstanceKey>) {
    let mut sim = Sim::new(2);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    let keys = mk_keys(instances);
    for (i, key) in keys.iter().enumerate() {
        sim.announce(i as u64, key);
    }
    sim.run_s(40);
    sim.connect(1);
    sim.run_s(1);
    (sim, keys)
}

/// The second Observer starts again, from what it served at `snapshot`.
fn restart_from(sim: &mut Sim, snapshot: &waypost_fold::Snapshot) {
    sim.restart(1, 3);
    sim.observers[1].restore(snapshot);
    sim.clients[0].reconnect(1);
}

#[test]
fn s15_a_snapshot_older_than_tombstones_last_brings_no_ghost_back() {
    for withdraws in [true, false] {
        let (mut sim, keys) = mk_fabric(4);
        let snapshot = sim.observers[1].snapshot();
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
        restart_from(&mut sim, &snapshot);
        sim.run_s(10);
        assert!(!sim.observers[1].serves(&keys[0]), "withdraws: {withdraws}");
        assert_eq!(sim.clients[0].removals, keys[..1]);
        assert_eq!(
            sim.clients[0].received, 4,
            "equal content is not sent again"
        );
        sim.finish();
    }
}

#[test]
fn without_the_log_a_snapshot_is_served_when_the_operator_says_so_and_not_before() {
    let (mut sim, keys) = mk_fabric(4);
    let snapshot = sim.observers[1].snapshot();
    sim.log.pause(Pause::Refuse("no broker is up".to_owned()));
    restart_from(&mut sim, &snapshot);
    sim.run_s(60);
    assert_eq!(sim.clients[0].answer, Answer::Unavailable);
    sim.observers[1].serve_snapshot();
    sim.run_s(1);
    assert_eq!(sim.clients[0].answer, Answer::Served);
    assert!(keys.iter().all(|key| sim.observers[1].serves(key)));
    sim.log.resume();
    sim.run_s(2 * TTL_S);
    assert_eq!(sim.clients[0].removals, []);
    assert_eq!(
        sim.clients[0].received, 4,
        "equal content is not sent again"
    );
    sim.finish();
}

#[test]
fn s22_a_topic_that_was_made_anew_while_an_observer_was_down_takes_nothing_from_its_snapshot() {
    let (mut sim, keys) = mk_fabric(4);
    let snapshot = sim.observers[1].snapshot();
    sim.observers[1].stop();
    // One has died with the topic: it leaves in its own time.
    sim.announcers[0].stop();
    sim.log.recreate(Topic::Announcements, 2);
    let identity = LogIdentity(8);
    sim.append(records::identity(Topic::Announcements, identity, None));
    restart_from(&mut sim, &snapshot);
    sim.run_s(3 + HEARTBEAT.as_secs());
    assert_eq!(sim.clients[0].answer, Answer::Served);
    assert_eq!(sim.clients[0].removals, []);
    assert!(keys.iter().all(|key| sim.observers[1].serves(key)));
    sim.run_until("the dead one leaves", 3 * TTL_S, |sim| {
        !sim.observers[1].serves(&keys[0])
    });
    sim.run_s(1);
    assert_eq!(sim.clients[0].removals, keys[..1]);
    assert_eq!(
        sim.clients[0].received, 4,
        "equal content is not sent again"
    );
    sim.finish();
}
