//! The tables of the store and the transactions over them. Everything here blocks.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use waypost_core::partition::PartitionId;
use waypost_core::record::{LogIdentity, Offset, Record, Topic};
use waypost_core::time::Timestamp;

use super::stored::{FrameError, Place, decode, encode, topic_number, topic_of};
use crate::copies::Copies;

/// What this release writes and reads.
pub(super) const FORMAT: u64 = 2;

/// The table of a partition's records, in frames by offset. Each partition has one, since the store
/// fills its pages only where what is inserted comes after all else in a table; anywhere before, it
/// leaves them half empty, and a start, which is mostly reading pages, takes twice as long.
struct RecordsTable(String);

impl RecordsTable {
    fn of(topic: Topic, partition: PartitionId) -> Self {
        Self(format!("records/{}/{partition}", topic_number(topic)))
    }

    fn definition(&self) -> TableDefinition<'_, u64, &'static [u8]> {
        TableDefinition::new(&self.0)
    }
}

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
    #[error("it was written by a newer release (format {0}, this release reads {FORMAT})")]
    NewerFormat(u64),
    /// Its frames are the same, so that what it holds can be saved from it.
    #[error("it was written by an older release (format {0}, this release reads {FORMAT})")]
    OlderFormat(u64),
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
    pub(super) deletes: BTreeSet<Place>,
}

impl Changes {
    /// The partitions that it concerns, in order.
    fn partitions(&self) -> BTreeSet<(Topic, PartitionId)> {
        let places = self.puts.keys().chain(&self.deletes);
        places.map(|place| (place.topic, place.partition)).collect()
    }

    fn puts_of(
        &self,
        topic: Topic,
        partition: PartitionId,
    ) -> impl Iterator<Item = (&Place, &Record)> {
        self.puts.range(Place::all_of(topic, partition))
    }

    fn deletes_of(&self, topic: Topic, partition: PartitionId) -> impl Iterator<Item = &Place> {
        self.deletes.range(Place::all_of(topic, partition))
    }
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

    /// Makes the tables of a new log with these partitions.
    pub(super) fn initialise(
        &self,
        identity: LogIdentity,
        partitions: impl IntoIterator<Item = (Topic, PartitionId)>,
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_FORMAT, FORMAT)?;
            meta.insert(META_IDENTITY, identity.0)?;
            meta.insert(META_COMMITS, 0)?;
            meta.insert(META_CLOSED, 1)?;
            transaction.open_table(PARTITIONS)?;
            for (topic, partition) in partitions {
                let table = RecordsTable::of(topic, partition);
                transaction.open_table(table.definition())?;
            }
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
        match format.cmp(&FORMAT) {
            Ordering::Less => return Err(StoreError::OlderFormat(format)),
            Ordering::Equal => {}
            Ordering::Greater => return Err(StoreError::NewerFormat(format)),
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

    /// Gives every record of these partitions to `visit`, in the order of their offsets.
    pub(super) fn visit<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a (Topic, PartitionId)>,
        mut visit: impl FnMut(Place, Record),
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_read()?;
        let mut copies = Copies::default();
        for (topic, partition) in partitions.into_iter().copied() {
            let table = RecordsTable::of(topic, partition);
            for row in transaction.open_table(table.definition())?.iter()? {
                let (key, value) = row?;
                let place = Place {
                    topic,
                    partition,
                    offset: from_key(key.value()),
                };
                let copy = |body: &[u8]| copies.copy(body);
                visit(place, decode_at(place, value.value(), copy)?);
            }
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
            let mut frame = Vec::new();
            for (topic, partition) in changes.partitions() {
                let table = RecordsTable::of(topic, partition);
                let mut records = transaction.open_table(table.definition())?;
                for (place, record) in changes.puts_of(topic, partition) {
                    encode(topic, record, &mut frame);
                    records.insert(to_number(place.offset), frame.as_slice())?;
                }
                for place in changes.deletes_of(topic, partition) {
                    records.remove(to_number(place.offset))?;
                }
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
        let table = RecordsTable::of(from.topic, from.partition);
        let table = transaction.open_table(table.definition())?;
        let mut records = Vec::new();
        let mut copies = Copies::default();
        let mut bytes = 0;
        for row in table.range(to_number(from.offset)..to_number(below))? {
            let (key, value) = row?;
            let place = Place {
                offset: from_key(key.value()),
                ..from
            };
            bytes += value.value().len();
            let copy = |body: &[u8]| copies.copy(body);
            records.push(decode_at(place, value.value(), copy)?);
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
        let table = RecordsTable::of(place.topic, place.partition);
        let table = transaction.open_table(table.definition())?;
        let found = table.get(to_number(place.offset))?;
        found
            .map(|guard| decode_at(place, guard.value(), Bytes::copy_from_slice))
            .transpose()
    }
}

fn decode_at(
    place: Place,
    frame: &[u8],
    copy: impl FnOnce(&[u8]) -> Bytes,
) -> Result<Record, StoreError> {
    match decode(frame, copy) {
        Ok((named, record)) if named == place => Ok(record),
        Ok(_) => Err(StoreError::Record(place, FrameError::Content)),
        Err(error) => Err(StoreError::Record(place, error)),
    }
}

/// Offsets are never negative here.
fn to_number(offset: Offset) -> u64 {
    u64::try_from(offset.0).unwrap_or(0)
}

fn from_key(number: u64) -> Offset {
    Offset(i64::try_from(number).unwrap_or(i64::MAX))
}
