//! The config topic for those who write it: read to its end, written only where it is as it was
//! read, and read back (docs/announcement-log.md, "The config topic").
//!
//! A log that compares and sets does so. Kafka cannot: there each record names the revision that it
//! replaces, and the topic is read on to the new records and a second beyond. Who overwrote, or was
//! overwritten by, what they had not seen, is told; the last record stands either way.

mod conflicts;
mod reading;

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use waypost_core::config::{JournalAction, JournalEntry, JournalKey, Replaces, Signed};
use waypost_core::partition::partition_for_key;
use waypost_core::record::{Appended, Delivery};
use waypost_core::{
    AnnouncementLog, ConfigKey, ConfigValue, Headers, LogError, NewRecord, Offset, Record,
    Timestamp, Topic,
};
use waypost_fold::{ConfigFold, Held, Origin};

use crate::limits::{JOURNAL_KEPT, JOURNAL_MAX, PRUNED_AT_ONCE_MAX};

pub use conflicts::{Conflicts, Told};

/// Why a record of the config topic was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Somebody was faster. Nothing was written; reading again shows what they did.
    #[error("conflict: {author} changed it meanwhile (offset {offset}); look at it and try again")]
    Outdated {
        /// Who; `somebody` where nobody said so.
        author: String,
        /// Where their record stands.
        offset: Offset,
    },
    /// The log did not take it.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The topic as it was read, and what was written to it since.
#[derive(Debug)]
pub(crate) struct ConfigTopic<'a> {
    log: &'a dyn AnnouncementLog,
    fold: ConfigFold,
    /// The last record of each key, also of those that nobody can read.
    last: HashMap<Bytes, Last>,
    journal: BTreeSet<JournalKey>,
    /// Records that a log took which cannot compare.
    unverified: Vec<(ConfigKey, Appended)>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    offset: Offset,
    has_value: bool,
}

impl<'a> ConfigTopic<'a> {
    /// Reads the topic to the end that it had when reading began.
    pub(crate) async fn read(log: &'a dyn AnnouncementLog) -> Result<Self, LogError> {
        let mut topic = Self {
            log,
            fold: ConfigFold::new(),
            last: HashMap::new(),
            journal: BTreeSet::new(),
            unverified: Vec::new(),
        };
        reading::to_end(log, |record| topic.take(&record)).await?;
        Ok(topic)
    }

    /// The last record of `key` that can be read, a deletion included.
    pub(crate) fn find(&self, key: &ConfigKey) -> Option<&Held> {
        self.fold.find(key)
    }

    /// Whether the log has any record of this key.
    pub(crate) fn is_known(&self, key: &ConfigKey) -> bool {
        self.last.contains_key(&key.to_record_key())
    }

    /// Whether the last record of this key has a value, even one that nobody can read.
    pub(crate) fn has_value(&self, key: &ConfigKey) -> bool {
        let last = self.last.get(&key.to_record_key());
        last.is_some_and(|last| last.has_value)
    }

    /// What all of it means.
    pub(crate) fn fold(&self) -> &ConfigFold {
        &self.fold
    }

    /// Writes the value of `key` (`None`: deletes it) in the place of what was read.
    pub(crate) async fn write(
        &mut self,
        key: &ConfigKey,
        value: Option<&ConfigValue>,
    ) -> Result<Appended, WriteError> {
        let replaces = match self.find(key).filter(|held| held.value.is_some()) {
            Some(_) => self.fold.find_revision(key).map(Replaces::Revision),
            None => Some(Replaces::Nothing),
        };
        let record_key = key.to_record_key();
        let record = mk_record(record_key.clone(), value, replaces);
        let expected = self.last.get(&record_key).map(|last| last.offset);
        let appended = match self.log.append_if(record.clone(), expected).await {
            Err(LogError::Conflict(offset)) => {
                let author = self.author_at(&record_key, offset).await;
                return Err(WriteError::Outdated { author, offset });
            }
            Err(LogError::Refused(_)) => {
                let appended = self.log.append(record).await?;
                self.unverified.push((key.clone(), appended));
                appended
            }
            done => done?,
        };
        let last = Last {
            offset: appended.offset,
            has_value: value.is_some(),
        };
        self.last.insert(record_key, last);
        Ok(appended)
    }

