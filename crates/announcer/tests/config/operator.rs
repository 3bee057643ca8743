//! Overrides, evictions, releases, and what becomes of records that a log lost.

use waypost_announcer::limits::{EVICTIONS_KEPT, JOURNAL_KEPT, JOURNAL_MAX, OVERRIDES_MAX};
use waypost_announcer::operator::{
    OperatorError, SetOutcome, evict, forget, release, restore, set_override, sign,
};
use waypost_core::config::{
    JournalAction, JournalEntry, JournalKey, Override, OverrideEffect, ReleaseScope, Signed, Weight,
};
use waypost_core::definition::DefinitionStat;
use waypost_core::time::millis;
use waypost_core::{
    AnnouncementLog, ClusterName, ConfigKey, ConfigValue, Headers, InstanceKey, InstanceUri,
    Timestamp, Topic,
};
use waypost_log::MemoryLog;
use waypost_log::memory::Pause;
use waypost_proto::config::encode;

use crate::common::{ANN, BOB, RacedLog, fold, mk_log, mk_raw, records, signed, written};

fn instance(port: usize) -> InstanceKey {
    InstanceKey {
        cluster: ClusterName::parse("greeter").unwrap(),
        uri: InstanceUri::parse(&format!("grpc://10.0.0.7:{port}")).unwrap(),
    }
}

fn weight(weight: f64) -> OverrideEffect {
    OverrideEffect::Weight(Weight::new(weight).unwrap())
}

fn mk_override(port: usize, effect: OverrideEffect) -> (ConfigKey, ConfigValue) {
    let value = Override {
        instance: instance(port),
        effect,
        signed: signed(ANN, 1),
        stat: DefinitionStat::default(),
    };
    (
        ConfigKey::Override(instance(port)),
        ConfigValue::Override(value),
    )
}

fn standing(log: &MemoryLog, port: usize) -> Option<Override> {
    let key = ConfigKey::Override(instance(port));
    match fold(log).find(&key)?.value.clone()? {
        ConfigValue::Override(standing) => Some(standing),
        other => panic!("{other:?}"),
    }
}

fn stat(created: i64, modified: i64, revision: u32) -> DefinitionStat {
    DefinitionStat {
        created: Timestamp(created),
        modified: Timestamp(modified),
        revision,
    }
}

