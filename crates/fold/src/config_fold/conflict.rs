//! Two operators at once: a record that replaces another one than its writer had seen.

use std::fmt;
use std::sync::Arc;

use waypost_core::config::{ConfigKey, JournalAction, Replaces};
use waypost_core::{ConfigValue, Offset, PartitionId, Timestamp};

use super::{ConfigFold, Held, Origin};

/// A record that overwrote what its writer had not seen. It stands all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Which record.
    pub key: ConfigKey,
    /// Where it stands.
    pub partition: PartitionId,
    /// Where it stands.
    pub offset: Offset,
    /// When the log took it.
    pub append_time: Timestamp,
    /// Who wrote it; empty where nobody said so.
    pub author: Arc<str>,
    /// What it was meant to replace.
    pub replaces: Replaces,
    /// What it did replace.
    pub overwritten: Overwritten,
}

/// What was overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overwritten {
    /// Where it stood.
    pub offset: Offset,
    /// Who had written it; empty where nobody said so.
    pub author: Arc<str>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (offset {}) overwrote what {} had written (offset {}) without having seen it",
            self.key,
            somebody(&self.author),
            self.offset,
            somebody(&self.overwritten.author),
            self.overwritten.offset,
        )
    }
}

fn somebody(author: &str) -> &str {
    if author.is_empty() {
        "somebody"
    } else {
        author
    }
}

impl ConfigFold {
    /// What the record conflicts with. Where compaction took what it replaces, or another log had
    /// it, nobody can tell: no conflict.
    pub(super) fn find_conflict(&self, key: &ConfigKey, held: &Held) -> Option<Conflict> {
        let replaces = held.replaces?;
        let standing = self.find(key)?;
        // Offsets of two partitions (the topic grew) cannot be compared; a record that was delivered
        // twice does not conflict with itself.
        let is_repeat = standing.value == held.value && standing.replaces == held.replaces;
        if standing.origin != Origin::Log || standing.partition != held.partition || is_repeat {
            return None;
        }
        let is_meant = match replaces {
            Replaces::Nothing => !standing.is_live(),
            Replaces::Revision(revision) => {
                let is_this_log = match (revision.log, self.clock.identity()) {
                    (Some(meant), Some(this)) => meant == this,
                    _ => true,
                };
                revision.offset == standing.offset && is_this_log
            }
        };
        (!is_meant).then(|| Conflict {
            key: key.clone(),
            partition: held.partition,
            offset: held.offset,
            append_time: held.append_time,
            author: self.author(key, held.value.as_ref()),
            replaces,
            overwritten: Overwritten {
                offset: standing.offset,
                author: self.author(key, standing.value.as_ref()),
            },
        })
    }

    /// Who wrote a record. A deletion has no value that could say so; its journal entry, which was
    /// written before it, does.
    fn author(&self, key: &ConfigKey, value: Option<&ConfigValue>) -> Arc<str> {
        if let Some(value) = value {
            return value.author().into();
        }
        let deletes = |action| {
            matches!(
                action,
                JournalAction::Deleted | JournalAction::Cleared | JournalAction::Forgotten
            )
        };
        let mut entries = self.journal();
        let entry = entries.find(|(_, entry)| entry.subject == *key && deletes(entry.action));
        entry.map_or_else(|| "".into(), |(_, entry)| Arc::clone(&entry.signed.author))
    }
}
