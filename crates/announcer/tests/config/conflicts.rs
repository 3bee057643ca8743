//! Two operators at once.

use waypost_announcer::definitions::{DefinitionsError, apply, delete};
use waypost_announcer::operator::{OperatorError, release, set_override};
use waypost_announcer::{Conflicts, Told, WriteError};
use waypost_core::config::{JournalAction, OverrideEffect, ReleaseScope, Weight};
use waypost_core::{
    ClusterName, ConfigKey, ConfigValue, DefinitionKey, InstanceKey, InstanceUri, Offset, Topic,
};
use waypost_log::memory::CompactionRules;

use crate::common::{ANN, BOB, RacedLog, fold, signed};
use crate::definitions::mk_cluster;

fn profile() -> ConfigKey {
    DefinitionKey::Cluster(ClusterName::parse("profile").unwrap()).into()
}

fn conflicts(result: Result<(), DefinitionsError>) -> Vec<Told> {
    match result {
        Err(DefinitionsError::Conflicts(Conflicts(told))) => told,
        other => panic!("{other:?}"),
    }
}

/// Scenario 24 of docs/announcement-log.md.
#[tokio::test(start_paused = true)]
async fn two_who_change_one_definition_at_once_are_both_told_and_the_last_record_stands() {
    let log = RacedLog::like_kafka();
    let before = [mk_cluster("profile", "{}"), mk_cluster("other", "{}")];
    apply(&log, &before, &signed(ANN, 1)).await.unwrap();
    let [anns, bobs] = log.meeting();
    let write = async |log: &RacedLog, author, json| {
        let definitions = [mk_cluster("profile", json)];
        let done = apply(log, &definitions, &signed(author, 2)).await;
        done.map(|_| ())
    };
    let (ann, bob) = tokio::join!(
        write(&anns, ANN, r#"{"by":"ann"}"#),
        write(&bobs, BOB, r#"{"by":"bob"}"#)
    );
    // Which of the two the log took first is not a matter of this test.
    let (ann, bob) = (conflicts(ann), conflicts(bob));
    let standing = fold(&log.log).find(&profile()).unwrap().clone();
    let last = standing.value.as_ref().unwrap().author().to_owned();
    let (first, first_told, last_told) = match last.as_str() {
        ANN => (BOB, &bob, &ann),
        _ => (ANN, &ann, &bob),
    };
    let overwritten = Told::Overwritten {
        key: profile(),
        author: last.clone(),
        offset: standing.offset,
    };
    let overwrote = Told::Overwrote {
        key: profile(),
        author: first.to_owned(),
        offset: Offset(standing.offset.0 - 1),
    };
    assert_eq!(
        (&first_told[..], &last_told[..]),
        (&[overwritten][..], &[overwrote][..])
    );

    let observer = fold(&log.log);
    assert_eq!(observer.conflicts_total(), 1);
    let entries: Vec<_> = observer.journal().map(|(_, entry)| entry).collect();
    let [entry] = entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(
        (&entry.subject, entry.action),
        (&profile(), JournalAction::Conflict)
    );
    assert_eq!(*entry.signed.author, *last, "written by whoever wrote last");
    assert!(entry.detail.contains(first), "{}", entry.detail);

    log.log.clock().advance(std::time::Duration::from_hours(24));
    log.log.compact(Topic::Config, CompactionRules::STANDARD);
    let late = fold(&log.log);
    assert_eq!(late.find(&profile()).unwrap().value, standing.value);
    assert_eq!(late.journal().count(), 1, "the journal outlives compaction");
}

#[tokio::test(start_paused = true)]
async fn one_who_deletes_while_another_changes_is_named_too() {
    let log = RacedLog::like_kafka();
    apply(&log, &[mk_cluster("profile", "{}")], &signed(ANN, 1))
        .await
        .unwrap();
    let [anns, bobs] = log.meeting();
    let (changed, by_ann) = ([mk_cluster("profile", "{\"a\":1}")], signed(ANN, 2));
    let by_bob = signed(BOB, 2);
    let ConfigKey::Definition(key) = profile() else {
        panic!("{}", profile())
    };
    let (ann, bob) = tokio::join!(apply(&anns, &changed, &by_ann), delete(&bobs, key, &by_bob));
    let told = [conflicts(ann.map(|_| ())), conflicts(bob.map(|_| ()))];
    let authors = told.map(|told| match &told[..] {
        [Told::Overwrote { author, .. } | Told::Overwritten { author, .. }] => author.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(authors, [BOB, ANN]);
}

#[tokio::test(start_paused = true)]
async fn overrides_and_releases_are_no_different() {
    let instance = InstanceKey {
        cluster: ClusterName::parse("profile").unwrap(),
        uri: InstanceUri::parse("http://10.0.0.1:80").unwrap(),
    };
    let effect = |weight| Some(OverrideEffect::Weight(Weight::new(weight).unwrap()));
    let is_told = |result: Result<(), OperatorError>| matches!(&result, Err(OperatorError::Conflicts(Conflicts(told))) if told.len() == 1);
    let (ann, bob) = (signed(ANN, 2), signed(BOB, 2));

    let log = RacedLog::like_kafka();
    let [anns, bobs] = log.meeting();
    let (one, two) = tokio::join!(
        set_override(&anns, &instance, effect(1.0), &ann),
        set_override(&bobs, &instance, effect(2.0), &bob)
    );
    assert!(is_told(one.map(|_| ())) && is_told(two.map(|_| ())));

    let [anns, bobs] = log.meeting();
    let all = ReleaseScope::All;
    let (one, two) = tokio::join!(release(&anns, &all, &ann), release(&bobs, &all, &bob));
    assert!(is_told(one) && is_told(two));
}

#[tokio::test(start_paused = true)]
async fn two_who_write_different_records_are_no_conflict() {
    let log = RacedLog::like_kafka();
    let [anns, bobs] = log.meeting();
    let (one, two) = ([mk_cluster("one", "{}")], [mk_cluster("two", "{}")]);
    let (ann, bob) = (signed(ANN, 2), signed(BOB, 2));
    let (ann, bob) = tokio::join!(apply(&anns, &one, &ann), apply(&bobs, &two, &bob));
    assert!(ann.is_ok() && bob.is_ok(), "{ann:?} {bob:?}");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_compares_takes_one_and_tells_the_other_who_was_faster() {
    let log = RacedLog::that_compares();
    let race = async |log: &RacedLog, author| {
        let definitions = [mk_cluster("profile", &format!(r#"{{"by":"{author}"}}"#))];
        apply(log, &definitions, &signed(author, 2)).await
    };
    let [anns, bobs] = log.meeting();
    let (ann, bob) = tokio::join!(race(&anns, ANN), race(&bobs, BOB));
    let standing = fold(&log.log).find(&profile()).unwrap().value.clone();
    let winner = standing.as_ref().map(ConfigValue::author).unwrap();
    let lost = if winner == ANN { bob } else { ann };
    let Err(DefinitionsError::Write { source, .. }) = &lost else {
        panic!("{lost:?}")
    };
    assert!(
        matches!(source, WriteError::Outdated { author, .. } if author == winner),
        "{source}"
    );
    let text = lost.unwrap_err().to_string();
    assert!(text.contains(winner) && text.lines().count() == 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_came_too_late_leaves_nothing_in_the_journal() {
    let log = RacedLog::that_compares();
    apply(&log, &[mk_cluster("profile", "{}")], &signed(ANN, 1))
        .await
        .unwrap();
    let ConfigKey::Definition(key) = profile() else {
        panic!("{}", profile())
    };
    let (changed, by_ann) = ([mk_cluster("profile", "{\"a\":1}")], signed(ANN, 2));
    let by_bob = signed(BOB, 2);
    let [anns, bobs] = log.meeting();
    let (ann, bob) = tokio::join!(apply(&anns, &changed, &by_ann), delete(&bobs, key, &by_bob));
    assert_eq!(ann.is_ok(), bob.is_err(), "{ann:?} {bob:?}");
    let expected = usize::from(bob.is_ok());
    assert_eq!(fold(&log.log).journal().count(), expected);
}
