//! Which instances are stated to be gone, and which withdrawals are written again.

use std::time::Duration;

use waypost_core::record::Evidence;
use waypost_core::{InstanceKey, NewRecord, PartitionId, RecordKind, Topic};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{EndReport, Keeper, Logs, Role};
use crate::clock::{Mark, PartitionClock};
use crate::limits::{SAFETY_NET_TTLS, WRITES_PER_PARTITION_MAX};
use crate::partition_fold::Overdue;
use crate::records;

/// A statement about a key that was written, so that it is not repeated too soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    evidence: Evidence,
    at: Mark,
    ttl_ms: i64,
}

/// In which capacity an expire is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capacity {
    /// The keeper's: at the time-to-live.
    Keeper,
    /// Anybody's, for what the keeper does not hold: much later.
    SafetyNet,
}

impl Keeper {
    pub(super) fn push_expires_and_burials(
        &mut self,
        now: Duration,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let keeper = self.role == Role::Ticking && self.is_keeper(logs);
        let capacity = if keeper {
            Capacity::Keeper
        } else {
            Capacity::SafetyNet
        };
        self.forget_written(logs);
        for (partition, clock) in logs.announcements.clock().iter() {
            let report = self.fresh_end(Topic::Announcements, partition, now);
            let Some(report) = report.copied() else {
                continue;
            };
            self.push_expires(partition, clock, &report, capacity, logs, due);
            if keeper {
                self.push_burials(partition, clock, logs, due);
            }
        }
    }

    /// What is overdue, as of the last tick before the log said that its end was reached.
    fn push_expires(
        &mut self,
        partition: PartitionId,
        clock: &PartitionClock,
        report: &EndReport,
        capacity: Capacity,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let followed_ms = self.followed_ms(partition, clock);
        let candidates = logs.announcements.overdue(partition, report.mark);
        let candidates: Vec<_> = candidates
            .filter(|overdue| !overdue.contested && followed_ms >= overdue.ttl_ms)
            .filter(|overdue| overdue.age_ms >= self.waits_ms(overdue, capacity))
            .filter(|overdue| {
                let before = self.find_written(partition, RecordKind::Expire, &overdue.key);
                before.is_none_or(|written| {
                    written.evidence != overdue.evidence
                        || clock.age_ms(written.at) >= overdue.ttl_ms
                })
            })
            .take(WRITES_PER_PARTITION_MAX)
            .collect();
        for overdue in candidates {
            due.push(records::expire(
                &overdue.key,
                partition,
                overdue.life,
                overdue.evidence,
            ));
            let written = Written {
                evidence: overdue.evidence,
                at: clock.mark(),
                ttl_ms: overdue.ttl_ms,
            };
            self.written
                .insert((partition, RecordKind::Expire, overdue.key), written);
        }
    }

    /// At most one burial per key and time-to-live, whatever its evidence.
    fn push_burials(
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
                let before = self.find_written(partition, RecordKind::Withdraw, &burial.key);
                before.is_none_or(|written| clock.age_ms(written.at) >= burial.ttl_ms)
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

    /// The age at which an expire is written.
    fn waits_ms(&self, overdue: &Overdue, capacity: Capacity) -> i64 {
        let ttls = match (overdue.evidence, capacity) {
            (Evidence::None, _) => 1,
            (Evidence::At(_), Capacity::Keeper) => return overdue.ttl_ms,
            (Evidence::At(_), Capacity::SafetyNet) => i64::from(SAFETY_NET_TTLS) + 1,
        };
        let hash = xxh3_64_with_seed(&overdue.key.to_record_key(), self.id.0);
        let jitter = i64::try_from(hash % 1000).unwrap_or(0);
        overdue.ttl_ms.saturating_mul(ttls) + overdue.ttl_ms.saturating_mul(jitter) / 1000
    }

    fn find_written(
        &self,
        partition: PartitionId,
        kind: RecordKind,
        key: &InstanceKey,
    ) -> Option<&Written> {
        self.written.get(&(partition, kind, key.clone()))
    }

    /// What may be repeated need not be remembered.
    fn forget_written(&mut self, logs: &Logs<'_>) {
        let clocks = logs.announcements.clock();
        self.written.retain(|(partition, _, _), written| {
            let clock = clocks.find(*partition);
            clock.is_some_and(|clock| clock.age_ms(written.at) < written.ttl_ms)
        });
    }

    /// Log time for which this Observer has itself followed a partition, at its end and without a
    /// gap, milliseconds.
    fn followed_ms(&self, partition: PartitionId, clock: &PartitionClock) -> i64 {
        self.followed_since.get(&partition).map_or(0, |since| {
            let since = (*since).max(clock.unbroken_since());
            clock.log_time().millis_since(since)
        })
    }
}
