//! Load reports of clients. Of which cluster is not a label: `waypost describe cluster` says that.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::load_reports::Totals;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counters of load reports; clones share them.
#[derive(Clone, Debug, Default)]
pub struct LoadMetrics {
    streams: Gauge,
    reports: Counter,
    requests: Family<ResultLabel, Counter>,
    left_out: Counter,
}

impl LoadMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register(
            "load_streams",
            "Streams on which clients report their load",
            m.streams.clone(),
        );
        registry.register("load_reports", "Load reports read", m.reports.clone());
        registry.register(
            "load_requests",
            "Requests that clients reported, by what became of them",
            m.requests.clone(),
        );
        registry.register(
            "load_clusters_left_out",
            "Reports of a cluster that were counted and not kept, because too many clusters are",
            m.left_out.clone(),
        );
        m
    }

    /// A client began to report.
    pub fn on_open(&self) {
        self.streams.inc();
    }

    /// A client ended.
    pub fn on_close(&self) {
        self.streams.dec();
    }

    /// A report was read.
    pub fn on_report(&self) {
        self.reports.inc();
    }

    /// What became of the requests to one cluster.
    pub fn on_requests(&self, totals: &Totals) {
        let counts = [
            ("succeeded", totals.succeeded),
            ("failed", totals.failed),
            ("dropped", totals.dropped),
        ];
        for (result, count) in counts {
            self.requests
                .get_or_create(&ResultLabel { result })
                .inc_by(count);
        }
    }

    /// A cluster was not kept.
    pub fn on_left_out(&self) {
        self.left_out.inc();
    }
}
