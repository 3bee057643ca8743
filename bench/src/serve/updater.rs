//! Changes at a steady rate, made through the log as any announcer makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use waypost_core::record::Delivery;
use waypost_core::{NewRecord, Topic};

use super::passing_log::PassingLog;
use crate::clock::now_micros;
use crate::fleet::Fleet;
use crate::fleet::activity::nth;

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
    fleet: Mutex<Fleet>,
    /// Heartbeats ready to be appended, once they were asked for.
    beats: tokio::sync::Mutex<Vec<NewRecord>>,
    offered: AtomicU64,
    made: AtomicU64,
}

impl Updater {
    pub(crate) fn new(log: PassingLog, fleet: Fleet) -> Self {
        Self {
            shared: Arc::new(Shared {
                log,
                fleet: Mutex::new(fleet),
                beats: tokio::sync::Mutex::default(),
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
    pub(crate) fn announce_again(&self, part: u32, parts: usize) -> anyhow::Result<()> {
        let fleet = self.shared.fleet.lock();
        for slot in (part..fleet.slot_count()).step_by(parts) {
            let heartbeat = fleet.announce(slot, Delivery::Heartbeat)?;
            self.shared.log.push(heartbeat)?;
        }
        Ok(())
    }

    /// Announces everybody again `rounds` times, as fast as it is read, and returns once it was. The
    /// records are made at the first call and kept, so that later ones cost the log and its reader only;
    /// they say what was announced then, so nothing may be changed in between. Gives how many there were.
    pub(crate) async fn beat(&self, rounds: u32) -> anyhow::Result<u64> {
        let mut beats = self.shared.beats.lock().await;
        if beats.is_empty() {
            let fleet = self.shared.fleet.lock();
            let slots = (0..fleet.slot_count()).map(|n| nth(n.into(), fleet.slot_count()));
            let records = slots.map(|slot| fleet.announce(slot, Delivery::Heartbeat));
            *beats = records.collect::<anyhow::Result<_>>()?;
        }
        let log = &self.shared.log;
        for _ in 0..rounds {
            for batch in beats.chunks(UNREAD_UNPACED_MAX) {
                for record in batch {
                    log.push(record.clone())?;
                }
                let read = log.waiting_at_most(Topic::Announcements, UNREAD_UNPACED_MAX);
                read.await;
            }
        }
        log.all_read(Topic::Announcements).await;
        Ok(u64::from(rounds) * beats.len() as u64)
    }

    /// Changes one cluster once.
    pub(crate) fn change(&self, cluster: u32) -> anyhow::Result<()> {
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
        let clusters = self.fleet.lock().cluster_count();
        self.change(nth(n, clusters))?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn change(&self, cluster: u32) -> anyhow::Result<()> {
        let record = {
            let mut fleet = self.fleet.lock();
            let cluster = cluster % fleet.cluster_count();
            fleet.stamp(cluster, now_micros())?
        };
        self.log.push(record)?;
        Ok(())
    }
}

/// How many changes are due `elapsed` after the first.
fn due(elapsed: Duration, rate: u32) -> u64 {
    u64::try_from(elapsed.as_micros() * u128::from(rate) / 1_000_000).unwrap_or(u64::MAX)
}
