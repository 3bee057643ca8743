//! What this Observer writes: ticks, expires, burials and the log's identity.

use std::time::Duration;

use waypost_core::record::KeeperId;
use waypost_core::{NewRecord, Offset, PartitionId, Topic};

use crate::config_fold::{ConfigFold, ControlFold};
use crate::event::Tick;
use crate::fold::Fold;
use crate::limits::{SLOW_TICK_INTERVAL, TICK_INTERVAL};

/// Whether an Observer writes at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// It takes part: may become keeper, and is part of the safety net.
    #[default]
    ReadWrite,
    /// `--read-only`: it folds another fabric's log and writes nothing.
    ReadOnly,
}

/// How a keeper behaves. All durations but for tests as in `limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperSettings {
    /// Whether it writes.
    pub access: Access,
    /// How often the announcements topic is ticked.
    pub tick_interval: Duration,
    /// How often the config and control topics are ticked.
    pub slow_tick_interval: Duration,
}

impl Default for KeeperSettings {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            tick_interval: TICK_INTERVAL,
            slow_tick_interval: SLOW_TICK_INTERVAL,
        }
    }
}

/// The three folds of one log, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Logs<'a> {
    /// The announcements topic.
    pub announcements: &'a Fold,
    /// The config topic.
    pub config: &'a ConfigFold,
    /// The control topic.
    pub control: &'a ControlFold,
}

/// What an Observer is to the log at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads only: by its settings, or because it is not at the end of every partition yet.
    Follower,
    /// Another ticks, or is about to.
    Standby,
    /// It ticks. It is the keeper once its own tick was the last one read in partition 0.
    Ticking,
}

/// The state machine of one Observer.
#[derive(Clone, Debug)]
pub struct Keeper {
    id: KeeperId,
    settings: KeeperSettings,
}

impl Keeper {
    /// A follower that has seen nothing yet.
    #[must_use]
    pub fn new(id: KeeperId, settings: KeeperSettings) -> Self {
        Self { id, settings }
    }

    /// Whose decisions these are.
    #[must_use]
    pub fn id(&self) -> KeeperId {
        self.id
    }

    /// What this Observer is at the moment.
    #[must_use]
    pub fn role(&self) -> Role {
        Role::Follower
    }

    /// Whether this Observer's tick was the last one read in partition 0.
    #[must_use]
    pub fn is_keeper(&self, logs: &Logs<'_>) -> bool {
        let clock = logs.announcements.clock().find(PartitionId(0));
        clock
            .and_then(|clock| clock.last_tick())
            .is_some_and(|tick| tick.keeper == self.id)
    }

    /// A tick was read.
    pub fn on_tick(&mut self, _tick: &Tick, _now: Duration) {}

    /// The log said, after everything read so far was read, that a partition ends at `end`.
    pub fn on_end(
        &mut self,
        _topic: Topic,
        _partition: PartitionId,
        _end: Offset,
        _logs: &Logs<'_>,
        _now: Duration,
    ) {
    }

    /// What is to be written now. Each record is appended once and never retried.
    pub fn due(&mut self, _now: Duration, _logs: &Logs<'_>) -> Vec<NewRecord> {
        let _ = self.settings;
        Vec::new()
    }

    /// A record that `due` gave out was taken by the log, or was given up.
    pub fn on_settled(&mut self, _record: &NewRecord) {}

    /// One tick for a partition whose position stands still below its end; `None` if this Observer
    /// writes nothing.
    #[must_use]
    pub fn nudge(&self, place: (Topic, PartitionId), logs: &Logs<'_>) -> Option<NewRecord> {
        let _ = (place, logs);
        None
    }
}
