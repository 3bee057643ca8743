//! One case: a world in which a sequence of events happens, and what must hold in the end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use waypost_core::record::{Evidence, LogIdentity};
use waypost_core::{
    Announcement, AnnouncementLog as _, Headers, InstanceKey, NewRecord, Offset, PartitionId, Topic,
};
use waypost_fold::limits::BIRTH_AHEAD_MAX;
use waypost_fold::{FoldSettings, records};
use waypost_log::memory::{Acknowledgements, CompactionRules, Pause};

use super::event::{ByHand, Event, KEYS, OBSERVERS};
use crate::{
    History, Settings, Sim, expire, mk_announcement, mk_key, mk_record, order, own_partition,
    purge, withdrawal,
};

/// The shortest time-to-live, so that much happens in a short log.
const TTL: Duration = Duration::from_secs(10);

/// A third of it at most.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Three of the longest time-to-live here.
const LAG: Duration = Duration::from_secs(30);

/// How long tombstones last here. Twice the lag, so that a sleeper may miss one.
const TOMBSTONES_KEPT: Duration = Duration::from_secs(60);

/// The grain of time: half a tick.
const STEP: Duration = Duration::from_millis(500);

/// A takeover, a replay, and the looks at single records that come before.
const SETTLING_S: u64 = 12;

/// What a case did, for the figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Records that the log took.
    pub records: u64,
    /// Times a topic was read again.
    pub replays: u64,
}

/// Plays a sequence.
///
/// # Panics
/// A promise does not hold.
pub(super) fn play(events: &[Event]) -> Done {
    let mut case = Case::new();
    for event in events {
        case.happen(event);
    }
    case.close()
}

/// When everybody has the same state again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agrees {
    /// As promised: after one heartbeat interval.
    Soon,
    /// Later, since something happened that nobody can know of. A log that was cut without a word and
    /// has grown again to exactly where a reader stands, before anybody looks: what was written instead
    /// is missed until it is written again. A broker whose clock is so far off that births given by it
    /// are believed by nobody.
    WhenTheDeadHaveLeft,
}

/// Whether a case that fails shows its log.
pub(super) static IS_TRACED: AtomicBool = AtomicBool::new(false);

struct Case {
    sim: Sim,
    keys: Vec<InstanceKey>,
    /// Announced throughout by a process that nothing happens to.
    living: InstanceKey,
    /// Nobody forged an expire of the living one, nor sent noise under its key.
    is_honest: bool,
    /// The log was cut while the first Observer slept. If it slept so long that it must read everything
    /// again, nothing tells it that what is missing was lost and has not left.
    was_cut_unseen: bool,
    /// Whether everybody agrees as early as is promised: one heartbeat interval later.
    agrees: Agrees,
    lives: u64,
    /// Announcers by key, oldest first.
    announcers: Vec<Vec<usize>>,
    partitions: u32,
    began: Duration,
}

