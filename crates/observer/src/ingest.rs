//! The one task that reads the log and writes the store: records, the folds, statements, the store.
//!
//! It waits for nothing but the log. Streams are only marked (the store's listener), the keeper's
//! records are appended in the background, and questions of the admin port are answered between two
//! batches. What it loses is an input, never data: a log that is away or cannot be continued leaves
//! what was read where it is (DESIGN invariant 1).

mod batch;
mod digests;
mod first;
mod follower;
mod freshness;
mod kept;
mod log_clock;
mod notices;
mod question;
mod readiness;
mod snapshots;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use waypost_core::record::KeeperId;
use waypost_core::{AnnouncementLog, LogError, Offset, PartitionId, ReadEvent, Topic};
use waypost_fold::clock::PartitionClock;
use waypost_fold::{KeeperSettings, Replica, ReplicaSettings, Request};
use waypost_runtime::Readiness;
use waypost_store::Writer;

use crate::app::{FatalError, StartCheck};
use crate::limits::{BEAT_INTERVAL, QUESTIONS_QUEUED_MAX};
use crate::locator::LoadGate;
use crate::metrics::IngestMetrics;
use crate::named::NamedLines;
use crate::progress::Progress;
use crate::snapshot::SnapshotSettings;

use first::FirstStatements;
use follower::{Followed, Follower, pause_after};
use freshness::Freshness;
use log_clock::LogClock;
use readiness::LoadingTasks;
use snapshots::Snapshots;
use work::{Done, LogWork};

pub use digests::{BucketAsked, DigestsView, PartitionTicks};
pub(crate) use kept::held_instances;
pub use question::{IngestGone, LogView, PartitionFacts, Questions, RefusedRecord};

/// What the ingest task is made of.
pub(crate) struct IngestParts {
    /// Where records come from and the keeper's go.
    pub(crate) log: Arc<dyn AnnouncementLog>,
    /// Checked before the first record is read.
    pub(crate) start_check: Option<StartCheck>,
    /// The store, as the source "log".
    pub(crate) writer: Writer,
    /// See [`crate::Settings::newborn_grace`].
    pub(crate) newborn_grace: Duration,
    /// See [`crate::Settings::expiry_window`].
    pub(crate) expiry_window: Duration,
    /// Who this Observer is as a keeper.
    pub(crate) keeper_id: KeeperId,
    /// Whether and how often it writes.
    pub(crate) keeper_settings: KeeperSettings,
    /// Where what is served is kept between two lives, if anywhere.
    pub(crate) snapshot: Option<SnapshotSettings>,
    /// Who waits for what became of a record.
    pub(crate) progress: Progress,
    /// Told what is awaited and what is stale.
    pub(crate) readiness: Readiness,
    /// Opened once loaded; until then says what is missing.
    pub(crate) gate: LoadGate,
    /// Set once loaded.
    pub(crate) loaded_tx: watch::Sender<bool>,
    /// Counters.
    pub(crate) metrics: IngestMetrics,
    /// Told of an error that no waiting mends.
    pub(crate) failed_tx: watch::Sender<Option<FatalError>>,
}

/// The state of the task.
pub(crate) struct Ingest {
    log: Arc<dyn AnnouncementLog>,
    start_check: Option<StartCheck>,
    writer: Writer,
    first_statements: FirstStatements,
    replica: Replica,
    beat_interval: Duration,
    log_work: LogWork,
    snapshots: Option<Snapshots>,
    freshness: Freshness,
    progress: Progress,
    verdicts: batch::HeldVerdicts,
    readiness: Readiness,
    loading_tasks: LoadingTasks,
    gate: LoadGate,
    loaded_tx: watch::Sender<bool>,
    metrics: IngestMetrics,
    named: NamedLines,
    refused_definitions: question::RefusedDefinitions,
    failed_tx: watch::Sender<Option<FatalError>>,
    questions_rx: mpsc::Receiver<question::Question>,
    started: Instant,
    /// The store's idea of now.
    log_clock: LogClock,
    forgot_at: Duration,
    reminded_at: Duration,
    noticed_at: Duration,
}

/// The followers of the three topics. Apart from [`Ingest`], so that all three can be awaited while
/// what they report is worked on.
struct Followers {
    announcements: Follower,
    config: Follower,
    control: Follower,
}

