//! The one thread that writes: it stamps offsets and times, commits in groups, and makes records
//! visible.
//!
//! A batch that holds a change is committed, with one fsync, before any record of it becomes
//! visible or is acknowledged. Heartbeats and ticks become visible at once and are committed with
//! the next change, or when the flush interval is over.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use waypost_core::port::LogError;
use waypost_core::record::{Appended, Delivery, NewRecord, Offset, Record, Topic};

use super::ledger::{Ledger, Retention};
use super::shared::Shared;
use super::store::{Changes, Closing, OpenDatabase, StoreError};
use super::stored::Place;
use crate::admission::{admit, check_expected, no_such_partition};
use crate::clock::Clock;
use crate::limits::{
    EMBEDDED_BATCH_MAX, EMBEDDED_CLEAN_MAX, EMBEDDED_FLUSH_INTERVAL, EMBEDDED_PENDING_BYTES_MAX,
    EMBEDDED_PENDING_MAX,
};

/// What handles ask of the writer.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "all but one request of a log is an append; a box would cost each of them an allocation"
)]
pub(super) enum Request {
    Append(AppendRequest),
    /// Write everything, close the store and say so.
    Close(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct AppendRequest {
    pub(super) record: NewRecord,
    pub(super) guard: Guard,
    pub(super) reply_tx: oneshot::Sender<Result<Appended, LogError>>,
}

/// On what condition a record is appended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guard {
    Always,
    /// The key's last record stands here; `None`: it has none.
    LastIs(Option<Offset>),
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) open: OpenDatabase,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) retention: Retention,
    pub(super) ledger: Ledger,
    /// The number of the last commit.
    pub(super) commits: u64,
    pub(super) pending: Pending,
    pub(super) health: Health,
}

/// What is not on disk yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) changes: Changes,
    bytes: usize,
    flush_at: Option<Instant>,
}

/// Whether the store can be written.
#[derive(Debug)]
pub(super) enum Health {
    Writing,
    Failed(Failure),
}

/// A commit failed: whether it reached the disk is known once the store was opened again.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) retry_at: Instant,
    /// Of that commit: records whose callers were told `Unavailable` and that nobody has seen.
    pub(super) in_doubt: Vec<(Topic, Record)>,
}

/// A record that has its place and is not visible yet.
#[derive(Debug)]
struct Staged {
    topic: Topic,
    record: Record,
    delivery: Delivery,
    reply_tx: oneshot::Sender<Result<Appended, LogError>>,
}

impl Writer {
    /// Serves requests until the log is closed or its last handle is gone.
    pub(super) async fn run(mut self, mut requests_rx: mpsc::Receiver<Request>) {
        // Also when this thread panics: nobody may wait for a log that is not there.
        let close = CloseOnDrop(Arc::clone(&self.shared));
        let mut requests = Vec::new();
        let closed_tx = loop {
            tokio::select! {
                count = requests_rx.recv_many(&mut requests, EMBEDDED_BATCH_MAX) => {
                    if count == 0 {
                        break None;
                    }
                }
                () = sleep_until(self.wake_at()) => {}
            }
            if let Some(closed_tx) = self.step(&mut requests) {
                break Some(closed_tx);
            }
        };
        self.finish();
        drop(close);
        // Whoever waits for the end may be gone.
        let _ = closed_tx.map(|closed_tx| closed_tx.send(()));
    }

    fn wake_at(&self) -> Instant {
        match &self.health {
            Health::Failed(failure) => failure.retry_at,
            Health::Writing => {
                let idle = Instant::now() + EMBEDDED_FLUSH_INTERVAL;
                self.pending.flush_at.unwrap_or(idle)
            }
        }
    }

    /// One batch. Returns who asked for the end.
    fn step(&mut self, requests: &mut Vec<Request>) -> Option<oneshot::Sender<()>> {
        self.recover_if_due();
        let mut staged = Vec::new();
        let mut closing = None;
        for request in requests.drain(..) {
            match request {
                Request::Append(request) => staged.extend(self.stage(request)),
                Request::Close(closed_tx) => closing = Some(closed_tx),
            }
        }
        if self.must_commit(&staged) {
            match self.commit(Closing::Crash) {
                Ok(()) => self.acknowledge(staged),
                Err(error) => self.fail(&error, staged),
            }
        } else {
            self.acknowledge(staged);
        }
        closing
    }

    /// Gives a record its place, or its caller the reason why not.
    fn stage(&mut self, request: AppendRequest) -> Option<Staged> {
        let AppendRequest {
            record,
            guard,
            reply_tx,
        } = request;
        let delivery = record.delivery;
        match self.place(record, guard) {
            Ok((topic, record)) => Some(Staged {
                topic,
                record,
                delivery,
                reply_tx,
            }),
            Err(error) => {
                // A caller that gave up needs no answer.
                let _ = reply_tx.send(Err(error));
                None
            }
        }
    }

