//! The last good lists in a file.
//!
//! A line that names the format and its version, a line with the xxh3 digest of all that follows as 16
//! hexadecimal digits, then a protobuf message (`Content` below): each resource as the server sent it.
//! It is written whole under another name and renamed, so that whoever reads finds the old one or the
//! new one. What cannot be read is left where it is until the next write replaces it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use waypost_core::{ResourceType, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::limits::{FILE_BYTES_MAX, FOLDER_ENTRIES_MAX, LEFTOVER_KEPT};

/// The first line, without the version.
const MAGIC: &str = "waypost-client-lists ";
const VERSION: &str = "1";

/// How the name of a file ends that is being written, after the number of the process that writes it.
const BEING_WRITTEN: &str = ".new";

/// Why a file is not used or could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The file system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It does not begin as such a file does.
    #[error("it is not a file of lists")]
    Foreign,
    /// Another release wrote it.
    #[error("it is of version {0:?}; this release reads {VERSION:?}")]
    Version(String),
    /// It was cut or changed.
    #[error("its checksum is wrong: it was cut or changed")]
    Checksum,
    /// Right by its checksum, and no message.
    #[error("it cannot be decoded: {0}")]
    Undecodable(#[from] prost::DecodeError),
    /// Nobody wrote that.
    #[error("it has {0} bytes; at most {FILE_BYTES_MAX} are read")]
    TooLarge(u64),
}

/// What is known of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) version: String,
    pub(crate) body: Bytes,
    /// When an Observer last said that it is so.
    pub(crate) confirmed: Timestamp,
}

/// Resources by type and name.
pub(crate) type Entries = BTreeMap<(ResourceType, String), Entry>;

#[derive(Clone, PartialEq, prost::Message)]
struct Content {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<Resource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    version: String,
    #[prost(bytes = "bytes", tag = "4")]
    body: Bytes,
    #[prost(int64, tag = "5")]
    confirmed_ms: i64,
}

/// Reads a file; one that does not exist is empty. What a process has left beside it that was killed
/// while it wrote goes.
///
/// # Errors
/// See [`FileError`].
pub(crate) fn read(path: &Path) -> Result<Entries, FileError> {
    remove_leftovers(path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::new()),
        Err(error) => return Err(error.into()),
    };
    let size = file.metadata()?.len();
    if size > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(size));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    decode(&bytes)
}

/// Writes a file in place of what is there.
///
/// # Errors
/// The file system says no; what is there stays.
pub(crate) fn write(path: &Path, entries: &Entries) -> Result<(), FileError> {
    let beside = path.with_added_extension(format!("{}{BEING_WRITTEN}", std::process::id()));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(&encode(entries))?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| std::fs::rename(&beside, path));
    if renamed.is_err() {
        // It may not exist; whatever is left of it is of no use.
        let _ = std::fs::remove_file(&beside);
    }
    Ok(renamed?)
}

/// Others may be writing theirs, so only what is old goes. What cannot be removed stays.
fn remove_leftovers(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    // The parent of a bare name is the empty path.
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let is_leftover = |beside: &std::fs::DirEntry| {
        let file_name = beside.file_name();
        let number = file_name.as_encoded_bytes();
        let number = number.strip_prefix(name.as_encoded_bytes());
        let number = number.and_then(|rest| rest.strip_prefix(b"."));
        let number = number.and_then(|rest| rest.strip_suffix(BEING_WRITTEN.as_bytes()));
        number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
            && is_older_than(beside, LEFTOVER_KEPT)
    };
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for leftover in beside.take(FOLDER_ENTRIES_MAX).filter(is_leftover) {
        let _ = std::fs::remove_file(leftover.path());
    }
}

fn is_older_than(file: &std::fs::DirEntry, age: Duration) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age))
}

