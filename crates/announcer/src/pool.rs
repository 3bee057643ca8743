//! Many instances, one task. Owners change what they want through an [`Announcer`], at once and
//! without waiting; the task writes the latest of it, one record of an instance at a time.

mod driver;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use waypost_core::{Announcement, Health, InstanceKey, LifeId, PartitionWeights};

use crate::clock;
use crate::limits::INSTANCES_MAX;
use crate::machine::{Machine, Stamp};
use crate::settings::{self, SettingsError};
use crate::sink::Sink;
use crate::status::Status;

pub use driver::Driver;

/// Why an instance was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnounceError {
    /// The announcement cannot be made.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This pool announces it already; two owners would undo each other's changes.
    #[error("{} of cluster {} is announced by this process already", .0.uri, .0.cluster)]
    Duplicate(InstanceKey),
    /// More than [`INSTANCES_MAX`].
    #[error("this process announces {INSTANCES_MAX} instances already; start another one")]
    Full,
}

/// The task that does the writing has ended: its runtime was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the announcer's task has ended; nothing is announced any more")]
pub struct Stopped;

/// How a pool treats its instances.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Whether to ask what Observers make of each change (only gateways can tell).
    pub verdicts: Verdicts,
}

/// Whether a pool wants to know what becomes of its changes after the log has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdicts {
    /// Each change is followed until an Observer serves it.
    #[default]
    Wanted,
    /// The log's acknowledgement is enough: for load generators.
    Ignored,
}

/// Announces many instances through one sink from one task.
///
/// Dropping the pool and every [`Announcer`] ends the task. Instances that are up then simply fall
/// silent, like those of a process that died; [`AnnouncerPool::mark_down_all`] withdraws them.
#[derive(Clone, Debug)]
pub struct AnnouncerPool {
    owner: Arc<Owner>,
}

/// The owner's handle on one instance. Dropping it without [`Announcer::mark_down`] lets the
/// instance fall silent; it then leaves when the log's rules say so.
#[derive(Debug)]
pub struct Announcer {
    slot: Arc<Slot>,
    owner: Arc<Owner>,
}

/// What the handles and the task share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Monotonic times are counted from here.
    epoch: Instant,
    slots_by_key: Mutex<HashMap<InstanceKey, Arc<Slot>>>,
    /// Slots that somebody touched; each is in here at most once.
    touched: Mutex<Vec<Arc<Slot>>>,
    wake: Notify,
    /// No handle is left.
    abandoned: AtomicBool,
    /// The task has ended.
    stopped_tx: watch::Sender<bool>,
}

/// One instance.
#[derive(Debug)]
pub(crate) struct Slot {
    id: u64,
    machine: Mutex<Machine>,
    status_tx: watch::Sender<Status>,
    touched: AtomicBool,
    /// Its owner let go of it.
    released: AtomicBool,
}

/// Counted by the handles only, so that the task learns when the last one is gone.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

impl AnnouncerPool {
    /// A pool whose task runs on the current tokio runtime.
    #[must_use]
    pub fn spawn(sink: Arc<dyn Sink>, options: PoolOptions) -> Self {
        let (pool, driver) = Self::new(sink, options);
        tokio::spawn(driver.run());
        pool
    }

    /// A pool and its task, to be run by the caller.
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>, options: PoolOptions) -> (Self, Driver) {
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            slots_by_key: Mutex::default(),
            touched: Mutex::default(),
            wake: Notify::new(),
            abandoned: AtomicBool::new(false),
            stopped_tx: watch::Sender::new(false),
        });
        let owner = Arc::new(Owner {
            shared: Arc::clone(&shared),
        });
        (Self { owner }, Driver::new(shared, sink, options))
    }

    /// Announces an instance from now on. Its times of origin and tracing ids are set here.
    ///
    /// # Errors
    /// See [`AnnounceError`].
    pub fn announce(&self, announcement: Announcement) -> Result<Announcer, AnnounceError> {
        let announcer = self.add(announcement)?;
        announcer.mark_up();
        Ok(announcer)
    }

    /// Takes an instance that is announced once [`Announcer::mark_up`] is called.
    ///
    /// # Errors
    /// See [`AnnounceError`].
    pub fn add(&self, announcement: Announcement) -> Result<Announcer, AnnounceError> {
        settings::check(&announcement)?;
        let life: u64 = rand::random();
        let machine = Machine::new(announcement, LifeId(life));
        let key = machine.key().clone();
        let mut slots_by_key = self.owner.shared.slots_by_key.lock();
        if slots_by_key.len() >= INSTANCES_MAX {
            return Err(AnnounceError::Full);
        }
        if slots_by_key.get(&key).is_some_and(|slot| !slot.is_over()) {
            return Err(AnnounceError::Duplicate(key));
        }
        let slot = Arc::new(Slot {
            id: life,
            status_tx: watch::Sender::new(machine.status()),
            machine: Mutex::new(machine),
            touched: AtomicBool::new(false),
            released: AtomicBool::new(false),
        });
        slots_by_key.insert(key, Arc::clone(&slot));
        Ok(Announcer {
            slot,
            owner: Arc::clone(&self.owner),
        })
    }

    /// Withdraws every instance. [`AnnouncerPool::settled`] tells when the log has it all.
    pub fn mark_down_all(&self) {
        for slot in self.slots() {
            slot.mark_down(&self.owner.shared);
        }
    }

    /// Waits until the log has every change made so far (or none was needed).
    ///
    /// # Errors
    /// The task has ended.
    pub async fn settled(&self) -> Result<(), Stopped> {
        for slot in self.slots() {
            slot.wait(&self.owner.shared, Status::is_settled).await?;
        }
        Ok(())
    }

    /// How many instances are announced or were until they are withdrawn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owner.shared.slots_by_key.lock().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        let slots_by_key = self.owner.shared.slots_by_key.lock();
        slots_by_key.values().cloned().collect()
    }
}

