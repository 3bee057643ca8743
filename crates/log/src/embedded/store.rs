//! The tables of the store and the transactions over them. Everything here blocks.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use waypost_core::partition::PartitionId;
use waypost_core::record::{LogIdentity, Offset, Record, Topic};
use waypost_core::time::Timestamp;

use super::stored::{FrameError, Place, decode, encode, topic_number, topic_of};

/// What this release writes, and the newest that it reads.
pub(super) const FORMAT: u64 = 1;

/// Records by topic, partition and offset, in frames.
const RECORDS: TableDefinition<'_, (u8, u32, u64), &[u8]> = TableDefinition::new("records");

/// Of every partition: its next offset, the first offset not set aside, its latest append time.
const PARTITIONS: TableDefinition<'_, (u8, u32), (u64, u64, i64)> =
    TableDefinition::new("partitions");

/// Numbers by name, see the constants below.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";
const META_IDENTITY: &str = "identity";
/// Counts commits, so that one whose outcome is not known can be looked up.
const META_COMMITS: &str = "commits";
/// 1 if the last commit was the orderly end of a process.
const META_CLOSED: &str = "closed";

/// Opens the database; called again when it has to be opened anew.
pub(super) type OpenDatabase =
    Box<dyn Fn(&mut Builder) -> Result<Database, redb::DatabaseError> + Send + Sync>;

#[derive(Debug)]
pub(super) struct Store {
    database: Database,
}

/// Why the store does not give or take what it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("{0}")]
    Database(Box<redb::Error>),
    #[error("the record at {0} is damaged: {1}")]
    Record(Place, FrameError),
    #[error("{0} is missing in it")]
    Missing(&'static str),
    #[error("it was written by a newer release (format {0}, this release reads up to {FORMAT})")]
    NewerFormat(u64),
    #[error("its structure is damaged")]
    Panic,
    #[error("it is being opened again after a failure")]
    NotOpen,
    #[error("it was removed or replaced while this process uses it")]
    Removed,
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self::Database(Box::new(error.into()))
    }
}

/// What the store says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) identity: LogIdentity,
    pub(super) commits: u64,
    pub(super) closing: Closing,
    pub(super) ends: BTreeMap<(Topic, PartitionId), End>,
}

impl Contents {
    /// A log without records.
    pub(super) fn empty(identity: LogIdentity, partitions: [(Topic, u32); 3]) -> Self {
        let empty = End {
            next: Offset(0),
            reserved: Offset(0),
            last_time: Timestamp(0),
        };
        let ends = partitions.into_iter().flat_map(|(topic, count)| {
            (0..count).map(move |partition| ((topic, PartitionId(partition)), empty))
        });
        Self {
            identity,
            commits: 0,
            closing: Closing::Orderly,
            ends: ends.collect(),
        }
    }
}

/// How the process before this one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Orderly,
    Crash,
}

/// Where a partition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) next: Offset,
    pub(super) reserved: Offset,
    pub(super) last_time: Timestamp,
}

/// One transaction: all of it becomes durable, or none.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) puts: BTreeMap<Place, Record>,
    pub(super) deletes: Vec<Place>,
}

impl Store {
    /// Opens what `open` finds, after checking every page of it.
    pub(super) fn open(open: &OpenDatabase) -> Result<Self, StoreError> {
        let mut builder = Builder::new();
        builder.set_cache_size(crate::limits::EMBEDDED_CACHE_BYTES);
        builder.set_check_integrity_on_open(true);
        // Debug builds of the store assert where release builds report damage.
        let opened = catch_unwind(AssertUnwindSafe(|| open(&mut builder)));
        let database = opened.map_err(|_| StoreError::Panic)??;
        Ok(Self { database })
    }

