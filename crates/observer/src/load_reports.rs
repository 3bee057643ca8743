//! Load reports (LRS): what clients say of the requests that they send, by cluster and locality.
//!
//! A client reports what happened since its report before (data-plane-api, `lrs.proto`; gRFC A27). Kept are, for
//! each cluster, the sum of the last report of every stream, which is the load of now, and totals. A stream
//! that ends takes its part of the sum along; totals stay. Nothing here changes what is served.

mod service;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use parking_lot::Mutex;
use tokio::time::Instant;
use waypost_core::ResourceType;

use crate::limits::{LOAD_CLUSTERS_MAX, LOAD_LOCALITIES_MAX};
use crate::metrics::LoadMetrics;
use crate::render::names::Target;

pub use service::LoadReporting;

/// The load of every cluster that was reported. Clones share it.
#[derive(Clone, Debug)]
pub struct LoadReports {
    by_cluster: Arc<Mutex<HashMap<String, ClusterLoad>>>,
    metrics: LoadMetrics,
}

/// Where endpoints are: region (a fabric), zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locality {
    /// A fabric.
    pub region: String,
    /// A zone within it.
    pub zone: String,
}

/// What was reported of one cluster, all its D2 partitions together.
#[derive(Clone, Debug)]
pub struct ClusterLoad {
    /// Streams whose last report is part of [`Self::now`].
    pub reporters: usize,
    /// The load of now, by locality.
    pub now: BTreeMap<Locality, Rates>,
    /// Requests that clients dropped on purpose, in thousandths a second.
    pub dropped_per_1000s: u64,
    /// Everything since this Observer started.
    pub totals: Totals,
    /// When the last report came.
    pub last_report: Instant,
}

/// The load of now: sums over the last report of each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests begun in 1,000 seconds, at the pace of the last report.
    pub issued_per_1000s: u64,
    /// Requests that failed in 1,000 seconds, likewise.
    pub failed_per_1000s: u64,
    /// Requests without an answer when the report was made.
    pub in_progress: u64,
}

/// Counts since this Observer started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that clients dropped on purpose.
    pub dropped: u64,
}

/// One stream's part in the sums; dropping it takes the part away.
#[derive(Debug)]
pub(crate) struct Reporter {
    reports: LoadReports,
    last: HashMap<String, Part>,
}

/// What one stream last said of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    by_locality: BTreeMap<Locality, Rates>,
    dropped_per_1000s: u64,
}

impl LoadReports {
    /// Nothing reported yet.
    #[must_use]
    pub fn new(metrics: LoadMetrics) -> Self {
        Self {
            by_cluster: Arc::default(),
            metrics,
        }
    }

    /// What was reported of a cluster; `None` if nothing was.
    #[must_use]
    pub fn find(&self, cluster: &str) -> Option<ClusterLoad> {
        self.by_cluster.lock().get(cluster).cloned()
    }

    pub(crate) fn reporter(&self) -> Reporter {
        self.metrics.on_open();
        Reporter {
            reports: self.clone(),
            last: HashMap::new(),
        }
    }
}

impl Reporter {
    /// Takes one report: it replaces what this stream said before of the clusters that it names. Of the
    /// others there was nothing to say, so nothing is left of them but totals.
    pub(crate) fn report(&mut self, stats: &[ClusterStats]) {
        self.reports.metrics.on_report();
        let mut parts: HashMap<String, (Part, Totals)> = HashMap::new();
        for of_cluster in stats {
            let (part, totals) = parts.entry(cluster_of(of_cluster)).or_default();
            part.add(of_cluster);
            totals.add(of_cluster);
        }
        let mut by_cluster = self.reports.by_cluster.lock();
        take_away(&mut by_cluster, &mut self.last);
        for (cluster, (part, totals)) in parts {
            self.reports.metrics.on_requests(&totals);
            if by_cluster.len() >= LOAD_CLUSTERS_MAX && !by_cluster.contains_key(&cluster) {
                self.reports.metrics.on_left_out();
                continue;
            }
            let load = by_cluster
                .entry(cluster.clone())
                .or_insert_with(ClusterLoad::new);
            load.add(&part, totals);
            self.last.insert(cluster, part);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        take_away(&mut self.reports.by_cluster.lock(), &mut self.last);
        self.reports.metrics.on_close();
    }
}

fn take_away(by_cluster: &mut HashMap<String, ClusterLoad>, last: &mut HashMap<String, Part>) {
    for (cluster, part) in last.drain() {
        if let Some(load) = by_cluster.get_mut(&cluster) {
            load.subtract(&part);
        }
    }
}

/// The cluster that a report is of: its EDS name where that differs, without the D2 partition.
fn cluster_of(stats: &ClusterStats) -> String {
    let name = if stats.cluster_service_name.is_empty() {
        &stats.cluster_name
    } else {
        &stats.cluster_service_name
    };
    match Target::parse(ResourceType::Cluster, name) {
        Some(Target::D2Partition(cluster, _)) => cluster.to_owned(),
        _ => name.clone(),
    }
}

impl ClusterLoad {
    fn new() -> Self {
        Self {
            reporters: 0,
            now: BTreeMap::new(),
            dropped_per_1000s: 0,
            totals: Totals::default(),
            last_report: Instant::now(),
        }
    }

