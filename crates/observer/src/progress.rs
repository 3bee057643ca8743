//! Who waits to hear what became of a record that was just written.
//!
//! The gateway learns a record's offset only from the log's acknowledgement, and ingest may read the
//! record before that. So a waiter names its *key* before it writes, collects what happens to that
//! key from then on, and picks out its own record afterwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use waypost_core::{Offset, PartitionId};

use crate::limits::{VERDICTS_PER_WAIT_MAX, WAITS_MAX};

/// What became of one record, as far as its writer cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in force; this Observer serves it.
    Served,
    /// The log's rules refuse it, for this reason.
    Refused(String),
    /// They refuse it because a later life has withdrawn what it announces; the words for it.
    Withdrawn(String),
}

/// The waits of one Observer; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    by_key: Mutex<HashMap<Bytes, Vec<Arc<Inbox>>>>,
    /// Read without the lock, so that a record nobody waits for costs one load.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inbox {
    verdicts: Mutex<Vec<(PartitionId, Offset, Verdict)>>,
    arrived: Notify,
}

/// No more waits are taken at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{WAITS_MAX} writers already wait for their record to be served (limit WAITS_MAX); write without waiting or try again"
)]
pub struct TooManyWaits;

impl Progress {
    /// From now on verdicts on records with this key are collected for the caller.
    ///
    /// # Errors
    /// The bound on waits is reached.
    pub fn wait_for(&self, key: Bytes) -> Result<Wait, TooManyWaits> {
        let mut by_key = self.0.by_key.lock();
        if self.0.count.load(Ordering::Relaxed) >= WAITS_MAX {
            return Err(TooManyWaits);
        }
        self.0.count.fetch_add(1, Ordering::Release);
        let inbox = Arc::new(Inbox::default());
        by_key
            .entry(key.clone())
            .or_default()
            .push(Arc::clone(&inbox));
        Ok(Wait {
            progress: self.clone(),
            key,
            inbox,
        })
    }

    /// Whether anybody waits for anything: what ingest asks before it works out a verdict.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    /// Whether anybody waits for this key.
    #[must_use]
    pub fn awaits(&self, key: &[u8]) -> bool {
        self.0.by_key.lock().contains_key(key)
    }

    /// Tells those who wait for this key. Never blocks.
    pub fn tell(&self, key: &[u8], partition: PartitionId, offset: Offset, verdict: Verdict) {
        let by_key = self.0.by_key.lock();
        let Some(inboxes) = by_key.get(key) else {
            return;
        };
        for inbox in inboxes {
            let mut verdicts = inbox.verdicts.lock();
            if verdicts.len() == VERDICTS_PER_WAIT_MAX {
                verdicts.remove(0);
            }
            verdicts.push((partition, offset, verdict.clone()));
            inbox.arrived.notify_one();
        }
    }
}

/// One writer's wait. Dropping it ends it.
#[derive(Debug)]
pub struct Wait {
    progress: Progress,
    key: Bytes,
    inbox: Arc<Inbox>,
}

impl Wait {
    /// Waits for the verdict on the record that the log put at this offset.
    pub async fn verdict(&self, partition: PartitionId, offset: Offset) -> Verdict {
        loop {
            if let Some(verdict) = self.find(partition, offset) {
                return verdict;
            }
            self.inbox.arrived.notified().await;
        }
    }

    fn find(&self, partition: PartitionId, offset: Offset) -> Option<Verdict> {
        let verdicts = self.inbox.verdicts.lock();
        let own = verdicts
            .iter()
            .find(|(p, o, _)| (*p, *o) == (partition, offset));
        own.map(|(_, _, verdict)| verdict.clone())
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut by_key = self.progress.0.by_key.lock();
        if let Some(inboxes) = by_key.get_mut(&self.key) {
            inboxes.retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
            if inboxes.is_empty() {
                by_key.remove(&self.key);
            }
        }
        self.progress.0.count.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Bytes = Bytes::from_static(b"greeter\0grpc://h:1");

    #[tokio::test]
    async fn a_verdict_that_comes_before_the_offset_is_known_is_not_lost() {
        let progress = Progress::default();
        let wait = progress.wait_for(KEY).unwrap();
        let refused = Verdict::Refused("older".to_owned());
        progress.tell(&KEY, PartitionId(1), Offset(6), Verdict::Served);
        progress.tell(&KEY, PartitionId(1), Offset(7), refused.clone());
        assert_eq!(wait.verdict(PartitionId(1), Offset(7)).await, refused);
        assert_eq!(
            wait.verdict(PartitionId(1), Offset(6)).await,
            Verdict::Served
        );
    }

    #[tokio::test]
    async fn a_verdict_that_comes_later_wakes_the_waiter() {
        let progress = Progress::default();
        let wait = progress.wait_for(KEY).unwrap();
        let waiting = tokio::spawn(async move { wait.verdict(PartitionId(0), Offset(3)).await });
        tokio::task::yield_now().await;
        progress.tell(
            b"other",
            PartitionId(0),
            Offset(3),
            Verdict::Refused(String::new()),
        );
        progress.tell(&KEY, PartitionId(0), Offset(3), Verdict::Served);
        assert_eq!(waiting.await.unwrap(), Verdict::Served);
    }

    #[test]
    fn a_wait_that_is_dropped_costs_nothing_afterwards() {
        let progress = Progress::default();
        let waits: Vec<_> = (0..3).map(|_| progress.wait_for(KEY).unwrap()).collect();
        assert!(progress.is_awaited());
        drop(waits);
        assert!(!progress.is_awaited());
        assert!(progress.0.by_key.lock().is_empty());
    }

    #[test]
    fn waits_are_bounded_and_the_error_names_the_bound() {
        let progress = Progress::default();
        progress.0.count.store(WAITS_MAX, Ordering::Relaxed);
        let error = progress.wait_for(KEY).unwrap_err().to_string();
        assert!(error.contains("WAITS_MAX"), "{error}");
    }
}