impl Case {
    fn new() -> Self {
        let mut sim = Sim::new(2);
        sim.step = STEP;
        sim.settings = Settings {
            newborn_grace: HEARTBEAT + Duration::from_secs(2),
            tombstones_kept: TOMBSTONES_KEPT,
            fold: FoldSettings {
                ttl_max: TTL,
                ..FoldSettings::default()
            },
            history: History::Forgotten,
            ..Settings::default()
        };
        sim.observe(1);
        sim.run_s(12);
        let living = mk_key("living", "l");
        let mut case = Self {
            sim,
            keys: (0..KEYS)
                .map(|i| mk_key("greeter", &format!("h{i}")))
                .collect(),
            living: living.clone(),
            is_honest: true,
            was_cut_unseen: false,
            agrees: Agrees::Soon,
            lives: 1000,
            announcers: vec![Vec::new(); KEYS.into()],
            partitions: 2,
            began: Duration::ZERO,
        };
        case.start(&living);
        case.sim.run_s(1);
        case.sim.connect(0);
        case.sim.step();
        case.began = case.sim.now();
        case
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Wait(halves) => (0..*halves).for_each(|_| self.sim.step()),
            Event::Start(_)
            | Event::Kill(_)
            | Event::Freeze(_)
            | Event::Thaw(_)
            | Event::Change(..)
            | Event::Withdraw(_)
            | Event::Deafen(_) => self.announce(event),
            Event::Announced(by_hand, content) => {
                let value = content_of(&self.keys[usize::from(by_hand.key)], *content);
                self.write(mk_record(
                    self.key(by_hand.key),
                    Some(&value),
                    by_hand.order(),
                ));
            }
            Event::Withdrawn(by_hand) => {
                self.write(withdrawal(self.key(by_hand.key), by_hand.order()));
            }
            Event::Bare(key, content) => {
                let value = content_of(self.key(*key), *content);
                self.write(mk_record(self.key(*key), Some(&value), Headers::default()));
            }
            Event::Purge(key) => self.write(purge(self.key(*key))),
            Event::Forge(key, back) => self.forge(*key, *back),
            Event::Noise(key, value) => {
                let (key, value) = (key.clone().map(Bytes::from), value.clone().map(Bytes::from));
                let topic = Topic::Announcements;
                self.sim
                    .log
                    .append_raw(topic, PartitionId(0), key, value, &[]);
            }
            Event::Join | Event::Restart(_) | Event::Sleep(_) | Event::Wake(_) => {
                self.observe(event);
            }
            Event::LoseTicks(number, ticks) => {
                let number = usize::from(*number) % self.sim.observers.len();
                self.sim.observers[number].lose_ticks(usize::from(*ticks));
            }
            _ => self.fail(event),
        }
    }

    fn announce(&mut self, event: &Event) {
        let (Event::Start(key)
        | Event::Kill(key)
        | Event::Freeze(key)
        | Event::Thaw(key)
        | Event::Change(key, _)
        | Event::Withdraw(key)
        | Event::Deafen(key)) = event
        else {
            return;
        };
        let key = usize::from(*key);
        if matches!(event, Event::Start(_)) {
            let number = self.start(&self.keys[key].clone());
            self.announcers[key].push(number);
            return;
        }
        let announcers = &mut self.sim.announcers;
        let is_alive = |number: &&usize| announcers[**number].is_alive();
        let youngest = self.announcers[key].iter().rev().find(is_alive).copied();
        let oldest = self.announcers[key].iter().find(is_alive).copied();
        match event {
            Event::Thaw(_) => {
                for number in &self.announcers[key] {
                    announcers[*number].go_on();
                }
            }
            Event::Withdraw(_) => oldest.into_iter().for_each(|n| announcers[n].withdraw()),
            _ => {
                let Some(number) = youngest else { return };
                match event {
                    Event::Kill(_) => {
                        announcers[number].stop();
                        self.announcers[key].retain(|n| *n != number);
                    }
                    Event::Freeze(_) => announcers[number].stop(),
                    Event::Change(_, content) => announcers[number].change(f64::from(*content)),
                    _ => announcers[number].is_deaf = true,
                }
            }
        }
    }

    fn observe(&mut self, event: &Event) {
        let count = self.sim.observers.len();
        self.lives += 1;
        match event {
            Event::Join if count < OBSERVERS => {
                self.sim.observe(self.lives);
            }
            Event::Restart(number) if count > 1 => {
                let number = 1 + usize::from(*number) % (count - 1);
                self.sim.restart(number, self.lives);
            }
            Event::Sleep(number) => self.sim.observers[usize::from(*number) % count].stop(),
            Event::Wake(number) => self.sim.observers[usize::from(*number) % count].go_on(),
            _ => {}
        }
    }

    fn fail(&mut self, event: &Event) {
        let (log, topic) = (&self.sim.log, Topic::Announcements);
        let partition = |number: &u8| PartitionId(u32::from(*number) % self.partitions);
        match event {
            Event::Compact => self.compact(),
            Event::RefuseAppends => log.pause_appends(Pause::Refuse("too few replicas".to_owned())),
            Event::Hang => log.pause(Pause::Hang),
            Event::Heal => self.heal(),
            Event::LoseAcknowledgements => log.set_acknowledgements(Acknowledgements::Lost),
            Event::Duplicate(records) => log.duplicate_next(u32::from(*records)),
            Event::MoveLeader(number, ahead_s) => {
                if Duration::from_secs(ahead_s.unsigned_abs().into()) > BIRTH_AHEAD_MAX {
                    self.agrees = Agrees::WhenTheDeadHaveLeft;
                }
                log.move_leader(topic, partition(number), i64::from(*ahead_s) * 1000);
            }
            Event::Elect(number, records) | Event::Truncate(number, records) => {
                let end = self.sim.end(partition(number));
                let end = Offset((end.0 - i64::from(*records)).max(0));
                self.was_cut_unseen |= self.sim.observers[0].read_at < self.sim.now();
                if matches!(event, Event::Elect(..)) {
                    log.elect_uncleanly(topic, partition(number), end);
                } else {
                    log.truncate(topic, partition(number), end);
                    self.agrees = Agrees::WhenTheDeadHaveLeft;
                }
            }
            Event::Recreate(is_named) => {
                log.recreate(topic, self.partitions);
                self.lives += 1;
                if *is_named {
                    self.write(records::identity(topic, LogIdentity(self.lives), None));
                }
            }
            Event::Grow => {
                self.partitions = 4;
                log.add_partitions(topic, 4);
            }
            _ => {}
        }
    }

    fn heal(&mut self) {
        self.sim.log.resume();
        self.sim.log.set_acknowledgements(Acknowledgements::Sent);
        self.sim.log.duplicate_next(0);
    }

    /// What a healthy fabric comes to.
    fn close(mut self) -> Done {
        self.heal();
        for observer in &mut self.sim.observers {
            observer.lose_ticks(0);
            observer.go_on();
        }
        self.sim.run_s(SETTLING_S + HEARTBEAT.as_secs());
        if self.agrees == Agrees::Soon {
            // Where one takes over from another who has just fallen silent, who missed a tick may count a
            // second less: the next beat settles it.
            let until = self.sim.now() + HEARTBEAT;
            while !self.is_agreed() && self.sim.now() < until {
                self.sim.step();
            }
            self.assert_agreed("a heartbeat interval later");
        }
        self.assert_living_are_served();
        if self.agrees == Agrees::WhenTheDeadHaveLeft {
            // Who starts now reads what the others may have missed, and writes its expire one day.
            self.sim.observe(u64::MAX);
            self.sim.run_s(2 * TTL.as_secs());
        }
        // What is dead leaves, and what was said in vain is compacted away.
        self.sim.run_s(LAG.as_secs() + 5);
        self.compact();
        self.assert_agreed("when the dead have left");
        self.assert_living_are_served();
        self.assert_dead_have_left();
        self.assert_bounded();
        let client = &self.sim.clients[0];
        assert!(
            !self.is_honest || self.was_cut_unseen || !client.removals.contains(&self.living),
            "a client was told that the living instance left"
        );
        Done {
            records: self.sim.log.appended(),
            replays: self.sim.observers.iter().map(|o| o.replays).sum(),
        }
    }

    fn is_agreed(&mut self) -> bool {
        let now = self.sim.now();
        self.sim.observers.iter_mut().for_each(|o| o.read(now));
        let late = self.sim.replayer().digests();
        self.sim.observers.iter().all(|o| o.digests() == late)
    }

    /// Everybody, and one who starts now, have the same state.
    fn assert_agreed(&mut self, when: &str) {
        let now = self.sim.now();
        self.sim.observers.iter_mut().for_each(|o| o.read(now));
        let late = self.sim.replayer();
        for (number, observer) in self.sim.observers.iter().enumerate() {
            observer.assert_served_is_held();
            let replaying = observer.replica().replaying().count();
            assert_eq!(replaying, 0, "Observer {number} still replays {when}");
            let positions = [observer, &late].map(|o| {
                let views = o.fold().partitions();
                views.map(|view| view.position).collect::<Vec<_>>()
            });
            assert_eq!(positions[0], positions[1], "Observer {number} lags {when}");
            assert_eq!(
                observer.digests(),
                late.digests(),
                "Observer {number} and a new one differ {when}: {:?} and {:?}",
                observer.served_keys(),
                late.served_keys()
            );
        }
    }

    fn living_keys(&self) -> BTreeSet<InstanceKey> {
        let living = self.sim.announcers.iter().filter(|a| a.is_alive());
        living.map(|announcer| announcer.key.clone()).collect()
    }

    fn assert_living_are_served(&self) {
        for (number, observer) in self.sim.observers.iter().enumerate() {
            assert!(
                observer.loading().is_loaded(),
                "Observer {number} is loaded"
            );
            let served = observer.served_keys();
            let barred = |key: &&InstanceKey| **key != self.living && self.is_barred(number, key);
            let living = self.living_keys();
            let missing: Vec<_> = living.iter().filter(|key| !served.contains(*key)).collect();
            let missing: Vec<_> = missing.into_iter().filter(|key| !barred(key)).collect();
            assert!(missing.is_empty(), "Observer {number} lacks {missing:?}");
        }
    }

    /// A withdrawal by hand may keep a living process out for a time.
    fn is_barred(&self, number: usize, _: &InstanceKey) -> bool {
        let views = self.sim.observers[number].fold().partitions();
        views.map(|view| view.gone).sum::<usize>() > 0
    }

    fn assert_dead_have_left(&self) {
        let living = self.living_keys();
        for (number, observer) in self.sim.observers.iter().enumerate() {
            let served = observer.served_keys();
            let ghosts: Vec<_> = served.difference(&living).collect();
            assert!(
                ghosts.is_empty(),
                "Observer {number} serves the dead {ghosts:?}"
            );
        }
    }

    /// Nobody writes more than a few records for each key and time-to-live.
    fn assert_bounded(&self) {
        let passed_s = (self.sim.now() - self.began).as_secs();
        let ttls = passed_s / TTL.as_secs() + 2;
        let written: u64 = self.sim.observers.iter().map(|o| o.written).sum();
        let most = ttls * 2 * (u64::from(KEYS) + 1) * OBSERVERS as u64;
        assert!(
            written <= most,
            "{written} records by keepers, {most} at most"
        );
    }

    fn compact(&self) {
        let rules = CompactionRules {
            lag: LAG,
            delete_retention: TOMBSTONES_KEPT,
        };
        for topic in Topic::ALL {
            self.sim.log.compact(topic, rules);
        }
    }

    fn start(&mut self, key: &InstanceKey) -> usize {
        self.lives += 1;
        let number = self.sim.announce(self.lives, key);
        let announcer = &mut self.sim.announcers[number];
        announcer.announcement.ttl = TTL;
        announcer.announcement.hostname = format!("host-{}", self.lives);
        announcer.heartbeat = HEARTBEAT;
        number
    }

    fn key(&self, key: u8) -> &InstanceKey {
        &self.keys[usize::from(key)]
    }

    fn forge(&mut self, key: u8, back: u8) {
        let key = self.keys.get(usize::from(key)).unwrap_or(&self.living);
        self.is_honest &= *key != self.living;
        let end = self.sim.end(own_partition(key, self.partitions));
        let evidence = Evidence::At(Offset((end.0 - i64::from(back)).max(0)));
        self.write(expire(key, order(1, Some(1_000_000), 0), evidence));
    }

    /// Writes a record by hand, if the log takes it.
    fn write(&self, record: NewRecord) {
        use futures::FutureExt as _;
        let _ = self.sim.log.append(record).now_or_never();
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() && IS_TRACED.load(Ordering::Relaxed) {
            for record in self.sim.log.records(Topic::Announcements) {
                println!("{record:?}");
            }
        }
    }
}

impl ByHand {
    /// Lives are born a minute apart, in the order of their numbers; ids run the other way.
    fn order(self) -> Headers {
        let birth = 1_000_000 + i64::from(self.life) * 60_000;
        let id = 10 - u64::from(self.life);
        order(id, self.with_birth.then_some(birth), self.seq.into())
    }
}

fn content_of(key: &InstanceKey, content: u8) -> Announcement {
    let mut announcement = mk_announcement(key);
    announcement.ttl = TTL;
    announcement.weights.insert(0, f64::from(content));
    announcement
}
