//! What was served, on disk: an Observer that starts while the log is away serves it again once the
//! operator's patience has passed, and one that finds another log than before loses nothing
//! (docs/announcement-log.md, "Snapshots").
//!
//! The file is a copy that can be thrown away at any time. A damaged one, or one of another release,
//! is said and passed over.

mod wire;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use prost::Message as _;
use waypost_core::Timestamp;
use waypost_fold::Snapshot;
use waypost_proto::v1::{SnapshotEnd, SnapshotHeader, SnapshotItem, snapshot_item::Item};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The form that this release writes and reads.
const FORM: u32 = 1;

/// Where snapshots are kept, how often one is written and when one is served.
#[derive(Clone, Debug)]
pub struct SnapshotSettings {
    /// The directory; made if it does not exist. One Observer's own.
    pub directory: PathBuf,
    /// How long after one was written the next is.
    pub interval: Duration,
    /// How long the log may take to be read before what the snapshot holds is served.
    pub serve_after: Duration,
}

impl SnapshotSettings {
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("observer.snapshot")
    }
}

/// Why a snapshot could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file system said no.
    #[error("snapshot {path}: {error}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The file is not whole, or not one of these.
    #[error("snapshot {path} is damaged: {reason}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Another release wrote it.
    #[error("snapshot {path} has form {form}, this release reads form {FORM}")]
    OtherForm {
        /// Which file.
        path: PathBuf,
        /// Its form.
        form: u32,
    },
}

/// A snapshot, and how old it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) snapshot: Snapshot,
    /// When the log took the youngest record in it.
    pub(crate) at: Timestamp,
}

/// Reads the file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Taken>, SnapshotError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path, error)),
    };
    decode(bytes, path).map(Some)
}

/// Writes the file, whole or not at all.
pub(crate) fn write(path: &Path, taken: &Taken) -> Result<(), SnapshotError> {
    let unfinished = path.with_extension("unfinished");
    let result = write_items(&unfinished, taken).and_then(|()| fs::rename(&unfinished, path));
    result.map_err(|error| io_error(path, error))
}

fn write_items(path: &Path, taken: &Taken) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = BufWriter::new(File::create(path)?);
    let mut buffer = Vec::new();
    let mut digest = Xxh3::new();
    let mut put = |item: Item| -> io::Result<u64> {
        buffer.clear();
        let item = SnapshotItem { item: Some(item) };
        item.encode_length_delimited(&mut buffer)
            .map_err(io::Error::other)?;
        digest.update(&buffer);
        file.write_all(&buffer)?;
        Ok(digest.digest())
    };
    let snapshot = &taken.snapshot;
    let mut digest = put(Item::Header(SnapshotHeader {
        form: FORM,
        announcements: Some(wire::from_topic(&snapshot.announcements)),
        config: Some(wire::from_topic(&snapshot.config)),
        taken_ms: taken.at.0,
    }))?;
    for instance in &snapshot.instances {
        digest = put(Item::Instance(wire::from_instance(instance)))?;
    }
    for record in &snapshot.records {
        digest = put(Item::Record(wire::from_record(record)))?;
    }
    let items = snapshot.instances.len() + snapshot.records.len();
    put(Item::End(SnapshotEnd {
        items: items as u64,
        digest,
    }))?;
    file.into_inner()?.sync_all()
}

fn decode(mut bytes: Bytes, path: &Path) -> Result<Taken, SnapshotError> {
    let whole = bytes.clone();
    let damaged = |reason: String| SnapshotError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let mut next = || -> Result<(Item, usize), SnapshotError> {
        let begins_at = whole.len() - bytes.len();
        if !bytes.has_remaining() {
            return Err(damaged("it ends before its last item".to_owned()));
        }
        let item = SnapshotItem::decode_length_delimited(&mut bytes);
        let item = item.map_err(|e| damaged(e.to_string()))?;
        let item = item.item;
        let item = item.ok_or_else(|| damaged("an empty item".to_owned()))?;
        Ok((item, begins_at))
    };
    let (Item::Header(header), _) = next()? else {
        return Err(damaged("it does not begin with its header".to_owned()));
    };
    if header.form != FORM {
        return Err(SnapshotError::OtherForm {
            path: path.to_owned(),
            form: header.form,
        });
    }
    let mut snapshot = Snapshot {
        announcements: wire::to_topic(header.announcements.unwrap_or_default()),
        config: wire::to_topic(header.config.unwrap_or_default()),
        ..Snapshot::default()
    };
    let mut items = 0_u64;
    loop {
        let (item, begins_at) = next()?;
        match item {
            Item::Header(_) => return Err(damaged("two headers".to_owned())),
            Item::Instance(instance) => {
                let instance = wire::to_instance(instance).map_err(damaged)?;
                snapshot.instances.push(instance);
            }
            Item::Record(record) => {
                let record = wire::to_record(&record).map_err(damaged)?;
                snapshot.records.extend(record);
            }
            Item::End(end) if end.items == items => {
                if xxh3_64(&whole[..begins_at]) != end.digest {
                    return Err(damaged(
                        "its bytes are not those that were written".to_owned(),
                    ));
                }
                break;
            }
            Item::End(end) => return Err(damaged(format!("{items} of {} items", end.items))),
        }
        items += 1;
    }
    Ok(Taken {
        snapshot,
        at: Timestamp(header.taken_ms),
    })
}

fn io_error(path: &Path, error: io::Error) -> SnapshotError {
    SnapshotError::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests;
