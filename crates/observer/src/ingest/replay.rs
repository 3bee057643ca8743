//! Reading a topic again from its beginning while the old state is served.
//!
//! A replay passes through old values on its way, so nothing of it reaches the store before its end;
//! then everything that the fold holds does, in one batch, and what is equal changes nothing. What
//! the replay does not hold is left alone: which of it may go is decided by the rules for another,
//! shorter or equal log (docs/announcement-log.md, "Identity, loading, replay"). What it *states* to
//! be gone is removed.

use std::collections::{BTreeMap, HashMap};

use waypost_core::definition::Definition;
use waypost_core::{DefinitionKey, InstanceKey, Offset, PartitionId, StoreInput, Topic};
use waypost_fold::{ConfigFold, ControlFold, Fold, FoldSettings, Keeper};

use super::{Folds, Followers, Ingest};

/// The topics that are being read again.
#[derive(Debug, Default)]
pub(super) struct Replays(BTreeMap<Topic, Statements>);

/// The last statement of the replay about each name that it has stated to be gone.
#[derive(Debug, Default)]
struct Statements {
    gone: HashMap<Name, StoreInput>,
    caught_up: BTreeMap<PartitionId, Offset>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Instance(InstanceKey),
    Definition(DefinitionKey),
    Override(InstanceKey),
}

impl Replays {
    /// Whether nothing is being read again.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets statements through, or keeps those of a topic that is being read again.
    pub(super) fn hold_back(&mut self, topic: Topic, inputs: Vec<StoreInput>) -> Vec<StoreInput> {
        let Some(statements) = self.0.get_mut(&topic) else {
            return inputs;
        };
        for input in inputs {
            let (name, is_gone) = describe(&input);
            if is_gone {
                statements.gone.insert(name, input);
            } else {
                statements.gone.remove(&name);
            }
        }
        Vec::new()
    }
}

impl Ingest {
    /// Starts a topic again with an empty fold. The store, and what is loaded, stay.
    pub(super) fn begin_replay(&mut self, topic: Topic, followers: &mut Followers) {
        self.metrics.on_replay(topic);
        let partitions = self.folds.clock(topic).partition_count();
        match topic {
            Topic::Announcements => self.folds.announcements = Fold::new(FoldSettings::default()),
            Topic::Config => self.folds.config = ConfigFold::new(),
            Topic::Control => self.folds.control = ControlFold::new(),
        }
        self.folds.set_partitions(topic, partitions);
        self.freshness.forget(topic);
        self.keeper = Keeper::new(self.keeper.id(), self.keeper_settings);
        if self.loading.is_loaded() {
            self.replays.0.insert(topic, Statements::default());
        }
        followers.get(topic).reopen(Vec::new());
    }

    /// Ends a replay whose every partition was read to its end.
    pub(super) fn finish_replay(&mut self, topic: Topic) {
        let Some(statements) = self.replays.0.get_mut(&topic) else {
            return;
        };
        for (partition, clock) in self.folds.clock(topic).iter() {
            let end = self.freshness.end(topic, partition);
            if end.is_some_and(|end| clock.position() >= end) {
                statements.caught_up.insert(partition, clock.position());
            }
        }
        let partitions = self.folds.clock(topic).partition_count() as usize;
        if statements.caught_up.len() < partitions {
            return;
        }
        let gone = self.replays.0.remove(&topic).unwrap_or_default().gone;
        let mut inputs = self.folds.to_statements(topic);
        inputs.extend(gone.into_values());
        tracing::info!(
            topic = topic.suffix(),
            statements = inputs.len(),
            "the topic was read again"
        );
        self.writer.apply(self.log_now, inputs);
        if self.replays.is_empty() {
            self.verdicts.tell(&self.progress);
        }
    }
}

impl Folds {
    /// Everything that a topic's fold holds, as statements for the store.
    fn to_statements(&self, topic: Topic) -> Vec<StoreInput> {
        match topic {
            Topic::Announcements => {
                let live = self.announcements.iter();
                live.map(|instance| StoreInput::Instance {
                    key: instance.key,
                    value: Some(instance.value),
                })
                .collect()
            }
            Topic::Config => {
                let definitions = self.config.definitions();
                let overrides = self.config.overrides();
                let overrides = overrides.map(|(key, o)| StoreInput::Override {
                    key: key.clone(),
                    value: Some(o.clone()),
                });
                definitions
                    .map(|(_, d)| to_statement(d))
                    .chain(overrides)
                    .collect()
            }
            Topic::Control => Vec::new(),
        }
    }
}

fn to_statement(definition: &Definition) -> StoreInput {
    match definition {
        Definition::Cluster(value) => StoreInput::Cluster {
            name: value.name.clone(),
            value: Some(value.clone()),
        },
        Definition::Service(value) => StoreInput::Service {
            name: value.name.clone(),
            value: Some(value.clone()),
        },
    }
}

fn describe(input: &StoreInput) -> (Name, bool) {
    match input {
        StoreInput::Instance { key, value } => (Name::Instance(key.clone()), value.is_none()),
        StoreInput::Cluster { name, value } => (
            Name::Definition(DefinitionKey::Cluster(name.clone())),
            value.is_none(),
        ),
        StoreInput::Service { name, value } => (
            Name::Definition(DefinitionKey::Service(name.clone())),
            value.is_none(),
        ),
        StoreInput::Override { key, value } => (Name::Override(key.clone()), value.is_none()),
    }
}