impl Announcer {
    /// Announces the instance. Nothing happens if it is up.
    pub fn mark_up(&self) {
        let shared = &self.owner.shared;
        self.slot
            .touch(shared, |machine, now| machine.mark_up(now, mk_stamp()));
    }

    /// Withdraws the instance. Nothing happens if it is down. Wait for [`Announcer::settled`] before
    /// the process ends.
    pub fn mark_down(&self) {
        self.slot.mark_down(&self.owner.shared);
    }

    /// Changes the weight on each D2 partition.
    ///
    /// # Errors
    /// A weight that no Observer would accept; the old ones stay.
    pub fn change_weight(&self, weights: PartitionWeights) -> Result<(), SettingsError> {
        self.change(|content| content.weights = weights)
    }

    /// Changes how the instance judges itself.
    ///
    /// # Errors
    /// None of its own; see [`SettingsError`].
    pub fn set_health(&self, health: Health) -> Result<(), SettingsError> {
        self.change(|content| content.health = health)
    }

    /// Changes the free metadata: the text of one JSON object.
    ///
    /// # Errors
    /// Not a JSON object, or too large; the old one stays.
    pub fn set_metadata(&self, json_object: &str) -> Result<(), SettingsError> {
        self.change(|content| json_object.clone_into(&mut content.metadata))
    }

    /// Any change of what is announced. Cluster and URI stay: they are which instance it is.
    ///
    /// # Errors
    /// What no Observer would accept; everything stays as it was.
    pub fn change(&self, edit: impl FnOnce(&mut Announcement)) -> Result<(), SettingsError> {
        self.slot.touch(&self.owner.shared, |machine, now| {
            let mut content = machine.content().clone();
            edit(&mut content);
            content.cluster = machine.key().cluster.clone();
            content.uri = machine.key().uri.clone();
            settings::check(&content)?;
            machine.change(content, now, mk_stamp());
            Ok(())
        })
    }

    /// What is announced, or would be if it were up.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        self.slot.machine.lock().content().clone()
    }

    /// How far the last change has come, now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.slot.status_tx.borrow().clone()
    }

    /// Follows the status. A reader that is slow misses steps, never the latest.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<Status> {
        self.slot.status_tx.subscribe()
    }

    /// Waits until the log has the last change.
    ///
    /// # Errors
    /// The task has ended.
    pub async fn settled(&self) -> Result<Status, Stopped> {
        let shared = &self.owner.shared;
        self.slot.wait(shared, Status::is_settled).await
    }

    /// Waits until an Observer serves the last change or the log's rules refused it. Only a sink
    /// that knows (a gateway) ever says so.
    ///
    /// # Errors
    /// The task has ended.
    pub async fn judged(&self) -> Result<Status, Stopped> {
        let shared = &self.owner.shared;
        self.slot.wait(shared, Status::is_judged).await
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.slot.released.store(true, Ordering::Release);
        self.slot.touch(&self.owner.shared, |_, _| ());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

impl Slot {
    /// Its owner let go of it and the log has its last change: the task may not have cleared it away
    /// yet, but another owner may take the instance.
    fn is_over(&self) -> bool {
        self.released.load(Ordering::Acquire) && self.machine.lock().is_finished()
    }

    fn mark_down(self: &Arc<Self>, shared: &Shared) {
        self.touch(shared, |machine, now| machine.mark_down(now));
    }

    /// Changes the machine, shows its status and wakes the task.
    fn touch<T>(
        self: &Arc<Self>,
        shared: &Shared,
        act: impl FnOnce(&mut Machine, Duration) -> T,
    ) -> T {
        let result = {
            let mut machine = self.machine.lock();
            let result = act(&mut machine, shared.now());
            self.show(&machine);
            result
        };
        if !self.touched.swap(true, Ordering::AcqRel) {
            shared.touched.lock().push(Arc::clone(self));
            shared.wake.notify_one();
        }
        result
    }

    fn show(&self, machine: &Machine) {
        let status = machine.status();
        self.status_tx.send_if_modified(|shown| {
            let differs = *shown != status;
            if differs {
                *shown = status;
            }
            differs
        });
    }

    async fn wait(
        &self,
        shared: &Shared,
        until: impl FnMut(&Status) -> bool,
    ) -> Result<Status, Stopped> {
        let mut status_rx = self.status_tx.subscribe();
        let mut stopped_rx = shared.stopped_tx.subscribe();
        tokio::select! {
            biased;
            status = status_rx.wait_for(until) => status.map(|s| s.clone()).map_err(|_| Stopped),
            _ = stopped_rx.wait_for(|stopped| *stopped) => Err(Stopped),
        }
    }
}

fn mk_stamp() -> Stamp {
    Stamp {
        origin: clock::now(),
        tracing_id: format!("{:032x}", rand::random::<u128>()),
    }
}

#[cfg(test)]
mod tests;
