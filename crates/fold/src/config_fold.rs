//! The folds of the config and control topics: the last record of a key always stands
//! (docs/announcement-log.md, "The config topic").

mod adopt;
mod conflict;
mod control;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use waypost_core::config::{
    ConfigKey, ConfigValue, Eviction, JournalEntry, JournalKey, Release, Replaces,
};
use waypost_core::{
    ClusterName, Definition, DefinitionKey, InstanceKey, Offset, Override, PartitionId, Record,
    RecordKind, ReleaseScope, Revision, StoreInput, Timestamp, Topic,
};
use waypost_proto::config::decode;

use crate::event::{FoldEvent, Outcome, RejectReason};
use crate::limits::{
    CONFLICTS_HELD_MAX, DELETED_DEFINITIONS_MAX, JOURNAL_HELD_MAX, OVERRIDES_HELD_MAX,
    STATEMENTS_HELD_MAX,
};
use crate::topic_clock::{TopicClock, reject};

pub use conflict::{Conflict, Overwritten};
pub use control::ControlFold;

/// Definitions, overrides and the statements of operators, as the config topic holds them.
#[derive(Clone, Debug)]
pub struct ConfigFold {
    clock: TopicClock,
    by_key: HashMap<ConfigKey, Held>,
    overrides: usize,
    /// Deleted definitions and overrides, oldest first.
    deleted: VecDeque<(ConfigKey, Offset)>,
    /// Evictions and releases, oldest first.
    statements: VecDeque<(ConfigKey, Offset)>,
    journal: BTreeSet<JournalKey>,
    /// The last few, oldest first.
    conflicts: VecDeque<Arc<Conflict>>,
    conflicts_total: u64,
}

/// The last record of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What it says; `None` if the record deletes it.
    pub value: Option<ConfigValue>,
    /// Where the record stands.
    pub partition: PartitionId,
    /// Where the record stands: the revision that a change must name.
    pub offset: Offset,
    /// When the log took it.
    pub append_time: Timestamp,
    /// What the record replaces, where it says so.
    pub replaces: Option<Replaces>,
    /// Whether this log has it.
    pub origin: Origin,
    /// What it overwrote without having seen it.
    pub conflict: Option<Arc<Conflict>>,
}

/// Whether the log that is read now has a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It has.
    Log,
    /// It was read from another log, or from this one before it was cut, and is kept until an
    /// operator restores or forgets it. Where it stood means nothing any more.
    Orphaned,
}

impl Held {
    fn is_live(&self) -> bool {
        self.value.is_some()
    }
}

impl Default for ConfigFold {
    fn default() -> Self {
        Self::new()
    }
}