    /// Adds to the journal what is done to `subject`, and takes entries out of it that are older or
    /// more than it keeps.
    pub(crate) async fn journal(
        &mut self,
        subject: &ConfigKey,
        action: JournalAction,
        detail: &str,
        signed: &Signed,
    ) -> Result<ConfigKey, LogError> {
        let key = JournalKey {
            at: signed.at,
            id: rand::random(),
        };
        let entry = ConfigValue::Journal(JournalEntry {
            subject: subject.clone(),
            action,
            detail: detail.into(),
            signed: signed.clone(),
        });
        let key = ConfigKey::Journal(key);
        let record = mk_record(key.to_record_key(), Some(&entry), Some(Replaces::Nothing));
        self.log.append(record).await?;
        self.prune(signed.at).await?;
        Ok(key)
    }

    /// Deletes `key`, after the journal says who does it and why: the deletion itself has no room for
    /// that. If somebody was faster, the journal's entry is taken back.
    pub(crate) async fn delete(
        &mut self,
        key: &ConfigKey,
        action: JournalAction,
        detail: &str,
        signed: &Signed,
    ) -> Result<Appended, WriteError> {
        let entry = self.journal(key, action, detail, signed).await?;
        let done = self.write(key, None).await;
        if matches!(done, Err(WriteError::Outdated { .. })) {
            self.remove(&entry).await?;
        }
        done
    }

    /// Writes that `key` is deleted, whatever stands there: for what nobody compares with.
    pub(crate) async fn remove(&mut self, key: &ConfigKey) -> Result<(), LogError> {
        let record = mk_record(key.to_record_key(), None, None);
        self.log.append(record).await.map(|_| ())
    }

    async fn prune(&mut self, now: Timestamp) -> Result<(), LogError> {
        let too_many = (self.journal.len() + 1).saturating_sub(JOURNAL_MAX);
        let too_old = now.minus(JOURNAL_KEPT);
        for index in 0..PRUNED_AT_ONCE_MAX {
            let Some(oldest) = self.journal.first().copied() else {
                return Ok(());
            };
            if index >= too_many && oldest.at > too_old {
                return Ok(());
            }
            self.journal.remove(&oldest);
            self.remove(&ConfigKey::Journal(oldest)).await?;
        }
        Ok(())
    }

    fn take(&mut self, record: &Record) {
        if let Some(key) = &record.key {
            let last = Last {
                offset: record.offset,
                has_value: record.value.is_some(),
            };
            self.last.insert(key.clone(), last);
            if let Ok(Some(ConfigKey::Journal(entry))) = ConfigKey::from_record_key(key) {
                if record.value.is_some() {
                    self.journal.insert(entry);
                } else {
                    self.journal.remove(&entry);
                }
            }
        }
        // What cannot be read is replaced like what is not there.
        self.fold.apply(record, &mut Vec::new());
    }

    /// Who wrote the record of a key that stands at `offset`.
    async fn author_at(&self, key: &Bytes, offset: Offset) -> String {
        let found = async {
            let count = self.log.partition_count(Topic::Config).await.ok()?;
            let partition = partition_for_key(key, count);
            let record = self.log.read_at(Topic::Config, partition, offset).await;
            let value = record.ok()??.value?;
            let key = ConfigKey::from_record_key(key).ok()??;
            let value = waypost_proto::config::decode(&key, &value).ok()?;
            Some(value.author().to_owned())
        };
        let author = found.await.filter(|author| !author.is_empty());
        author.unwrap_or_else(|| "somebody".to_owned())
    }
}

/// Whether a held record is one that this log has and that says something.
pub(crate) fn find_live(held: Option<&Held>) -> Option<&ConfigValue> {
    let held = held.filter(|held| held.origin == Origin::Log)?;
    held.value.as_ref()
}

fn mk_record(key: Bytes, value: Option<&ConfigValue>, replaces: Option<Replaces>) -> NewRecord {
    NewRecord {
        topic: Topic::Config,
        partition: None,
        key,
        value: value.map(waypost_proto::config::encode),
        headers: Headers {
            replaces,
            ..Headers::default()
        },
        delivery: Delivery::Change,
    }
}
