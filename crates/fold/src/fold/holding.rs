//! What of the fold concerns many instances at once: how many there are, which copies stand, and
//! what is held (docs/announcement-log.md, "Cap and holding").

use std::time::Duration;

use waypost_core::record::Evidence;
use waypost_core::{ClusterName, InstanceKey, LogTime, PartitionId, ReleaseScope, Timestamp};

use super::Fold;
use crate::cap::{Census, Expiry, Holding, Lapse, Moment};
use crate::census::Change;
use crate::clock::PartitionClock;
use crate::copies;
use crate::event::{FoldEvent, GoneCause};
use crate::key_state::{KeyState, Live};
use crate::partition_fold::RestatementDue;

/// Everything that holds at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldingView {
    /// The fleet, if it does: then nothing of it expires.
    pub fleet: Option<Holding>,
    /// Clusters that do, by name, whether or not the fleet does.
    pub clusters: Vec<(ClusterName, Holding)>,
}

impl HoldingView {
    /// Whether nothing holds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fleet.is_none() && self.clusters.is_empty()
    }
}

impl Fold {
    /// What holds: expires that the keeper would write are not written, because too many instances
    /// fell silent at once.
    #[must_use]
    pub fn holding(&self) -> HoldingView {
        let log_time = |partition| self.log_time(partition);
        let clusters = self.censuses.uneasy();
        let clusters =
            clusters.filter_map(|(name, scope)| Some((name.clone(), scope.view(log_time)?)));
        let mut clusters: Vec<_> = clusters.collect();
        clusters.sort_by(|(a, _), (b, _)| a.cmp(b));
        HoldingView {
            fleet: self.censuses.fleet().view(log_time),
            clusters,
        }
    }

    /// Whether a cluster holds by itself. The fleet may hold all the same.
    #[must_use]
    pub fn find_holding(&self, cluster: &ClusterName) -> Option<Holding> {
        let scope = self.censuses.find(cluster)?;
        scope.view(|partition| self.log_time(partition))
    }

    /// The instances of a cluster in numbers; nothing but zeros for a cluster without.
    #[must_use]
    pub fn find_census(&self, cluster: &ClusterName) -> Census {
        let scope = self.censuses.find(cluster);
        scope.map_or_else(Census::default, |scope| scope.census)
    }

    /// The instances of the fleet in numbers.
    #[must_use]
    pub fn fleet_census(&self) -> Census {
        self.censuses.fleet().census
    }

    /// Clusters with overdue instances, in no order.
    pub fn overdue_clusters(&self) -> impl Iterator<Item = (&ClusterName, Census)> {
        let scopes = self.censuses.uneasy();
        let scopes = scopes.map(|(name, scope)| (name, scope.census));
        scopes.filter(|(_, census)| census.overdue > 0)
    }

    /// An operator released what is held: instances whose last announcement the log took at
    /// `released_at` or before are not held, and what expires of them does not count.
    pub fn release(&mut self, scope: &ReleaseScope, released_at: Timestamp) {
        let at = self.moment(PartitionId(0));
        self.censuses.release(scope, released_at, at);
    }

    /// The reader stands at the end of every partition, and has not done so for a while, or never:
    /// how much of what is overdue may go was others' business until now. If that is as much as the
    /// cap, it takes it for held.
    pub(crate) fn follow_from_here(&mut self) {
        let positions = self.clock.iter().map(|(id, clock)| (id, clock.position()));
        let positions: Vec<_> = positions.collect();
        for (partition, position) in positions {
            if let Some(fold) = self.partitions.get_mut(partition.0 as usize) {
                fold.follow_from(position);
            }
            // Nothing of this is served differently.
            self.settle(partition, &mut Vec::new());
        }
    }

    /// How many more of a cluster may expire now; `None` if it is not capped.
    #[must_use]
    pub fn cluster_room(&self, cluster: &ClusterName) -> Option<u32> {
        self.censuses.cluster_room(cluster)
    }

    /// How many more of the fleet may expire now; `None` if it is not capped.
    #[must_use]
    pub fn fleet_room(&self) -> Option<u32> {
        self.censuses.fleet_room()
    }

    /// Whether an instance is overdue that nothing holds.
    #[must_use]
    pub fn has_overdue_free(&self) -> bool {
        self.censuses.has_overdue_free()
    }

