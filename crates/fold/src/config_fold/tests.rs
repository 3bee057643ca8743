//! Records of the config topic, one after another.

mod adopting;

use bytes::Bytes;
use waypost_core::config::{
    Eviction, JournalAction, JournalEntry, OverrideEffect, Release, Signed, Weight,
};
use waypost_core::definition::{CalleesDefinition, ClusterDefinition, DefinitionStat};
use waypost_core::record::{IDENTITY_KEY, LogIdentity};
use waypost_core::{ApplicationName, ClusterName, Headers, InstanceUri, ServiceName};
use waypost_proto::config::encode;

use super::*;

fn cluster() -> ClusterName {
    ClusterName::parse("greeter").unwrap()
}

fn instance(port: usize) -> InstanceKey {
    InstanceKey {
        cluster: cluster(),
        uri: InstanceUri::parse(&format!("grpc://10.0.0.7:{}", 1000 + port % 60_000)).unwrap(),
    }
}

fn definition_key() -> ConfigKey {
    ConfigKey::Definition(DefinitionKey::Cluster(cluster()))
}

fn signed(author: &str) -> Signed {
    Signed {
        author: author.into(),
        reason: "INC-7".into(),
        at: Timestamp(5),
    }
}

fn definition(document: &str, author: &str) -> Option<ConfigValue> {
    Some(ConfigValue::Definition(Definition::Cluster(
        ClusterDefinition {
            name: cluster(),
            document: Bytes::copy_from_slice(document.as_bytes()),
            stat: DefinitionStat::default(),
            author: author.into(),
        },
    )))
}

fn application() -> ApplicationName {
    ApplicationName::parse("shop").unwrap()
}

fn callees(services: &[&str]) -> Option<ConfigValue> {
    let services = services.iter().map(|s| ServiceName::parse(s).unwrap());
    Some(ConfigValue::Definition(Definition::Callees(
        CalleesDefinition {
            application: application(),
            services: services.collect(),
            stat: DefinitionStat::default(),
            author: "".into(),
        },
    )))
}

fn weight(port: usize, weight: f64) -> Option<ConfigValue> {
    Some(ConfigValue::Override(Override {
        instance: instance(port),
        effect: OverrideEffect::Weight(Weight::new(weight).unwrap()),
        signed: signed("ann@a"),
        stat: DefinitionStat {
            modified: Timestamp(5),
            ..DefinitionStat::default()
        },
    }))
}

fn eviction(port: usize) -> Option<ConfigValue> {
    Some(ConfigValue::Eviction(Eviction {
        instance: instance(port),
        signed: signed("ann@a"),
    }))
}

fn release(scope: &ReleaseScope) -> Option<ConfigValue> {
    Some(ConfigValue::Release(Release {
        scope: scope.clone(),
        signed: signed("ann@a"),
    }))
}

fn journal(subject: ConfigKey, action: JournalAction, author: &str) -> Option<ConfigValue> {
    Some(ConfigValue::Journal(JournalEntry {
        subject,
        action,
        detail: "".into(),
        signed: signed(author),
    }))
}

fn journal_key(at: i64) -> ConfigKey {
    ConfigKey::Journal(JournalKey {
        at: Timestamp(at),
        id: 1,
    })
}

