//! How many instances of each cluster are live, overdue and lately expired, and what therefore holds.
//! Kept up to date change by change, so that it costs nothing per heartbeat and nothing per tick.

use std::collections::{HashMap, HashSet, VecDeque};

use waypost_core::time::millis;
use waypost_core::{ClusterName, InstanceKey, PartitionId, ReleaseScope, Timestamp};

use crate::cap::{CapSettings, Lapse, Moment, Scope};
use crate::clock::{Mark, PartitionClock};
use crate::limits::EXPIRES_REMEMBERED;

/// What happened to the copy of a key that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is live.
    Arrived,
    /// It is not live any more.
    Left(Lapse),
    /// It leaves by an expire, having been announced last at that time. Comes before [`Self::Left`].
    Expired(Timestamp),
    /// It is overdue.
    FellSilent(Lapse),
    /// It was overdue and was announced again.
    Spoke(Lapse),
    /// It is overdue, and this reader has not seen all that was done about it.
    Missed,
    /// Nothing that counts; which copy of the key stands may be another one.
    Reordered,
    /// A copy in a partition that is not the key's own was forgotten. Nothing that counts.
    CopyLeft,
}

/// All scopes.
#[derive(Clone, Debug)]
pub(crate) struct Censuses {
    settings: CapSettings,
    fleet: Scope,
    by_cluster: HashMap<ClusterName, Scope>,
    /// Clusters with overdue instances, and those that hold.
    uneasy: HashSet<ClusterName>,
    /// Overdue instances of clusters that do not hold.
    overdue_free: u32,
    /// Expires that still count, oldest first, by partition.
    lately: Vec<VecDeque<Expired>>,
    released: Released,
}

#[derive(Clone, Debug)]
struct Expired {
    cluster: ClusterName,
    /// Append time of the announcement that nothing followed.
    announced: Timestamp,
    at: Mark,
}

/// What operators have let go: whose last announcement is not younger than that.
#[derive(Clone, Debug, Default)]
struct Released {
    all: Option<Timestamp>,
    by_cluster: HashMap<ClusterName, Timestamp>,
}

impl Censuses {
    pub(crate) fn new(settings: CapSettings) -> Self {
        Self {
            settings,
            fleet: Scope::default(),
            by_cluster: HashMap::new(),
            uneasy: HashSet::new(),
            overdue_free: 0,
            lately: Vec::new(),
            released: Released::default(),
        }
    }

    pub(crate) fn fleet(&self) -> &Scope {
        &self.fleet
    }

    pub(crate) fn find(&self, cluster: &ClusterName) -> Option<&Scope> {
        self.by_cluster.get(cluster)
    }

    /// Clusters with overdue instances, and those that hold.
    pub(crate) fn uneasy(&self) -> impl Iterator<Item = (&ClusterName, &Scope)> {
        let scopes = self.uneasy.iter();
        scopes.filter_map(|name| self.by_cluster.get_key_value(name))
    }

    /// Whether an overdue instance is held, rather than about to leave. `announced` is the append
    /// time of its last announcement.
    pub(crate) fn holds(&self, cluster: &ClusterName, announced: Timestamp) -> bool {
        let scope = self.by_cluster.get(cluster);
        let is_held = self.fleet.is_holding() || scope.is_some_and(Scope::is_holding);
        is_held && !self.released.has(cluster, announced)
    }

    /// Whether an instance is overdue that nothing holds.
    pub(crate) fn has_overdue_free(&self) -> bool {
        !self.fleet.is_holding() && self.overdue_free > 0
    }

    /// Whether an operator has released instances of the cluster, or of all.
    pub(crate) fn has_released(&self, cluster: &ClusterName) -> bool {
        self.released.find(cluster).is_some()
    }

    /// How many more of a cluster may expire; `None` if it is not capped.
    pub(crate) fn cluster_room(&self, cluster: &ClusterName) -> Option<u32> {
        let scope = self.by_cluster.get(cluster)?;
        scope.room(self.settings.cluster, scope.census.expired_lately)
    }

    /// How many more of the fleet may expire; `None` if it is not capped.
    pub(crate) fn fleet_room(&self) -> Option<u32> {
        self.fleet
            .room(self.settings.fleet, self.fleet.census.expired_lately)
    }

