//! A damaged file: a clear error, a way forward, and nothing lost that was intact.
#![expect(clippy::expect_used, reason = "a test fails by panicking, helpers too")]

use std::fs;
use std::path::Path;

use redb::{Database, TableDefinition};
use tokio::task::JoinSet;
use waypost_core::Offset;
use waypost_core::port::{AnnouncementLog, LogError};
use waypost_core::record::{Delivery, Headers, LogIdentity, NewRecord, Topic};
use waypost_log::embedded::{OnDamage, Origin};
use waypost_log::suite::Follower;
use waypost_log::{EmbeddedLog, EmbeddedSettings};

const INSTANCES: usize = 300;

fn mk_settings(on_damage: OnDamage) -> EmbeddedSettings {
    EmbeddedSettings {
        partitions: 1,
        on_damage,
        ..EmbeddedSettings::standard()
    }
}

fn value_of(instance: usize) -> String {
    format!("instance {instance:04} {}", "v".repeat(200))
}

/// A log with one record for each instance, closed in order. Returns its identity and end.
async fn mk_log(dir: &Path) -> (LogIdentity, Offset) {
    let log = EmbeddedLog::open(dir, mk_settings(OnDamage::Refuse))
        .await
        .expect("opens");
    let mut appends = JoinSet::new();
    for instance in 0..INSTANCES {
        let record = NewRecord {
            topic: Topic::Announcements,
            partition: None,
            key: format!("key-{instance}").into(),
            value: Some(value_of(instance).into()),
            headers: Headers::default(),
            delivery: Delivery::Change,
        };
        let log = log.clone();
        appends.spawn(async move { log.append(record).await });
    }
    let appended = appends.join_all().await.into_iter();
    let end = appended
        .map(|appended| appended.expect("takes it").offset.next())
        .max();
    let end = end.unwrap_or_default();
    log.close().await;
    (log.identity(), end)
}

/// How a file is damaged, and how many records of instances are lost with it at most.
struct Damage {
    name: &'static str,
    apply: fn(&mut Vec<u8>),
    lost_max: usize,
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "the file header is overwritten",
        apply: |file| file[..512].fill(0xff),
        lost_max: 0,
    },
    Damage {
        name: "one bit of one record is turned",
        apply: |file| {
            for at in positions_of(file, value_of(7).as_bytes()) {
                file[at] ^= 1;
            }
        },
        lost_max: 1,
    },
    Damage {
        name: "a page of records is overwritten",
        apply: |file| {
            for at in positions_of(file, value_of(7).as_bytes()) {
                let page = at / 4096 * 4096;
                file[page..page + 4096].fill(0);
            }
        },
        lost_max: 40,
    },
    Damage {
        name: "the file is cut to nothing",
        apply: Vec::clear,
        lost_max: INSTANCES,
    },
    Damage {
        name: "the file is something else",
        apply: |file| *file = b"not a store at all ".repeat(1_000),
        lost_max: INSTANCES,
    },
];

fn positions_of(file: &[u8], text: &[u8]) -> Vec<usize> {
    let windows = file.windows(text.len()).enumerate();
    windows
        .filter(|(_, window)| *window == text)
        .map(|(at, _)| at)
        .collect()
}

#[tokio::test]
async fn damage_is_refused_with_the_file_s_name_and_a_way_forward_and_nothing_is_touched() {
    for damage in DAMAGES {
        let dir = tempfile::tempdir().expect("a directory");
        mk_log(dir.path()).await;
        let path = dir.path().join("log.redb");
        let mut file = fs::read(&path).expect("is there");
        (damage.apply)(&mut file);
        fs::write(&path, &file).expect("writable");
        let opened = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Refuse)).await;
        let Err(LogError::Damaged(text)) = opened else {
            panic!("{}: {opened:?}", damage.name);
        };
        assert!(
            text.contains(&path.display().to_string()),
            "{}: {text}",
            damage.name
        );
        assert!(text.contains("--salvage"), "{}: {text}", damage.name);
        assert!(!text.contains('\n'), "{}: {text}", damage.name);
        assert_eq!(fs::read(&path).expect("is there"), file, "{}", damage.name);
    }
}

