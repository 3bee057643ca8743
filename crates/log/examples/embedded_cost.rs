//! What the embedded log costs: CPU-seconds for 100,000 heartbeats of 10,000 instances and for
//! 10,000 durable changes, with one reader that follows.
//!
//! ```text
//! cargo run --release -p waypost-log --example embedded_cost -- DIR
//! ```
#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot be made fails"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tokio::time::Instant;
use waypost_core::LifeId;
use waypost_core::port::{AnnouncementLog, ReadEvent};
use waypost_core::record::{Delivery, Headers, NewRecord, Topic};
use waypost_core::time::Timestamp;
use waypost_log::{EmbeddedLog, EmbeddedSettings};

const INSTANCES: usize = 10_000;
const HEARTBEATS: usize = 100_000;
const CHANGES: usize = 10_000;
/// Appends that wait for their acknowledgement at one time.
const CONCURRENCY: usize = 256;
const VALUE_BYTES: usize = 300;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let dir = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .expect("give a directory");
    let log = EmbeddedLog::open(&dir, EmbeddedSettings::standard())
        .await
        .expect("opens");
    let read = Arc::new(AtomicUsize::new(0));
    tokio::spawn(follow(log.clone(), Arc::clone(&read)));
    run(&log, "10,000 durable changes", CHANGES, 1, Delivery::Change).await;
    for generation in [1, 1, 1] {
        run(
            &log,
            "100,000 heartbeats",
            HEARTBEATS,
            generation,
            Delivery::Heartbeat,
        )
        .await;
    }
    run(&log, "10,000 durable changes", CHANGES, 2, Delivery::Change).await;
    log.close().await;
    let file = std::fs::metadata(dir.join("log.redb")).expect("is there");
    println!(
        "file: {} bytes; the reader read {}",
        file.len(),
        read.load(Ordering::Relaxed)
    );
    let start = (Instant::now(), cpu_seconds());
    let log = EmbeddedLog::open(&dir, EmbeddedSettings::standard())
        .await
        .expect("opens");
    report("opening again", start);
    log.close().await;
}

async fn run(log: &EmbeddedLog, what: &str, count: usize, generation: u64, delivery: Delivery) {
    let start = (Instant::now(), cpu_seconds());
    let next = Arc::new(AtomicUsize::new(0));
    let mut appenders = JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (log, next) = (log.clone(), Arc::clone(&next));
        appenders.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return;
                }
                let record = mk_record(n % INSTANCES, generation, delivery);
                log.append(record).await.expect("takes it");
            }
        });
    }
    appenders.join_all().await;
    report(what, start);
}

fn mk_record(instance: usize, generation: u64, delivery: Delivery) -> NewRecord {
    let text = format!("{instance:06} {generation} ");
    NewRecord {
        topic: Topic::Announcements,
        partition: None,
        key: format!("cluster-{}\0grpc://10.0.0.1:{instance}", instance % 100).into(),
        value: Some(format!("{text}{}", "v".repeat(VALUE_BYTES - text.len())).into()),
        headers: Headers {
            id: Some(LifeId(instance as u64)),
            birth: Some(Timestamp(1_700_000_000_000)),
            seq: Some(generation),
            ..Headers::default()
        },
        delivery,
    }
}

async fn follow(log: EmbeddedLog, read: Arc<AtomicUsize>) {
    let mut reader = log.read(Topic::Announcements, &[]).await.expect("opens");
    drop(log);
    while let Ok(event) = reader.next().await {
        if let ReadEvent::Records(records) = event {
            read.fetch_add(records.len(), Ordering::Relaxed);
        }
    }
}

fn report(what: &str, (at, cpu): (Instant, f64)) {
    let wall = at.elapsed().as_secs_f64();
    println!("{what}: {:.2} CPU s, {wall:.2} s", cpu_seconds() - cpu);
}

/// User and system time of this process, from `/proc/self/stat` (fields 14 and 15, in hundredths).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(") ").expect("a process name in brackets");
    let ticks = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>());
    ticks.map(|ticks| ticks.expect("a number")).sum::<f64>() / 100.0
}