impl Followers {
    fn new(log: &Arc<dyn AnnouncementLog>) -> Self {
        let follower = |topic| Follower::new(Arc::clone(log), topic);
        Self {
            announcements: follower(Topic::Announcements),
            config: follower(Topic::Config),
            control: follower(Topic::Control),
        }
    }

    fn get(&mut self, topic: Topic) -> &mut Follower {
        match topic {
            Topic::Announcements => &mut self.announcements,
            Topic::Config => &mut self.config,
            Topic::Control => &mut self.control,
        }
    }

    async fn next(&mut self) -> (Topic, Followed) {
        tokio::select! {
            followed = self.announcements.next() => (Topic::Announcements, followed),
            followed = self.config.next() => (Topic::Config, followed),
            followed = self.control.next() => (Topic::Control, followed),
        }
    }
}

impl Ingest {
    /// The task, not running yet, and the way to ask it something.
    pub(crate) fn new(parts: IngestParts) -> (Self, Questions) {
        let (questions_tx, questions_rx) = mpsc::channel(QUESTIONS_QUEUED_MAX);
        let mut settings = ReplicaSettings {
            keeper: parts.keeper_settings,
            newborn_grace: parts.newborn_grace,
            ..ReplicaSettings::default()
        };
        settings.fold.cap.window = parts.expiry_window;
        let ingest = Self {
            log: Arc::clone(&parts.log),
            start_check: parts.start_check,
            writer: parts.writer,
            first_statements: FirstStatements::default(),
            replica: Replica::new(parts.keeper_id, settings),
            beat_interval: BEAT_INTERVAL.min(parts.keeper_settings.tick_interval),
            log_work: LogWork::new(parts.log, parts.metrics.clone()),
            snapshots: parts.snapshot.map(Snapshots::new),
            freshness: Freshness::default(),
            progress: parts.progress,
            verdicts: batch::HeldVerdicts::default(),
            loading_tasks: LoadingTasks::new(parts.readiness.clone()),
            readiness: parts.readiness,
            gate: parts.gate,
            loaded_tx: parts.loaded_tx,
            metrics: parts.metrics,
            named: NamedLines::new("records were refused or skipped"),
            refused_definitions: question::RefusedDefinitions::default(),
            failed_tx: parts.failed_tx,
            questions_rx,
            started: Instant::now(),
            log_clock: LogClock::default(),
            forgot_at: Duration::ZERO,
            reminded_at: Duration::ZERO,
            noticed_at: Duration::ZERO,
        };
        (ingest, Questions::new(questions_tx))
    }

    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
        self.write_last_snapshot();
    }

    async fn follow(&mut self) {
        self.restore_snapshot().await;
        if let Err(error) = self.check_start().await {
            self.fail(error).await;
        }
        let mut followers = Followers::new(&self.log);
        for topic in Topic::ALL {
            followers.get(topic).open(Vec::new());
        }
        let mut beat = tokio::time::interval(self.beat_interval);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                (topic, followed) = followers.next() => match followed {
                    Followed::Event(event) => self.on_event(topic, event, &mut followers),
                    Followed::Failed(error) if self.is_fatal(&error) => self.fail(error).await,
                    Followed::Failed(error) => self.on_failed(topic, &error, &mut followers),
                },
                Some(question) = self.questions_rx.recv() => self.answer(question),
                Some(done) = self.log_work.next() => self.on_done(done, &mut followers),
                _ = beat.tick() => {
                    self.on_beat(&mut followers);
                    self.step_snapshot().await;
                }
            }
        }
    }

    /// Looks at the log's set-up until the log can be asked.
    async fn check_start(&mut self) -> Result<(), LogError> {
        let Some(check) = self.start_check.take() else {
            return Ok(());
        };
        for failures_in_a_row in 0_u32.. {
            match self.answering_until(check()).await {
                Err(error) if error.is_transient() || self.has_snapshot() => {
                    self.freshness
                        .on_away(Topic::Announcements, error.to_string());
                    self.renew_readiness();
                    self.remind_of_absence();
                }
                done => {
                    self.freshness.on_back(Topic::Announcements);
                    return done;
                }
            }
            let pause = tokio::time::sleep(pause_after(failures_in_a_row));
            self.answering_until(pause).await;
        }
        Ok(())
    }

    /// Waits for `work`, and meanwhile answers who asks how things stand.
    async fn answering_until<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            let serves_at = self.serves_snapshot_at().map(|at| self.started + at);
            tokio::select! {
                done = &mut work => return done,
                () = sleep_until(serves_at) => self.serve_snapshot_if_due(),
                Some(question) = self.questions_rx.recv() => self.answer(question),
            }
        }
    }

    /// An error that no waiting mends, before anything is served, ends the Observer. Afterwards it
    /// serves on and says that it is stale: what it knows is worth more than a clean exit.
    fn is_fatal(&self, error: &LogError) -> bool {
        let is_lasting = matches!(
            error,
            LogError::Misconfigured(_) | LogError::Damaged(_) | LogError::InUse(_)
        );
        is_lasting && !self.replica.loading().is_loaded() && !self.has_snapshot()
    }

    async fn fail(&mut self, error: LogError) {
        tracing::error!(%error, "the Observer cannot start");
        self.gate.set_reason(error.to_string());
        self.loading_tasks.set_base_reason(&error.to_string());
        self.failed_tx.send_replace(Some(error.into()));
        std::future::pending().await
    }

    fn on_event(&mut self, topic: Topic, event: ReadEvent, followers: &mut Followers) {
        let now = self.now();
        self.freshness.on_heard(now);
        self.read(topic, &event, now);
        match event {
            ReadEvent::Bounds { partition, end, .. } => self.on_end(topic, partition, end, now),
            ReadEvent::Records(records) => {
                self.freshness.on_back(topic);
                for of_one in records.chunk_by(|a, b| a.partition == b.partition) {
                    self.on_position(topic, of_one[0].partition);
                }
            }
            ReadEvent::CaughtUp {
                partition,
                position,
            } => {
                self.on_position(topic, partition);
                self.on_end(topic, partition, position, now);
            }
            ReadEvent::Unavailable(reason) => {
                self.metrics.on_read_error(topic);
                self.freshness.on_away(topic, reason);
                self.renew_readiness();
                self.remind_of_absence();
            }
            ReadEvent::Available => {
                tracing::info!(topic = topic.suffix(), "the log can be read again");
                self.freshness.on_back(topic);
            }
            ReadEvent::Partitions(_) | ReadEvent::OutOfRange { .. } => {}
        }
        let requests = self.replica.take_requests();
        self.work_on(requests, followers);
        self.open_gate();
    }

    /// What the log had to say about a record that was looked at, or that was written.
    fn on_done(&mut self, done: Done, followers: &mut Followers) {
        let now = self.now();
        match done {
            Done::Settled(record) => self.replica.on_settled(&record),
            Done::Found {
                topic,
                partition,
                offset,
                found,
            } => {
                let mut events = Vec::new();
                let found = found.map(|record| record.map(|record| *record));
                let replica = &mut self.replica;
                replica.on_read_at(topic, partition, offset, found, now, &mut events);
                self.serve(events);
            }
        }
        let requests = self.replica.take_requests();
        self.work_on(requests, followers);
    }

    fn work_on(&mut self, requests: Vec<Request>, followers: &mut Followers) {
        for request in requests {
            match request {
                Request::Append(record) => self.log_work.append(*record),
                Request::ReadAt {
                    topic,
                    partition,
                    offset,
                } => self.log_work.read_at(topic, partition, offset),
                Request::ReadAgain(topic) => {
                    self.freshness.forget(topic);
                    followers.get(topic).reopen(Vec::new());
                }
            }
        }
    }

    fn on_failed(&mut self, topic: Topic, error: &LogError, followers: &mut Followers) {
        self.metrics.on_read_error(topic);
        self.freshness
            .on_away(topic, format!("{error}; trying again"));
        self.renew_readiness();
        self.remind_of_absence();
        let positions = self.replica.reading(topic).iter();
        let positions = positions.map(|(partition, clock)| (partition, clock.position()));
        followers.get(topic).reopen(positions.collect());
    }

    fn on_end(&mut self, topic: Topic, partition: PartitionId, end: Offset, now: Duration) {
        self.freshness.on_back(topic);
        self.freshness.on_end(topic, partition, end, now);
    }

    fn on_position(&mut self, topic: Topic, partition: PartitionId) {
        let clock = self.replica.reading(topic).find(partition);
        let position = clock.map_or(Offset(0), PartitionClock::position);
        self.freshness.on_position(topic, partition, position);
    }

    /// Any monotonic time.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Waits until then; for ever without a time.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Lags by topic and partition, as the metrics show them.
type Lags = BTreeMap<(Topic, PartitionId), u64>;
