//! Which instances are stated to be gone.

use std::time::Duration;

use waypost_core::record::Evidence;
use waypost_core::time::millis;
use waypost_core::{NewRecord, Offset, PartitionId, RecordKind, Topic};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::room::{Permit, Room};
use super::statements::Written;
use super::{EndReport, Keeper, Logs, Role};
use crate::clock::{Mark, PartitionClock};
use crate::limits::{NEW_PARTITION_LAG, SAFETY_NET_TTLS, WRITES_PER_PARTITION_MAX};
use crate::partition_fold::Overdue;
use crate::records;

/// In which capacity an expire is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capacity {
    /// The keeper's: at the time-to-live.
    Keeper,
    /// Anybody's, for what the keeper does not hold: much later.
    SafetyNet,
}

/// What was looked at, so that nothing is looked at twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    /// The tick as of which each partition was.
    marks: Vec<Option<Mark>>,
}

/// An instance that may be stated to be gone.
struct Candidate {
    partition: PartitionId,
    overdue: Overdue,
    /// Everybody who has the same candidates takes them in this order.
    rank: u64,
}

impl Keeper {
    pub(super) fn push_statements(
        &mut self,
        now: Duration,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let keeper = self.role == Role::Ticking && self.is_keeper(logs);
        self.forget_written(logs);
        if !has_new_partition(logs) {
            let capacity = if keeper {
                Capacity::Keeper
            } else {
                Capacity::SafetyNet
            };
            self.push_expires(now, capacity, logs, due);
        }
        if keeper {
            for (partition, clock) in logs.announcements.clock().iter() {
                self.push_burials(partition, clock, logs, due);
                self.push_restatements(partition, clock, logs, due);
            }
        }
    }

    /// Expires of what is overdue, as of the last tick before the log said that its end was reached,
    /// as far as the cap allows. Each partition is looked at once a tick, and not at all while
    /// everything that is overdue is held.
    fn push_expires(
        &mut self,
        now: Duration,
        capacity: Capacity,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        if !has_reason_to_look(logs) {
            return;
        }
        let mut candidates = Vec::new();
        for (partition, clock) in logs.announcements.clock().iter() {
            let report = self.fresh_end(Topic::Announcements, partition, now);
            if let Some(report) = report.copied().filter(|r| self.is_new(partition, r)) {
                self.push_candidates(partition, clock, &report, capacity, logs, &mut candidates);
            }
        }
        candidates.sort_unstable_by(|a, b| {
            (a.rank, &a.overdue.key, a.partition).cmp(&(b.rank, &b.overdue.key, b.partition))
        });
        self.forget_pending(logs);
        let mut room = Room::new(*logs, self.pending.keys().map(|(_, key)| &key.cluster));
        let mut written_by_partition = vec![0_usize; self.looks.marks.len()];
        for candidate in candidates {
            let written = &mut written_by_partition[candidate.partition.0 as usize];
            if *written >= WRITES_PER_PARTITION_MAX {
                // There is more: the same look again.
                self.looks.marks[candidate.partition.0 as usize] = None;
                continue;
            }
            let permit = room.take(&candidate.overdue);
            if permit != Permit::Refused {
                *written += 1;
                self.push_expire(candidate, permit, logs, due);
            }
        }
    }

    fn push_expire(
        &mut self,
        candidate: Candidate,
        permit: Permit,
        logs: &Logs<'_>,
        due: &mut Vec<NewRecord>,
    ) {
        let Candidate {
            partition, overdue, ..
        } = candidate;
        let Some(clock) = logs.announcements.clock().find(partition) else {
            return;
        };
        let evidence = overdue.evidence;
        due.push(records::expire(
            &overdue.key,
            partition,
            overdue.life,
            evidence,
        ));
        let written = Written {
            evidence,
            at: clock.mark(),
            ttl_ms: overdue.ttl_ms,
        };
        if permit == Permit::Counted {
            let place = (partition, overdue.key.clone());
            self.pending.insert(place, written);
        }
        self.written
            .insert((partition, RecordKind::Expire, overdue.key), written);
    }