#[tokio::test]
async fn salvage_goes_on_with_everything_that_is_intact() {
    for damage in DAMAGES {
        let dir = tempfile::tempdir().expect("a directory");
        let (identity, end) = mk_log(dir.path()).await;
        let path = dir.path().join("log.redb");
        let mut file = fs::read(&path).expect("is there");
        (damage.apply)(&mut file);
        fs::write(&path, &file).expect("writable");
        let opened = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Salvage)).await;
        let log = opened.expect(damage.name);
        let Origin::Salvaged(salvage) = log.origin() else {
            panic!("{}: {:?}", damage.name, log.origin());
        };
        assert_eq!(
            fs::read(&salvage.damaged_file).expect("kept"),
            file,
            "{}",
            damage.name
        );
        let mut follower = Follower::open(&log, Topic::Announcements).await;
        let (records, _) = follower.until_caught_up(1).await;
        let found = records.len();
        assert!(
            found + damage.lost_max >= INSTANCES,
            "{}: {found} left",
            damage.name
        );
        for record in &records {
            assert!(record.offset < end, "{}: moved", damage.name);
        }
        assert_ne!(log.identity(), identity, "{}", damage.name);
        log.close().await;
        let log = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Refuse)).await;
        log.expect("a salvaged log is whole");
    }
}

#[tokio::test]
async fn salvage_leaves_a_log_alone_that_is_not_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let (identity, _) = mk_log(dir.path()).await;
    let opened = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Salvage)).await;
    let log = opened.expect("opens");
    assert_eq!(log.origin(), &Origin::Existing);
    assert_eq!(log.identity(), identity);
}

/// Lets the store say that it has another format.
fn set_format(dir: &Path, format: u64) {
    let database = Database::open(dir.join("log.redb")).expect("a store");
    let transaction = database.begin_write().expect("writable");
    let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let mut table = transaction.open_table(meta).expect("is there");
    table.insert("format", format).expect("writable");
    drop(table);
    transaction.commit().expect("writable");
}

#[tokio::test]
async fn a_store_of_an_older_release_says_so_and_what_it_holds_is_saved() {
    let dir = tempfile::tempdir().expect("a directory");
    mk_log(dir.path()).await;
    set_format(dir.path(), 1);
    let opened = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Refuse)).await;
    let Err(LogError::Damaged(text)) = opened else {
        panic!("opened: {opened:?}");
    };
    assert!(
        text.contains("older release") && text.contains("--salvage"),
        "{text}"
    );
    let log = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Salvage)).await;
    let log = log.expect("saved");
    let mut follower = Follower::open(&log, Topic::Announcements).await;
    let (records, _) = follower.until_caught_up(1).await;
    assert!(records.len() >= INSTANCES, "{} left", records.len());
}

#[tokio::test]
async fn a_store_of_a_newer_release_is_refused_and_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    mk_log(dir.path()).await;
    set_format(dir.path(), u64::MAX);
    for on_damage in [OnDamage::Refuse, OnDamage::Salvage] {
        let opened = EmbeddedLog::open(dir.path(), mk_settings(on_damage)).await;
        let Err(LogError::Misconfigured(text)) = opened else {
            panic!("opened: {opened:?}");
        };
        assert!(text.contains("newer release"), "{text}");
    }
}

#[tokio::test]
async fn a_store_of_something_else_is_not_taken_for_an_empty_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let database = Database::create(dir.path().join("log.redb")).expect("a store");
    drop(database);
    let opened = EmbeddedLog::open(dir.path(), mk_settings(OnDamage::Refuse)).await;
    assert!(matches!(opened, Err(LogError::Damaged(_))), "{opened:?}");
}