    /// Whether an overdue instance of the cluster, announced last at that time, is held.
    #[must_use]
    pub fn holds(&self, cluster: &ClusterName, announced: Timestamp) -> bool {
        self.censuses.holds(cluster, announced)
    }

    /// Whether an operator has released instances of the cluster, or of all.
    #[must_use]
    pub(crate) fn has_released(&self, cluster: &ClusterName) -> bool {
        self.censuses.has_released(cluster)
    }

    /// The longest time-to-live in force.
    pub(crate) fn ttl_max(&self) -> Duration {
        self.settings.ttl_max
    }

    /// What an expire of a live key in a partition must name now.
    pub(crate) fn find_evidence(
        &self,
        partition: PartitionId,
        key: &InstanceKey,
    ) -> Option<Evidence> {
        let fold = self.partitions.get(partition.0 as usize)?;
        fold.find_evidence(key)
    }

    /// Whether live copies of the key stand in other partitions than the one that is served.
    #[must_use]
    pub fn has_losing_copy(&self, key: &InstanceKey) -> bool {
        copies::have_loser(&self.partitions, key)
    }

    /// Standing announcements of a partition that must be written again, since compaction would
    /// otherwise keep another record of their key, and no heartbeat follows.
    pub fn restatements_due(&self, partition: PartitionId) -> impl Iterator<Item = RestatementDue> {
        let pair = self.pair(partition).into_iter();
        pair.flat_map(|(fold, clock)| fold.restatements_due(clock))
    }

    /// What is past its time-to-live, is it about to leave?
    pub(super) fn expiry_of(&self, state: &KeyState, live: &Live) -> Expiry {
        if live.lapse == Lapse::None {
            return Expiry::Alive;
        }
        if self.holds(&state.key.cluster, live.last().append_time) {
            Expiry::Held
        } else {
            Expiry::Due
        }
    }

    /// Expires that are older than the window count no more.
    pub(super) fn count_tick(&mut self, partition: PartitionId) {
        let at = self.moment(partition);
        if let Some(clock) = self.clock.find(partition) {
            self.censuses.on_tick(clock, at);
        }
    }

    /// Takes in what happened to the keys of a partition: counts it, and finds out which of their
    /// copies stand now.
    pub(crate) fn settle(&mut self, partition: PartitionId, events: &mut Vec<FoldEvent>) {
        let Some(fold) = self.partitions.get_mut(partition.0 as usize) else {
            return;
        };
        let changes = fold.take_changes();
        let mut doubtful: Vec<_> = fold.barring().cloned().collect();
        let at = self.moment(partition);
        for (key, change) in changes {
            self.count(&key, change, at);
            let is_copied = change == Change::CopyLeft || copies::exist(&self.partitions, &key);
            if is_copied && doubtful.last() != Some(&key) {
                doubtful.push(key);
            }
        }
        for key in doubtful {
            if self.settle_copy(&key, at)
                && let Some((_, standing)) = copies::find_standing(&self.partitions, &key)
            {
                events.push(copies::event_of(standing, key, GoneCause::Withdrawn));
            }
        }
    }

    /// Finds out which copies of these keys stand, where that is no news to anybody.
    pub(super) fn settle_copies(&mut self, keys: &[InstanceKey]) {
        let at = self.moment(PartitionId(0));
        for key in keys {
            self.settle_copy(key, at);
        }
    }

    /// Whether another copy of the key stands now.
    fn settle_copy(&mut self, key: &InstanceKey, at: Moment) -> bool {
        let changes = copies::settle(&mut self.partitions, &self.clock, key);
        for change in &changes {
            self.count(key, *change, at);
        }
        !changes.is_empty()
    }

    fn count(&mut self, key: &InstanceKey, change: Change, at: Moment) {
        let clock = self.clock.find(at.partition);
        let mark = clock.map(PartitionClock::mark).unwrap_or_default();
        self.censuses.apply(key, change, at, mark);
    }

    fn moment(&self, partition: PartitionId) -> Moment {
        let clock = self.clock.find(partition);
        Moment {
            partition,
            append_time: clock
                .and_then(PartitionClock::last_append)
                .unwrap_or(Timestamp(0)),
            log_time: clock.map(PartitionClock::log_time).unwrap_or_default(),
        }
    }

    fn log_time(&self, partition: PartitionId) -> LogTime {
        let clock = self.clock.find(partition);
        clock.map(PartitionClock::log_time).unwrap_or_default()
    }
}