fn encode(entries: &Entries) -> Vec<u8> {
    let resources = entries
        .iter()
        .map(|((resource_type, name), entry)| Resource {
            type_url: resource_type.type_url().to_owned(),
            name: name.clone(),
            version: entry.version.clone(),
            body: entry.body.clone(),
            confirmed_ms: entry.confirmed.0,
        });
    let content = Content {
        resources: resources.collect(),
    };
    let content = content.encode_to_vec();
    let mut bytes = format!("{MAGIC}{VERSION}\n{:016x}\n", xxh3_64(&content)).into_bytes();
    bytes.extend(content);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Entries, FileError> {
    let (first, rest) = split_line(bytes).ok_or(FileError::Foreign)?;
    let version = first.strip_prefix(MAGIC).ok_or(FileError::Foreign)?;
    if version != VERSION {
        return Err(FileError::Version(version.to_owned()));
    }
    let (digest, content) = split_line(rest).ok_or(FileError::Checksum)?;
    if digest != format!("{:016x}", xxh3_64(content)) {
        return Err(FileError::Checksum);
    }
    let content = Content::decode(content)?;
    // Types that this release does not know are of no use to it.
    let known = content.resources.into_iter().filter_map(|resource| {
        let resource_type = ResourceType::from_type_url(&resource.type_url)?;
        let entry = Entry {
            version: resource.version,
            body: resource.body,
            confirmed: Timestamp(resource.confirmed_ms),
        };
        Some(((resource_type, resource.name), entry))
    });
    Ok(known.collect())
}

/// A short first line of text, and what follows it.
fn split_line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    const LINE_BYTES_MAX: usize = 100;
    let end = bytes
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|b| *b == b'\n')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    Some((line, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_entries() -> Entries {
        let entry = |body: &'static str| Entry {
            version: "1".to_owned(),
            body: body.into(),
            confirmed: Timestamp(7),
        };
        let key = |name: &str| (ResourceType::Cluster, name.to_owned());
        [(key("a"), entry("x")), (key("ü/\n"), entry(""))].into()
    }

    #[test]
    fn what_was_written_is_read_and_nothing_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lists");
        assert_eq!(read(&path).unwrap(), Entries::new(), "no file, no lists");
        write(&path, &Entries::new()).unwrap();
        write(&path, &mk_entries()).unwrap();
        assert_eq!(read(&path).unwrap(), mk_entries());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        assert!(read(folder.path()).is_err(), "a folder is no file");
        assert!(write(&folder.path().join("no/such"), &mk_entries()).is_err());
    }

    #[test]
    fn what_killed_writers_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lists");
        let make = |name: &str, age: Duration| {
            let file = File::create(folder.path().join(name)).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.set_modified(modified - age).unwrap();
        };
        make("lists.12.new", 2 * LEFTOVER_KEPT);
        make("lists.13.new", Duration::ZERO);
        for other in [
            "lists.new",
            "lists.x.new",
            "lists..new",
            "lists2.12.new",
            "lists.12.new.1",
        ] {
            make(other, 2 * LEFTOVER_KEPT);
        }
        read(&path).unwrap();
        assert!(!folder.path().join("lists.12.new").exists());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 6);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let whole = encode(&mk_entries());
        for end in 0..whole.len() {
            assert!(decode(&whole[..end]).is_err(), "cut at {end}");
        }
        for place in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[place / 8] ^= 1 << (place % 8);
            assert!(decode(&changed).is_err(), "bit {place}");
        }
    }

    #[test]
    fn foreign_files_and_other_versions_say_what_they_are() {
        for (bytes, problem) in [
            (&b""[..], "it is not a file of lists"),
            (b"[unit]\nkey=value\n", "it is not a file of lists"),
            (b"\xff\xfe\n", "it is not a file of lists"),
            (
                b"waypost-client-lists 2\n",
                "it is of version \"2\"; this release reads \"1\"",
            ),
            (
                b"waypost-client-lists 1\n0000000000000000\nxx",
                "its checksum is wrong: it was cut or changed",
            ),
        ] {
            assert_eq!(decode(bytes).unwrap_err().to_string(), problem);
        }
    }
}
