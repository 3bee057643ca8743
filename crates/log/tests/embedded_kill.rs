//! A process that appends is killed with signal 9 at any moment, again and again, on one directory:
//! what it was told is durable is there, in order and whole.
#![expect(clippy::expect_used, reason = "a test fails by panicking, helpers too")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rand::Rng;
use waypost_core::port::{AnnouncementLog, LogError};
use waypost_core::record::{Appended, Delivery, Headers, NewRecord, Record, Topic};
use waypost_core::{Offset, PartitionId};
use waypost_log::suite::Follower;
use waypost_log::{EmbeddedLog, EmbeddedSettings};

/// How often the process is killed.
const KILLS: usize = 30;

/// It is killed after a random number of acknowledgements below this.
const LINES_MAX: usize = 400;

/// Set in the process that appends: the directory of its log, and its number.
const DIR_VARIABLE: &str = "WAYPOST_TEST_KILLED_WRITER";

const APPENDERS: usize = 4;

/// Stands for a null.
const WITHDRAWN: &str = "-";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_nine_at_any_moment() {
    if let Some(writer) = std::env::var_os(DIR_VARIABLE) {
        let writer = writer.into_string().expect("text");
        let (life, dir) = writer.split_once(':').expect("number and directory");
        append_until_killed(PathBuf::from(dir), life.to_owned()).await;
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut told = Told::default();
    for life in 0..KILLS {
        let lines = rand::rng().random_range(0..LINES_MAX);
        for line in lines_until_killed(dir.path(), life, lines) {
            told.take(&line);
        }
        let log = open(dir.path()).await;
        let records = read_all(&log).await;
        told.check(&records);
        let after = log
            .append(mk_record("after", &life.to_string(), Delivery::Change))
            .await;
        told.note(&after.expect("goes on"), true, "after", &life.to_string());
        log.close().await;
    }
    assert!(told.changes.len() > KILLS, "hardly anything was appended");
}

/// What was acknowledged in all lives so far.
#[derive(Debug, Default)]
struct Told {
    /// Every place that was given out, and to what.
    by_place: BTreeMap<(PartitionId, Offset), (String, String)>,
    /// The places of changes.
    changes: Vec<(PartitionId, Offset)>,
}

impl Told {
    /// `PARTITION OFFSET change|heartbeat KEY VALUE`.
    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("five words");
        let appended = Appended {
            partition: PartitionId(word().parse().expect("a partition")),
            offset: Offset(word().parse().expect("an offset")),
            append_time: None,
        };
        let is_change = word() == "change";
        self.note(&appended, is_change, word(), word());
    }

    fn note(&mut self, appended: &Appended, is_change: bool, key: &str, value: &str) {
        let place = (appended.partition, appended.offset);
        let content = (key.to_owned(), value.to_owned());
        let before = self.by_place.insert(place, content.clone());
        assert!(
            before.is_none(),
            "{place:?} was given to {before:?} and to {content:?}"
        );
        if is_change {
            self.changes.push(place);
        }
    }

    fn check(&self, records: &[Record]) {
        let content = |record: &Record| {
            let text = |bytes: &Option<bytes::Bytes>| {
                let bytes = bytes.as_deref().unwrap_or(WITHDRAWN.as_bytes());
                String::from_utf8(bytes.to_vec()).expect("whole")
            };
            (text(&record.key), text(&record.value))
        };
        let mut offsets_by_content: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in records {
            let place = (record.partition, record.offset);
            if let Some(told) = self.by_place.get(&place) {
                assert_eq!(told, &content(record), "at {place:?}");
            }
            let offsets = offsets_by_content.entry(content(record)).or_default();
            offsets.push(record.offset);
        }
        for place in &self.changes {
            // At its place, or at that of a heartbeat that replaced it.
            let offsets = offsets_by_content.get(&self.by_place[place]);
            let is_there = offsets.is_some_and(|at| at.iter().any(|offset| *offset >= place.1));
            assert!(is_there, "{place:?} {:?} is lost", self.by_place[place]);
        }
        let places: Vec<_> = records.iter().map(|r| (r.partition, r.offset)).collect();
        for partition in [0, 1].map(PartitionId) {
            let of_partition = places.iter().filter(|(of, _)| *of == partition);
            assert!(of_partition.is_sorted(), "{partition} is out of order");
        }
    }
}

