//! Any interleaving of these records, cut and compacted anywhere within the lag.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use waypost_core::record::Evidence;
use waypost_core::{Announcement, Headers, InstanceKey, Offset, PartitionId, Topic};
use waypost_fold::{Fold, FoldEvent, FoldSettings};

use waypost_sim::{
    Sim, count, expire, mk_announcement, mk_key, mk_record, order, purge, withdrawal,
};

/// Shortest time-to-live, so that much happens in a short log.
const TTL: Duration = Duration::from_secs(10);

/// A third of it at most.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Three times the longest time-to-live here.
const LAG: Duration = Duration::from_secs(30);

/// One thing that happens. Keys, lives and contents are few, so that they meet.
#[derive(Clone, Debug)]
enum Event {
    Announce {
        key: u8,
        life: u8,
        seq: u64,
        content: u8,
        with_birth: bool,
    },
    Bare {
        key: u8,
        content: u8,
    },
    Withdraw {
        key: u8,
        life: u8,
        seq: u64,
        with_birth: bool,
    },
    Purge {
        key: u8,
    },
    /// An expire with evidence that many records before the end.
    Forge {
        key: u8,
        back: i64,
    },
    ForgeLiving {
        back: i64,
    },
    Noise {
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    },
    Wait {
        seconds: u64,
    },
    Compact,
    Join,
    /// The first Observer sleeps.
    Sleep {
        seconds: u64,
    },
}

/// `sleep_max_s` bounds how long the first Observer sleeps at a time.
fn any_event(sleep_max_s: u64) -> impl Strategy<Value = Event> {
    let key = 0..3_u8;
    let life = 0..4_u8;
    prop_oneof![
        6 => (key.clone(), life.clone(), 0..4_u64, 0..3_u8, any::<bool>()).prop_map(
            |(key, life, seq, content, with_birth)| Event::Announce { key, life, seq, content, with_birth }
        ),
        2 => (key.clone(), 0..3_u8).prop_map(|(key, content)| Event::Bare { key, content }),
        3 => (key.clone(), life, 0..5_u64, any::<bool>()).prop_map(
            |(key, life, seq, with_birth)| Event::Withdraw { key, life, seq, with_birth }
        ),
        1 => key.clone().prop_map(|key| Event::Purge { key }),
        1 => (key, 0..20_i64).prop_map(|(key, back)| Event::Forge { key, back }),
        1 => (0..20_i64).prop_map(|back| Event::ForgeLiving { back }),
        1 => (proptest::option::of(any::<Vec<u8>>()), proptest::option::of(any::<Vec<u8>>()))
            .prop_map(|(key, value)| Event::Noise { key, value }),
        6 => (0..15_u64).prop_map(|seconds| Event::Wait { seconds }),
        1 => Just(Event::Compact),
        1 => Just(Event::Join),
        1 => (1..sleep_max_s).prop_map(|seconds| Event::Sleep { seconds }),
    ]
}

fn content_of(key: &InstanceKey, content: u8) -> Announcement {
    let mut announcement = mk_announcement(key);
    announcement.ttl = TTL;
    announcement.weights.insert(0, f64::from(content));
    announcement
}

/// Lives are born a minute apart, in the order of their numbers; ids run the other way.
fn order_of(life: u8, seq: u64, with_birth: bool) -> Headers {
    let birth = 1_000_000 + i64::from(life) * 60_000;
    order(10 - u64::from(life), with_birth.then_some(birth), seq)
}

/// A process that announces with the times of this test.
fn announce_shortly(sim: &mut Sim, id: u64, key: &InstanceKey) {
    let number = sim.announce(id, key);
    sim.announcers[number].announcement.ttl = TTL;
    sim.announcers[number].heartbeat = HEARTBEAT;
}

struct World {
    sim: Sim,
    keys: Vec<InstanceKey>,
    living: InstanceKey,
}

impl World {
    fn new() -> Self {
        let mut sim = Sim::new(2);
        sim.observe(1);
        sim.run_s(10);
        let living = mk_key("living", "l");
        announce_shortly(&mut sim, 1, &living);
        sim.run_s(1);
        let keys = (0..3)
            .map(|i| mk_key("greeter", &format!("h{i}")))
            .collect();
        Self { sim, keys, living }
    }

    fn key(&self, key: u8) -> InstanceKey {
        self.keys[usize::from(key)].clone()
    }

