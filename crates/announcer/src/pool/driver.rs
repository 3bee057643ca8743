//! The task behind a pool.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{AbortHandle, Aborted, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{sleep_until, timeout};
use waypost_core::{InstanceKey, LifeId};

use super::{PoolOptions, Shared, Slot, Verdicts, mk_stamp};
use crate::limits::{APPEND_MAX, IN_FLIGHT_MAX, VERDICT_MAX};
use crate::machine::{Consequence, Next};
use crate::sink::{InstanceRecord, Receipt, Sink, SinkError, Verdict};

type Written = (u64, u64, Result<Receipt, SinkError>);
type Judged = (u64, u64, Result<Verdict, Aborted>);

/// The task that writes what the announcers of one pool want. It ends when the pool and all its
/// announcers are gone and nothing is left to withdraw.
///
/// Waiting instances are kept in the order of their time; while [`IN_FLIGHT_MAX`] writes are under
/// way they simply stay there, so a log that is away costs no memory.
pub struct Driver {
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
    options: PoolOptions,
    entries_by_id: HashMap<u64, Entry>,
    waiting: BTreeSet<(Duration, u64)>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
    verdicts: FuturesUnordered<BoxFuture<'static, Judged>>,
}

/// What the task remembers of one instance.
struct Entry {
    slot: Arc<Slot>,
    waits_until: Option<Duration>,
    /// Ends the wait for a verdict that a newer change made void.
    verdict: Option<AbortHandle>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("instances", &self.entries_by_id.len())
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, sink: Arc<dyn Sink>, options: PoolOptions) -> Self {
        Self {
            shared,
            sink,
            options,
            entries_by_id: HashMap::new(),
            waiting: BTreeSet::new(),
            writes: FuturesUnordered::new(),
            verdicts: FuturesUnordered::new(),
        }
    }

    /// Runs until nobody needs it any more.
    pub async fn run(mut self) {
        loop {
            self.start_due_writes();
            if self.is_done() {
                return;
            }
            let shared = Arc::clone(&self.shared);
            let room = self.writes.len() < IN_FLIGHT_MAX;
            let next = self.waiting.first().map(|(at, _)| shared.epoch + *at);
            tokio::select! {
                () = shared.wake.notified() => self.take_touched(),
                Some(written) = self.writes.next() => self.take_written(written),
                Some(judged) = self.verdicts.next() => self.take_judged(judged),
                () = sleep_until(next.unwrap_or(shared.epoch)), if room && next.is_some() => {}
            }
        }
    }

    fn start_due_writes(&mut self) {
        let now = self.shared.now();
        while self.writes.len() < IN_FLIGHT_MAX {
            match self.waiting.first() {
                Some((at, id)) if *at <= now => {
                    let id = *id;
                    self.step(id, now);
                }
                _ => return,
            }
        }
    }

    /// Asks one instance what it wants and does it.
    fn step(&mut self, id: u64, now: Duration) {
        let Some(entry) = self.entries_by_id.get_mut(&id) else {
            return;
        };
        if let Some(at) = entry.waits_until.take() {
            self.waiting.remove(&(at, id));
        }
        let mut machine = entry.slot.machine.lock();
        match machine.poll(now) {
            Next::Wait => {}
            Next::At(at) => {
                entry.waits_until = Some(at);
                self.waiting.insert((at, id));
            }
            Next::Write(mut record) => {
                let seq = machine.seq();
                drop(machine);
                record.wants_verdict &= self.options.verdicts == Verdicts::Wanted;
                let sink = Arc::clone(&self.sink);
                self.writes.push(Box::pin(
                    async move { (id, seq, write(&*sink, record).await) },
                ));
            }
        }
    }

    fn take_touched(&mut self) {
        let touched = std::mem::take(&mut *self.shared.touched.lock());
        for slot in touched {
            slot.touched.store(false, Ordering::Release);
            let id = slot.id;
            self.entries_by_id.entry(id).or_insert_with(|| Entry {
                slot,
                waits_until: None,
                verdict: None,
            });
            self.reschedule(id);
        }
    }

    /// Puts an instance where the time of its next write says, or lets it go.
    fn reschedule(&mut self, id: u64) {
        let Some(entry) = self.entries_by_id.get_mut(&id) else {
            return;
        };
        if let Some(at) = entry.waits_until.take() {
            self.waiting.remove(&(at, id));
        }
        let mut machine = entry.slot.machine.lock();
        if entry.slot.released.load(Ordering::Acquire) {
            machine.fall_silent();
            if machine.is_finished() {
                let key = machine.key().clone();
                drop(machine);
                self.forget(id, &key);
                return;
            }
        }
        if let Some(at) = machine.next_write() {
            entry.waits_until = Some(at);
            self.waiting.insert((at, id));
        }
    }

    fn forget(&mut self, id: u64, key: &InstanceKey) {
        if let Some(verdict) = self.entries_by_id.remove(&id).and_then(|e| e.verdict) {
            verdict.abort();
        }
        let mut slots_by_key = self.shared.slots_by_key.lock();
        if slots_by_key.get(key).is_some_and(|slot| slot.id == id) {
            slots_by_key.remove(key);
        }
    }

    fn take_written(&mut self, (id, seq, result): Written) {
        let Some(entry) = self.entries_by_id.get_mut(&id) else {
            return;
        };
        let slot = Arc::clone(&entry.slot);
        let now = self.shared.now();
        let mut machine = slot.machine.lock();
        match result {
            Ok(receipt) => {
                machine.acknowledged(receipt.appended, now);
                if let Some(verdict) = receipt.verdict {
                    self.await_verdict(id, seq, verdict);
                }
            }
            Err(error) => {
                tracing::debug!(uri = %machine.key().uri, %error, "write failed; trying again");
                machine.failed(&error, now);
            }
        }
        slot.show(&machine);
        drop(machine);
        self.reschedule(id);
    }

    fn await_verdict(&mut self, id: u64, seq: u64, verdict: BoxFuture<'static, Verdict>) {
        let Some(entry) = self.entries_by_id.get_mut(&id) else {
            return;
        };
        let (verdict, handle) = abortable(timeout(VERDICT_MAX, verdict));
        if let Some(older) = entry.verdict.replace(handle) {
            older.abort();
        }
        self.verdicts.push(Box::pin(async move {
            let verdict = verdict.await;
            let late = || Verdict::Unknown("no answer in time".to_owned());
            (id, seq, verdict.map(|v| v.unwrap_or_else(|_| late())))
        }));
    }

    fn take_judged(&mut self, (id, seq, verdict): Judged) {
        let (Some(entry), Ok(verdict)) = (self.entries_by_id.get_mut(&id), verdict) else {
            return;
        };
        entry.verdict = None;
        let slot = Arc::clone(&entry.slot);
        let mut machine = slot.machine.lock();
        if machine.judged(seq, verdict) == Consequence::NewLife {
            // Told first, so that whoever follows the status hears why.
            slot.show(&machine);
            machine.begin_new_life(LifeId(rand::random()), self.shared.now(), mk_stamp());
        }
        slot.show(&machine);
        drop(machine);
        self.reschedule(id);
    }

    fn is_done(&self) -> bool {
        self.shared.abandoned.load(Ordering::Acquire)
            && self.entries_by_id.is_empty()
            && self.shared.touched.lock().is_empty()
    }
}

impl Drop for Driver {
    /// Waiters on a status must not wait for ever for a task that is gone.
    fn drop(&mut self) {
        self.shared.stopped_tx.send_replace(true);
    }
}

async fn write(sink: &dyn Sink, record: InstanceRecord) -> Result<Receipt, SinkError> {
    match timeout(APPEND_MAX, sink.append(record)).await {
        Ok(result) => result,
        Err(_) => Err(SinkError::Unavailable(format!(
            "no answer within {} s",
            APPEND_MAX.as_secs()
        ))),
    }
}
