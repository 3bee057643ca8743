//! When a snapshot is read, served, taken and written.

use std::time::Duration;

use tokio::task::JoinHandle;
use waypost_core::PartitionId;
use waypost_fold::Snapshot;

use super::Ingest;
use crate::snapshot::{self, SnapshotError, SnapshotSettings, Taken};

/// The snapshots of one Observer.
#[derive(Debug)]
pub(super) struct Snapshots {
    settings: SnapshotSettings,
    /// Whether there is something to serve that was not read from the log.
    is_restored: bool,
    /// One that is being taken, a partition at a time.
    taking: Option<Snapshot>,
    writing: Option<JoinHandle<Result<(), SnapshotError>>>,
    written_at: Duration,
}

impl Snapshots {
    pub(super) fn new(settings: SnapshotSettings) -> Self {
        Self {
            settings,
            is_restored: false,
            taking: None,
            writing: None,
            written_at: Duration::ZERO,
        }
    }
}

impl Ingest {
    /// Reads the snapshot, if there is one. A bad one is said and passed over.
    pub(super) async fn restore_snapshot(&mut self) {
        let Some(snapshots) = &self.snapshots else {
            return;
        };
        let path = snapshots.settings.file();
        let read = tokio::task::spawn_blocking(move || snapshot::read(&path)).await;
        let taken = match read {
            Ok(Ok(Some(taken))) => taken,
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::warn!("{error}; starting without it");
                return;
            }
        };
        let instances = taken.snapshot.instances.len();
        tracing::info!(instances, taken_at = taken.at.0, "a snapshot was read");
        self.log_clock.set(taken.at);
        let mut events = Vec::new();
        self.replica.restore(&taken.snapshot, &mut events);
        self.serve(events);
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.is_restored = true;
        }
    }

    /// Whether there is something to serve though the log was never read: then a log that is missing
    /// or set up wrongly is waited for, as it would be by an Observer that runs.
    pub(super) fn has_snapshot(&self) -> bool {
        self.snapshots.as_ref().is_some_and(|s| s.is_restored)
    }

    /// When the snapshot is served at the latest, from the start of the process.
    pub(super) fn serves_snapshot_at(&self) -> Option<Duration> {
        let snapshots = self.snapshots.as_ref().filter(|s| s.is_restored)?;
        (!self.replica.loading().is_loaded()).then_some(snapshots.settings.serve_after)
    }

    /// The log has had the time that the operator gives it.
    pub(super) fn serve_snapshot_if_due(&mut self) {
        let due = self.serves_snapshot_at();
        if due.is_some_and(|at| self.now() >= at) {
            tracing::warn!("the log was not read in time: serving what the snapshot holds");
            self.replica.serve_snapshot();
            self.open_gate();
        }
    }

    /// Takes the next part of a snapshot, begins one, or looks after the one that is being written.
    pub(super) async fn step_snapshot(&mut self) {
        let now = self.now();
        let is_whole =
            self.replica.loading().is_loaded() && self.replica.replaying().next().is_none();
        let Some(snapshots) = &mut self.snapshots else {
            return;
        };
        if let Some(writing) = snapshots.writing.take_if(|writing| writing.is_finished()) {
            if let Ok(Err(error)) = writing.await {
                tracing::warn!("{error}");
            }
            snapshots.written_at = now;
        }
        if !is_whole {
            snapshots.taking = None;
            return;
        }
        let is_due = now.saturating_sub(snapshots.written_at) >= snapshots.settings.interval;
        if snapshots.writing.is_some() || (snapshots.taking.is_none() && !is_due) {
            return;
        }
        let mut snapshot = snapshots.taking.take().unwrap_or_default();
        if !self.take_partition(&mut snapshot) {
            if let Some(snapshots) = &mut self.snapshots {
                snapshots.taking = Some(snapshot);
            }
            return;
        }
        let taken = self.finish_snapshot(snapshot);
        if let Some(snapshots) = &mut self.snapshots {
            let path = snapshots.settings.file();
            let write = move || snapshot::write(&path, &taken);
            snapshots.writing = Some(tokio::task::spawn_blocking(write));
        }
    }

    /// Writes a last one, at the end.
    pub(super) fn write_last_snapshot(&mut self) {
        let is_whole =
            self.replica.loading().is_loaded() && self.replica.replaying().next().is_none();
        let Some(path) = self.snapshots.as_ref().map(|s| s.settings.file()) else {
            return;
        };
        if !is_whole {
            return;
        }
        let mut snapshot = Snapshot::default();
        while !self.take_partition(&mut snapshot) {}
        if let Err(error) = snapshot::write(&path, &self.finish_snapshot(snapshot)) {
            tracing::warn!("{error}");
        }
    }

    /// Takes one partition more; whether that was the last.
    fn take_partition(&self, snapshot: &mut Snapshot) -> bool {
        let fold = self.replica.logs().announcements;
        let topic = fold.topic_snapshot();
        let taken = snapshot.announcements.positions.len();
        if let Some(position) = topic.positions.get(taken) {
            let partition = PartitionId(u32::try_from(taken).unwrap_or(u32::MAX));
            snapshot.instances.extend(fold.snapshot(partition));
            snapshot.announcements.positions.push(*position);
        }
        snapshot.announcements.identity = topic.identity;
        snapshot.announcements.positions.len() >= topic.positions.len()
    }

    fn finish_snapshot(&self, mut snapshot: Snapshot) -> Taken {
        let config = self.replica.logs().config;
        snapshot.config = config.topic_snapshot();
        snapshot.records.extend(config.snapshot());
        Taken {
            snapshot,
            at: self.log_clock.now(),
        }
    }
}
