//! One topic of a replica: the fold that is served and, while the topic is read again, the one that
//! will take its place (docs/announcement-log.md, "Identity, loading, replay").

use std::time::Duration;

use waypost_core::record::LogIdentity;
use waypost_core::{Offset, PartitionId, Record, Topic};

use crate::clock::PartitionClock;
use crate::config_fold::{ConfigFold, ControlFold};
use crate::continuity::{Alarm, Discontinuity};
use crate::event::{FoldEvent, Outcome};
use crate::fold::Fold;
use crate::limits::RECORDS_FORESEEN;
use crate::loading::Loading;
use crate::topic_clock::TopicClock;

/// What a whole replay found the log to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// The log that was read before, uncut: what it does not hold has left, and its tombstone was
    /// compacted away.
    Same,
    /// Another log, or the same one cut: what it does not hold may well live.
    Other,
}

impl Sameness {
    /// The closed label of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Other => "other",
        }
    }
}

/// What the three folds have in common.
pub(crate) trait TopicFold {
    fn clock(&self) -> &TopicClock;
    fn clock_mut(&mut self) -> &mut TopicClock;
    fn set_partitions(&mut self, count: u32);
    fn advance_to(&mut self, partition: PartitionId, position: Offset);
    /// Called with a few records before they are applied: may fetch from memory what they are about.
    fn foresee(&self, records: &[Record]);
    fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome;
    /// Takes the place of `old` after a whole replay. `events` gets what is served differently.
    fn take_over(&mut self, old: &Self, sameness: Sameness, events: &mut Vec<FoldEvent>);
}

macro_rules! topic_fold {
    ($fold:ty, $take_over:ident, $foresee:expr) => {
        impl TopicFold for $fold {
            fn clock(&self) -> &TopicClock {
                self.clock()
            }
            fn clock_mut(&mut self) -> &mut TopicClock {
                self.clock_mut()
            }
            fn set_partitions(&mut self, count: u32) {
                self.set_partitions(count);
            }
            fn advance_to(&mut self, partition: PartitionId, position: Offset) {
                self.advance_to(partition, position);
            }
            fn foresee(&self, records: &[Record]) {
                $foresee(self, records);
            }
            fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
                self.apply(record, events)
            }
            fn take_over(&mut self, old: &Self, sameness: Sameness, events: &mut Vec<FoldEvent>) {
                self.$take_over(old, sameness, events);
            }
        }
    };
}

topic_fold!(Fold, adopt_missing, Fold::foresee);
topic_fold!(ConfigFold, adopt_missing, |_, _| {});
topic_fold!(ControlFold, adopt_missing, |_, _| {});

/// One topic.
#[derive(Clone, Debug)]
pub(crate) struct Lane<F> {
    topic: Topic,
    /// What is served.
    fold: F,
    replay: Option<Replay<F>>,
    /// The identity that this Observer itself gives the log: reading it is no surprise.
    own_name: Option<LogIdentity>,
}

/// A topic that is being read again.
#[derive(Clone, Debug)]
struct Replay<F> {
    fold: F,
    loading: Loading,
    /// Whether the log was found cut, so that what it lacks is no statement.
    is_cut: bool,
    /// Whether anything was served when the topic began to be read again.
    is_served: bool,
}

/// What a finished replay means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed {
    pub(crate) sameness: Sameness,
    /// The identity of a log that was cut and that nobody has named anew yet.
    pub(crate) to_rename: Option<LogIdentity>,
}

/// What reading a batch of records brought up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubts {
    /// The position is not continued; the rest of the batch was not read.
    pub(crate) alarm: Option<Alarm>,
    /// A tick carries another identity: is the identity record still what it was?
    pub(crate) identity: bool,
}

impl<F: TopicFold> Lane<F> {
    pub(crate) fn new(topic: Topic, fold: F) -> Self {
        Self {
            topic,
            fold,
            replay: None,
            own_name: None,
        }
    }

    /// What is served.
    pub(crate) fn served(&self) -> &F {
        &self.fold
    }

    /// What is being read: the served fold, or the one that will take its place.
    pub(crate) fn reading(&self) -> &F {
        self.replay.as_ref().map_or(&self.fold, |r| &r.fold)
    }

    /// Does the same to what is served and to what will take its place.
    pub(crate) fn for_each_fold(&mut self, mut change: impl FnMut(&mut F)) {
        change(&mut self.fold);
        if let Some(replay) = &mut self.replay {
            change(&mut replay.fold);
        }
    }