fn revision(offset: i64) -> Replaces {
    Replaces::Revision(Revision {
        offset: Offset(offset),
        log: None,
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

/// A fold and the offset of the next record.
#[derive(Default)]
struct Log {
    fold: ConfigFold,
    next: i64,
    events: Vec<FoldEvent>,
}

impl Log {
    fn put(&mut self, key: &ConfigKey, value: Option<ConfigValue>) -> Outcome {
        self.put_replacing(None, key, value)
    }

    fn put_replacing(
        &mut self,
        replaces: Option<Replaces>,
        key: &ConfigKey,
        value: Option<ConfigValue>,
    ) -> Outcome {
        let value = value.as_ref().map(encode);
        let mut record = mk_record(self.next, &key.to_record_key(), value);
        record.headers = Ok(Headers {
            replaces,
            ..Headers::default()
        });
        self.next += 1;
        self.fold.apply(&record, &mut self.events)
    }

    /// The only conflict seen so far.
    fn conflict(&self) -> Option<&Arc<Conflict>> {
        assert!(
            self.fold.conflicts().count() < 2,
            "{:?}",
            self.fold.conflicts
        );
        self.fold.conflicts().next()
    }

    /// What whoever serves was told since the last time: the key and whether there is a value.
    fn told(&mut self) -> Vec<(ConfigKey, bool)> {
        let events = std::mem::take(&mut self.events).into_iter();
        let told = events.filter_map(|event| match event {
            FoldEvent::Config { key, input, .. } => Some((key, has_value(&input))),
            _ => None,
        });
        told.collect()
    }
}

fn has_value(input: &StoreInput) -> bool {
    match input {
        StoreInput::Cluster { value, .. } => value.is_some(),
        StoreInput::Service { value, .. } => value.is_some(),
        StoreInput::Callees { value, .. } => value.is_some(),
        StoreInput::Override { value, .. } => value.is_some(),
        StoreInput::Instance { value, .. } => value.is_some(),
    }
}

#[test]
fn the_last_record_stands_and_equal_ones_are_no_change() {
    let override_key = ConfigKey::Override(instance(1));
    for (key, one, two) in [
        (
            definition_key(),
            definition("{}", ""),
            definition("[1]", ""),
        ),
        (
            ConfigKey::Definition(DefinitionKey::Callees(application())),
            callees(&["a"]),
            callees(&[]),
        ),
        (override_key, weight(1, 0.0), weight(1, 2.0)),
    ] {
        let steps = [
            (one.clone(), Outcome::Changed),
            (one, Outcome::Unchanged),
            (two, Outcome::Changed),
            (None, Outcome::Changed),
            (None, Outcome::Unchanged),
        ];
        let mut log = Log::default();
        for (value, expected) in steps {
            let offset = Offset(log.next);
            assert_eq!(log.put(&key, value.clone()), expected, "{offset}");
            let held = log.fold.find(&key).unwrap();
            assert_eq!((&held.value, held.offset), (&value, offset));
            let live = log.fold.definitions().count() + log.fold.overrides().count();
            assert_eq!(live, usize::from(value.is_some()));
            let expected: &[_] = match expected {
                Outcome::Changed => &[(key.clone(), value.is_some())],
                _ => &[],
            };
            assert_eq!(log.told(), expected, "{offset}");
        }
    }
}

#[test]
fn a_bad_record_is_rejected_alone() {
    let mut log = Log::default();
    log.put(&definition_key(), definition("{}", ""));
    let good = encode(&definition("{}", "").unwrap());
    let noise = Some(Bytes::from_static(b"\xff\xff"));
    let override_key = ConfigKey::Override(instance(1)).to_record_key();
    let cases: [(&[u8], Option<Bytes>, &str); 5] = [
        (
            &definition_key().to_record_key(),
            noise.clone(),
            "definition",
        ),
        (b"cluster\0other", Some(good), "definition"),
        (&override_key, noise.clone(), "config"),
        (b"nothing", noise, "key"),
        (b"cluster\0a/b", None, "key"),
    ];
    for (offset, (record_key, value, label)) in (1..).zip(cases) {
        let record = mk_record(offset, record_key, value);
        let outcome = log.fold.apply(&record, &mut log.events);
        let Outcome::Rejected(reason) = outcome else {
            panic!("{label}: {outcome:?}");
        };
        assert_eq!(reason.as_str(), label);
    }
    let mut keyless = mk_record(9, b"", None);
    keyless.key = None;
    let outcome = log.fold.apply(&keyless, &mut log.events);
    assert_eq!(outcome, Outcome::Rejected(RejectReason::NoKey));
    let held = log.fold.find(&definition_key()).unwrap();
    assert_eq!(held.offset, Offset(0), "what was good stands");
    let unknown = mk_record(10, b"mode\0x", None);
    let outcome = log.fold.apply(&unknown, &mut log.events);
    assert_eq!(outcome, Outcome::Ignored);
}

#[test]
fn what_is_remembered_is_bounded_and_the_oldest_go_first() {
    let name = |i: usize| ClusterName::parse(&format!("c{i}")).unwrap();
    let deleted = |i| ConfigKey::Definition(DefinitionKey::Cluster(name(i)));
    let released = |i| ConfigKey::Release(ReleaseScope::Cluster(name(i)));
    let entry = |i| journal_key(i64::try_from(i).unwrap());
    let mut log = Log::default();
    for i in 0..DELETED_DEFINITIONS_MAX + 5 {
        log.put(&deleted(i), None);
    }
    for i in 0..STATEMENTS_HELD_MAX + 5 {
        log.put(&released(i), release(&ReleaseScope::Cluster(name(i))));
    }
    for i in 0..JOURNAL_HELD_MAX + 5 {
        let value = journal(definition_key(), JournalAction::Deleted, "ann@a");
        log.put(&entry(i), value);
    }
    for key in [deleted(4), released(4), entry(4)] {
        assert_eq!(log.fold.find(&key), None, "{key}");
    }
    for key in [deleted(5), released(5), entry(5)] {
        assert!(log.fold.find(&key).is_some(), "{key}");
    }
    assert_eq!(log.fold.journal().count(), JOURNAL_HELD_MAX);
    log.put(&entry(5), None);
    assert_eq!(log.fold.journal().count(), JOURNAL_HELD_MAX - 1);
}

#[test]
fn overrides_beyond_the_bound_are_rejected_and_one_that_is_cleared_makes_room() {
    let mut log = Log::default();
    let key = |i: usize| {
        let host = format!("grpc://h{i}:1");
        let uri = InstanceUri::parse(&host).unwrap();
        ConfigKey::Override(InstanceKey { uri, ..instance(0) })
    };
    let value = |key: &ConfigKey| match (weight(0, 0.0), key) {
        (Some(ConfigValue::Override(o)), ConfigKey::Override(instance)) => {
            let instance = instance.clone();
            Some(ConfigValue::Override(Override { instance, ..o }))
        }
        other => panic!("{other:?}"),
    };
    for i in 0..OVERRIDES_HELD_MAX {
        log.put(&key(i), value(&key(i)));
    }
    let one_more = key(OVERRIDES_HELD_MAX);
    let outcome = log.put(&one_more, value(&one_more));
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    assert_eq!(log.put(&key(0), value(&key(0))), Outcome::Unchanged);
    log.put(&key(0), None);
    assert_eq!(log.put(&one_more, value(&one_more)), Outcome::Changed);
}

#[test]
fn a_record_that_replaces_what_stands_is_no_conflict_and_any_other_is() {
    let two = || definition("[2]", "bob@b");
    // What stands at offset 0 (`None`: a deletion), what the next record says that it replaces, and
    // whether that is a conflict.
    let (value, deleted) = (definition("[1]", "ann@a"), None);
    let cases = [
        (value.clone(), Some(revision(0)), false),
        (value.clone(), Some(revision(9)), true),
        (value.clone(), Some(Replaces::Nothing), true),
        (value, None, false),
        (deleted.clone(), Some(Replaces::Nothing), false),
        (deleted.clone(), Some(revision(0)), false),
        (deleted, Some(revision(9)), true),
    ];
    for (standing, replaces, is_conflict) in cases {
        let mut log = Log::default();
        log.put(&definition_key(), standing.clone());
        let outcome = log.put_replacing(replaces, &definition_key(), two());
        assert_eq!(outcome, Outcome::Changed, "the last record stands");
        let held = log.fold.find(&definition_key()).unwrap();
        assert_eq!(held.value, two());
        assert_eq!(
            held.conflict.is_some(),
            is_conflict,
            "{standing:?} {replaces:?}"
        );
        assert_eq!(log.conflict().is_some(), is_conflict);
        assert_eq!(log.fold.conflicts_total(), u64::from(is_conflict));
    }
}

#[test]
fn a_conflict_says_who_overwrote_whom_and_ends_with_the_next_clean_change() {
    let mut log = Log::default();
    let key = definition_key();
    log.put_replacing(Some(Replaces::Nothing), &key, definition("[1]", "ann@a"));
    log.put_replacing(Some(Replaces::Nothing), &key, definition("[2]", "bob@b"));
    assert_eq!(
        log.conflict().unwrap().to_string(),
        "cluster greeter: bob@b (offset 1) overwrote what ann@a had written (offset 0) without having seen it"
    );
    log.put_replacing(Some(revision(1)), &key, definition("[3]", "ann@a"));
    assert_eq!(log.fold.find(&key).unwrap().conflict, None);
}

#[test]
fn who_deleted_is_known_from_the_journal() {
    let mut log = Log::default();
    let key = definition_key();
    log.put(&key, definition("[1]", "ann@a"));
    let entry = journal(key.clone(), JournalAction::Deleted, "bob@b");
    log.put(&journal_key(1), entry);
    log.put_replacing(Some(revision(0)), &key, None);
    log.put_replacing(Some(revision(0)), &key, definition("[2]", "cid@c"));
    let conflict = log.conflict().unwrap();
    assert_eq!(&*conflict.overwritten.author, "bob@b");
}

#[test]
fn a_record_that_is_delivered_twice_does_not_conflict_with_itself() {
    let mut log = Log::default();
    for _ in 0..2 {
        log.put_replacing(
            Some(Replaces::Nothing),
            &definition_key(),
            definition("[1]", "ann@a"),
        );
    }
    for _ in 0..2 {
        log.put_replacing(Some(revision(1)), &definition_key(), None);
    }
    assert_eq!(log.conflict(), None);
}

#[test]
fn a_revision_of_another_log_is_another_revision() {
    for (meant, is_conflict) in [(7, false), (8, true)] {
        let mut log = Log::default();
        let mut identity = mk_record(0, IDENTITY_KEY, None);
        identity.headers = Ok(Headers {
            kind: RecordKind::Identity,
            log: Some(LogIdentity(7)),
            ..Headers::default()
        });
        log.fold.apply(&identity, &mut log.events);
        log.next = 1;
        log.put(&definition_key(), definition("[1]", ""));
        let replaces = Replaces::Revision(Revision {
            offset: Offset(1),
            log: Some(LogIdentity(meant)),
        });
        log.put_replacing(Some(replaces), &definition_key(), definition("[2]", ""));
        assert_eq!(log.conflict().is_some(), is_conflict);
        let revision = log.fold.find_revision(&definition_key()).unwrap();
        assert_eq!(revision.to_string(), "2:0000000000000007");
    }
}

#[test]
fn a_cluster_is_released_at_the_younger_of_its_own_release_and_that_of_all() {
    let own = ReleaseScope::Cluster(cluster());
    let put = |log: &mut Log, scope: &ReleaseScope| {
        log.put(&ConfigKey::Release(scope.clone()), release(scope));
    };
    let mut log = Log::default();
    assert_eq!(log.fold.released_at(&cluster()), None);
    put(&mut log, &own);
    assert_eq!(log.fold.released_at(&cluster()), Some(Timestamp(0)));
    put(&mut log, &ReleaseScope::All);
    assert_eq!(log.fold.released_at(&cluster()), Some(Timestamp(1)));
    put(&mut log, &own);
    assert_eq!(log.fold.released_at(&cluster()), Some(Timestamp(2)));
    let other = ClusterName::parse("other").unwrap();
    assert_eq!(log.fold.released_at(&other), Some(Timestamp(1)));
    assert_eq!(log.told(), [], "a release is served nowhere");
}
