//! Questions that only the ingest task can answer, since it alone holds the folds.

use std::collections::VecDeque;
use std::fmt;

use tokio::sync::{mpsc, oneshot};
use waypost_core::record::{KeeperId, LogIdentity};
use waypost_core::{ConfigKey, InstanceKey, LogTime, Offset, PartitionId, Timestamp, Topic};
use waypost_fold::{HoldingView, InstanceView, RejectReason, Replica, Role};

use super::Ingest;
use super::digests::DigestQuestion;
use crate::limits::{ORPHANS_LISTED_MAX, QUESTION_TIMEOUT, REFUSED_DEFINITIONS_MAX};

/// The way to ask the ingest task; clones share it.
#[derive(Clone, Debug)]
pub struct Questions(mpsc::Sender<Question>);

/// The ingest task has ended or did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task that reads the log does not answer; try again, or look at the process's log")]
pub struct IngestGone;

#[derive(Debug)]
pub(super) enum Question {
    Log(oneshot::Sender<LogView>),
    Instances(Vec<InstanceKey>, oneshot::Sender<Vec<Option<InstanceView>>>),
    Digests(DigestQuestion),
    Look(Look),
}

/// Something to be read off the replica, and told to whoever asked.
pub(super) struct Look(Box<dyn FnOnce(&Replica) + Send>);

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

/// The log as this Observer has read it.
#[derive(Clone, Debug)]
pub struct LogView {
    /// Whether everything that existed at start was read.
    pub is_loaded: bool,
    /// Which log the announcements topic is of.
    pub identity: Option<LogIdentity>,
    /// Every partition of every topic, in order.
    pub partitions: Vec<PartitionFacts>,
    /// What this Observer is to the log's time.
    pub role: Role,
    /// Its own id as a keeper.
    pub own_id: KeeperId,
    /// Whose tick was read last in partition 0.
    pub current_keeper: Option<KeeperId>,
    /// Why the log cannot be read now.
    pub away: Option<String>,
    /// When the log took the youngest record read.
    pub last_append: Option<Timestamp>,
    /// Records of the config topic that were skipped, the last few.
    pub refused_definitions: Vec<RefusedRecord>,
    /// Topics that are read again while what was known is served.
    pub replaying: Vec<Topic>,
    /// Whose mass expiry is held.
    pub holding: HoldingView,
    /// Instances that no log that is there confirms.
    pub unconfirmed: usize,
    /// What the config topic no longer holds, the first so many.
    pub orphans: Vec<ConfigKey>,
    /// How many there are.
    pub orphan_count: usize,
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug)]
pub struct PartitionFacts {
    /// Which topic.
    pub topic: Topic,
    /// Which partition.
    pub partition: PartitionId,
    /// The offset of the next record to be read.
    pub position: Offset,
    /// Where it ends, as the log said last.
    pub end: Option<Offset>,
    /// Its age as the ticks count it; `None` before the first.
    pub log_time: Option<LogTime>,
    /// Digest of its state (announcements only).
    pub digest: Option<u64>,
}

/// A record that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Where it stands.
    pub partition: PartitionId,
    /// Where it stands.
    pub offset: Offset,
    /// Why.
    pub reason: String,
}

/// The last few records of the config topic that were skipped.
#[derive(Debug, Default)]
pub(super) struct RefusedDefinitions(VecDeque<RefusedRecord>);

impl RefusedDefinitions {
    pub(super) fn remember(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        reason: &RejectReason,
    ) {
        if self.0.len() == REFUSED_DEFINITIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(RefusedRecord {
            partition,
            offset,
            reason: reason.to_string(),
        });
    }
}

impl Questions {
    pub(super) fn new(questions_tx: mpsc::Sender<Question>) -> Self {
        Self(questions_tx)
    }

    /// The log as it was read.
    ///
    /// # Errors
    /// The ingest task has ended or is busy.
    pub async fn log(&self) -> Result<LogView, IngestGone> {
        self.ask(Question::Log).await
    }

    /// What the log says of these instances, in their order.
    ///
    /// # Errors
    /// The ingest task has ended or is busy.
    pub async fn instances(
        &self,
        keys: Vec<InstanceKey>,
    ) -> Result<Vec<Option<InstanceView>>, IngestGone> {
        self.ask(|reply_tx| Question::Instances(keys, reply_tx))
            .await
    }

    /// What `look` reads off the replica. It runs on the ingest task, so it must be quick.
    ///
    /// # Errors
    /// The ingest task has ended or is busy.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, IngestGone> {
        self.ask(|reply_tx| {
            Question::Look(Look(Box::new(move |replica| {
                // An asker that has gone is no error.
                let _ = reply_tx.send(look(replica));
            })))
        })
        .await
    }

    pub(super) async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, IngestGone> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let asked = async {
            self.0.send(question(reply_tx)).await.ok()?;
            reply_rx.await.ok()
        };
        match tokio::time::timeout(QUESTION_TIMEOUT, asked).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => Err(IngestGone),
        }
    }
}

impl Ingest {
    /// An asker that has gone is no error.
    pub(super) fn answer(&self, question: Question) {
        match question {
            Question::Log(reply_tx) => {
                let _ = reply_tx.send(self.log_view());
            }
            Question::Instances(keys, reply_tx) => {
                let found = keys
                    .iter()
                    .map(|key| self.replica.logs().announcements.find(key));
                let _ = reply_tx.send(found.collect());
            }
            Question::Look(Look(look)) => look(&self.replica),
            Question::Digests(question) => self.answer_digests(question),
        }
    }

    fn log_view(&self) -> LogView {
        let announcements = self.replica.logs().announcements.clock();
        let first = announcements.find(PartitionId(0));
        let partitions = Topic::ALL.into_iter().flat_map(|topic| {
            let clocks = self.replica.reading(topic).iter();
            clocks.map(move |(partition, clock)| PartitionFacts {
                topic,
                partition,
                position: clock.position(),
                end: self.freshness.end(topic, partition),
                log_time: clock.last_tick().map(|_| clock.log_time()),
                digest: self.digest(topic, partition),
            })
        });
        let logs = self.replica.logs();
        let orphans = logs.config.orphans().map(|(key, _)| key.clone());
        LogView {
            is_loaded: self.replica.loading().is_loaded(),
            identity: announcements.identity(),
            partitions: partitions.collect(),
            role: self.replica.keeper().role(),
            own_id: self.replica.keeper().id(),
            current_keeper: first
                .and_then(waypost_fold::clock::PartitionClock::last_tick)
                .map(|tick| tick.keeper),
            away: self.freshness.away(),
            last_append: announcements
                .iter()
                .filter_map(|(_, clock)| clock.last_append())
                .max(),
            refused_definitions: self.refused_definitions.0.iter().cloned().collect(),
            replaying: self.replica.replaying().collect(),
            holding: logs.announcements.holding(),
            unconfirmed: logs.announcements.unconfirmed_count(),
            orphans: orphans.take(ORPHANS_LISTED_MAX).collect(),
            orphan_count: logs.config.orphans().count(),
        }
    }

    fn digest(&self, topic: Topic, partition: PartitionId) -> Option<u64> {
        if topic != Topic::Announcements {
            return None;
        }
        let view = self.replica.logs().announcements.find_partition(partition);
        view.map(|view| view.digest)
    }
}