    /// What of a partition could be written if there were no cap.
    fn push_candidates(
        &mut self,
        partition: PartitionId,
        clock: &PartitionClock,
        report: &EndReport,
        capacity: Capacity,
        logs: &Logs<'_>,
        candidates: &mut Vec<Candidate>,
    ) {
        let followed_ms = self.followed_ms(partition, clock);
        let fold = logs.announcements;
        let ripe = fold.overdue(partition, report.mark).filter(|overdue| {
            let key = &overdue.key;
            !overdue.contested
                && followed_ms >= overdue.ttl_ms
                && overdue.age_ms >= self.waits_ms(overdue, capacity)
                && self.may_state(partition, overdue, clock)
                // The copies that nobody sees leave first: none of them is served after this one.
                && (overdue.loses || !fold.has_losing_copy(key))
        });
        candidates.extend(ripe.map(|overdue| Candidate {
            partition,
            rank: rank(&overdue),
            overdue,
        }));
        let index = partition.0 as usize;
        if self.looks.marks.len() <= index {
            self.looks.marks.resize(index + 1, None);
        }
        self.looks.marks[index] = Some(report.mark);
    }

    /// Whether the log has said where a partition ends after a tick that was not looked at yet.
    fn is_new(&self, partition: PartitionId, report: &EndReport) -> bool {
        let looked_at = self.looks.marks.get(partition.0 as usize);
        looked_at.is_none_or(|mark| *mark != Some(report.mark))
    }

    /// Whether the same was not stated within the time-to-live, nor the announcement itself.
    fn may_state(&self, partition: PartitionId, overdue: &Overdue, clock: &PartitionClock) -> bool {
        let before = self.find_written(partition, RecordKind::Expire, &overdue.key);
        let is_other = before.is_some_and(|written| written.evidence != overdue.evidence);
        let may = |kind| self.may_repeat(partition, kind, &overdue.key, clock, overdue.ttl_ms);
        (is_other || may(RecordKind::Expire)) && may(RecordKind::Announce)
    }

    /// What was read back, or became untrue, is not on its way any more. What got lost no longer
    /// than for a time-to-live.
    fn forget_pending(&mut self, logs: &Logs<'_>) {
        let fold = logs.announcements;
        self.pending.retain(|(partition, key), written| {
            let clock = fold.clock().find(*partition);
            clock.is_some_and(|clock| clock.age_ms(written.at) < written.ttl_ms)
                && fold.find_evidence(*partition, key) == Some(written.evidence)
        });
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

    /// Log time for which this Observer has itself followed a partition, at its end and without a
    /// gap, milliseconds.
    fn followed_ms(&self, partition: PartitionId, clock: &PartitionClock) -> i64 {
        self.followed_since.get(&partition).map_or(0, |since| {
            let since = (*since).max(clock.unbroken_since());
            clock.log_time().millis_since(since)
        })
    }
}

/// Whether a partition was added so lately that an instance may be announced in it and not have been
/// seen there yet: less than the longest time-to-live has passed in it, and more in another.
fn has_new_partition(logs: &Logs<'_>) -> bool {
    let clock = logs.announcements.clock();
    let first = clock.log_time_min();
    let times = clock.iter().map(|(_, clock)| clock.log_time());
    let last = times.max().unwrap_or(first);
    last.millis_since(first) > millis(NEW_PARTITION_LAG)
        && first.0 < millis(logs.announcements.ttl_max())
}

/// Whether anything is overdue that nothing holds, or that an operator may have released, or that is
/// a copy which nobody sees.
fn has_reason_to_look(logs: &Logs<'_>) -> bool {
    let fold = logs.announcements;
    let mut overdue = fold.overdue_clusters();
    fold.has_overdue_free()
        || fold.wrong_partitions().next().is_some()
        || overdue.any(|(cluster, _)| fold.has_released(cluster))
}

fn rank(overdue: &Overdue) -> u64 {
    let evidence = match overdue.evidence {
        Evidence::At(offset) => offset,
        Evidence::None => Offset::NONE,
    };
    xxh3_64_with_seed(&overdue.key.to_record_key(), evidence.0.cast_unsigned())
}
