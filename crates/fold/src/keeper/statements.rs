//! What is written about single keys, and again only after a while: withdrawals that are buried, and
//! standing announcements of held instances (docs/announcement-log.md, "Compaction").

use waypost_core::record::Evidence;
use waypost_core::{InstanceKey, NewRecord, PartitionId, RecordKind};

use super::{Keeper, Logs};
use crate::clock::{Mark, PartitionClock};
use crate::limits::{RESTATED_AFTER_TTLS, WRITES_PER_PARTITION_MAX};
use crate::records;

/// A statement about a key that was written, so that it is not repeated too soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) evidence: Evidence,
    pub(super) at: Mark,
    pub(super) ttl_ms: i64,
}

impl Keeper {
    /// At most one burial per key and time-to-live, whatever its evidence.
    pub(super) fn push_burials(
        &mut self,
        partition: PartitionId,
        clock: &PartitionClock,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let burials: Vec<_> = logs
            .announcements
            .burials_due(partition)
            .filter(|burial| {
                self.may_repeat(
                    partition,
                    RecordKind::Withdraw,
                    &burial.key,
                    clock,
                    burial.ttl_ms,
                )
            })
            .take(WRITES_PER_PARTITION_MAX)
            .collect();
        for burial in burials {
            due.push(records::burial(
                &burial.key,
                partition,
                burial.life,
                burial.refused,
            ));
            let written = Written {
                evidence: Evidence::At(burial.refused),
                at: clock.mark(),
                ttl_ms: burial.ttl_ms,
            };
            self.written
                .insert((partition, RecordKind::Withdraw, burial.key), written);
        }
    }

    /// The standing announcements of instances that are held, or overdue for long for another reason,
    /// where compaction would keep another record. At most one per key and time-to-live.
    pub(super) fn push_restatements(
        &mut self,
        partition: PartitionId,
        clock: &PartitionClock,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let fold = logs.announcements;
        let restatements: Vec<_> = fold
            .restatements_due(partition)
            .filter(|restatement| {
                let ttl_ms = restatement.ttl_ms;
                fold.holds(&restatement.key.cluster, restatement.announced)
                    || restatement.age_ms >= ttl_ms.saturating_mul(RESTATED_AFTER_TTLS)
            })
            .filter(|restatement| {
                self.may_repeat(
                    partition,
                    RecordKind::Announce,
                    &restatement.key,
                    clock,
                    restatement.ttl_ms,
                )
            })
            .take(WRITES_PER_PARTITION_MAX)
            .collect();
        for restatement in restatements {
            due.push(records::restatement(
                &restatement.key,
                partition,
                restatement.life,
                restatement.value,
                restatement.offset,
            ));
            let written = Written {
                evidence: Evidence::At(restatement.offset),
                at: clock.mark(),
                ttl_ms: restatement.ttl_ms,
            };
            self.written
                .insert((partition, RecordKind::Announce, restatement.key), written);
        }
    }

    /// Whether no statement of this kind was written about the key within its time-to-live.
    pub(super) fn may_repeat(
        &self,
        partition: PartitionId,
        kind: RecordKind,
        key: &InstanceKey,
        clock: &PartitionClock,
        ttl_ms: i64,
    ) -> bool {
        let before = self.find_written(partition, kind, key);
        before.is_none_or(|written| clock.age_ms(written.at) >= ttl_ms)
    }

    pub(super) fn find_written(
        &self,
        partition: PartitionId,
        kind: RecordKind,
        key: &InstanceKey,
    ) -> Option<&Written> {
        self.written.get(&(partition, kind, key.clone()))
    }

    /// What may be repeated need not be remembered.
    pub(super) fn forget_written(&mut self, logs: &Logs<'_>) {
        let clocks = logs.announcements.clock();
        self.written.retain(|(partition, _, _), written| {
            let clock = clocks.find(*partition);
            clock.is_some_and(|clock| clock.age_ms(written.at) < written.ttl_ms)
        });
    }
}
