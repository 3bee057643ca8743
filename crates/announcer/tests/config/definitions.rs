//! Definitions against a log: what is written, what is left alone, what two writers are told.

use std::sync::Arc;

use waypost_announcer::definitions::{
    DefinitionInput, DefinitionsError, Outcome, apply, delete, read_request,
};
use waypost_core::{AnnouncementLog, ClusterName, DefinitionKey, Record, ServiceName, Topic};
use waypost_log::MemoryLog;
use waypost_proto::v1 as pb;
use waypost_proto::v1::definition_input::Kind;

use crate::common::{ANN, BOB, RacedLog, mk_log, mk_raw, records, signed, written};

pub(crate) fn mk_cluster(name: &str, json: &str) -> DefinitionInput {
    let message = pb::DefinitionInput {
        kind: Kind::Cluster.into(),
        name: name.to_owned(),
        properties_json: json.to_owned(),
        ..Default::default()
    };
    read_request(&[message]).unwrap().remove(0)
}

fn mk_service(name: &str) -> DefinitionInput {
    DefinitionInput::Service {
        name: ServiceName::parse(name).unwrap(),
        cluster: ClusterName::parse("profile").unwrap(),
        path: "/p".to_owned(),
        properties: serde_json::Map::new(),
    }
}

fn mk_symlink(name: &str, target: &str) -> DefinitionInput {
    DefinitionInput::Symlink {
        name: ClusterName::parse(name).unwrap(),
        target: ClusterName::parse(target).unwrap(),
    }
}

fn key(name: &str) -> DefinitionKey {
    DefinitionKey::Cluster(ClusterName::parse(name).unwrap())
}

async fn outcomes(
    log: &dyn AnnouncementLog,
    definitions: &[DefinitionInput],
    now: i64,
) -> Vec<(Outcome, u32)> {
    let changes = apply(log, definitions, &signed(ANN, now)).await.unwrap();
    changes.iter().map(|c| (c.outcome, c.revision)).collect()
}

#[tokio::test(start_paused = true)]
async fn only_what_differs_is_written_and_history_is_kept() {
    let (compares, cannot) = (Arc::new(mk_log()), RacedLog::like_kafka());
    let cases: [(Arc<MemoryLog>, &dyn AnnouncementLog); 2] = [
        (Arc::clone(&compares), &*compares),
        (Arc::clone(&cannot.log), &cannot),
    ];
    for (memory, log) in cases {
        let one = [mk_cluster("profile", r#"{"a":1.0}"#), mk_service("reads")];
        assert_eq!(
            outcomes(log, &one, 10).await,
            [(Outcome::Created, 0), (Outcome::Created, 0)]
        );
        assert_eq!(
            outcomes(log, &one, 20).await,
            [(Outcome::Unchanged, 0), (Outcome::Unchanged, 0)]
        );
        let two = [mk_cluster("profile", r#"{"a":1}"#), mk_service("reads")];
        assert_eq!(
            outcomes(log, &two, 30).await,
            [(Outcome::Changed, 1), (Outcome::Unchanged, 0)]
        );

        let records = records(&memory, Topic::Config);
        assert_eq!(records.len(), 3, "something was written twice");
        let value = pb_definition(records.last().unwrap());
        assert_eq!(
            (value.created_ms, value.modified_ms, value.revision),
            (10, 30, 1)
        );
        assert_eq!(value.author, ANN);
        assert_eq!(&value.document[..], br#"{"clusterName":"profile","a":1}"#);

        let by = signed(ANN, 40);
        let gone = delete(log, key("profile"), &by).await.unwrap();
        assert_eq!((gone.outcome, gone.revision), (Outcome::Deleted, 1));
        let absent = delete(log, key("profile"), &by).await.unwrap();
        assert_eq!(absent.outcome, Outcome::Absent);
        // What was deleted begins anew.
        assert_eq!(outcomes(log, &two[..1], 50).await, [(Outcome::Created, 0)]);
        let text = |what: &str, replaces: &str| (what.to_owned(), Some(replaces.to_owned()));
        let expected = [
            text("cluster profile", "none"),
            text("service reads", "none"),
            text("cluster profile", "1:0000000000000007"),
            text("journal: deleted", "none"),
            text("cluster profile deleted", "3:0000000000000007"),
            text("cluster profile", "none"),
        ];
        assert_eq!(written(&memory), expected);
    }
}

fn pb_definition(record: &Record) -> pb::Definition {
    use prost::Message as _;
    pb::Definition::decode(record.value.clone().unwrap()).unwrap()
}

#[tokio::test]
async fn the_same_definition_of_another_author_is_no_change() {
    let log = mk_log();
    outcomes(&log, &[mk_cluster("profile", "{}")], 1).await;
    let again = apply(&log, &[mk_cluster("profile", "{}")], &signed(BOB, 2)).await;
    assert_eq!(again.unwrap()[0].outcome, Outcome::Unchanged);
}

#[tokio::test]
async fn nothing_is_written_when_one_of_a_request_is_wrong() {
    let log = mk_log();
    let definitions = [mk_cluster("fine", "{}"), mk_cluster("fine", "{}")];
    let result = apply(&log, &definitions, &signed(ANN, 1)).await;
    assert!(matches!(result, Err(DefinitionsError::Mistakes(_))));
    assert!(records(&log, Topic::Config).is_empty());
}

#[tokio::test]
async fn an_unreadable_definition_is_replaced_or_deleted() {
    let log = mk_log();
    let spoil = async || {
        let record = mk_raw(&key("profile").into(), b"\xff\xff");
        log.append(record).await.unwrap();
    };
    spoil().await;
    assert_eq!(
        outcomes(&log, &[mk_cluster("profile", "{}")], 5).await,
        [(Outcome::Changed, 0)]
    );
    spoil().await;
    let gone = delete(&log, key("profile"), &signed(ANN, 6)).await;
    assert_eq!(gone.unwrap().outcome, Outcome::Deleted);
}

#[tokio::test]
async fn a_symlink_must_not_lead_where_one_that_stands_leads_unless_that_one_moves() {
    let log = mk_log();
    let [a, b] = [mk_symlink("$a", "one"), mk_symlink("$b", "two")];
    outcomes(&log, &[a, b], 1).await;
    let before = records(&log, Topic::Config).len();
    for others in [vec![mk_symlink("$b", "one")], vec![mk_symlink("$c", "two")]] {
        let refused = apply(&log, &others, &signed(ANN, 2)).await.unwrap_err();
        assert!(refused.to_string().contains("leads too"), "{refused}");
    }
    assert_eq!(records(&log, Topic::Config).len(), before);
    // The two change places, and what leads to neither is not looked at.
    let swapped = [
        mk_symlink("$a", "two"),
        mk_symlink("$b", "one"),
        mk_cluster("one", "{}"),
    ];
    let expected = [
        (Outcome::Changed, 1),
        (Outcome::Changed, 1),
        (Outcome::Created, 0),
    ];
    assert_eq!(outcomes(&log, &swapped, 3).await, expected);
    let gone = delete(&log, key("$a"), &signed(ANN, 4)).await.unwrap();
    assert_eq!((gone.outcome, gone.revision), (Outcome::Deleted, 1));
    assert_eq!(
        outcomes(&log, &[mk_symlink("$c", "two")], 5).await,
        [(Outcome::Created, 0)]
    );
    let last = written(&log).pop().unwrap();
    assert_eq!(last.0, "symlink $c");
}
