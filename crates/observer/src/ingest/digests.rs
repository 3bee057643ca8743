//! What the ingest task answers about digests: all of one answer is of one moment.

use tokio::sync::oneshot;
use waypost_core::record::LogIdentity;
use waypost_core::{Offset, PartitionId};
use waypost_fold::BucketPage;

use super::question::Question;
use super::{Ingest, IngestGone, Questions};

/// The digests of every partition at its last ticks.
#[derive(Clone, Debug)]
pub struct DigestsView {
    /// Whether everything that existed at start was read.
    pub is_loaded: bool,
    /// Which log they are of.
    pub identity: Option<LogIdentity>,
    /// Partitions in order.
    pub partitions: Vec<PartitionTicks>,
}

/// One partition.
#[derive(Clone, Debug)]
pub struct PartitionTicks {
    /// Which one.
    pub partition: PartitionId,
    /// The offset of the next record to be read.
    pub position: Offset,
    /// Offset of each of the last ticks and the digest after it; oldest first.
    pub ticks: Vec<(Offset, u64)>,
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug)]
pub struct BucketAsked {
    /// Of which partition.
    pub partition: PartitionId,
    /// In which bucket.
    pub bucket: usize,
    /// Those with a hash above this.
    pub after: Option<u64>,
    /// About how many at most.
    pub keys_max: usize,
}

/// A question about digests, and where its answer goes.
#[derive(Debug)]
pub(super) enum DigestQuestion {
    All(oneshot::Sender<DigestsView>),
    Buckets(PartitionId, Offset, oneshot::Sender<Option<Vec<u64>>>),
    Keys(BucketAsked, oneshot::Sender<Option<BucketPage>>),
}

impl Questions {
    /// The digests of every partition at its last ticks.
    ///
    /// # Errors
    /// The ingest task has ended or is busy.
    pub async fn digests(&self) -> Result<DigestsView, IngestGone> {
        self.ask(|reply_tx| Question::Digests(DigestQuestion::All(reply_tx)))
            .await
    }

    /// The digests of a partition's buckets after the tick at `offset`; `None` if that tick is not
    /// remembered.
    ///
    /// # Errors
    /// The ingest task has ended or is busy.
    pub async fn bucket_digests(
        &self,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Option<Vec<u64>>, IngestGone> {
        let question =
            |reply_tx| Question::Digests(DigestQuestion::Buckets(partition, offset, reply_tx));
        self.ask(question).await
    }

    /// Keys of one bucket as they are now; `None` if there is no such partition.
    ///
    /// # Errors
    /// The ingest task has ended or is busy.
    pub async fn bucket_keys(&self, asked: BucketAsked) -> Result<Option<BucketPage>, IngestGone> {
        self.ask(|reply_tx| Question::Digests(DigestQuestion::Keys(asked, reply_tx)))
            .await
    }
}

impl Ingest {
    /// An asker that has gone is no error.
    pub(super) fn answer_digests(&self, question: DigestQuestion) {
        let fold = self.replica.logs().announcements;
        match question {
            DigestQuestion::All(reply_tx) => {
                let _ = reply_tx.send(self.digests_view());
            }
            DigestQuestion::Buckets(partition, offset, reply_tx) => {
                let digests = fold.find_digests(partition);
                let found = digests.and_then(|digests| digests.find_at_tick(offset));
                let _ = reply_tx.send(found.map(|buckets| buckets.to_vec()));
            }
            DigestQuestion::Keys(asked, reply_tx) => {
                let BucketAsked {
                    partition,
                    bucket,
                    after,
                    keys_max,
                } = asked;
                let _ = reply_tx.send(fold.find_bucket(partition, bucket, after, keys_max));
            }
        }
    }

    fn digests_view(&self) -> DigestsView {
        let fold = self.replica.logs().announcements;
        let partitions = fold.clock().iter().map(|(partition, clock)| {
            let digests = fold.find_digests(partition);
            PartitionTicks {
                partition,
                position: clock.position(),
                ticks: digests.map_or_else(Vec::new, |digests| digests.at_ticks().collect()),
            }
        });
        DigestsView {
            is_loaded: self.replica.loading().is_loaded(),
            identity: fold.clock().identity(),
            partitions: partitions.collect(),
        }
    }
}
