//! The directory of one Observer's snapshot, taken for as long as it runs: two that wrote into one would
//! serve each other's past.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use crate::exit::Failure;

const LOCK: &str = "lock";

/// Held while the process runs; the system frees it, however the process ends.
#[derive(Debug)]
pub(super) struct DataDirectory {
    _lock: File,
}

impl DataDirectory {
    /// Makes `directory` if need be and takes it.
    ///
    /// # Errors
    /// It cannot be written to, or another process has it.
    pub(super) fn take(directory: &Path) -> Result<Self, Failure> {
        let shown = directory.display();
        let unusable = |error: io::Error| {
            Failure::failed(format!(
                "--data {shown}: {error}; name a directory that this process can write to"
            ))
        };
        fs::create_dir_all(directory).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let lock = options.open(directory.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Failure::failed(format!(
                "--data {shown}: in use by another Observer; give each a directory of its own"
            ))),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_observers_until_that_one_ends() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("made/when/needed");
        let first = DataDirectory::take(&directory).unwrap();
        let refusal = DataDirectory::take(&directory).unwrap_err();
        assert!(
            refusal.to_string().contains("another Observer"),
            "{refusal}"
        );
        drop(first);
        DataDirectory::take(&directory).unwrap();
    }
}
