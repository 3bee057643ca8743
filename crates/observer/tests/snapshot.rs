//! Snapshots: what an Observer serves when it starts and the log is away, or is another log.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{DEADLINE, Life, get_json, mk_announcement, mk_log, mk_settings};
use waypost_admin_api::{Page, UriView};
use waypost_core::AnnouncementLog;
use waypost_log::MemoryLog;
use waypost_log::memory::Pause;
use waypost_observer::{Observer, RunningObserver, SnapshotSettings};

async fn start(log: &MemoryLog, directory: &Path, serve_after: Duration) -> RunningObserver {
    let log: Arc<dyn AnnouncementLog> = Arc::new(log.clone());
    Observer::new(mk_settings(), log)
        .with_tick_interval(Duration::from_millis(100))
        .with_threads(1)
        .with_snapshot(SnapshotSettings {
            directory: directory.to_owned(),
            interval: Duration::from_millis(100),
            serve_after,
        })
        .start()
        .await
        .unwrap()
}

/// Starts an Observer over `log` that serves one instance, and stops it: its snapshot is left.
async fn leave_a_snapshot(log: &MemoryLog, directory: &Path) {
    let life = Life::new(log, 1, mk_announcement("greeter", 8080));
    life.announce().await;
    let observer = start(log, directory, Duration::from_secs(60)).await;
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap();
    observer.shutdown().await;
    assert!(directory.join("observer.snapshot").exists());
}

async fn instances(observer: &RunningObserver) -> usize {
    let page: Page<UriView> = get_json(observer, "/api/v1/uris/greeter").await;
    page.items.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_log_the_snapshot_is_served_once_the_operators_patience_has_passed() {
    let directory = tempfile::tempdir().unwrap();
    let log = mk_log(2);
    leave_a_snapshot(&log, directory.path()).await;
    log.pause(Pause::Refuse("no broker answers".to_owned()));
    let patient = start(&log, directory.path(), Duration::from_secs(3600)).await;
    let observer = start(&log, directory.path(), Duration::from_millis(300)).await;
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap();
    let page: Page<UriView> = get_json(&observer, "/api/v1/uris/greeter").await;
    let facts = page.items[0].sources[0].log.as_ref().unwrap();
    assert!(
        facts.unconfirmed && facts.offset < 0,
        "not fresh: {facts:?}"
    );
    assert!(!observer.readiness().stale_reasons().is_empty());
    assert!(!patient.readiness().is_ready());
    log.resume();
    tokio::time::timeout(DEADLINE, patient.ready())
        .await
        .unwrap();
    assert_eq!(instances(&patient).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_log_does_not_hold_is_served_from_the_snapshot_and_what_the_same_lacks_is_gone()
 {
    let directory = tempfile::tempdir().unwrap();
    let log = mk_log(2);
    leave_a_snapshot(&log, directory.path()).await;
    let other = mk_log(2);
    other.write_identity(waypost_core::record::LogIdentity(8));
    let observer = start(&other, directory.path(), Duration::from_secs(3600)).await;
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap();
    assert_eq!(instances(&observer).await, 1, "kept as unconfirmed");
    observer.shutdown().await;

    leave_a_snapshot(&log, directory.path()).await;
    let mut life = Life::new(&log, 1, mk_announcement("greeter", 8080));
    life.seq = 9;
    life.withdraw().await;
    let observer = start(&log, directory.path(), Duration::from_secs(3600)).await;
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap();
    assert_eq!(instances(&observer).await, 0);
}