/// Reading what is held.
impl ConfigFold {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: TopicClock::new(Topic::Config),
            by_key: HashMap::new(),
            overrides: 0,
            deleted: VecDeque::new(),
            statements: VecDeque::new(),
            journal: BTreeSet::new(),
            conflicts: VecDeque::new(),
            conflicts_total: 0,
        }
    }

    /// Positions, ticks and identity.
    #[must_use]
    pub fn clock(&self) -> &TopicClock {
        &self.clock
    }

    pub(crate) fn clock_mut(&mut self) -> &mut TopicClock {
        &mut self.clock
    }

    /// The last record of `key`, a deletion included.
    #[must_use]
    pub fn find(&self, key: &ConfigKey) -> Option<&Held> {
        self.by_key.get(key)
    }

    /// The revision that a change of `key` must name; `None` where it has no record in this log.
    #[must_use]
    pub fn find_revision(&self, key: &ConfigKey) -> Option<Revision> {
        let held = self.find(key).filter(|held| held.origin == Origin::Log)?;
        Some(Revision {
            offset: held.offset,
            log: self.clock.identity(),
        })
    }

    /// The last record of every key, deletions included.
    pub fn records(&self) -> impl Iterator<Item = (&ConfigKey, &Held)> {
        self.by_key.iter()
    }

    /// Every definition that exists.
    pub fn definitions(&self) -> impl Iterator<Item = (&DefinitionKey, &Definition)> {
        self.by_key
            .iter()
            .filter_map(|(key, held)| match (key, &held.value) {
                (ConfigKey::Definition(key), Some(ConfigValue::Definition(d))) => Some((key, d)),
                _ => None,
            })
    }

    /// Every override that stands.
    pub fn overrides(&self) -> impl Iterator<Item = (&InstanceKey, &Override)> {
        self.by_key.values().filter_map(|held| match &held.value {
            Some(ConfigValue::Override(o)) => Some((&o.instance, o)),
            _ => None,
        })
    }

    /// Who evicted which instance last, as far as that is remembered.
    pub fn evictions(&self) -> impl Iterator<Item = &Eviction> {
        self.by_key.values().filter_map(|held| match &held.value {
            Some(ConfigValue::Eviction(eviction)) => Some(eviction),
            _ => None,
        })
    }

    /// Who released what last, as far as that is remembered.
    pub fn releases(&self) -> impl Iterator<Item = &Release> {
        self.by_key.values().filter_map(|held| match &held.value {
            Some(ConfigValue::Release(release)) => Some(release),
            _ => None,
        })
    }

    /// Releases that stand, with when the log took them.
    pub(crate) fn released(&self) -> impl Iterator<Item = (&ReleaseScope, Timestamp)> {
        self.by_key.iter().filter_map(|(key, held)| match key {
            ConfigKey::Release(scope) if held.is_live() && held.origin == Origin::Log => {
                Some((scope, held.append_time))
            }
            _ => None,
        })
    }

    /// What the journal holds, youngest first.
    pub fn journal(&self) -> impl Iterator<Item = (JournalKey, &JournalEntry)> {
        let keys = self.journal.iter().rev();
        keys.filter_map(|key| match &self.find(&ConfigKey::Journal(*key))?.value {
            Some(ConfigValue::Journal(entry)) => Some((*key, entry)),
            _ => None,
        })
    }

    /// Records that overwrote what their writers had not seen, youngest first: the last few.
    pub fn conflicts(&self) -> impl Iterator<Item = &Arc<Conflict>> {
        self.conflicts.iter().rev()
    }

    /// How many such records were read.
    #[must_use]
    pub fn conflicts_total(&self) -> u64 {
        self.conflicts_total
    }

    /// Definitions and overrides that the log does not hold and that are kept, and in force, until an
    /// operator decides.
    pub fn orphans(&self) -> impl Iterator<Item = (&ConfigKey, &Held)> {
        self.orphaned().filter(|(key, _)| is_in_force(key))
    }

    /// What the log does not hold of who did what: nothing depends on it.
    pub fn orphaned_history(&self) -> impl Iterator<Item = (&ConfigKey, &Held)> {
        self.orphaned().filter(|(key, _)| !is_in_force(key))
    }

    fn orphaned(&self) -> impl Iterator<Item = (&ConfigKey, &Held)> {
        let held = self.by_key.iter();
        held.filter(|(_, held)| held.origin == Origin::Orphaned)
    }

    /// When the log took the younger of the cluster's release and the one of all: what was announced
    /// last at or before that may expire whatever the cap says. `None`: there was none.
    #[must_use]
    pub fn released_at(&self, cluster: &ClusterName) -> Option<Timestamp> {
        let scopes = [ReleaseScope::All, ReleaseScope::Cluster(cluster.clone())];
        let found = scopes.map(|scope| {
            let held = self.find(&ConfigKey::Release(scope))?;
            (held.is_live() && held.origin == Origin::Log).then_some(held.append_time)
        });
        found.into_iter().flatten().max()
    }
}

/// Reading records.
impl ConfigFold {
    /// The topic has `count` partitions now.
    pub fn set_partitions(&mut self, count: u32) {
        self.clock.set_partitions(count);
    }

