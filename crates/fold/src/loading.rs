//! When a start is over: everything that the log held at that moment has been read.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use waypost_core::time::millis;
use waypost_core::{LogTime, Offset, PartitionId, Topic};

use crate::limits::STUCK_AFTER;

/// The *loaded* rule. Told of partitions, ends and positions; says what is missing. Once loaded it
/// stays loaded: stale is not unloaded.
#[derive(Clone, Debug)]
pub struct Loading {
    newborn_grace: Duration,
    partitions: BTreeMap<Topic, Option<u32>>,
    progress: BTreeMap<(Topic, PartitionId), Progress>,
    log_time: LogTime,
    loaded: bool,
    restarted_at: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    position: Offset,
    moved_at: Duration,
    nudged_at: Option<Duration>,
    end: Option<Offset>,
}

impl Progress {
    fn is_behind(&self) -> bool {
        self.end.is_none_or(|end| self.position < end)
    }
}

/// One thing that a start still waits for. Its text is for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// How many partitions a topic has is not known yet.
    Partitions {
        /// Which topic.
        topic: Topic,
    },
    /// Where a partition ends is not known yet.
    End {
        /// Which topic.
        topic: Topic,
        /// Which partition.
        partition: PartitionId,
    },
    /// A partition is not read to its end yet.
    Position {
        /// Which topic.
        topic: Topic,
        /// Which partition.
        partition: PartitionId,
        /// The offset of the next record to be read.
        position: Offset,
        /// The offset that must be reached.
        end: Offset,
    },
    /// The log is so young that living instances may not have announced themselves in it yet.
    Newborn {
        /// How much time has passed in it.
        log_time: LogTime,
        /// How much must pass.
        grace: Duration,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partitions { topic } => write!(
                f,
                "topic {}: the log has not said how many partitions it has",
                topic.suffix()
            ),
            Self::End { topic, partition } => write!(
                f,
                "topic {} partition {partition}: the log has not said where it ends",
                topic.suffix()
            ),
            Self::Position {
                topic,
                partition,
                position,
                end,
            } => write!(
                f,
                "topic {} partition {partition}: read to offset {position} of {end}",
                topic.suffix()
            ),
            Self::Newborn { log_time, grace } => write!(
                f,
                "the log is new: {} s of {} s have passed in which every living instance announces itself",
                log_time.0 / 1000,
                grace.as_secs()
            ),
        }
    }
}

impl Loading {
    /// Waits for these topics. A `newborn_grace` of zero means that a new log is taken at its word
    /// (a log that this very process has made, as `waypost dev` does).
    #[must_use]
    pub fn new(topics: &[Topic], newborn_grace: Duration) -> Self {
        Self {
            newborn_grace,
            partitions: topics.iter().map(|topic| (*topic, None)).collect(),
            progress: BTreeMap::new(),
            log_time: LogTime::default(),
            loaded: false,
            restarted_at: Duration::ZERO,
        }
    }

    /// A topic has `count` partitions.
    pub fn on_partitions(&mut self, topic: Topic, count: u32) {
        if let Some(known) = self.partitions.get_mut(&topic) {
            *known = Some(known.unwrap_or(0).max(count));
            for partition in (0..count).map(PartitionId) {
                self.progress.entry((topic, partition)).or_default();
            }
        }
    }

    /// The log says that a partition ends at `end`. The first answer is what must be reached; while
    /// the log is newborn, the last one.
    pub fn on_end(&mut self, topic: Topic, partition: PartitionId, end: Offset) {
        let newborn = self.is_newborn();
        if self.partitions.contains_key(&topic) {
            let progress = self.progress.entry((topic, partition)).or_default();
            if progress.end.is_none() || newborn {
                progress.end = Some(end);
            }
        }
        self.settle();
    }

    /// A partition was read up to `position`; `now` is any monotonic time.
    pub fn on_position(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        position: Offset,
        now: Duration,
    ) {
        if self.partitions.contains_key(&topic) {
            let progress = self.progress.entry((topic, partition)).or_default();
            if position > progress.position {
                progress.position = position;
                progress.moved_at = now;
            }
        }
        self.settle();
    }

    /// The smallest log time of the announcements topic's partitions.
    pub fn on_log_time(&mut self, log_time: LogTime) {
        self.log_time = self.log_time.max(log_time);
        self.settle();
    }

    /// A topic is read again from its beginning. If this start is not over, it waits for the topic
    /// anew; `now` is any monotonic time.
    pub fn restart(&mut self, topic: Topic, now: Duration) {
        if self.loaded {
            return;
        }
        if let Some(count) = self.partitions.get_mut(&topic) {
            *count = None;
        }
        self.progress
            .retain(|(restarted, _), _| *restarted != topic);
        if topic == Topic::Announcements {
            self.log_time = LogTime::default();
        }
        self.restarted_at = now;
    }

    /// What is there already is to be served, before everything was reached.
    pub fn cut_short(&mut self) {
        self.loaded = true;
    }

