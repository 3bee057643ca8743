//! The Observer's metrics. Labels come from closed sets: types, topics, partitions, kinds and reasons
//! of this program; never a name, a node id or an address.

mod gateway;
mod ingest;
mod load;
mod records;
mod streams;
mod striped;
mod tls;

pub use gateway::GatewayMetrics;
pub use ingest::IngestMetrics;
pub use load::LoadMetrics;
pub use records::OutcomeCounts;
pub use streams::StreamMetrics;
pub use tls::TlsMetrics;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use waypost_runtime::SharedRegistry;
use waypost_store::Store;

use crate::locator::Locator;
use crate::symlinks;

/// A topic of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TopicLabel {
    topic: &'static str,
}

/// Why something did not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Everything that an Observer counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reading the log and keeping its time.
    pub ingest: IngestMetrics,
    /// Streams and what is sent on them.
    pub streams: StreamMetrics,
    /// Writing for others.
    pub gateway: GatewayMetrics,
    /// What clients report of their load.
    pub load: LoadMetrics,
}

impl Metrics {
    /// Makes every metric and registers it, with those that are read at each scrape: the sizes of the store
    /// behind `locator`, and what it counts.
    #[must_use]
    pub fn register(registry: &SharedRegistry, locator: Locator) -> Self {
        registry.with(|registry| {
            registry.register_collector(Box::new(StoreSizes(locator.store().clone())));
            registry.register_collector(Box::new(Renderings(locator)));
            Self {
                ingest: IngestMetrics::register(registry),
                streams: StreamMetrics::register(registry),
                gateway: GatewayMetrics::register(registry),
                load: LoadMetrics::register(registry),
            }
        })
    }

    /// Those of the gRPC port's certificates, where it has any.
    #[must_use]
    pub fn register_tls(registry: &SharedRegistry) -> TlsMetrics {
        registry.with(TlsMetrics::register)
    }
}

/// Sizes of the store, counted at the scrape.
#[derive(Debug)]
struct StoreSizes(Store);

impl Collector for StoreSizes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        let sizes = [
            (
                "observer_clusters",
                "Clusters served, implicit ones included",
                counts.clusters,
            ),
            (
                "observer_implicit_clusters",
                "Clusters served without a definition",
                counts.implicit_clusters,
            ),
            (
                "observer_services",
                "Services with a definition",
                counts.services,
            ),
            (
                "observer_applications",
                "Applications of which is defined what they call",
                counts.applications,
            ),
            ("observer_instances", "Instances served", counts.instances),
            (
                "observer_health_ignored_clusters",
                "Clusters in which too few instances are healthy, so that health is ignored",
                counts.fail_open_clusters,
            ),
            (
                "observer_removed_instances",
                "Names of instances that left and are remembered",
                counts.removed_instances,
            ),
            (
                "observer_shared_symlinks",
                "Symlinks that lead to a cluster to which others lead too: D2 clients follow one of them",
                symlinks::shared_targets(&self.0)
                    .values()
                    .map(Vec::len)
                    .sum(),
            ),
        ];
        for (name, help, count) in sizes {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

/// What the locator counts.
#[derive(Debug)]
struct Renderings(Locator);

impl Collector for Renderings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counter = ConstCounter::new(self.0.properties_left_out());
        let name = "observer_properties_left_out";
        let help = "D2 properties that gRPC and Envoy were not told of since they cannot be read or would be refused, each time a cluster was rendered";
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)
    }
}
