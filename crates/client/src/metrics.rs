//! What a client has done, in numbers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use waypost_xds_client::Counters;

use crate::client::Shared;
use crate::health::{ClusterCounts, StreamState};

/// A snapshot. Counts are since the client was made and never fall; the last four say how it is now. In
/// a registry each is called `waypost_client_` and the name of its field, counts with `_total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Streams opened to Observers, successfully or not.
    pub streams_opened: u64,
    /// Streams that ended before an Observer answered: it was not there, refused, or did not answer.
    pub streams_failed: u64,
    /// Streams that ended after an Observer had answered.
    pub streams_lost: u64,
    /// Responses of Observers.
    pub responses: u64,
    /// Responses of which a part was refused. Each is a mistake of a server or of this client.
    pub responses_refused: u64,
    /// Resources taken that were new or different.
    pub resources_changed: u64,
    /// Resources refused; the last good ones stayed.
    pub resources_refused: u64,
    /// Resources that an Observer said do not exist.
    pub resources_absent: u64,
    /// Resources about which no Observer said anything within 15 s.
    pub resources_silent: u64,
    /// Choices of an endpoint.
    pub picks: u64,
    /// Choices that found none.
    pub pick_failures: u64,
    /// Connections opened to endpoints by [`ClusterChannel`](crate::ClusterChannel).
    pub connections_opened: u64,
    /// Connections to endpoints that could not be opened. The call went to another endpoint.
    pub connections_failed: u64,
    /// Times that the file was written.
    pub file_writes: u64,
    /// Times that it could not be.
    pub file_write_failures: u64,
    /// Times that it could not be read, or an entry of it not be used.
    pub file_read_failures: u64,
    /// 1 while an Observer is connected and has answered, else 0.
    pub connected: u64,
    /// Clusters for whose list the connected Observer stands.
    pub clusters_fresh: u64,
    /// Clusters whose list may be out of date.
    pub clusters_stale: u64,
    /// Clusters that are watched and of which there is no list.
    pub clusters_without_list: u64,
}

/// What the handles and the task count beside the engine.
#[derive(Debug, Default)]
pub(crate) struct OwnCounters {
    pub(crate) picks: AtomicU64,
    pub(crate) pick_failures: AtomicU64,
    pub(crate) connections_opened: AtomicU64,
    pub(crate) connections_failed: AtomicU64,
    pub(crate) file_writes: AtomicU64,
    pub(crate) file_write_failures: AtomicU64,
    pub(crate) file_read_failures: AtomicU64,
}

/// Gives the metrics of a client to a registry of `prometheus-client`. Does not keep the client alive.
pub struct MetricsCollector(Arc<Shared>);

impl Metrics {
    pub(crate) fn of(shared: &Shared) -> Self {
        let engine: Counters = shared.activity_rx.borrow().counters;
        let clusters = ClusterCounts::of(shared);
        let is_connected = shared.stream.lock().state == StreamState::Connected;
        let own = &shared.own;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            streams_opened: engine.streams_opened,
            streams_failed: engine.streams_failed,
            streams_lost: engine.streams_lost,
            responses: engine.responses,
            responses_refused: engine.nacks,
            resources_changed: engine.resources_changed,
            resources_refused: engine.resources_rejected,
            resources_absent: engine.resources_absent,
            resources_silent: engine.resources_silent,
            picks: count(&own.picks),
            pick_failures: count(&own.pick_failures),
            connections_opened: count(&own.connections_opened),
            connections_failed: count(&own.connections_failed),
            file_writes: count(&own.file_writes),
            file_write_failures: count(&own.file_write_failures),
            file_read_failures: count(&own.file_read_failures),
            connected: u64::from(is_connected),
            clusters_fresh: to_u64(clusters.fresh),
            clusters_stale: to_u64(clusters.stale),
            clusters_without_list: to_u64(clusters.missing + clusters.awaited),
        }
    }
}

impl MetricsCollector {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

impl Collector for MetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = Metrics::of(&self.0);
        for (name, help, read) in COUNTS {
            let counter = ConstCounter::new(read(&metrics));
            let name = format!("waypost_client_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        for (name, help, read) in GAUGES {
            let gauge = ConstGauge::new(i64::try_from(read(&metrics)).unwrap_or(i64::MAX));
            let name = format!("waypost_client_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

impl fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricsCollector")
            .field(&Metrics::of(&self.0))
            .finish()
    }
}

/// Name, help, value.
type Described = (&'static str, &'static str, fn(&Metrics) -> u64);

/// What only grows.
const COUNTS: &[Described] = &[
    ("streams_opened", "Streams opened to Observers", |m| {
        m.streams_opened
    }),
    (
        "streams_failed",
        "Streams that ended before an answer",
        |m| m.streams_failed,
    ),
    ("streams_lost", "Streams that ended after an answer", |m| {
        m.streams_lost
    }),
    ("responses", "Responses of Observers", |m| m.responses),
    ("responses_refused", "Responses refused in part", |m| {
        m.responses_refused
    }),
    ("resources_changed", "Resources new or different", |m| {
        m.resources_changed
    }),
    ("resources_refused", "Resources refused", |m| {
        m.resources_refused
    }),
    ("resources_absent", "Resources said not to exist", |m| {
        m.resources_absent
    }),
    (
        "resources_silent",
        "Resources nobody spoke of in time",
        |m| m.resources_silent,
    ),
    ("picks", "Choices of an endpoint", |m| m.picks),
    ("pick_failures", "Choices that found none", |m| {
        m.pick_failures
    }),
    ("connections_opened", "Connections to endpoints", |m| {
        m.connections_opened
    }),
    (
        "connections_failed",
        "Connections to endpoints that could not be opened",
        |m| m.connections_failed,
    ),
    ("file_writes", "Writes of the file of lists", |m| {
        m.file_writes
    }),
    (
        "file_write_failures",
        "Writes of the file that failed",
        |m| m.file_write_failures,
    ),
    ("file_read_failures", "Reads of the file that failed", |m| {
        m.file_read_failures
    }),
];

/// What is so now.
const GAUGES: &[Described] = &[
    ("connected", "Whether an Observer has answered", |m| {
        m.connected
    }),
    ("clusters_fresh", "Clusters with a fresh list", |m| {
        m.clusters_fresh
    }),
    ("clusters_stale", "Clusters with a stale list", |m| {
        m.clusters_stale
    }),
    ("clusters_without_list", "Clusters without a list", |m| {
        m.clusters_without_list
    }),
];

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