    /// Makes the tables of a new log.
    pub(super) fn initialise(&self, identity: LogIdentity) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_FORMAT, FORMAT)?;
            meta.insert(META_IDENTITY, identity.0)?;
            meta.insert(META_COMMITS, 0)?;
            meta.insert(META_CLOSED, 1)?;
            transaction.open_table(RECORDS)?;
            transaction.open_table(PARTITIONS)?;
        }
        transaction.commit()?;
        Ok(())
    }

    pub(super) fn contents(&self) -> Result<Contents, StoreError> {
        let transaction = self.database.begin_read()?;
        let meta = transaction.open_table(META)?;
        let get = |name: &'static str| {
            let number = meta.get(name)?.map(|guard| guard.value());
            number.ok_or(StoreError::Missing(name))
        };
        let format = get(META_FORMAT)?;
        if format > FORMAT {
            return Err(StoreError::NewerFormat(format));
        }
        let mut ends = BTreeMap::new();
        for row in transaction.open_table(PARTITIONS)?.iter()? {
            let (key, value) = row?;
            let (topic, partition) = key.value();
            let (next, reserved, last_time) = value.value();
            let topic = topic_of(topic).ok_or(StoreError::Missing("a topic that it names"))?;
            let end = End {
                next: from_key(next),
                reserved: from_key(reserved),
                last_time: Timestamp(last_time),
            };
            ends.insert((topic, PartitionId(partition)), end);
        }
        let closed = get(META_CLOSED)? == 1;
        Ok(Contents {
            identity: LogIdentity(get(META_IDENTITY)?),
            commits: get(META_COMMITS)?,
            closing: if closed {
                Closing::Orderly
            } else {
                Closing::Crash
            },
            ends,
        })
    }

    /// Gives every record to `visit`, in the order of places.
    pub(super) fn visit(&self, mut visit: impl FnMut(Place, Record)) -> Result<(), StoreError> {
        let transaction = self.database.begin_read()?;
        for row in transaction.open_table(RECORDS)?.iter()? {
            let (key, value) = row?;
            let place = to_place(key.value())?;
            visit(place, decode_at(place, value.value())?);
        }
        Ok(())
    }

    /// Writes `changes` and the partitions' `ends` and returns once they are on disk.
    pub(super) fn commit(
        &self,
        changes: &Changes,
        ends: &[(Topic, PartitionId, End)],
        number: u64,
        closing: Closing,
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let mut frame = Vec::new();
            for (place, record) in &changes.puts {
                encode(place.topic, record, &mut frame);
                records.insert(to_key(*place), frame.as_slice())?;
            }
            for place in &changes.deletes {
                records.remove(to_key(*place))?;
            }
            let mut partitions = transaction.open_table(PARTITIONS)?;
            for (topic, partition, end) in ends {
                let row = (
                    to_number(end.next),
                    to_number(end.reserved),
                    end.last_time.0,
                );
                partitions.insert((topic_number(*topic), partition.0), row)?;
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_COMMITS, number)?;
            meta.insert(META_CLOSED, u64::from(closing == Closing::Orderly))?;
        }
        // The default durability: it returns after an fsync.
        transaction.commit()?;
        Ok(())
    }

    /// Records of one partition from `from` on and below `below`, as many as fit the limits of one
    /// read, and the offset that the read reached.
    pub(super) fn read(
        &self,
        from: Place,
        below: Offset,
    ) -> Result<(Vec<Record>, Offset), StoreError> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(RECORDS)?;
        let end = Place {
            offset: below,
            ..from
        };
        let mut records = Vec::new();
        let mut bytes = 0;
        for row in table.range(to_key(from)..to_key(end))? {
            let (key, value) = row?;
            let place = to_place(key.value())?;
            bytes += value.value().len();
            records.push(decode_at(place, value.value())?);
            if records.len() >= crate::limits::READ_RECORDS_MAX
                || bytes >= crate::limits::EMBEDDED_READ_BYTES_MAX
            {
                return Ok((records, place.offset.next()));
            }
        }
        Ok((records, below))
    }

    pub(super) fn find(&self, place: Place) -> Result<Option<Record>, StoreError> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(RECORDS)?;
        let found = table.get(to_key(place))?;
        found
            .map(|guard| decode_at(place, guard.value()))
            .transpose()
    }
}

fn decode_at(place: Place, frame: &[u8]) -> Result<Record, StoreError> {
    match decode(frame) {
        Ok((named, record)) if named == place => Ok(record),
        Ok(_) => Err(StoreError::Record(place, FrameError::Content)),
        Err(error) => Err(StoreError::Record(place, error)),
    }
}

fn to_key(place: Place) -> (u8, u32, u64) {
    let number = to_number(place.offset);
    (topic_number(place.topic), place.partition.0, number)
}

fn to_place((topic, partition, offset): (u8, u32, u64)) -> Result<Place, StoreError> {
    Ok(Place {
        topic: topic_of(topic).ok_or(StoreError::Missing("a topic that it names"))?,
        partition: PartitionId(partition),
        offset: from_key(offset),
    })
}

/// Offsets are never negative here.
fn to_number(offset: Offset) -> u64 {
    u64::try_from(offset.0).unwrap_or(0)
}

fn from_key(number: u64) -> Offset {
    Offset(i64::try_from(number).unwrap_or(i64::MAX))
}
