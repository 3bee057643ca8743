//! A disk in memory that keeps what was synced and, when the power goes, any part of the rest.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;
use redb::StorageBackend;

/// What a disk writes at once or not at all.
const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct TestDisk {
    state: Mutex<State>,
}

/// What `sync_data` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fsync {
    /// What was written stays.
    Honest,
    /// Nothing: a disk that lies, or a log that forgets to ask.
    Ignored,
}

/// What the disk refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Nothing,
    /// It is full.
    Writes,
    /// Writes go through, and whether they stay is not known.
    Syncs,
}

#[derive(Debug)]
struct State {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Operation>,
    fsync: Fsync,
    refusal: Refusal,
}

#[derive(Debug)]
enum Operation {
    SetLength(usize),
    Write(usize, Vec<u8>),
}

impl TestDisk {
    /// An empty disk that does as it is told.
    pub(super) fn new() -> Arc<Self> {
        Self::with(Vec::new(), Fsync::Honest)
    }

    fn with(content: Vec<u8>, fsync: Fsync) -> Arc<Self> {
        let state = State {
            synced: content.clone(),
            current: content,
            unsynced: Vec::new(),
            fsync,
            refusal: Refusal::Nothing,
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    pub(super) fn backend(self: &Arc<Self>) -> Backend {
        Backend(Arc::clone(self))
    }

    pub(super) fn set_fsync(&self, fsync: Fsync) {
        self.state.lock().fsync = fsync;
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.state.lock().refusal = refusal;
    }

    /// The disk as it may be after the power went at this moment: everything that was synced, and of
    /// the rest any sectors in any combination.
    pub(super) fn after_power_loss(&self, rng: &mut impl Rng) -> Arc<Self> {
        let state = self.state.lock();
        let mut content = state.synced.clone();
        let kept = [0.0, 0.5, 0.9, 1.0][rng.random_range(0..4)];
        for operation in &state.unsynced {
            match operation {
                Operation::SetLength(length) if rng.random_bool(kept) => content.resize(*length, 0),
                Operation::SetLength(_) => {}
                Operation::Write(offset, data) => {
                    for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                        if rng.random_bool(kept) {
                            put(&mut content, offset + index * SECTOR_BYTES, sector);
                        }
                    }
                }
            }
        }
        Self::with(content, state.fsync)
    }
}

fn put(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

#[derive(Debug)]
pub(super) struct Backend(Arc<TestDisk>);

fn refused() -> io::Error {
    io::Error::new(ErrorKind::StorageFull, "no space left on the test's disk")
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("a small disk")
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.state.lock().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.state.lock();
        let offset = to_usize(offset);
        let data = state.current.get(offset..offset + out.len());
        out.copy_from_slice(data.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if state.refusal == Refusal::Writes {
            return Err(refused());
        }
        let length = to_usize(length);
        state.current.resize(length, 0);
        state.unsynced.push(Operation::SetLength(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if state.refusal != Refusal::Nothing {
            return Err(refused());
        }
        if state.fsync == Fsync::Honest {
            state.synced = state.current.clone();
            state.unsynced.clear();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if state.refusal == Refusal::Writes {
            return Err(refused());
        }
        let offset = to_usize(offset);
        put(&mut state.current, offset, data);
        state.unsynced.push(Operation::Write(offset, data.to_vec()));
        Ok(())
    }
}
