//! An Observer without anything around it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use waypost_core::record::KeeperId;
use waypost_core::{InstanceKey, Offset, PartitionId, RecordKind, Topic};
use waypost_fold::{
    Access, ConfigFold, ControlFold, Fold, FoldEvent, FoldSettings, Keeper, KeeperSettings,
    Loading, Logs, Outcome,
};

use super::SimLog;

pub(crate) struct Observer {
    pub(crate) fold: Fold,
    pub(crate) config: ConfigFold,
    pub(crate) control: ControlFold,
    pub(crate) keeper: Keeper,
    pub(crate) loading: Loading,
    /// Everything that was ever told.
    pub(crate) events: Vec<FoldEvent>,
    pub(crate) outcomes: BTreeMap<(PartitionId, Offset), Outcome>,
    served: BTreeMap<InstanceKey, Bytes>,
    running: bool,
    loses_expires: bool,
    lost_expires: usize,
    /// Partitions that are not read, as if they were slow.
    pub(crate) blocked: BTreeSet<PartitionId>,
}

impl Observer {
    pub(crate) fn new(id: KeeperId, access: Access) -> Self {
        let settings = KeeperSettings {
            access,
            ..KeeperSettings::default()
        };
        Self {
            fold: Fold::new(FoldSettings::default()),
            config: ConfigFold::new(),
            control: ControlFold::new(),
            keeper: Keeper::new(id, settings),
            loading: Loading::new(&Topic::ALL, Duration::ZERO),
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            served: BTreeMap::new(),
            running: true,
            loses_expires: false,
            lost_expires: 0,
            blocked: BTreeSet::new(),
        }
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    /// SIGCONT: it goes on where it stood, and first of all does what it had in mind.
    pub(crate) fn go_on(&mut self) {
        self.running = true;
    }

    /// From now on the expires that it writes never reach the log.
    pub(crate) fn loses_expires(&mut self, loses: bool) {
        self.loses_expires = loses;
    }

    /// How many did not.
    pub(crate) fn lost_expires(&self) -> usize {
        self.lost_expires
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    pub(crate) fn step(&mut self, log: &mut SimLog, now: Duration) {
        if !self.running {
            return;
        }
        // What it decides before it reads must be safe, too: it may just have been asleep.
        self.write(log, now);
        self.read(log, now);
        self.write(log, now);
    }

    /// Reads to the end of every partition that is not blocked.
    pub(crate) fn read(&mut self, log: &SimLog, now: Duration) {
        for topic in Topic::ALL {
            let count = log.partition_count(topic);
            self.loading.on_partitions(topic, count);
            match topic {
                Topic::Announcements => self.fold.set_partitions(count),
                Topic::Config => self.config.set_partitions(count),
                Topic::Control => self.control.set_partitions(count),
            }
            for partition in (0..count).map(PartitionId) {
                let end = log.end(topic, partition);
                self.loading.on_end(topic, partition, end);
                if topic != Topic::Announcements || !self.blocked.contains(&partition) {
                    self.read_partition(log, topic, partition, now);
                }
                let logs = Logs {
                    announcements: &self.fold,
                    config: &self.config,
                    control: &self.control,
                };
                self.keeper.on_end(topic, partition, end, &logs, now);
            }
        }
        self.loading.on_log_time(self.fold.clock().log_time_min());
    }

    fn read_partition(
        &mut self,
        log: &SimLog,
        topic: Topic,
        partition: PartitionId,
        now: Duration,
    ) {
        let clock = self.logs().clock(topic);
        let position = clock.find(partition).map_or(Offset(0), |c| c.position());
        let mut events = Vec::new();
        for record in log.read(topic, partition, position) {
            match topic {
                Topic::Announcements => {
                    let outcome = self.fold.apply(record, &mut events);
                    self.outcomes.insert((partition, record.offset), outcome);
                }
                Topic::Config => {
                    self.config.apply(record, &mut events);
                }
                Topic::Control => {
                    self.control.apply(record, &mut events);
                }
            }
        }
        let end = log.end(topic, partition);
        match topic {
            Topic::Announcements => self.fold.advance_to(partition, end),
            Topic::Config => self.config.advance_to(partition, end),
            Topic::Control => self.control.advance_to(partition, end),
        }
        self.loading.on_position(topic, partition, end, now);
        for event in events {
            self.take(event, now);
        }
    }

    fn take(&mut self, event: FoldEvent, now: Duration) {
        match &event {
            FoldEvent::Live { key, value } => {
                self.served.insert(key.clone(), value.clone());
            }
            FoldEvent::Gone { key, .. } => {
                self.served.remove(key);
            }
            FoldEvent::Ticked(tick) => self.keeper.on_tick(tick, now),
            _ => {}
        }
        self.events.push(event);
    }

    fn write(&mut self, log: &mut SimLog, now: Duration) {
        let logs = Logs {
            announcements: &self.fold,
            config: &self.config,
            control: &self.control,
        };
        for record in self.keeper.due(now, &logs) {
            if self.loses_expires && record.headers.kind == RecordKind::Expire {
                self.lost_expires += 1;
            } else {
                log.append(record.clone());
            }
            self.keeper.on_settled(&record);
        }
    }

    pub(crate) fn logs(&self) -> Logs<'_> {
        Logs {
            announcements: &self.fold,
            config: &self.config,
            control: &self.control,
        }
    }

    pub(crate) fn is_keeper(&self) -> bool {
        self.keeper.is_keeper(&self.logs())
    }

    pub(crate) fn serves(&self, key: &InstanceKey) -> bool {
        self.served.contains_key(key)
    }

    pub(crate) fn served_value(&self, key: &InstanceKey) -> Option<&Bytes> {
        self.served.get(key)
    }

    pub(crate) fn served_keys(&self) -> BTreeSet<InstanceKey> {
        self.served.keys().cloned().collect()
    }

    pub(crate) fn digests(&self) -> Vec<u64> {
        self.fold.partitions().map(|p| p.digest).collect()
    }

    /// What it was told of changes adds up to what the fold holds.
    pub(crate) fn assert_served_is_held(&self) {
        let held: BTreeMap<_, _> = self.fold.iter().map(|v| (v.key, v.value)).collect();
        assert_eq!(self.served, held);
    }
}
