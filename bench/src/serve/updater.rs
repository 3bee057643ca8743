//! Changes at a steady rate, made through the log as any announcer makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use waypost_core::Topic;
use waypost_core::record::Delivery;

use super::announcements::Announcements;
use super::passing_log::PassingLog;

/// Change `n` is made in cluster `n * STRIDE` modulo their number. A prime: every cluster is changed
/// before one is changed again, neighbours far apart.
const STRIDE: u64 = 7_919;

/// Changes that may wait to be read before the updater waits for the Observer. An Observer that falls
/// behind is then seen in [`Counts`], not in memory.
const UNREAD_MAX: usize = 10_000;

/// As [`UNREAD_MAX`], where changes are made as fast as they are read: two batches of the reader.
const UNREAD_UNPACED_MAX: usize = 1_024;

/// How far changes have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many should have been made by now; as many as were made where there is no rate.
    pub(crate) offered: u64,
    /// How many were appended to the log.
    pub(crate) made: u64,
    /// How many of those were not read yet: the store does not show them.
    pub(crate) unread: usize,
}

/// Makes changes, one run at a time. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Updater {
    shared: Arc<Shared>,
    run: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

#[derive(Debug)]
struct Shared {
    log: PassingLog,
    announcements: Mutex<Announcements>,
    offered: AtomicU64,
    made: AtomicU64,
}

impl Updater {
    pub(crate) fn new(log: PassingLog, announcements: Announcements) -> Self {
        Self {
            shared: Arc::new(Shared {
                log,
                announcements: Mutex::new(announcements),
                offered: AtomicU64::new(0),
                made: AtomicU64::new(0),
            }),
            run: Arc::default(),
        }
    }

    /// Begins to make `rate` changes a second, or with 0 as many as are read; counts from 0.
    pub(crate) async fn start(&self, rate: u32) {
        let mut run = self.run.lock().await;
        if let Some(before) = run.take() {
            before.abort();
            let _ = before.await;
        }
        self.shared.offered.store(0, Ordering::Relaxed);
        self.shared.made.store(0, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        *run = Some(tokio::spawn(async move {
            let done = match rate {
                0 => shared.change_unpaced().await,
                rate => shared.change_at(rate).await,
            };
            if let Err(error) = done {
                tracing::error!(%error, "no more changes are made");
            }
        }));
    }

    /// Ends the run.
    pub(crate) async fn stop(&self) -> Counts {
        if let Some(run) = self.run.lock().await.take() {
            run.abort();
            let _ = run.await;
        }
        self.counts()
    }

    pub(crate) fn counts(&self) -> Counts {
        let made = self.shared.made.load(Ordering::Relaxed);
        Counts {
            offered: self.shared.offered.load(Ordering::Relaxed).max(made),
            made,
            unread: self.shared.log.waiting(Topic::Announcements),
        }
    }

    /// Announces a part of all instances again, as heartbeats.
    pub(crate) fn announce_again(&self, part: usize, parts: usize) -> anyhow::Result<()> {
        let announcements = self.shared.announcements.lock();
        for number in (part..announcements.instance_count()).step_by(parts) {
            let heartbeat = announcements.announce(number, Delivery::Heartbeat)?;
            self.shared.log.push(heartbeat)?;
        }
        Ok(())
    }

    /// Changes one cluster once.
    pub(crate) fn change(&self, cluster: usize) -> anyhow::Result<()> {
        self.shared.change(cluster)
    }
}

impl Shared {
    async fn change_unpaced(&self) -> anyhow::Result<()> {
        for n in 0.. {
            self.change_nth(n)?;
            let read = self
                .log
                .waiting_at_most(Topic::Announcements, UNREAD_UNPACED_MAX);
            read.await;
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn change_at(&self, rate: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut n = 0;
        loop {
            let due = due(began.elapsed(), rate);
            self.offered.store(due, Ordering::Relaxed);
            while n < due {
                if self.log.waiting(Topic::Announcements) >= UNREAD_MAX {
                    break;
                }
                self.change_nth(n)?;
                n += 1;
            }
            let next = due + 1;
            sleep_until(began + Duration::from_secs(1).mul_f64(next as f64 / f64::from(rate)))
                .await;
        }
    }

    fn change_nth(&self, n: u64) -> anyhow::Result<()> {
        let clusters = self.announcements.lock().cluster_count() as u64;
        self.change(usize::try_from(n.wrapping_mul(STRIDE) % clusters)?)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn change(&self, cluster: usize) -> anyhow::Result<()> {
        let record = {
            let mut announcements = self.announcements.lock();
            let cluster = cluster % announcements.cluster_count();
            announcements.change(cluster, crate::clock::now_micros())
        };
        self.log.push(record)?;
        Ok(())
    }
}

/// How many changes are due `elapsed` after the first.
fn due(elapsed: Duration, rate: u32) -> u64 {
    u64::try_from(elapsed.as_micros() * u128::from(rate) / 1_000_000).unwrap_or(u64::MAX)
}
