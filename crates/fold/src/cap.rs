//! How much may expire at once, and when what is overdue is held instead (docs/announcement-log.md,
//! "Cap and holding"). Counts and thresholds; `census` keeps them up to date.

use std::time::Duration;

use waypost_core::{LogTime, PartitionId, Timestamp};

use crate::limits::{
    CAP_CLUSTER_LARGER_THAN, CAP_CLUSTER_PERCENT, CAP_FLEET_LARGER_THAN, CAP_FLEET_PERCENT,
    CAP_WINDOW,
};

/// The part of a cluster, or of the fleet, that may expire within one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapShare {
    /// Percent of what was live when the window began, rounded down.
    pub percent: u32,
    /// Fewer instances than this, or as many, are not capped.
    pub larger_than: u32,
}

/// How much may expire at once. Equal in all Observers of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapSettings {
    /// Of each cluster.
    pub cluster: CapShare,
    /// Of all clusters together.
    pub fleet: CapShare,
    /// For how long an expire counts, in log time of its partition: append time without its jumps.
    pub window: Duration,
}

impl Default for CapSettings {
    fn default() -> Self {
        Self {
            cluster: CapShare {
                percent: CAP_CLUSTER_PERCENT,
                larger_than: CAP_CLUSTER_LARGER_THAN,
            },
            fleet: CapShare {
                percent: CAP_FLEET_PERCENT,
                larger_than: CAP_FLEET_LARGER_THAN,
            },
            window: CAP_WINDOW,
        }
    }
}

impl CapShare {
    /// How many of `base` may expire; `None` if that many are not capped.
    fn cap(self, base: u32) -> Option<u32> {
        let share = u64::from(base) * u64::from(self.percent) / 100;
        (base > self.larger_than).then(|| u32::try_from(share).unwrap_or(u32::MAX).min(base))
    }
}

/// Whether an instance is about to leave because nobody announces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// It was announced within its time-to-live.
    #[default]
    Alive,
    /// It is overdue, and the keeper may let it go.
    Due,
    /// It is overdue, and held: served, until it is announced again or an operator releases it.
    Held,
}

impl Expiry {
    /// The closed label of metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Due => "due",
            Self::Held => "held",
        }
    }
}

/// A cluster, or the fleet, of which too much fell silent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Append time of the record at which it began.
    pub since: Timestamp,
    /// Log time since then.
    pub lasts: Duration,
    /// Instances that are served.
    pub live: u32,
    /// Of those, the ones past their time-to-live. Holding ends when these are fewer than the cap.
    pub overdue: u32,
    /// How many may expire within a window.
    pub cap: u32,
}

/// Instances of a cluster or of the fleet; a key that stands in several partitions counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Instances that are served.
    pub live: u32,
    /// Of those, the ones past their time-to-live.
    pub overdue: u32,
    /// Instances that expired within the window and were not released.
    pub expired_lately: u32,
}

/// Why a key is past its time-to-live, as far as this reader can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lapse {
    /// It is not.
    #[default]
    None,
    /// It was announced, and fell silent, while this reader followed the log.
    Witnessed,
    /// It was announced last before this reader began to follow the log, or began again after a
    /// sleep: whoever followed it meanwhile may have held it.
    Inherited,
}

/// Where and when something was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) partition: PartitionId,
    pub(crate) append_time: Timestamp,
    pub(crate) log_time: LogTime,
}

/// The counts of a cluster, or of the fleet, and whether it holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) census: Census,
    /// Of the overdue ones, those that somebody else may have held before.
    inherited: u32,
    holding: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    since: Moment,
    /// The cap that was hit: what is left of a cluster may be too small to have one.
    cap: u32,
}

impl Scope {
    pub(crate) fn is_empty(&self) -> bool {
        self.census == Census::default() && self.holding.is_none()
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.holding.is_some()
    }

    /// Overdue ones that nothing holds back.
    pub(crate) fn overdue_free(&self) -> u32 {
        if self.is_holding() {
            0
        } else {
            self.census.overdue
        }
    }

    pub(crate) fn fell_silent(&mut self, lapse: Lapse) {
        self.census.overdue += 1;
        self.inherited += u32::from(lapse == Lapse::Inherited);
    }

    /// One that was overdue already may have been held by somebody else.
    pub(crate) fn was_missed(&mut self) {
        self.inherited += 1;
    }

    pub(crate) fn spoke(&mut self, lapse: Lapse) {
        self.census.overdue = self.census.overdue.saturating_sub(1);
        let inherited = u32::from(lapse == Lapse::Inherited);
        self.inherited = self.inherited.saturating_sub(inherited);
    }

    /// How many more may expire now, `lately` having done so within the window; `None` if there is
    /// no cap.
    pub(crate) fn room(&self, share: CapShare, lately: u32) -> Option<u32> {
        if self.is_holding() {
            return Some(0);
        }
        let cap = share.cap(self.census.live + lately)?;
        Some(cap.saturating_sub(lately))
    }