#[tokio::test(start_paused = true)]
async fn an_override_is_set_changed_and_cleared_and_the_journal_says_by_whom() {
    let log = RacedLog::like_kafka();
    let set = async |effect, by: &Signed| {
        let outcome = set_override(&log, &instance(1), effect, by).await.unwrap();
        (outcome, standing(&log.log, 1).map(|o| (o.effect, o.stat)))
    };
    let (ann, bob) = (signed(ANN, 10), signed(BOB, 20));
    let (drain, half) = (OverrideEffect::Drain, weight(0.5));
    assert_eq!(set(None, &ann).await, (SetOutcome::Absent, None));
    assert_eq!(records(&log.log, Topic::Config), [], "nothing to write");
    let drained = (drain, stat(10, 10, 0));
    assert_eq!(
        set(Some(drain), &ann).await,
        (SetOutcome::Set, Some(drained))
    );
    assert_eq!(
        set(Some(drain), &bob).await,
        (SetOutcome::Unchanged, Some(drained))
    );
    let halved = (half, stat(10, 20, 1));
    assert_eq!(
        set(Some(half), &bob).await,
        (SetOutcome::Changed, Some(halved))
    );
    let reason = sign(ANN, "INC-8", Timestamp(30)).unwrap();
    assert_eq!(
        set(Some(half), &reason).await,
        (SetOutcome::Changed, Some(halved))
    );
    let signed = standing(&log.log, 1).unwrap().signed;
    assert_eq!(
        signed, reason,
        "a new reason is no change of what is served"
    );
    assert_eq!(set(None, &bob).await, (SetOutcome::Cleared, None));
    let fold = fold(&log.log);
    let entries = fold.journal().map(|(_, entry)| {
        let by = entry.signed.author.to_string();
        (entry.action.as_str(), entry.detail.to_string(), by)
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    let row = |action, detail: &str, by: &str| (action, detail.to_owned(), by.to_owned());
    let expected = [
        row("cleared", "weight 0.5", BOB),
        row("set", "drain", ANN),
        row("set", "weight 0.5", ANN),
        row("set", "weight 0.5", BOB),
    ];
    assert_eq!(entries, expected);
}

#[tokio::test]
async fn an_eviction_says_why_before_it_purges() {
    let log = mk_log();
    let purge = evict(&log, &instance(1), &signed(ANN, 10)).await.unwrap();
    // In every partition: a copy may stand in another than the key's own.
    let purges = records(&log, Topic::Announcements);
    let partitions: Vec<_> = purges.iter().map(|record| record.partition.0).collect();
    assert_eq!(partitions, [0, 1, 2, 3]);
    let own = purges.iter().find(|r| r.partition == purge.partition);
    let record = own.expect("one in the key's own partition");
    assert_eq!(record.key, Some(instance(1).to_record_key()));
    assert_eq!(
        (&record.value, &record.headers),
        (&None, &Ok(Headers::default()))
    );
    assert_eq!(
        (record.partition, record.offset),
        (purge.partition, purge.offset)
    );
    let fold = fold(&log);
    let eviction = fold.evictions().next().unwrap();
    assert_eq!(
        (&eviction.instance, &eviction.signed),
        (&instance(1), &signed(ANN, 10))
    );
    assert_eq!(
        fold.journal().next().unwrap().1.action,
        JournalAction::Evicted
    );

    // Old ones leave on the way.
    let later = i64::try_from(EVICTIONS_KEPT.as_millis()).unwrap() + 20;
    evict(&log, &instance(2), &signed(ANN, later))
        .await
        .unwrap();
    let fold = crate::common::fold(&log);
    let left: Vec<_> = fold.evictions().map(|e| e.instance.clone()).collect();
    assert_eq!(left, [instance(2)]);
}

#[tokio::test]
async fn a_purge_is_not_written_when_its_reason_cannot_be() {
    let log = mk_log();
    log.pause_appends(Pause::Refuse("no room".to_owned()));
    assert!(evict(&log, &instance(1), &signed(ANN, 10)).await.is_err());
    log.resume();
    assert_eq!(records(&log, Topic::Announcements), []);
}

#[tokio::test]
async fn a_release_acts_by_the_time_at_which_the_log_took_it() {
    let log = mk_log();
    let cluster = instance(1).cluster;
    let scope = ReleaseScope::Cluster(cluster.clone());
    release(&log, &scope, &signed(ANN, 10)).await.unwrap();
    assert_eq!(
        fold(&log).released_at(&cluster),
        Some(Timestamp(1_700_000_000_000)),
        "not by the operator's clock"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_log_lost_is_written_again_or_given_up_unless_it_is_there_again() {
    let orphans = [1, 2, 3].map(|port| mk_override(port, OverrideEffect::Drain));
    let keys = orphans.clone().map(|(key, _)| key);
    let by = signed(BOB, 50);
    let log = RacedLog::like_kafka();
    let (again, value) = mk_override(2, weight(1.0));
    log.append(mk_raw(&again, &encode(&value))).await.unwrap();
    let restored = restore(&log, &orphans, &by).await.unwrap();
    assert_eq!(restored, [keys[0].clone(), keys[2].clone()]);
    assert_eq!(standing(&log.log, 1), Some(override_of(&orphans[0])));
    assert_eq!(
        standing(&log.log, 2),
        Some(override_of(&(again, value))),
        "younger"
    );
    assert_eq!(restore(&log, &orphans, &by).await, Ok(Vec::new()));

    let log = RacedLog::like_kafka();
    let forgotten = forget(&log, &keys, &by).await.unwrap();
    assert_eq!(forgotten, keys);
    let none = Some("none".to_owned());
    let mut expected = vec![("journal: forgotten".to_owned(), none.clone())];
    expected.extend(
        keys.iter()
            .map(|key| (format!("{key} deleted"), none.clone())),
    );
    assert_eq!(written(&log.log), expected, "who and why comes first");
    assert_eq!(forget(&log, &keys, &by).await, Ok(Vec::new()));
}

fn override_of((_, value): &(ConfigKey, ConfigValue)) -> Override {
    match value {
        ConfigValue::Override(value) => value.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_and_why_are_checked() {
    let now = Timestamp(1);
    let long = "x".repeat(2000);
    let cases = [
        ("", "why", "author: is empty"),
        ("a\nb", "why", "author: must be one line"),
        (ANN, " ", "reason: is empty"),
        (ANN, "two\nlines", "reason: must be one line"),
        (ANN, long.as_str(), "reason: is 2000 bytes"),
    ];
    for (author, reason, expected) in cases {
        let text = sign(author, reason, now).unwrap_err().to_string();
        assert!(text.starts_with(expected), "{text}");
    }
}

#[tokio::test]
async fn so_many_overrides_and_no_more() {
    let log = mk_log();
    for port in 1..=OVERRIDES_MAX {
        let (key, value) = mk_override(port, OverrideEffect::Drain);
        log.append(mk_raw(&key, &encode(&value))).await.unwrap();
    }
    let by = signed(ANN, 10);
    let one_more = set_override(&log, &instance(OVERRIDES_MAX + 1), Some(weight(1.0)), &by).await;
    assert_eq!(one_more, Err(OperatorError::TooManyOverrides));
    let change = set_override(&log, &instance(1), Some(weight(1.0)), &by).await;
    assert_eq!(change, Ok(SetOutcome::Changed));
}

#[tokio::test]
async fn the_journal_stays_within_its_bounds() {
    let kept = millis(JOURNAL_KEPT);
    let now = 10 * kept;
    // How many entries of which age there are before one is added, and how many are left.
    let cases = [
        (JOURNAL_MAX + 5, 0, JOURNAL_MAX),
        (10, kept + 1, 1),
        (10, kept - 1, 11),
    ];
    for (count, age, left) in cases {
        let log = mk_log();
        for id in 0..count {
            let key = ConfigKey::Journal(JournalKey {
                at: Timestamp(now - age),
                id: id as u64,
            });
            let value = encode(&ConfigValue::Journal(JournalEntry {
                subject: ConfigKey::Release(ReleaseScope::All),
                action: JournalAction::Released,
                detail: "".into(),
                signed: signed(ANN, now - age),
            }));
            log.append(mk_raw(&key, &value)).await.unwrap();
        }
        set_override(&log, &instance(1), Some(weight(1.0)), &signed(ANN, now))
            .await
            .unwrap();
        assert_eq!(fold(&log).journal().count(), left, "{count} of age {age}");
    }
}
