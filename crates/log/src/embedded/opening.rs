//! How a log comes up: made, opened, or saved from a damaged file. Everything here blocks.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::Builder;
use waypost_core::partition::PartitionId;
use waypost_core::port::LogError;
use waypost_core::record::{Headers, IDENTITY_KEY, LogIdentity, Offset, Record, RecordKind, Topic};

use super::directory::{Directory, Presence};
use super::ledger::Ledger;
use super::salvage::salvage;
use super::shared::Shared;
use super::store::{Changes, Closing, Contents, OpenDatabase, Store, StoreError};
use super::stored::Place;
use super::writer::{Health, Pending, Writer};
use super::{EmbeddedSettings, OnDamage, Origin};
use crate::clock::Clock;
use crate::limits::EMBEDDED_PARTITIONS_MAX;

/// A log that is ready to be run.
pub(super) struct Opened {
    pub(super) writer: Writer,
    pub(super) identity: LogIdentity,
    pub(super) origin: Origin,
}

/// What a store holds.
pub(super) struct Loaded {
    pub(super) contents: Contents,
    pub(super) ledger: Ledger,
    /// Records that a later copy replaces.
    pub(super) replaced: Vec<Place>,
}

/// Takes the directory at `path` and opens the log in it, or makes one.
pub(super) fn open_directory(path: &Path, settings: &EmbeddedSettings) -> Result<Opened, LogError> {
    if !(1..=EMBEDDED_PARTITIONS_MAX).contains(&settings.partitions) {
        return Err(LogError::Misconfigured(format!(
            "a log of {} partitions: give 1 to {EMBEDDED_PARTITIONS_MAX}",
            settings.partitions
        )));
    }
    let directory = Directory::lock(path)?;
    let opened = match directory.presence() {
        Ok(Presence::Absent) => create(&directory, settings).map(|()| Origin::Created),
        Ok(Presence::Present) => Ok(Origin::Existing),
        Err(error) => Err(error),
    };
    let opened = opened.and_then(|origin| {
        let (store, loaded) = open_store(&directory, &directory.opener())?;
        Ok((store, loaded, origin))
    });
    let (store, loaded, origin) = match opened {
        Err(LogError::Damaged(_)) if settings.on_damage == OnDamage::Salvage => {
            let saved = salvage(&directory, settings)?;
            let (store, loaded) = open_store(&directory, &directory.opener())?;
            (store, loaded, Origin::Salvaged(saved))
        }
        other => other?,
    };
    directory.remember_store()?;
    let open = directory.opener();
    start(directory, open, store, loaded, origin, settings)
}

/// Opens the store and reads all of it, so that damage shows now.
pub(super) fn open_store(
    directory: &Directory,
    open: &OpenDatabase,
) -> Result<(Store, Loaded), LogError> {
    let opened = Store::open(open).and_then(|store| {
        let loaded = load(&store, Continuity::NewProcess)?;
        Ok((store, loaded))
    });
    opened.map_err(|error| directory.to_log_error(&error))
}

/// Who reads the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuity {
    /// Another process than the one that wrote it, of which it knows nothing.
    NewProcess,
    /// The process that wrote it, which knows what it gave out.
    SameProcess,
}

/// Reads the store into a ledger.
pub(super) fn load(store: &Store, continuity: Continuity) -> Result<Loaded, StoreError> {
    let mut contents = store.contents()?;
    if continuity == Continuity::SameProcess {
        contents.closing = Closing::Orderly;
    }
    let mut ledger = Ledger::new(&contents);
    let mut replaced = Vec::new();
    store.visit(contents.ends.keys(), |place, record| {
        replaced.extend(ledger.apply(place, &record));
    })?;
    Ok(Loaded {
        contents,
        ledger,
        replaced,
    })
}

/// The writer of an open store. Its first commit marks the log as open and sets offsets aside.
pub(super) fn start(
    directory: Directory,
    open: OpenDatabase,
    store: Store,
    loaded: Loaded,
    origin: Origin,
    settings: &EmbeddedSettings,
) -> Result<Opened, LogError> {
    let shared = Arc::new(Shared::new(directory, store, &loaded.ledger));
    let mut pending = Pending::default();
    pending.remove(loaded.replaced);
    let mut writer = Writer {
        shared: Arc::clone(&shared),
        open,
        clock: Arc::clone(&settings.clock),
        retention: settings.retention(),
        ledger: loaded.ledger,
        commits: loaded.contents.commits,
        pending,
        health: Health::Writing,
    };
    let first = writer.commit(Closing::Crash);
    first.map_err(|error| shared.to_log_error(&error))?;
    Ok(Opened {
        writer,
        identity: loaded.contents.identity,
        origin,
    })
}

/// Makes an empty log, complete before it is in its place.
fn create(directory: &Directory, settings: &EmbeddedSettings) -> Result<(), LogError> {
    let made = directory.file_beside("new");
    let contents = settings.new_contents();
    make(
        directory,
        &made,
        &contents,
        Changes::default(),
        None,
        &*settings.clock,
    )?;
    directory.put_in_place(&made)
}

/// Makes a store with the records of `changes` and a new identity in the file `made`.
pub(super) fn make(
    directory: &Directory,
    made: &Path,
    contents: &Contents,
    changes: Changes,
    follows: Option<LogIdentity>,
    clock: &dyn Clock,
) -> Result<(), LogError> {
    match std::fs::remove_file(made) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(directory.unusable(&error));
        }
        _ => {}
    }
    let path = made.to_owned();
    let open: OpenDatabase = Box::new(move |builder: &mut Builder| builder.create(&path));
    let written =
        Store::open(&open).and_then(|store| fill(&store, contents, changes, follows, clock));
    written.map_err(|error| directory.to_log_error(&error))
}

/// Writes the first content of a store: `changes`, then an identity record per topic.
pub(super) fn fill(
    store: &Store,
    contents: &Contents,
    mut changes: Changes,
    follows: Option<LogIdentity>,
    clock: &dyn Clock,
) -> Result<(), StoreError> {
    let mut ledger = Ledger::new(contents);
    for (place, record) in &changes.puts {
        ledger.apply(*place, record);
    }
    for topic in Topic::ALL {
        let partition = PartitionId(0);
        let Some((offset, append_time)) = ledger.assign(topic, partition, clock.now()) else {
            continue;
        };
        let record = Record {
            partition,
            offset,
            append_time,
            key: Some(Bytes::from_static(IDENTITY_KEY)),
            // Not null, so that compaction does not take it for a deletion.
            value: Some(Bytes::from_static(b"1")),
            headers: Ok(Headers {
                kind: RecordKind::Identity,
                log: Some(contents.identity),
                follows,
                ..Headers::default()
            }),
        };
        changes.puts.insert(Place::of(topic, &record), record);
    }
    store.initialise(contents.identity, contents.ends.keys().copied())?;
    store.commit(
        &changes,
        &ledger.ends(Closing::Orderly),
        1,
        Closing::Orderly,
    )
}

impl EmbeddedSettings {
    /// An empty log of these settings, with a new identity.
    pub(super) fn new_contents(&self) -> Contents {
        let partitions = [
            (Topic::Announcements, self.partitions),
            (Topic::Config, 1),
            (Topic::Control, 1),
        ];
        Contents::empty(LogIdentity(rand::random()), partitions)
    }
}

/// The first offset of every partition: nothing is ever removed from the front but by compaction,
/// which leaves gaps.
pub(super) const START: Offset = Offset(0);
