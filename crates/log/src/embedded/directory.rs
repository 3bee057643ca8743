//! The directory of a log: who holds it, where its file is, and what is said when something is
//! wrong with it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use redb::Builder;
use waypost_core::port::LogError;

use super::store::{OpenDatabase, StoreError};

/// The store.
const FILE: &str = "log.redb";
/// Locked by the process that uses the directory; holds its process id.
const LOCK: &str = "lock";

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: Mutex<Option<File>>,
    /// Which file is open, as device and number. Never set for a disk in memory.
    store: OnceLock<(u64, u64)>,
}

/// What there is of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Absent,
    Present,
}

impl Directory {
    /// Makes the directory if need be and takes it for this process.
    pub(super) fn lock(path: &Path) -> Result<Self, LogError> {
        let fail = |error: io::Error| {
            LogError::Misconfigured(format!(
                "cannot use the data directory {}: {error}; give one that can be written",
                path.display()
            ))
        };
        fs::create_dir_all(path).map_err(fail)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path.join(LOCK)).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        write_process_id(&mut file).map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            lock: Mutex::new(Some(file)),
            store: OnceLock::new(),
        })
    }

    /// Frees the directory for others.
    pub(super) fn unlock(&self) {
        drop(self.lock.lock().take());
    }

    /// A directory that nobody else can name: for logs over a disk in memory.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        Self {
            path: PathBuf::from("(in memory)"),
            lock: Mutex::new(None),
            store: OnceLock::new(),
        }
    }

    /// Where the store is.
    pub(super) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// A file beside the store, for a step that is not complete yet.
    pub(super) fn file_beside(&self, suffix: &str) -> PathBuf {
        self.path.join(format!("{FILE}.{suffix}"))
    }

    /// Whether there is a store. An empty file is one that was cut: stores are made beside it and
    /// put in place complete.
    pub(super) fn presence(&self) -> Result<Presence, LogError> {
        match fs::metadata(self.file()) {
            Ok(metadata) if metadata.len() == 0 => Err(self.damaged("it is empty")),
            Ok(_) => Ok(Presence::Present),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Presence::Absent),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    /// How the store is opened.
    pub(super) fn opener(&self) -> OpenDatabase {
        let path = self.file();
        Box::new(move |builder: &mut Builder| builder.open(&path))
    }

    /// From now on the store is the file that stands at its path.
    pub(super) fn remember_store(&self) -> Result<(), LogError> {
        let metadata = fs::metadata(self.file()).map_err(|error| self.unusable(&error))?;
        // Said once for each directory; a second time would say the same.
        let _ = self.store.set((metadata.dev(), metadata.ino()));
        Ok(())
    }

    /// Whether the open store still stands at its path. A file that was removed can be written
    /// without an error, and everything in it is gone with the process.
    pub(super) fn check_store(&self) -> Result<(), StoreError> {
        let Some(store) = self.store.get() else {
            return Ok(());
        };
        match fs::metadata(self.file()) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == *store => Ok(()),
            Ok(_) => Err(StoreError::Removed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Removed),
            // Anything else says nothing about the file.
            Err(_) => Ok(()),
        }
    }

    /// Puts the complete file `made` in the store's place, and sees to it that it stays there.
    pub(super) fn put_in_place(&self, made: &Path) -> Result<(), LogError> {
        let put = || {
            File::open(made)?.sync_all()?;
            fs::rename(made, self.file())?;
            File::open(&self.path)?.sync_all()
        };
        put().map_err(|error| self.unusable(&error))
    }

    pub(super) fn unusable(&self, error: &io::Error) -> LogError {
        LogError::Misconfigured(format!(
            "cannot use {}: {error}; see to its permissions and the space on its disk",
            self.file().display()
        ))
    }

    pub(super) fn damaged(&self, what: &str) -> LogError {
        LogError::Damaged(format!(
            "{}: {what}. Nothing was changed. `waypost dev --data {} --salvage` keeps this file \
             under another name and goes on with every record that is intact in it",
            self.file().display(),
            self.path.display()
        ))
    }

    /// What a failure of the store means to the log's users.
    pub(super) fn to_log_error(&self, error: &StoreError) -> LogError {
        let file = self.file();
        match error {
            StoreError::NewerFormat(_) => LogError::Misconfigured(format!(
                "{}: {error}; start that release, or give another --data directory",
                file.display()
            )),
            StoreError::Record(..)
            | StoreError::Missing(_)
            | StoreError::OlderFormat(_)
            | StoreError::Panic => self.damaged(&error.to_string()),
            StoreError::Removed => LogError::Unavailable(format!(
                "{}: {error}; put it back, or stop and start again with a directory that stays: \
                 until then nothing is written, and what was read is served",
                file.display()
            )),
            StoreError::NotOpen => LogError::Unavailable(format!("{}: {error}", file.display())),
            StoreError::Database(source) => match &**source {
                redb::Error::Corrupted(_) | redb::Error::UpgradeRequired(_) => {
                    self.damaged(&error.to_string())
                }
                redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. } => {
                    self.damaged("it is not a store that Waypost wrote")
                }
                redb::Error::DatabaseAlreadyOpen => {
                    LogError::InUse(format!("{} is in use by another process", file.display()))
                }
                redb::Error::Io(io) if io.kind() == io::ErrorKind::InvalidData => {
                    self.damaged(&error.to_string())
                }
                _ => LogError::Unavailable(format!(
                    "{}: {error}; see to the space on its disk",
                    file.display()
                )),
            },
        }
    }
}

fn in_use(path: &Path, lock: &mut File) -> LogError {
    let mut text = String::new();
    let by = match lock.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
        _ => "another process".to_owned(),
    };
    LogError::InUse(format!(
        "the data directory {} is in use by {by}; stop that process or give another --data \
         directory",
        path.display()
    ))
}

fn write_process_id(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{}", std::process::id())
}