    fn add(&mut self, part: &Part, totals: Totals) {
        self.reporters += 1;
        for (locality, rates) in &part.by_locality {
            self.now.entry(locality.clone()).or_default().add(*rates);
        }
        self.dropped_per_1000s = self.dropped_per_1000s.wrapping_add(part.dropped_per_1000s);
        self.totals.sum(totals);
        self.last_report = Instant::now();
    }

    /// The opposite of [`Self::add`]: sums wrap in both, so that what was added is gone exactly.
    fn subtract(&mut self, part: &Part) {
        self.reporters = self.reporters.saturating_sub(1);
        for (locality, rates) in &part.by_locality {
            if let Some(sum) = self.now.get_mut(locality) {
                sum.subtract(*rates);
            }
        }
        self.now.retain(|_, rates| *rates != Rates::default());
        self.dropped_per_1000s = self.dropped_per_1000s.wrapping_sub(part.dropped_per_1000s);
    }
}

impl Part {
    fn add(&mut self, stats: &ClusterStats) {
        let interval = interval_of(stats);
        for of_locality in &stats.upstream_locality_stats {
            let locality = locality_of(of_locality);
            let is_new = !self.by_locality.contains_key(&locality);
            // Who names more than there can be is counted with the unnamed.
            let locality = if is_new && self.by_locality.len() >= LOAD_LOCALITIES_MAX {
                Locality::default()
            } else {
                locality
            };
            self.by_locality.entry(locality).or_default().add(Rates {
                issued_per_1000s: per_1000s(of_locality.total_issued_requests, interval),
                failed_per_1000s: per_1000s(of_locality.total_error_requests, interval),
                in_progress: of_locality.total_requests_in_progress,
            });
        }
        let dropped = per_1000s(stats.total_dropped_requests, interval);
        self.dropped_per_1000s = self.dropped_per_1000s.wrapping_add(dropped);
    }
}

impl Rates {
    fn add(&mut self, other: Self) {
        self.combine(other, u64::wrapping_add);
    }

    fn subtract(&mut self, other: Self) {
        self.combine(other, u64::wrapping_sub);
    }

    fn combine(&mut self, other: Self, with: fn(u64, u64) -> u64) {
        self.issued_per_1000s = with(self.issued_per_1000s, other.issued_per_1000s);
        self.failed_per_1000s = with(self.failed_per_1000s, other.failed_per_1000s);
        self.in_progress = with(self.in_progress, other.in_progress);
    }
}

impl Totals {
    fn add(&mut self, stats: &ClusterStats) {
        for of_locality in &stats.upstream_locality_stats {
            self.sum(Self {
                succeeded: of_locality.total_successful_requests,
                failed: of_locality.total_error_requests,
                dropped: 0,
            });
        }
        self.dropped = self.dropped.saturating_add(stats.total_dropped_requests);
    }

    fn sum(&mut self, other: Self) {
        self.succeeded = self.succeeded.saturating_add(other.succeeded);
        self.failed = self.failed.saturating_add(other.failed);
        self.dropped = self.dropped.saturating_add(other.dropped);
    }
}

fn locality_of(stats: &UpstreamLocalityStats) -> Locality {
    stats
        .locality
        .as_ref()
        .map_or_else(Locality::default, |l| Locality {
            region: l.region.clone(),
            zone: l.zone.clone(),
        })
}

/// The time that a report covers, never zero: a client that does not say has kept to what it was told.
fn interval_of(stats: &ClusterStats) -> Duration {
    let told = stats.load_report_interval.as_ref();
    let told = told.and_then(|interval| {
        let (seconds, nanos) = (
            u64::try_from(interval.seconds).ok()?,
            u32::try_from(interval.nanos).ok()?,
        );
        Some(Duration::from_secs(seconds) + Duration::from_nanos(nanos.into()))
    });
    told.filter(|interval| *interval >= Duration::from_millis(1))
        .unwrap_or(crate::limits::LOAD_REPORT_INTERVAL)
}

fn per_1000s(count: u64, interval: Duration) -> u64 {
    let millis = interval.as_millis().max(1);
    let scaled = u128::from(count) * 1_000_000 / millis;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