    fn place(&mut self, new: NewRecord, guard: Guard) -> Result<(Topic, Record), LogError> {
        if let Health::Failed(failure) = &self.health {
            return Err(LogError::Unavailable(failure.reason.clone()));
        }
        let topic = new.topic;
        let partitions = self.ledger.partition_count(topic);
        let partition = admit(&new, partitions)?;
        if let Guard::LastIs(expected) = guard {
            check_expected(self.ledger.find_last(topic, partition, &new.key), expected)?;
        }
        let assigned = self.ledger.assign(topic, partition, self.clock.now());
        let (offset, append_time) =
            assigned.ok_or_else(|| no_such_partition(topic, partition, partitions))?;
        let record = Record {
            partition,
            offset,
            append_time,
            key: Some(new.key),
            value: new.value,
            headers: Ok(new.headers),
        };
        self.note(topic, &record);
        Ok((topic, record))
    }

    /// Takes a record into the ledger and into what is to be committed.
    pub(super) fn note(&mut self, topic: Topic, record: &Record) {
        let place = Place::of(topic, record);
        let replaced = self.ledger.apply(place, record);
        self.pending.put(place, record.clone(), replaced);
    }

    fn must_commit(&self, staged: &[Staged]) -> bool {
        let is_change = |staged: &Staged| staged.delivery == Delivery::Change;
        staged.iter().any(is_change) || self.pending.is_due()
    }

    /// Writes everything that is pending and what may be removed by now, and waits for the disk.
    pub(super) fn commit(&mut self, closing: Closing) -> Result<(), StoreError> {
        self.shared.check_store()?;
        let now = self.clock.now();
        let removable = self
            .ledger
            .take_removable(now, self.retention, EMBEDDED_CLEAN_MAX);
        self.pending.remove(removable);
        let number = self.commits + 1;
        let ends = self.ledger.ends(closing);
        let changes = &self.pending.changes;
        self.shared
            .ask(|store| store.commit(changes, &ends, number, closing))?;
        self.commits = number;
        self.pending = Pending::default();
        self.shared.trim();
        Ok(())
    }

    /// Makes records visible and tells their callers.
    fn acknowledge(&self, staged: Vec<Staged>) {
        if staged.is_empty() {
            return;
        }
        self.shared
            .publish(staged.iter().map(|staged| (staged.topic, &staged.record)));
        for staged in staged {
            let appended = Appended {
                partition: staged.record.partition,
                offset: staged.record.offset,
                append_time: Some(staged.record.append_time),
            };
            // A caller that gave up needs no answer.
            let _ = staged.reply_tx.send(Ok(appended));
        }
    }

    fn fail(&mut self, error: &StoreError, staged: Vec<Staged>) {
        let reason = self.shared.to_reason(error);
        tracing::error!(
            reason,
            "the log takes no records until its file can be written again"
        );
        let mut in_doubt = Vec::new();
        for staged in staged {
            // A caller that gave up needs no answer.
            let _ = staged
                .reply_tx
                .send(Err(LogError::Unavailable(reason.clone())));
            in_doubt.push((staged.topic, staged.record));
        }
        self.shared.set_failure(Some(reason.clone()));
        self.health = Health::Failed(Failure::new(reason, in_doubt));
    }

    /// The last commit of an orderly end.
    fn finish(&mut self) {
        self.recover_if_due();
        if matches!(self.health, Health::Writing)
            && let Err(error) = self.commit(Closing::Orderly)
        {
            let reason = self.shared.to_reason(&error);
            tracing::error!(reason, "the last heartbeats could not be written");
        }
    }
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Pending {
    /// Adds a record, and instead of a record that is pending too, where it replaces one.
    fn put(&mut self, place: Place, record: Record, replaced: Option<Place>) {
        if let Some(replaced) = replaced
            && self.changes.puts.remove(&replaced).is_none()
        {
            self.changes.deletes.insert(replaced);
        }
        self.bytes += record.value.as_ref().map_or(0, bytes::Bytes::len);
        self.changes.puts.insert(place, record);
        let flush_at = || Instant::now() + EMBEDDED_FLUSH_INTERVAL;
        self.flush_at.get_or_insert_with(flush_at);
    }

    pub(super) fn remove(&mut self, places: Vec<Place>) {
        for place in places {
            if self.changes.puts.remove(&place).is_none() {
                self.changes.deletes.insert(place);
            }
        }
    }

    fn is_due(&self) -> bool {
        self.flush_at.is_some_and(|at| at <= Instant::now())
            || self.changes.puts.len() >= EMBEDDED_PENDING_MAX
            || self.bytes >= EMBEDDED_PENDING_BYTES_MAX
    }
}
