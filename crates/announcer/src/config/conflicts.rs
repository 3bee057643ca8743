//! What operators who wrote at the same time are told.

use std::fmt;

use waypost_core::config::{JournalAction, Signed};
use waypost_core::record::Appended;
use waypost_core::{ConfigKey, LogError, Offset, PartitionId};
use waypost_fold::{Conflict, FoldEvent};

use super::{ConfigTopic, reading};
use crate::limits::CONFLICTS_TOLD_MAX;

/// Records that overwrote what their writers had not seen. What was written stands in the log; of
/// two records of one key the last is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Told>);

/// One of them, as whoever wrote one side of it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The own record overwrote another's.
    Overwrote {
        /// Which record.
        key: ConfigKey,
        /// Who had written what is overwritten now.
        author: String,
        /// Where that stands.
        offset: Offset,
    },
    /// Another's record overwrote the own one.
    Overwritten {
        /// Which record.
        key: ConfigKey,
        /// Who overwrote it.
        author: String,
        /// Where theirs stands, which is in force.
        offset: Offset,
    },
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("conflict: ")?;
        for (index, told) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            told.fmt(f)?;
        }
        f.write_str("; look at it and decide which of the two it shall be")
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overwrote {
                key,
                author,
                offset,
            } => write!(
                f,
                "{key}: this overwrote what {author} wrote at the same time (offset {offset})"
            ),
            Self::Overwritten {
                key,
                author,
                offset,
            } => write!(
                f,
                "{key}: {author} wrote at the same time and overwrote this (offset {offset})"
            ),
        }
    }
}

impl ConfigTopic<'_> {
    /// Reads the topic on to what was written to a log that cannot compare, and a second beyond.
    /// Nothing to do on one that can. The journal keeps each conflict, written by whoever wrote last.
    pub(crate) async fn verify(mut self, signed: &Signed) -> Result<Option<Conflicts>, LogError> {
        if self.unverified.is_empty() {
            return Ok(None);
        }
        let own: Vec<Appended> = self.unverified.iter().map(|(_, a)| *a).collect();
        let clocks = self.fold.clock().iter();
        let from: Vec<_> = clocks.map(|(p, clock)| (p, clock.position())).collect();
        let mut events = Vec::new();
        let log = self.log;
        reading::beyond(log, &from, &own, |record| {
            self.fold.apply(&record, &mut events);
        })
        .await?;
        let mut told = Vec::new();
        for event in events {
            let FoldEvent::Conflict(conflict) = event else {
                continue;
            };
            let own = |offset| self.is_own(&conflict.key, conflict.partition, offset);
            if own(conflict.offset) {
                self.journal_conflict(&conflict, signed).await?;
                told.push(overwrote(&conflict));
            } else if own(conflict.overwritten.offset) {
                told.push(overwritten(&conflict));
            }
        }
        told.truncate(CONFLICTS_TOLD_MAX);
        Ok((!told.is_empty()).then_some(Conflicts(told)))
    }

    fn is_own(&self, key: &ConfigKey, partition: PartitionId, offset: Offset) -> bool {
        self.unverified.iter().any(|(own, appended)| {
            own == key && (appended.partition, appended.offset) == (partition, offset)
        })
    }

    async fn journal_conflict(
        &mut self,
        conflict: &Conflict,
        signed: &Signed,
    ) -> Result<(), LogError> {
        let (detail, key) = (conflict.to_string(), &conflict.key);
        self.journal(key, JournalAction::Conflict, &detail, signed)
            .await
            .map(|_| ())
    }
}

fn overwrote(conflict: &Conflict) -> Told {
    Told::Overwrote {
        key: conflict.key.clone(),
        author: somebody(&conflict.overwritten.author),
        offset: conflict.overwritten.offset,
    }
}

fn overwritten(conflict: &Conflict) -> Told {
    Told::Overwritten {
        key: conflict.key.clone(),
        author: somebody(&conflict.author),
        offset: conflict.offset,
    }
}

fn somebody(author: &str) -> String {
    let known = Some(author).filter(|author| !author.is_empty());
    known.unwrap_or("somebody").to_owned()
}