    /// Whether everything was reached.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// What is still waited for, partitions in order; empty once loaded.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        if self.loaded {
            return Vec::new();
        }
        self.iter_missing().collect()
    }

    /// Partitions that stand still below their end and are to be moved by one tick, each named
    /// again only after it has stood still that long again.
    pub fn stuck(&mut self, now: Duration) -> Vec<(Topic, PartitionId)> {
        if self.loaded {
            return Vec::new();
        }
        let mut stuck = Vec::new();
        for (place, progress) in &mut self.progress {
            let since = progress
                .moved_at
                .max(progress.nudged_at.unwrap_or_default())
                .max(self.restarted_at);
            let behind = progress.end.is_some() && progress.is_behind();
            if behind && now.saturating_sub(since) >= STUCK_AFTER {
                progress.nudged_at = Some(now);
                stuck.push(*place);
            }
        }
        stuck
    }

    fn settle(&mut self) {
        self.loaded = self.loaded || self.iter_missing().next().is_none();
    }

    fn is_newborn(&self) -> bool {
        self.log_time.0 < millis(self.newborn_grace)
    }

    fn iter_missing(&self) -> impl Iterator<Item = Missing> {
        let uncounted = self.partitions.iter().filter(|(_, count)| count.is_none());
        let uncounted = uncounted.map(|(topic, _)| Missing::Partitions { topic: *topic });
        let behind = self.progress.iter().filter(|(_, p)| p.is_behind());
        let behind = behind.map(|((topic, partition), progress)| match progress.end {
            None => Missing::End {
                topic: *topic,
                partition: *partition,
            },
            Some(end) => Missing::Position {
                topic: *topic,
                partition: *partition,
                position: progress.position,
                end,
            },
        });
        let newborn = self.is_newborn().then_some(Missing::Newborn {
            log_time: self.log_time,
            grace: self.newborn_grace,
        });
        uncounted.chain(behind).chain(newborn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P0: PartitionId = PartitionId(0);
    const GRACE: Duration = Duration::from_secs(110);

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn everything_that_is_missing_is_named_and_nothing_else() {
        let topics = [Topic::Announcements, Topic::Config];
        let mut loading = Loading::new(&topics, Duration::ZERO);
        let texts = |loading: &Loading| -> Vec<_> {
            let missing = loading.missing().into_iter();
            missing.map(|missing| missing.to_string()).collect()
        };
        assert_eq!(
            texts(&loading),
            [
                "topic announcements: the log has not said how many partitions it has",
                "topic config: the log has not said how many partitions it has"
            ]
        );
        loading.on_partitions(Topic::Announcements, 2);
        loading.on_partitions(Topic::Config, 1);
        loading.on_partitions(Topic::Control, 1);
        loading.on_end(Topic::Config, P0, Offset(0));
        loading.on_end(Topic::Announcements, P0, Offset(9));
        loading.on_position(Topic::Announcements, P0, Offset(5), at(1));
        assert_eq!(
            texts(&loading),
            [
                "topic announcements partition 0: read to offset 5 of 9",
                "topic announcements partition 1: the log has not said where it ends"
            ]
        );
        loading.on_end(Topic::Announcements, PartitionId(1), Offset(0));
        loading.on_position(Topic::Announcements, P0, Offset(9), at(2));
        assert!(loading.is_loaded());
        // Stale is not unloaded.
        loading.on_partitions(Topic::Announcements, 3);
        loading.on_end(Topic::Announcements, P0, Offset(99));
        assert_eq!(texts(&loading), [""; 0]);
    }

    #[test]
    fn the_end_seen_first_must_be_reached_and_not_one_that_moves() {
        let mut loading = Loading::new(&[Topic::Config], Duration::ZERO);
        loading.on_partitions(Topic::Config, 1);
        loading.on_end(Topic::Config, P0, Offset(10));
        loading.on_end(Topic::Config, P0, Offset(1_000));
        loading.on_position(Topic::Config, P0, Offset(10), at(1));
        assert!(loading.is_loaded());
    }

    #[test]
    fn a_newborn_log_is_waited_for_and_its_last_end_must_be_reached() {
        let mut loading = Loading::new(&[Topic::Announcements], GRACE);
        loading.on_partitions(Topic::Announcements, 1);
        loading.on_end(Topic::Announcements, P0, Offset(1));
        loading.on_position(Topic::Announcements, P0, Offset(1), at(1));
        loading.on_log_time(LogTime(109_999));
        let missing = loading.missing();
        assert!(
            matches!(missing[..], [Missing::Newborn { .. }]),
            "{missing:?}"
        );
        assert!(missing[0].to_string().contains("109 s of 110 s"));
        loading.on_end(Topic::Announcements, P0, Offset(50));
        loading.on_log_time(LogTime(110_000));
        assert!(!loading.is_loaded(), "the last end taken is not reached");
        loading.on_end(Topic::Announcements, P0, Offset(70));
        loading.on_position(Topic::Announcements, P0, Offset(50), at(2));
        assert!(loading.is_loaded());
    }

    #[test]
    fn a_log_that_this_process_made_is_taken_at_its_word() {
        let mut loading = Loading::new(&[Topic::Announcements], Duration::ZERO);
        loading.on_partitions(Topic::Announcements, 1);
        loading.on_end(Topic::Announcements, P0, Offset(0));
        assert!(loading.is_loaded());
    }

    #[test]
    fn a_position_that_stands_still_below_the_end_is_moved_by_one_tick() {
        let mut loading = Loading::new(&[Topic::Announcements], GRACE);
        loading.on_partitions(Topic::Announcements, 2);
        let stuck = [(Topic::Announcements, P0)];
        loading.on_end(Topic::Announcements, P0, Offset(9));
        loading.on_end(Topic::Announcements, PartitionId(1), Offset(3));
        loading.on_position(Topic::Announcements, P0, Offset(8), at(10));
        loading.on_position(Topic::Announcements, PartitionId(1), Offset(3), at(10));
        assert_eq!(loading.stuck(at(14)), []);
        assert_eq!(loading.stuck(at(15)), stuck);
        assert_eq!(loading.stuck(at(19)), [], "one tick");
        assert_eq!(loading.stuck(at(20)), stuck, "another if that was lost");
        loading.on_position(Topic::Announcements, P0, Offset(9), at(21));
        assert_eq!(loading.stuck(at(99)), []);
    }
}
