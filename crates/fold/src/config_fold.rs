//! The folds of the config and control topics: the last record of a key always stands.

use std::collections::{HashMap, VecDeque};

use waypost_core::{
    Definition, DefinitionKey, Offset, PartitionId, Record, RecordKind, StoreInput, Timestamp,
    Topic,
};
use waypost_proto::definition::decode;

use crate::event::{FoldEvent, Outcome, RejectReason};
use crate::lane::Sameness;
use crate::limits::DELETED_DEFINITIONS_MAX;
use crate::topic_clock::{TopicClock, reject};

/// Definitions of services and clusters, as the config topic states them.
#[derive(Clone, Debug)]
pub struct ConfigFold {
    clock: TopicClock,
    by_key: HashMap<DefinitionKey, Held>,
    /// Deleted keys, oldest first.
    deleted: VecDeque<(DefinitionKey, Offset)>,
}

/// The last record of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The definition; `None` if the record deletes it.
    pub definition: Option<Definition>,
    /// Where the record stands.
    pub partition: PartitionId,
    /// Where the record stands: the revision that a change must name.
    pub offset: Offset,
    /// When the log took it.
    pub append_time: Timestamp,
}

impl Default for ConfigFold {
    fn default() -> Self {
        Self::new()
    }
}

impl ConfigFold {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: TopicClock::new(Topic::Config),
            by_key: HashMap::new(),
            deleted: VecDeque::new(),
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

    /// The topic has `count` partitions now.
    pub fn set_partitions(&mut self, count: u32) {
        self.clock.set_partitions(count);
    }

    /// The reader stands at `position`; what lay before and was not delivered was compacted.
    pub fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.clock.advance_to(partition, position);
    }

    /// Reads one record. A bad one is rejected alone: the definition before it stands.
    pub fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        if !self.clock.enter(record) {
            return Outcome::AlreadyRead;
        }
        match self.apply_new(record, events) {
            Ok(outcome) => outcome,
            Err(reason) => reject(Topic::Config, record, reason, events),
        }
    }

    /// The last record of `key`, a deletion included.
    #[must_use]
    pub fn find(&self, key: &DefinitionKey) -> Option<&Held> {
        self.by_key.get(key)
    }

    /// Every definition that exists.
    pub fn iter(&self) -> impl Iterator<Item = (&DefinitionKey, &Definition)> {
        let held = self.by_key.iter();
        held.filter_map(|(key, held)| held.definition.as_ref().map(|d| (key, d)))
    }

    /// Takes the place of `old` after a whole replay. What another or a shorter log lacks is left as
    /// it is served.
    pub(crate) fn adopt_missing(
        &mut self,
        old: &Self,
        sameness: Sameness,
        events: &mut Vec<FoldEvent>,
    ) {
        for (key, held) in &self.by_key {
            let before = old.by_key.get(key).and_then(|h| h.definition.as_ref());
            if before != held.definition.as_ref() {
                events.push(FoldEvent::Definition {
                    key: key.clone(),
                    input: to_store_input(key, held.definition.clone()),
                    partition: held.partition,
                    offset: held.offset,
                });
            }
        }
        for (key, held) in &old.by_key {
            let is_missing = !self.by_key.contains_key(key) && held.definition.is_some();
            if is_missing && sameness == Sameness::Same {
                events.push(FoldEvent::Definition {
                    key: key.clone(),
                    input: to_store_input(key, None),
                    partition: held.partition,
                    offset: held.offset,
                });
            }
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
        let Some(key) = DefinitionKey::from_record_key(key).map_err(RejectReason::Key)? else {
            return Ok(Outcome::Ignored);
        };
        let definition = match record.value.as_deref() {
            Some(value) => Some(decode(&key, value).map_err(RejectReason::Definition)?),
            None => None,
        };
        Ok(self.hold(key, definition, record, events))
    }

    fn hold(
        &mut self,
        key: DefinitionKey,
        definition: Option<Definition>,
        record: &Record,
        events: &mut Vec<FoldEvent>,
    ) -> Outcome {
        let held = Held {
            definition: definition.clone(),
            partition: record.partition,
            offset: record.offset,
            append_time: record.append_time,
        };
        if definition.is_none() {
            self.remember_deleted(key.clone(), record.offset);
        }
        let before = self.by_key.insert(key.clone(), held);
        if before.and_then(|held| held.definition) == definition {
            return Outcome::Unchanged;
        }
        events.push(FoldEvent::Definition {
            input: to_store_input(&key, definition),
            key,
            partition: record.partition,
            offset: record.offset,
        });
        Outcome::Changed
    }

    /// Keeps the number of deleted keys bounded: the one deleted longest ago is forgotten first.
    fn remember_deleted(&mut self, key: DefinitionKey, offset: Offset) {
        self.deleted.push_back((key, offset));
        if self.deleted.len() > DELETED_DEFINITIONS_MAX
            && let Some((oldest, deleted_at)) = self.deleted.pop_front()
            && self
                .by_key
                .get(&oldest)
                .is_some_and(|held| held.offset == deleted_at)
        {
            self.by_key.remove(&oldest);
        }
    }
}