    /// Begins to hold if the cap is hit and at least as many are overdue still, or if that many were
    /// overdue before this reader came: it cannot know that the cap was not hit then. Holds until
    /// fewer are.
    pub(crate) fn settle(&mut self, share: CapShare, at: Moment) {
        let Census {
            live,
            overdue,
            expired_lately,
        } = self.census;
        let cap = share.cap(live + expired_lately).map(|cap| cap.max(1));
        match (self.holding, cap) {
            (Some(held), cap) => {
                if overdue < held.cap.max(cap.unwrap_or(0)) {
                    self.holding = None;
                }
            }
            (None, Some(cap)) => {
                let is_hit = expired_lately >= cap && overdue >= cap;
                if is_hit || self.inherited >= cap {
                    self.holding = Some(Held { since: at, cap });
                }
            }
            (None, None) => {}
        }
    }

    /// What is shown, `log_time` being that of the partition where it began.
    pub(crate) fn view(&self, log_time: impl Fn(PartitionId) -> LogTime) -> Option<Holding> {
        let Held { since, cap } = self.holding?;
        let lasts_ms = log_time(since.partition).millis_since(since.log_time);
        Some(Holding {
            since: since.append_time,
            lasts: Duration::from_millis(u64::try_from(lasts_ms).unwrap_or(0)),
            live: self.census.live,
            overdue: self.census.overdue,
            cap,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Moment = Moment {
        partition: PartitionId(0),
        append_time: Timestamp(5_000),
        log_time: LogTime(1_000),
    };

    fn share() -> CapShare {
        CapSettings::default().cluster
    }

    fn scope(live: u32, overdue: u32, expired_lately: u32) -> Scope {
        let census = Census {
            live,
            overdue,
            expired_lately,
        };
        Scope {
            census,
            ..Scope::default()
        }
    }

    #[test]
    fn a_fifth_of_a_cluster_and_a_twentieth_of_a_fleet_may_expire() {
        let fleet = CapSettings::default().fleet;
        let cases = [
            (share(), 10, None),
            (share(), 11, Some(2)),
            (share(), 100, Some(20)),
            (fleet, 200, None),
            (fleet, 201, Some(10)),
            (fleet, 1_000, Some(50)),
            (fleet, u32::MAX, Some(214_748_364)),
        ];
        for (share, base, expected) in cases {
            assert_eq!(share.cap(base), expected, "{base}");
        }
    }

    #[test]
    fn a_cluster_holds_once_the_cap_is_hit_and_as_many_are_overdue_still() {
        let cases = [
            (scope(100, 80, 0), false, "nothing has left"),
            (scope(81, 80, 19), false, "one may leave"),
            (scope(80, 80, 20), true, "the cap is hit"),
            (scope(80, 20, 20), true, "and as many are overdue"),
            (scope(80, 19, 20), false, "the rest waits for a window"),
            (scope(9, 9, 2), true, "eleven were"),
            (scope(8, 8, 2), false, "ten were"),
        ];
        for (mut scope, expected, what) in cases {
            scope.settle(share(), AT);
            assert_eq!(scope.is_holding(), expected, "{what}");
            if expected {
                assert_eq!(scope.room(share(), 0), Some(0), "{what}");
            }
        }
    }

    #[test]
    fn holding_does_not_end_with_the_window_but_when_fewer_than_the_cap_are_overdue() {
        let mut scope = scope(80, 80, 20);
        scope.settle(share(), AT);
        scope.census.expired_lately = 0;
        for (overdue, expected) in [(80, true), (20, true), (19, false), (80, false)] {
            scope.census.overdue = overdue;
            scope.settle(share(), AT);
            assert_eq!(scope.is_holding(), expected, "{overdue} overdue");
        }
        let mut small = self::scope(9, 9, 2);
        small.settle(share(), AT);
        small.census.expired_lately = 0;
        small.settle(share(), AT);
        assert!(small.is_holding(), "too small for a cap by now");
        small.census.overdue = 1;
        small.settle(share(), AT);
        assert!(!small.is_holding());
    }

    #[test]
    fn who_comes_when_too_many_are_overdue_takes_the_cap_for_hit() {
        let mut scope = scope(80, 80, 0);
        scope.inherited = 15;
        scope.settle(share(), AT);
        assert!(!scope.is_holding());
        scope.inherited = 16;
        scope.settle(share(), AT);
        let view = scope.view(|_| LogTime(61_000)).unwrap();
        assert_eq!(view.since, Timestamp(5_000));
        assert_eq!(view.lasts, Duration::from_secs(60));
        assert_eq!((view.live, view.overdue, view.cap), (80, 80, 16));
    }
}