    /// A change of one key's standing copy.
    pub(crate) fn apply(&mut self, key: &InstanceKey, change: Change, at: Moment, mark: Mark) {
        match change {
            Change::Reordered | Change::CopyLeft => return,
            Change::Expired(announced) => {
                self.remember(&key.cluster, announced, at.partition, mark);
            }
            Change::Arrived
            | Change::Left(_)
            | Change::FellSilent(_)
            | Change::Spoke(_)
            | Change::Missed => {}
        }
        let count = |scope: &mut Scope| match change {
            Change::Arrived => scope.census.live += 1,
            Change::Left(lapse) => {
                scope.census.live = scope.census.live.saturating_sub(1);
                if lapse != Lapse::None {
                    scope.spoke(lapse);
                }
            }
            Change::FellSilent(lapse) => scope.fell_silent(lapse),
            Change::Spoke(lapse) => scope.spoke(lapse),
            Change::Missed => scope.was_missed(),
            Change::Expired(_) | Change::Reordered | Change::CopyLeft => {}
        };
        self.change(&key.cluster, at, count);
    }

    /// A tick was read: expires of that partition that are older than the window count no more.
    pub(crate) fn on_tick(&mut self, clock: &PartitionClock, at: Moment) {
        let window_ms = millis(self.settings.window);
        loop {
            let lately = self.lately.get_mut(at.partition.0 as usize);
            let is_over = |expired: &mut Expired| clock.age_ms(expired.at) >= window_ms;
            let Some(expired) = lately.and_then(|lately| lately.pop_front_if(is_over)) else {
                break;
            };
            self.forget(&expired, at);
        }
    }

    /// An operator lets go whose last announcement was taken at `released_at` or before. What
    /// expired of them does not count.
    pub(crate) fn release(&mut self, scope: &ReleaseScope, released_at: Timestamp, at: Moment) {
        if !self.released.add(scope, released_at) {
            return;
        }
        let mut forgotten = Vec::new();
        for lately in &mut self.lately {
            lately.retain(|expired| {
                let is_released = self.released.has(&expired.cluster, expired.announced);
                if is_released {
                    forgotten.push(expired.clone());
                }
                !is_released
            });
        }
        for expired in forgotten {
            self.forget(&expired, at);
        }
    }

    fn remember(
        &mut self,
        cluster: &ClusterName,
        announced: Timestamp,
        partition: PartitionId,
        at: Mark,
    ) {
        if self.released.has(cluster, announced) {
            return;
        }
        let index = partition.0 as usize;
        if self.lately.len() <= index {
            self.lately.resize_with(index + 1, VecDeque::new);
        }
        if self.lately[index].len() < EXPIRES_REMEMBERED {
            self.lately[index].push_back(Expired {
                cluster: cluster.clone(),
                announced,
                at,
            });
            let scope = self.by_cluster.entry(cluster.clone()).or_default();
            scope.census.expired_lately += 1;
            self.fleet.census.expired_lately += 1;
        }
    }

    fn forget(&mut self, expired: &Expired, at: Moment) {
        self.change(&expired.cluster, at, |scope| {
            let lately = &mut scope.census.expired_lately;
            *lately = lately.saturating_sub(1);
        });
    }

    /// Changes the counts of a cluster and of the fleet, and finds out whether they hold.
    fn change(&mut self, cluster: &ClusterName, at: Moment, count: impl Fn(&mut Scope)) {
        count(&mut self.fleet);
        self.fleet.settle(self.settings.fleet, at);
        let scope = match self.by_cluster.get_mut(cluster) {
            Some(scope) => scope,
            None => self.by_cluster.entry(cluster.clone()).or_default(),
        };
        self.overdue_free -= scope.overdue_free();
        count(scope);
        scope.settle(self.settings.cluster, at);
        self.overdue_free += scope.overdue_free();
        let (is_uneasy, is_empty) = (
            scope.census.overdue > 0 || scope.is_holding(),
            scope.is_empty(),
        );
        if is_uneasy {
            if !self.uneasy.contains(cluster) {
                self.uneasy.insert(cluster.clone());
            }
        } else if !self.uneasy.is_empty() {
            self.uneasy.remove(cluster);
        }
        if is_empty {
            self.by_cluster.remove(cluster);
        }
    }
}

impl Released {
    /// Whether this lets anything go that was not yet.
    fn add(&mut self, scope: &ReleaseScope, at: Timestamp) -> bool {
        let before = match scope {
            ReleaseScope::All => self.all.replace(at),
            ReleaseScope::Cluster(name) => self.by_cluster.insert(name.clone(), at),
        };
        before != Some(at)
    }

    fn find(&self, cluster: &ClusterName) -> Option<Timestamp> {
        self.all.max(self.by_cluster.get(cluster).copied())
    }

    fn has(&self, cluster: &ClusterName, announced: Timestamp) -> bool {
        self.find(cluster).is_some_and(|at| announced <= at)
    }
}