fn to_store_input(key: &DefinitionKey, definition: Option<Definition>) -> StoreInput {
    match (key, definition) {
        (_, Some(Definition::Cluster(value))) => StoreInput::Cluster {
            name: value.name.clone(),
            value: Some(value),
        },
        (_, Some(Definition::Service(value))) => StoreInput::Service {
            name: value.name.clone(),
            value: Some(value),
        },
        (DefinitionKey::Cluster(name), None) => StoreInput::Cluster {
            name: name.clone(),
            value: None,
        },
        (DefinitionKey::Service(name), None) => StoreInput::Service {
            name: name.clone(),
            value: None,
        },
    }
}

/// The control topic. This release reads its ticks and identity; the rest is left to later ones.
#[derive(Clone, Debug)]
pub struct ControlFold {
    clock: TopicClock,
}

impl Default for ControlFold {
    fn default() -> Self {
        Self::new()
    }
}

impl ControlFold {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: TopicClock::new(Topic::Control),
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

    /// Nothing of this topic is served yet, so a replay leaves nothing behind.
    #[expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        reason = "as the other folds"
    )]
    pub(crate) fn adopt_missing(&mut self, _: &Self, _: Sameness, _: &mut Vec<FoldEvent>) {}

    /// The topic has `count` partitions now.
    pub fn set_partitions(&mut self, count: u32) {
        self.clock.set_partitions(count);
    }

    /// The reader stands at `position`; what lay before and was not delivered was compacted.
    pub fn advance_to(&mut self, partition: PartitionId, position: Offset) {
        self.clock.advance_to(partition, position);
    }

    /// Reads one record.
    pub fn apply(&mut self, record: &Record, events: &mut Vec<FoldEvent>) -> Outcome {
        if !self.clock.enter(record) {
            return Outcome::AlreadyRead;
        }
        let reason = match (&record.headers, &record.key) {
            (Err(e), _) => RejectReason::Header(e.clone()),
            (Ok(_), None) => RejectReason::NoKey,
            (Ok(headers), Some(key)) => {
                return self.clock.apply_reserved(record, key, headers.kind, events);
            }
        };
        reject(Topic::Control, record, reason, events)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use waypost_core::definition::{ClusterDefinition, DefinitionStat};
    use waypost_core::{ClusterName, Headers};
    use waypost_proto::definition::encode;

    use super::*;

    fn name() -> ClusterName {
        ClusterName::parse("greeter").unwrap()
    }

    fn mk_definition(document: &'static str) -> Definition {
        Definition::Cluster(ClusterDefinition {
            name: name(),
            document: Bytes::from_static(document.as_bytes()),
            stat: DefinitionStat::default(),
            author: "".into(),
        })
    }

    fn mk_record(offset: i64, key: &[u8], value: Option<Bytes>) -> Record {
        Record {
            partition: PartitionId(0),
            offset: Offset(offset),
            append_time: Timestamp(offset),
            key: Some(Bytes::copy_from_slice(key)),
            value,
            headers: Ok(Headers::default()),
        }
    }

    #[test]
    fn the_last_record_stands_and_equal_ones_are_no_change() {
        let key = DefinitionKey::Cluster(name());
        let record_key = key.to_record_key();
        let (one, two) = (mk_definition("{}"), mk_definition("{\"a\":1}"));
        let steps = [
            (Some(one.clone()), Outcome::Changed),
            (Some(one), Outcome::Unchanged),
            (Some(two), Outcome::Changed),
            (None, Outcome::Changed),
            (None, Outcome::Unchanged),
        ];
        let mut fold = ConfigFold::new();
        for (offset, (definition, expected)) in (0..).zip(steps) {
            let mut events = Vec::new();
            let record = mk_record(offset, &record_key, definition.as_ref().map(encode));
            assert_eq!(fold.apply(&record, &mut events), expected, "{offset}");
            let held = fold.find(&key).unwrap();
            assert_eq!(
                (&held.definition, held.offset),
                (&definition, Offset(offset))
            );
            assert_eq!(fold.iter().count(), usize::from(definition.is_some()));
            let told = events.iter().any(|event| {
                matches!(event, FoldEvent::Definition { input: StoreInput::Cluster { value, .. }, .. }
                    if value.clone().map(Definition::Cluster) == definition)
            });
            assert_eq!(told, expected == Outcome::Changed, "{offset}");
        }
    }

    #[test]
    fn a_bad_record_is_rejected_alone() {
        let key = DefinitionKey::Cluster(name());
        let good = encode(&mk_definition("{}"));
        let mut fold = ConfigFold::new();
        let mut events = Vec::new();
        fold.apply(
            &mk_record(0, &key.to_record_key(), Some(good.clone())),
            &mut events,
        );
        let noise = Some(Bytes::from_static(b"\xff\xff"));
        let cases: [(&[u8], Option<Bytes>, &str); 4] = [
            (&key.to_record_key(), noise.clone(), "definition"),
            (b"cluster\0other", Some(good), "definition"),
            (b"nothing", noise, "key"),
            (b"cluster\0a/b", None, "key"),
        ];
        for (offset, (record_key, value, label)) in (1..).zip(cases) {
            let outcome = fold.apply(&mk_record(offset, record_key, value), &mut events);
            let Outcome::Rejected(reason) = outcome else {
                panic!("{label}: {outcome:?}");
            };
            assert_eq!(reason.as_str(), label);
        }
        let mut keyless = mk_record(9, b"", None);
        keyless.key = None;
        let outcome = fold.apply(&keyless, &mut events);
        assert_eq!(outcome, Outcome::Rejected(RejectReason::NoKey));
        assert_eq!(
            fold.find(&key).unwrap().offset,
            Offset(0),
            "what was good stands"
        );
        let unknown = mk_record(10, b"override\0x", None);
        assert_eq!(fold.apply(&unknown, &mut events), Outcome::Ignored);
    }

    #[test]
    fn deleted_names_are_remembered_up_to_a_bound() {
        let mut fold = ConfigFold::new();
        let mut events = Vec::new();
        let key_of = |i| DefinitionKey::Cluster(ClusterName::parse(&format!("c{i}")).unwrap());
        let count = DELETED_DEFINITIONS_MAX + 5;
        for i in 0..count {
            let offset = i64::try_from(i).unwrap();
            let record = mk_record(offset, &key_of(i).to_record_key(), None);
            fold.apply(&record, &mut events);
        }
        assert!(fold.find(&key_of(4)).is_none());
        assert!(fold.find(&key_of(5)).is_some());
    }
}
