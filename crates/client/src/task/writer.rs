//! When the file is written, and by whom: never by the task itself, which a disk must not hold up.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use waypost_core::Timestamp;
use waypost_core::time::millis;

use crate::client::Shared;
use crate::file::{self, Entries, FileError};
use crate::limits::{CLOSE_MAX, FILE_ENTRY_KEPT, FILE_RETRY_INTERVAL, FILE_WRITE_INTERVAL};

/// What there is to do about the file.
pub(super) enum Step {
    /// It is time to write it.
    Due,
    /// It was written, or not.
    Written(Result<(), FileError>),
}

/// Writes at most one file at a time, at most once an interval.
pub(super) struct Writer {
    path: Option<PathBuf>,
    write_at: Option<Instant>,
    /// No write before this moment.
    rest_until: Instant,
    writing: Option<JoinHandle<Result<(), FileError>>>,
}

impl Writer {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            write_at: None,
            rest_until: Instant::now(),
            writing: None,
        }
    }

    /// Something is not in the file yet.
    pub(super) fn changed(&mut self) {
        if self.path.is_some() && self.write_at.is_none() {
            self.write_at = Some((Instant::now() + FILE_WRITE_INTERVAL).max(self.rest_until));
        }
    }

    /// Waits for the next thing to do. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Step {
        if let Some(writing) = &mut self.writing {
            let result = flatten(writing.await);
            self.writing = None;
            if result.is_err() {
                self.rest_until = Instant::now() + FILE_RETRY_INTERVAL;
                self.write_at.get_or_insert(self.rest_until);
            }
            return Step::Written(result);
        }
        match self.write_at {
            Some(at) => sleep_until(at.max(self.rest_until)).await,
            None => std::future::pending().await,
        }
        Step::Due
    }

    /// Writes what is kept, elsewhere.
    pub(super) fn start(&mut self, shared: &Shared) {
        self.write_at = None;
        if let Some(path) = self.path.clone() {
            let entries = shared.kept.lock().clone();
            let write = move || file::write(&path, &entries);
            self.writing = Some(tokio::task::spawn_blocking(write));
        }
    }

    /// Writes for the last time what is not written yet.
    pub(super) async fn finish(mut self, shared: &Shared) {
        let all = async {
            if let Some(writing) = self.writing.take() {
                note(shared, &flatten(writing.await));
            }
            if self.write_at.is_some() {
                self.start(shared);
            }
            if let Some(writing) = self.writing.take() {
                note(shared, &flatten(writing.await));
            }
        };
        // The process is about to end and does not wait for a disk that hangs.
        let _ = timeout(CLOSE_MAX, all).await;
    }
}

/// Notes what came of a write.
pub(super) fn note(shared: &Shared, result: &Result<(), FileError>) {
    let own = &shared.own;
    match result {
        Ok(()) => {
            own.file_writes.fetch_add(1, Ordering::Relaxed);
            *shared.file_problem.lock() = None;
        }
        Err(error) => {
            tracing::warn!(%error, "the file of lists cannot be written");
            own.file_write_failures.fetch_add(1, Ordering::Relaxed);
            *shared.file_problem.lock() = Some(error.to_string());
        }
    }
}

/// Drops what no Observer has confirmed for long.
pub(super) fn drop_old(entries: &mut Entries, now: Timestamp) {
    let is_young = |confirmed: Timestamp| {
        let age_ms = now.0.saturating_sub(confirmed.0);
        age_ms <= millis(FILE_ENTRY_KEPT.max(Duration::ZERO))
    };
    entries.retain(|_, entry| is_young(entry.confirmed));
}

fn flatten(joined: Result<Result<(), FileError>, tokio::task::JoinError>) -> Result<(), FileError> {
    joined.unwrap_or_else(|error| Err(FileError::Io(std::io::Error::other(error))))
}