    fn forge(&mut self, key: &InstanceKey, back: i64) {
        let partition = waypost_sim::own_partition(key, 2);
        let end = self.sim.end(partition);
        let evidence = Evidence::At(Offset((end.0 - back).max(0)));
        self.sim.append(expire(key, order_of(0, 0, true), evidence));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Announce {
                key,
                life,
                seq,
                content,
                with_birth,
            } => {
                let key = self.key(key);
                let content = content_of(&key, content);
                let headers = order_of(life, seq, with_birth);
                self.sim.append(mk_record(&key, Some(&content), headers));
            }
            Event::Bare { key, content } => {
                let key = self.key(key);
                let content = content_of(&key, content);
                self.sim
                    .append(mk_record(&key, Some(&content), Headers::default()));
            }
            Event::Withdraw {
                key,
                life,
                seq,
                with_birth,
            } => {
                let headers = order_of(life, seq, with_birth);
                self.sim.append(withdrawal(&self.key(key), headers));
            }
            Event::Purge { key } => {
                self.sim.append(purge(&self.key(key)));
            }
            Event::Forge { key, back } => self.forge(&self.key(key), back),
            Event::ForgeLiving { back } => self.forge(&self.living.clone(), back),
            Event::Noise { key, value } => {
                let (key, value) = (key.map(Bytes::from), value.map(Bytes::from));
                let (topic, partition) = (Topic::Announcements, PartitionId(0));
                self.sim.log.append_raw(topic, partition, key, value, &[]);
            }
            Event::Wait { seconds } => self.sim.run_s(seconds),
            Event::Compact => self.sim.compact(LAG),
            Event::Join => {
                if self.sim.observers.len() < 4 {
                    let id = self.sim.observers.len() as u64 + 1;
                    self.sim.observe(id);
                }
            }
            Event::Sleep { seconds } => {
                self.sim.observers[0].stop();
                self.sim.run_s(seconds);
                self.sim.observers[0].go_on();
                self.sim.run_s(1);
            }
        }
    }
}

/// The same records give the same state, in whatever batches they are read.
fn assert_deterministic(world: &World) {
    let mut folds = [(); 2].map(|()| Fold::new(FoldSettings::default()));
    folds[0].set_partitions(2);
    folds[1].set_partitions(2);
    let records = world.sim.log.records(Topic::Announcements);
    let mut first_events = Vec::new();
    for record in &records {
        folds[0].apply(record, &mut first_events);
    }
    // The other one reads its partitions in turns.
    let mut second_events = Vec::new();
    let (low, high): (Vec<_>, Vec<_>) = records.iter().partition(|r| r.partition.0 == 0);
    let mut parts = [low.into_iter(), high.into_iter()];
    while let [Some(_), _] | [_, Some(_)] =
        [parts[0].len(), parts[1].len()].map(|n| (n > 0).then_some(n))
    {
        for part in &mut parts {
            for record in part.by_ref().take(3) {
                folds[1].apply(record, &mut second_events);
            }
        }
    }
    let [first, second] = folds.map(|fold| fold.partitions().collect::<Vec<_>>());
    assert_eq!(first, second);
    assert_eq!(first_events.len(), second_events.len());
}

proptest! {
    // More with PROPTEST_CASES.
    #![proptest_config(ProptestConfig::default())]

    // Nobody sleeps longer than the lag here: who has missed ticks takes an expire at its word, a
    // forged one too, and has the instance back with its next heartbeat.
    #[test]
    fn whatever_happens_all_agree_and_the_living_stay(
        events in proptest::collection::vec(any_event(LAG.as_secs() - 5), 1..60)
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        // What speaks no more leaves; who lives beats once.
        world.sim.run_s(LAG.as_secs() + 5);
        assert_deterministic(&world);
        let living = world.living.clone();
        let is_gone = |e: &FoldEvent| matches!(e, FoldEvent::Gone { key, .. } if *key == living);
        prop_assert_eq!(count(&world.sim.observers[0], is_gone), 0);
        world.sim.assert_agreed();
        world.sim.compact(LAG);
        let replayer = world.sim.replayer();
        replayer.assert_served_is_held();
        prop_assert_eq!(replayer.digests(), world.sim.observers[0].digests());
    }

    #[test]
    fn one_heartbeat_after_any_cut_all_agree(
        events in proptest::collection::vec(any_event(2 * LAG.as_secs()), 1..60),
        beating in proptest::collection::vec(any::<bool>(), 3),
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        world.sim.compact(LAG);
        let joined = world.sim.observers.len();
        world.sim.observe(9);
        // Some of the keys have a living announcer, which beats; of the rest nothing is heard.
        for (number, _) in beating.iter().enumerate().filter(|(_, beats)| **beats) {
            let key = world.keys[number].clone();
            announce_shortly(&mut world.sim, 100 + number as u64, &key);
        }
        world.sim.run_s(TTL.as_secs() * 4);
        world.sim.assert_agreed();
        prop_assert!(world.sim.observers[joined].serves(&world.living));
        let storm = world.sim.expires().len();
        prop_assert!(storm <= 60, "{} expires", storm);
    }
}
