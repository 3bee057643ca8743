//! A fold that takes the place of another one after a replay.

use super::*;
use crate::lane::Sameness;

/// One record of every kind, and what a new log holds of them.
fn mk_old_log() -> Log {
    let mut old = Log::default();
    old.put(&definition_key(), definition("[1]", "ann@a"));
    old.put(&ConfigKey::Override(instance(1)), weight(1, 0.0));
    old.put(&ConfigKey::Override(instance(2)), weight(2, 0.0));
    old.put(&ConfigKey::Eviction(instance(3)), eviction(3));
    let all = ReleaseScope::All;
    old.put(&ConfigKey::Release(all.clone()), release(&all));
    let entry = journal(definition_key(), JournalAction::Set, "ann@a");
    old.put(&journal_key(1), entry);
    old
}

fn orphans(fold: &ConfigFold) -> Vec<ConfigKey> {
    let orphans = fold.orphans().chain(fold.orphaned_history());
    let mut keys: Vec<_> = orphans.map(|(key, _)| key.clone()).collect();
    keys.sort();
    keys
}

#[test]
fn what_another_log_does_not_hold_is_orphaned_and_only_differences_are_told() {
    let old = mk_old_log();
    let mut new = Log::default();
    new.put(&ConfigKey::Override(instance(1)), weight(1, 0.0));
    new.put(&ConfigKey::Override(instance(2)), weight(2, 3.0));
    new.events.clear();
    new.fold
        .adopt_missing(&old.fold, Sameness::Other, &mut new.events);
    assert_eq!(new.told(), [(ConfigKey::Override(instance(2)), true)]);
    assert_eq!(
        orphans(&new.fold),
        [
            definition_key(),
            ConfigKey::Eviction(instance(3)),
            journal_key(1)
        ],
        "a release is the word of a moment"
    );
    assert_eq!(new.fold.definitions().count(), 1, "served on");
    assert_eq!(new.fold.orphans().count(), 1, "history waits for nobody");
    assert_eq!(new.fold.find_revision(&definition_key()), None);
    assert_eq!(new.fold.released_at(&cluster()), None);
}

#[test]
fn what_the_same_log_does_not_hold_is_gone_except_what_it_never_held() {
    let old = mk_old_log();
    let mut new = Log::default();
    new.fold
        .adopt_missing(&old.fold, Sameness::Same, &mut new.events);
    let mut told = new.told();
    told.sort();
    let gone = [1, 2].map(|i| (ConfigKey::Override(instance(i)), false));
    let expected = [vec![(definition_key(), false)], gone.into()].concat();
    assert_eq!(told, expected);
    assert_eq!(orphans(&new.fold), []);

    let mut orphaned = Log::default();
    orphaned
        .fold
        .adopt_missing(&old.fold, Sameness::Other, &mut Vec::new());
    let mut again = Log::default();
    let events = &mut again.events;
    again
        .fold
        .adopt_missing(&orphaned.fold, Sameness::Same, events);
    assert_eq!(again.told(), []);
    assert_eq!(orphans(&again.fold).len(), 5, "this log never held them");
}

#[test]
fn an_orphan_that_is_restored_is_no_change_and_one_that_is_forgotten_leaves() {
    let old = mk_old_log();
    let mut new = Log::default();
    new.fold
        .adopt_missing(&old.fold, Sameness::Other, &mut Vec::new());
    let nothing = Some(Replaces::Nothing);
    let restored = definition("[1]", "ann@a");
    let outcome = new.put_replacing(nothing, &definition_key(), restored);
    assert_eq!(outcome, Outcome::Unchanged);
    let forgotten = ConfigKey::Override(instance(1));
    new.put_replacing(nothing, &forgotten, None);
    assert_eq!(new.told(), [(forgotten.clone(), false)]);
    let left = orphans(&new.fold);
    assert!(!left.contains(&definition_key()) && !left.contains(&forgotten));
    assert_eq!(new.conflict(), None);
    assert!(new.fold.find_revision(&definition_key()).is_some());
}

#[test]
fn conflicts_of_the_log_before_are_still_shown() {
    let mut old = Log::default();
    let key = definition_key();
    old.put_replacing(Some(Replaces::Nothing), &key, definition("[1]", "ann@a"));
    old.put_replacing(Some(Replaces::Nothing), &key, definition("[2]", "bob@b"));
    let mut new = Log::default();
    new.fold
        .adopt_missing(&old.fold, Sameness::Other, &mut new.events);
    assert_eq!(new.fold.conflicts().count(), 1);
    assert_eq!(new.fold.conflicts_total(), 1);
}
