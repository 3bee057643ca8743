//! What operators state: definitions, and two operators at once.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use waypost_core::config::{ConfigKey, Replaces};
use waypost_core::definition::{ClusterDefinition, DefinitionStat};
use waypost_core::record::{Delivery, LogIdentity};
use waypost_core::{
    AnnouncementLog as _, ClusterName, ConfigValue, Definition, DefinitionKey, Headers, LogError,
    NewRecord, Offset, PartitionId, Topic,
};
use waypost_fold::{FoldEvent, records};
use waypost_sim::{Observer, Sim, TTL_S, count};

fn cluster() -> ClusterName {
    ClusterName::parse("greeter").unwrap()
}

fn key() -> ConfigKey {
    ConfigKey::Definition(DefinitionKey::Cluster(cluster()))
}

/// A definition of the cluster, by `author`, that replaces what it has seen.
fn define(document: &'static str, author: &str, replaces: Option<Replaces>) -> NewRecord {
    let definition = ConfigValue::Definition(Definition::Cluster(ClusterDefinition {
        name: cluster(),
        document: Bytes::from_static(document.as_bytes()),
        stat: DefinitionStat::default(),
        author: author.into(),
    }));
    NewRecord {
        topic: Topic::Config,
        partition: None,
        key: key().to_record_key(),
        value: Some(waypost_proto::config::encode(&definition)),
        headers: Headers {
            replaces,
            ..Headers::default()
        },
        delivery: Delivery::Change,
    }
}

fn document(observer: &Observer) -> Option<String> {
    match observer.config().find(&key())?.value.as_ref()? {
        ConfigValue::Definition(Definition::Cluster(cluster)) => {
            Some(String::from_utf8_lossy(&cluster.document).into_owned())
        }
        _ => None,
    }
}

fn is_conflict(event: &FoldEvent) -> bool {
    matches!(event, FoldEvent::Conflict(_))
}

#[test]
fn s24_of_two_operators_at_once_the_last_stands_everywhere_and_both_can_see_it() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    sim.append(define("{}", "ann@a", Some(Replaces::Nothing)));
    sim.run_s(2);
    let seen = sim.observers[0].config().find_revision(&key()).unwrap();
    let seen = Some(Replaces::Revision(seen));
    let anns = sim.append(define("{\"a\":1}", "ann@a", seen));
    let bobs = sim.append(define("{\"b\":2}", "bob@b", seen));
    sim.run_s(2);
    for observer in &sim.observers {
        assert_eq!(document(observer).as_deref(), Some("{\"b\":2}"));
        let conflicts: Vec<_> = observer.config().conflicts().collect();
        let [conflict] = &conflicts[..] else {
            panic!("{conflicts:?}");
        };
        // Ann finds that she was overwritten, Bob that he did it.
        assert_eq!((conflict.offset, conflict.overwritten.offset), (bobs, anns));
        let text = conflict.to_string();
        assert!(text.contains("bob@b") && text.contains("ann@a"), "{text}");
        assert_eq!(count(observer, is_conflict), 1);
    }
    sim.run_s(3 * TTL_S);
    sim.compact(Duration::from_secs(3 * TTL_S));
    let late = sim.replayer();
    assert_eq!(document(&late).as_deref(), Some("{\"b\":2}"));
    assert_eq!(
        count(&late, is_conflict),
        0,
        "compaction took what it replaces"
    );
    sim.finish();
}

#[test]
fn s24_a_log_that_can_compare_refuses_the_second() {
    let mut sim = Sim::new(1);
    let first = sim.append(define("{}", "ann@a", None));
    let second = define("{\"a\":1}", "ann@a", None);
    let put = |record, expected| {
        let put = sim.log.append_if(record, expected);
        put.now_or_never().unwrap()
    };
    let anns = put(second.clone(), Some(first)).unwrap().offset;
    assert_eq!(put(second, Some(first)), Err(LogError::Conflict(anns)));
}

#[test]
fn s10_a_config_topic_made_anew_leaves_definitions_orphaned_and_served() {
    for identity in [None, Some(LogIdentity(9))] {
        let mut sim = Sim::new(1);
        sim.observe(1);
        sim.observe(2);
        sim.run_s(10);
        sim.append(define("{}", "ann@a", Some(Replaces::Nothing)));
        sim.run_s(65);
        sim.log.recreate(Topic::Config, 1);
        if let Some(identity) = identity {
            sim.append(records::identity(Topic::Config, identity, None));
        }
        sim.run_s(70);
        let told = |event: &FoldEvent| matches!(event, FoldEvent::Config { .. });
        for observer in &sim.observers {
            assert_eq!(document(observer).as_deref(), Some("{}"), "{identity:?}");
            let orphans: Vec<_> = observer.config().orphans().map(|(key, _)| key).collect();
            assert_eq!(orphans, [&key()], "named");
            assert_eq!(count(observer, told), 1, "equal content is not sent again");
        }
        // Written again by an operator it is an orphan no more.
        sim.append(define("{}", "ann@a", Some(Replaces::Nothing)));
        sim.run_s(2);
        for observer in &sim.observers {
            assert_eq!(observer.config().orphans().count(), 0);
            assert_eq!(count(observer, told), 1, "nor when it is written again");
        }
        sim.finish();
        assert_eq!(document(&sim.replayer()).as_deref(), Some("{}"));
    }
}

#[test]
fn s12_a_definition_that_an_election_lost_is_not_lost_in_silence() {
    let mut sim = Sim::new(1);
    sim.observe(1);
    sim.observe(2);
    sim.run_s(10);
    let at = sim.append(define("{}", "ann@a", Some(Replaces::Nothing)));
    sim.run_s(65);
    sim.log
        .elect_uncleanly(Topic::Config, PartitionId(0), Offset(at.0));
    sim.run_s(70);
    for observer in &sim.observers {
        assert_eq!(document(observer).as_deref(), Some("{}"));
        assert_eq!(observer.config().orphans().count(), 1);
    }
    sim.finish();
}