    fn reading_mut(&mut self) -> &mut F {
        self.replay.as_mut().map_or(&mut self.fold, |r| &mut r.fold)
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// The topic has `count` partitions. They never become fewer, unless it is another topic.
    pub(crate) fn on_partitions(&mut self, count: u32) -> Option<Alarm> {
        if count < self.reading().clock().partition_count() {
            return Some(Alarm {
                partition: PartitionId(count),
                cause: Discontinuity::OutOfRange,
            });
        }
        self.reading_mut().set_partitions(count);
        if let Some(replay) = &mut self.replay {
            replay.loading.on_partitions(self.topic, count);
        }
        None
    }

    /// A partition ends at `end`.
    pub(crate) fn on_end(&mut self, partition: PartitionId, end: Offset) -> Option<Alarm> {
        let is_below = self.reading_mut().clock_mut().on_end(partition, end);
        if let Some(replay) = &mut self.replay {
            replay.loading.on_end(self.topic, partition, end);
        }
        is_below.then_some(Alarm {
            partition,
            cause: Discontinuity::OutOfRange,
        })
    }

    /// Reads records until one shows that they do not continue what was read before.
    pub(crate) fn on_records(
        &mut self,
        records: &[Record],
        tombstones_kept_ms: i64,
        events: &mut Vec<FoldEvent>,
        heard: &mut dyn FnMut(&Record, &Outcome),
    ) -> Doubts {
        let mut doubts = Doubts::default();
        let mut unserved = Vec::new();
        let is_replaying = self.is_replaying();
        let fold = self.reading_mut();
        for (index, record) in records.iter().enumerate() {
            if index % RECORDS_FORESEEN == 0 {
                let next = records.len().min(index + RECORDS_FORESEEN);
                fold.foresee(&records[index..next]);
            }
            let events = if is_replaying {
                unserved.clear();
                &mut unserved
            } else {
                &mut *events
            };
            let outcome = fold.apply(record, events);
            heard(record, &outcome);
            let alarm = fold.clock_mut().take_alarm();
            match alarm {
                Some(Alarm {
                    cause: Discontinuity::OtherLog(_),
                    ..
                }) => doubts.identity = true,
                Some(_) => doubts.alarm = alarm,
                None => {}
            }
            let clock = fold.clock().find(record.partition);
            if clock.is_some_and(|clock| clock.lost_tombstones(tombstones_kept_ms)) {
                doubts.alarm.get_or_insert(Alarm {
                    partition: record.partition,
                    cause: Discontinuity::TombstonesGone,
                });
            }
            if doubts.alarm.is_some() {
                break;
            }
        }
        doubts
    }

    /// Everything below `position`, which is the end, was read or compacted away.
    pub(crate) fn on_caught_up(&mut self, partition: PartitionId, position: Offset) {
        self.reading_mut().advance_to(partition, position);
        if let Some(replay) = &mut self.replay {
            replay.loading.on_end(self.topic, partition, position);
        }
    }

    /// A replay's progress; `now` is any monotonic time.
    pub(crate) fn on_position(&mut self, partition: PartitionId, now: Duration) {
        let position = self.position(partition);
        if let Some(replay) = &mut self.replay {
            let loading = &mut replay.loading;
            loading.on_position(self.topic, partition, position, now);
        }
    }

    /// Where the next record is read.
    pub(crate) fn position(&self, partition: PartitionId) -> Offset {
        let clock = self.reading().clock().find(partition);
        clock.map_or(Offset(0), PartitionClock::position)
    }

    /// Serves `fold`, which a snapshot holds, while the topic is read from its beginning.
    pub(crate) fn restore(&mut self, fold: F) {
        let fresh = std::mem::replace(&mut self.fold, fold);
        self.replay = Some(Replay {
            fold: fresh,
            loading: Loading::new(&[self.topic], Duration::ZERO),
            is_cut: false,
            is_served: true,
        });
    }

    /// Reads the topic again from its beginning, into `fold`; what is served stays.
    pub(crate) fn begin_replay(&mut self, mut fold: F, cause: Discontinuity, is_served: bool) {
        let before = self.replay.as_ref();
        let was_cut = before.is_some_and(|replay| replay.is_cut);
        let is_served = before.map_or(is_served, |replay| replay.is_served);
        fold.clock_mut().set_own_name(self.own_name);
        self.replay = Some(Replay {
            fold,
            loading: Loading::new(&[self.topic], Duration::ZERO),
            is_cut: was_cut || cause.is_truncation(),
            is_served,
        });
    }

    /// Partitions of a replay that stand still below their end and are to be moved by one tick.
    pub(crate) fn stuck(&mut self, now: Duration) -> Vec<(Topic, PartitionId)> {
        let replay = self.replay.as_mut();
        replay.map_or_else(Vec::new, |replay| replay.loading.stuck(now))
    }

    /// Ends a replay that has reached what the log held when it began.
    pub(crate) fn finish_replay(&mut self, events: &mut Vec<FoldEvent>) -> Option<Replayed> {
        let replay = self.replay.take_if(|replay| replay.loading.is_loaded())?;
        let before = std::mem::replace(&mut self.fold, replay.fold);
        let (old, new) = (before.clock().identity(), self.fold.clock().identity());
        let is_same_log = old.is_some() && old == new;
        let is_shorter = before.clock().iter().any(|(partition, clock)| {
            let end = self.fold.clock().find(partition);
            end.is_none_or(|now| now.position() < clock.position())
        });
        let is_uncut = is_same_log && !is_shorter && !replay.is_cut;
        // What was never served is nobody's loss.
        let sameness = if is_uncut || !replay.is_served {
            Sameness::Same
        } else {
            Sameness::Other
        };
        self.fold.take_over(&before, sameness, events);
        Some(Replayed {
            sameness,
            to_rename: old.filter(|_| is_same_log && !is_uncut),
        })
    }

    /// This Observer is about to give the log this name.
    pub(crate) fn set_own_name(&mut self, name: LogIdentity) {
        self.own_name = Some(name);
        self.fold.clock_mut().set_own_name(self.own_name);
    }
}