/// Starts a writer, kills it once it has written so many lines, and returns all of them.
fn lines_until_killed(dir: &Path, life: usize, lines: usize) -> Vec<String> {
    let mut writer = KillOnDrop(spawn_writer(dir, life));
    let stdout = writer.0.stdout.take().expect("piped");
    let mut read = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8(line.expect("readable")).expect("text");
        // The test harness of the writer writes lines too; a line without its end was torn.
        if let Some(line) = line
            .strip_prefix("told ")
            .and_then(|rest| rest.strip_suffix(" ."))
        {
            read.push(line.to_owned());
        }
        if read.len() >= lines {
            writer.0.kill().expect("it lives");
        }
    }
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_is_refused_until_the_first_is_dead() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = KillOnDrop(spawn_writer(dir.path(), 0));
    let stdout = writer.0.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("told ")));
    let second = EmbeddedLog::open(dir.path(), EmbeddedSettings::standard()).await;
    let Err(LogError::InUse(text)) = second else {
        panic!("opened beside another process: {second:?}");
    };
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(
        text.contains(&format!("process {};", writer.0.id())),
        "{text}"
    );
    writer.0.kill().expect("it lives");
    writer.0.wait().expect("it ends");
    open(dir.path()).await;
}

fn spawn_writer(dir: &Path, life: usize) -> Child {
    let name = "what_was_acknowledged_survives_kill_nine_at_any_moment";
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--nocapture"]);
    command.env(DIR_VARIABLE, format!("{life}:{}", dir.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().expect("starts")
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn append_until_killed(dir: PathBuf, life: String) {
    let log = open(&dir).await;
    let appenders: Vec<_> = (0..APPENDERS)
        .map(|appender| tokio::spawn(append_for_ever(log.clone(), format!("{life}-{appender}"))))
        .collect();
    for appender in appenders {
        appender.await.expect("appends");
    }
}

async fn append_for_ever(log: EmbeddedLog, name: String) {
    for n in 0_u64.. {
        let key = format!("{name}-{}", n % 3);
        let value = format!("{n}{}", "x".repeat((n % 30) as usize * 100));
        for delivery in [Delivery::Change, Delivery::Heartbeat, Delivery::Heartbeat] {
            let appended = log.append(mk_record(&key, &value, delivery)).await;
            let Appended {
                partition, offset, ..
            } = appended.expect("takes it");
            let kind = if delivery == Delivery::Change {
                "change"
            } else {
                "heartbeat"
            };
            let line = format!("told {partition} {offset} {kind} {key} {value} .\n");
            // One write, so that the lines of several appenders do not mix.
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(line.as_bytes()).expect("the test reads");
            stdout.flush().expect("the test reads");
        }
    }
}

fn mk_record(key: &str, value: &str, delivery: Delivery) -> NewRecord {
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: key.to_owned().into(),
        value: (value != WITHDRAWN).then(|| value.to_owned().into()),
        headers: Headers::default(),
        delivery,
    }
}

async fn open(dir: &Path) -> EmbeddedLog {
    let settings = EmbeddedSettings {
        partitions: 2,
        ..EmbeddedSettings::standard()
    };
    EmbeddedLog::open(dir, settings)
        .await
        .expect("the log opens")
}

async fn read_all(log: &EmbeddedLog) -> Vec<Record> {
    let mut follower = Follower::open(log, Topic::Announcements).await;
    follower.until_caught_up(2).await.0
}