    /// The reader stands at `position`; what lay before and was not delivered was compacted.
    pub fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.clock.advance_to(partition, position);
    }

    /// Reads one record. A bad one is rejected alone: what stood before it stands.
    pub fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        if !self.clock.enter(record) {
            return Outcome::AlreadyRead;
        }
        match self.apply_new(record, events) {
            Ok(outcome) => outcome,
            Err(reason) => reject(Topic::Config, record, reason, events),
        }
    }

    fn apply_new(
        &mut self,
        record: &Record,
        events: &mut Vec<FoldEvent>,
    ) -> Result<Outcome, RejectReason> {
        let headers = record.headers.as_ref().map_err(Clone::clone)?;
        let key = record.key.as_deref().ok_or(RejectReason::NoKey)?;
        if key.first() == Some(&0) || headers.kind != RecordKind::Announce {
            return Ok(self.clock.apply_reserved(record, key, headers.kind, events));
        }
        let Some(key) = ConfigKey::from_record_key(key).map_err(RejectReason::Key)? else {
            return Ok(Outcome::Ignored);
        };
        let value = match record.value.as_deref() {
            Some(value) => Some(decode(&key, value).map_err(RejectReason::Config)?),
            None => None,
        };
        let is_new_override = matches!(value, Some(ConfigValue::Override(_)))
            && !self.find(&key).is_some_and(Held::is_live);
        if is_new_override && self.overrides >= OVERRIDES_HELD_MAX {
            let reason = "too many overrides stand already; clear some of them";
            return Err(RejectReason::Form(reason));
        }
        let held = Held {
            value,
            partition: record.partition,
            offset: record.offset,
            append_time: record.append_time,
            replaces: headers.replaces,
            origin: Origin::Log,
            conflict: None,
        };
        Ok(self.take(key, held, events))
    }

    fn take(&mut self, key: ConfigKey, mut held: Held, events: &mut Vec<FoldEvent>) -> Outcome {
        if let Some(conflict) = self.find_conflict(&key, &held) {
            let conflict = Arc::new(conflict);
            self.remember_conflict(Arc::clone(&conflict));
            events.push(FoldEvent::Conflict(Arc::clone(&conflict)));
            held.conflict = Some(conflict);
        }
        let before = self.find(&key).and_then(|held| held.value.as_ref());
        let is_change = before != held.value.as_ref();
        if is_change {
            events.extend(to_event(&key, &held));
        } else if let (ConfigKey::Definition(name), None, None) =
            (&key, &held.value, self.find(&key))
        {
            events.push(FoldEvent::AbsentDefinition {
                key: name.clone(),
                at: held.append_time,
            });
        }
        self.hold(key, held);
        if is_change {
            Outcome::Changed
        } else {
            Outcome::Unchanged
        }
    }

    /// Puts a record in its place and keeps what is bounded within its bounds: what was written
    /// longest ago is forgotten first.
    pub(crate) fn hold(&mut self, key: ConfigKey, held: Held) {
        let (offset, is_live) = (held.offset, held.is_live());
        match (&key, is_live) {
            (ConfigKey::Journal(entry), true) => {
                self.journal.insert(*entry);
            }
            // Pruned by whoever wrote the journal on; nothing compares with it.
            (ConfigKey::Journal(entry), false) => {
                self.journal.remove(entry);
                self.by_key.remove(&key);
                return;
            }
            (ConfigKey::Eviction(_) | ConfigKey::Release(_), true) => {
                self.statements.push_back((key.clone(), offset));
            }
            (_, true) => {}
            (_, false) => self.deleted.push_back((key.clone(), offset)),
        }
        let is_override = matches!(key, ConfigKey::Override(_));
        let before = self.by_key.insert(key, held);
        if is_override {
            let was_live = before.is_some_and(|held| held.is_live());
            self.overrides = self.overrides + usize::from(is_live) - usize::from(was_live);
        }
        self.forget_beyond_bounds();
    }

    fn forget_beyond_bounds(&mut self) {
        let queues = [
            (&mut self.deleted, DELETED_DEFINITIONS_MAX),
            (&mut self.statements, STATEMENTS_HELD_MAX),
        ];
        for (queue, max) in queues {
            while queue.len() > max
                && let Some((oldest, offset)) = queue.pop_front()
            {
                let held = self.by_key.get(&oldest);
                if held.is_some_and(|held| held.offset == offset) {
                    self.by_key.remove(&oldest);
                }
            }
        }
        while self.journal.len() > JOURNAL_HELD_MAX
            && let Some(oldest) = self.journal.pop_first()
        {
            self.by_key.remove(&ConfigKey::Journal(oldest));
        }
    }

    fn remember_conflict(&mut self, conflict: Arc<Conflict>) {
        self.conflicts_total += 1;
        if self.conflicts.len() == CONFLICTS_HELD_MAX {
            self.conflicts.pop_front();
        }
        self.conflicts.push_back(conflict);
    }
}

/// Whether what is served depends on a record of this kind.
fn is_in_force(key: &ConfigKey) -> bool {
    matches!(key, ConfigKey::Definition(_) | ConfigKey::Override(_))
}

/// What whoever serves is told of a record; nothing where it is served nowhere.
fn to_event(key: &ConfigKey, held: &Held) -> Option<FoldEvent> {
    let input = match (key, held.value.clone()) {
        (_, Some(ConfigValue::Definition(Definition::Cluster(value)))) => StoreInput::Cluster {
            name: value.name.clone(),
            value: Some(value),
        },
        (_, Some(ConfigValue::Definition(Definition::Service(value)))) => StoreInput::Service {
            name: value.name.clone(),
            value: Some(value),
        },
        (_, Some(ConfigValue::Definition(Definition::Callees(value)))) => StoreInput::Callees {
            application: value.application.clone(),
            value: Some(value),
        },
        (_, Some(ConfigValue::Override(value))) => StoreInput::Override {
            key: value.instance.clone(),
            value: Some(value),
        },
        (ConfigKey::Definition(DefinitionKey::Cluster(name)), None) => StoreInput::Cluster {
            name: name.clone(),
            value: None,
        },
        (ConfigKey::Definition(DefinitionKey::Service(name)), None) => StoreInput::Service {
            name: name.clone(),
            value: None,
        },
        (ConfigKey::Definition(DefinitionKey::Callees(application)), None) => StoreInput::Callees {
            application: application.clone(),
            value: None,
        },
        (ConfigKey::Override(instance), None) => StoreInput::Override {
            key: instance.clone(),
            value: None,
        },
        (ConfigKey::Eviction(_) | ConfigKey::Release(_) | ConfigKey::Journal(_), _)
        | (_, Some(_)) => return None,
    };
    Some(FoldEvent::Config {
        key: key.clone(),
        input,
        partition: held.partition,
        offset: held.offset,
    })
}
