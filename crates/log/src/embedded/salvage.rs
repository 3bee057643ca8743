//! Saves what is intact in a damaged store: every frame in the file whose checksum holds, wherever
//! it stands, whatever became of the structure around it.
//!
//! Of each key the newest intact record is kept. What the structure alone knew is not: that a record
//! had been removed. A deletion whose tombstone is gone (older than the delete retention) may
//! therefore come back if an old copy still stands in a free page. An instance leaves again by
//! expiry; a definition has to be deleted again. The saved log has a new identity that follows the
//! old one, so that nobody takes it for the same.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use bytes::Bytes;
use waypost_core::partition::PartitionId;
use waypost_core::port::LogError;
use waypost_core::record::{IDENTITY_KEY, LogIdentity, Offset, Record, Topic};
use waypost_core::time::Timestamp;

use super::EmbeddedSettings;
use super::directory::Directory;
use super::opening::make;
use super::store::{Changes, End};
use super::stored::{BODY_BYTES_MAX, FRAME_HEADER_BYTES, MAGIC, Place, decode};
use crate::limits::{EMBEDDED_PARTITIONS_MAX, EMBEDDED_RESERVE};

/// What was saved from a damaged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    /// Records that the log goes on with.
    pub records: usize,
    /// Where the damaged file is now.
    pub damaged_file: PathBuf,
}

/// Makes a new store of what is intact in the present one and puts it in its place; the present one
/// is kept beside it under another name.
pub(super) fn salvage(
    directory: &Directory,
    settings: &EmbeddedSettings,
) -> Result<Salvage, LogError> {
    let file = File::open(directory.file()).map_err(|error| directory.unusable(&error))?;
    let found = find_records(file).map_err(|error| directory.unusable(&error))?;
    let kept = newest_of_each_key(found);
    let records = kept.puts.len();
    let mut contents = settings.new_contents();
    for place in kept.puts.keys() {
        make_room(&mut contents.ends, *place);
    }
    let follows = old_identity(&kept);
    let made = directory.file_beside("salvaged");
    make(directory, &made, &contents, kept, follows, &*settings.clock)?;
    let damaged_file = keep_damaged(directory, settings.clock.now())?;
    directory.put_in_place(&made)?;
    tracing::warn!(
        records,
        damaged_file = %damaged_file.display(),
        "the log was damaged; it goes on with what was intact"
    );
    Ok(Salvage {
        records,
        damaged_file,
    })
}

/// Every intact frame of a file, in the order in which they stand there.
fn find_records(mut file: impl Read) -> io::Result<Vec<(Place, Record)>> {
    const CHUNK_BYTES: usize = 4 * 1024 * 1024;
    const FRAME_BYTES_MAX: usize = FRAME_HEADER_BYTES + BODY_BYTES_MAX;
    let mut found = Vec::new();
    let mut window = Vec::new();
    loop {
        let before = window.len();
        let chunk = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
        file.by_ref().take(chunk).read_to_end(&mut window)?;
        let is_last = window.len() == before;
        // A frame that may be cut by the end of the window is left for the next one.
        let safe = if is_last {
            window.len()
        } else {
            window.len().saturating_sub(FRAME_BYTES_MAX)
        };
        let mut position = 0;
        while let Some(magic) = find_magic(&window[position..]) {
            position += magic;
            if position >= safe {
                break;
            }
            found.extend(decode(&window[position..], Bytes::copy_from_slice));
            position += 1;
        }
        if is_last {
            return Ok(found);
        }
        window.drain(..safe);
    }
}

fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(MAGIC.len())
        .position(|window| window == MAGIC)
}

fn newest_of_each_key(found: Vec<(Place, Record)>) -> Changes {
    let mut newest: HashMap<(Topic, PartitionId, Option<Bytes>), (Place, Record)> = HashMap::new();
    for (place, record) in found {
        let is_absurd = place.partition.0 >= EMBEDDED_PARTITIONS_MAX || place.offset.0 < 0;
        if is_absurd {
            continue;
        }
        let key = (place.topic, place.partition, record.key.clone());
        let standing = newest.entry(key).or_insert_with(|| (place, record.clone()));
        if standing.0.offset < place.offset {
            *standing = (place, record);
        }
    }
    Changes {
        puts: newest.into_values().collect(),
        ..Changes::default()
    }
}

/// Partitions up to that of `place`; its own goes on above all that was set aside when the file was
/// whole.
fn make_room(ends: &mut std::collections::BTreeMap<(Topic, PartitionId), End>, place: Place) {
    for partition in (0..=place.partition.0).map(PartitionId) {
        ends.entry((place.topic, partition)).or_insert(End {
            next: Offset(0),
            reserved: Offset(0),
            last_time: Timestamp(0),
        });
    }
    if let Some(end) = ends.get_mut(&(place.topic, place.partition)) {
        let above = place.offset.0.saturating_add(EMBEDDED_RESERVE);
        end.next = end.next.max(Offset(above));
    }
}

fn old_identity(kept: &Changes) -> Option<LogIdentity> {
    let mut identities = kept.puts.values().filter_map(|record| {
        let headers = record.headers.as_ref().ok()?;
        (record.key.as_deref() == Some(IDENTITY_KEY))
            .then_some(headers.log)
            .flatten()
    });
    identities.next()
}

/// A second name for the damaged file, made before the first is taken over: at no moment is there
/// no log.
fn keep_damaged(directory: &Directory, now: Timestamp) -> Result<PathBuf, LogError> {
    let kept = directory.file_beside(&format!("damaged-{}", now.0));
    fs::hard_link(directory.file(), &kept).map_err(|error| directory.unusable(&error))?;
    Ok(kept)
}
