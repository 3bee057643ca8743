//! How many more instances may expire now (docs/announcement-log.md, "Cap and holding"): what the
//! fold says, less what this Observer has written and not read back yet.

use std::collections::HashMap;

use waypost_core::{ClusterName, Timestamp};

use super::Logs;
use crate::partition_fold::Overdue;

/// Why an expire may be written, or that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    /// The cap allows it, and it counts.
    Counted,
    /// An operator let it go, or another copy of the key is served: it does not count.
    Free,
    /// It is held, or the window is full.
    Refused,
}

/// The room of one look at what is overdue.
pub(super) struct Room<'a> {
    logs: Logs<'a>,
    fleet: Option<u32>,
    by_cluster: HashMap<ClusterName, ClusterRoom>,
}

#[derive(Clone, Copy)]
struct ClusterRoom {
    /// `None` if the cluster is not capped.
    rest: Option<u32>,
    released_at: Option<Timestamp>,
}

impl<'a> Room<'a> {
    /// With these expires, one item each, on their way to the log.
    pub(super) fn new<'b>(
        logs: Logs<'a>,
        in_flight: impl Iterator<Item = &'b ClusterName>,
    ) -> Self {
        let mut room = Self {
            logs,
            fleet: logs.announcements.fleet_room(),
            by_cluster: HashMap::new(),
        };
        for cluster in in_flight {
            let rest = &mut room.of(cluster).rest;
            *rest = rest.map(|rest| rest.saturating_sub(1));
            room.fleet = room.fleet.map(|rest| rest.saturating_sub(1));
        }
        room
    }

    /// Whether an operator let it go.
    pub(super) fn is_released(&mut self, overdue: &Overdue) -> bool {
        let released_at = self.of(&overdue.key.cluster).released_at;
        released_at.is_some_and(|at| overdue.announced <= at)
    }

    /// Whether an instance may expire; if that counts, there is room for one less.
    pub(super) fn take(&mut self, overdue: &Overdue) -> Permit {
        if overdue.loses || self.is_released(overdue) {
            return Permit::Free;
        }
        let fleet = self.fleet;
        let rest = &mut self.of(&overdue.key.cluster).rest;
        if *rest == Some(0) || fleet == Some(0) {
            return Permit::Refused;
        }
        *rest = rest.map(|rest| rest - 1);
        self.fleet = fleet.map(|rest| rest - 1);
        Permit::Counted
    }

    fn of(&mut self, cluster: &ClusterName) -> &mut ClusterRoom {
        let logs = self.logs;
        self.by_cluster
            .entry(cluster.clone())
            .or_insert_with_key(|cluster| ClusterRoom {
                rest: logs.announcements.cluster_room(cluster),
                released_at: logs.config.released_at(cluster),
            })
    }
}
