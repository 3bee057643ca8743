//! Reading the log and keeping its time.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use waypost_core::{PartitionId, RecordKind, Topic};
use waypost_fold::{GoneCause, HoldingView, RefusalReason, RejectReason, VoidReason};

use super::records::{OutcomeCounts, RecordCounters};
use super::{ReasonLabel, TopicLabel};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabels {
    topic: &'static str,
    partition: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    result: &'static str,
}

/// Counters of the ingest task; clones share them.
#[derive(Clone, Debug, Default)]
pub struct IngestMetrics {
    records: RecordCounters,
    refused: Family<ReasonLabel, Counter>,
    voids: Family<ReasonLabel, Counter>,
    rejected: Family<ReasonLabel, Counter>,
    gone: Family<ReasonLabel, Counter>,
    wrong_partition: Counter,
    conflicts: Counter,
    lag_records: Family<PartitionLabels, Gauge>,
    read_errors: Family<TopicLabel, Counter>,
    replays: Family<TopicLabel, Counter>,
    is_ready: Gauge,
    is_stale: Gauge,
    is_keeper: Gauge,
    holding_clusters: Gauge,
    is_fleet_holding: Gauge,
    held_instances: Gauge,
    unconfirmed_instances: Gauge,
    orphaned_records: Gauge,
    replaying: Family<TopicLabel, Gauge>,
    keeper_writes: Family<WriteLabels, Counter>,
}

impl IngestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register(
            "ingest_records",
            "Records read from the log, by what became of them",
            m.records.family.clone(),
        );
        registry.register(
            "ingest_refused",
            "Announcements and withdrawals that the order within their key refused",
            m.refused.clone(),
        );
        registry.register(
            "ingest_void",
            "Expires and ticks whose claim did not hold",
            m.voids.clone(),
        );
        registry.register(
            "ingest_rejected",
            "Records skipped because they are not of the log's form",
            m.rejected.clone(),
        );
        registry.register(
            "ingest_gone",
            "Instances that left, by which statement",
            m.gone.clone(),
        );
        registry.register(
            "ingest_wrong_partition",
            "Keys that were announced in a partition that is not their own",
            m.wrong_partition.clone(),
        );
        registry.register(
            "ingest_config_conflicts",
            "Records of the config topic that overwrote what their writers had not seen",
            m.conflicts.clone(),
        );
        registry.register(
            "ingest_lag_records",
            "Records known to exist that were not read yet",
            m.lag_records.clone(),
        );
        registry.register(
            "ingest_read_errors",
            "Times that reading a topic failed or broke off",
            m.read_errors.clone(),
        );
        registry.register(
            "ingest_replays",
            "Times that a topic was read again from its beginning",
            m.replays.clone(),
        );
        m.register_state(registry);
        m
    }

    fn register_state(&self, registry: &mut Registry) {
        registry.register(
            "observer_ready",
            "1 once everything that existed at start was read",
            self.is_ready.clone(),
        );
        registry.register(
            "observer_stale",
            "1 while what is served may be out of date",
            self.is_stale.clone(),
        );
        registry.register(
            "keeper_active",
            "1 while this Observer keeps the log's time",
            self.is_keeper.clone(),
        );
        self.register_kept(registry);
        registry.register(
            "keeper_writes",
            "Records that this Observer wrote on its own account",
            self.keeper_writes.clone(),
        );
    }

    /// What is served although the log would let it go, or no longer has it.
    fn register_kept(&self, registry: &mut Registry) {
        let gauges = [
            (
                "observer_holding_clusters",
                "Clusters whose mass expiry is held",
                &self.holding_clusters,
            ),
            (
                "observer_holding_fleet",
                "1 while the mass expiry of the whole fleet is held",
                &self.is_fleet_holding,
            ),
            (
                "observer_held_instances",
                "Instances past their time-to-live that are held",
                &self.held_instances,
            ),
            (
                "observer_unconfirmed_instances",
                "Instances kept from another or longer log that nobody announced again yet",
                &self.unconfirmed_instances,
            ),
            (
                "observer_orphaned_records",
                "Records of the config topic kept from another or longer log",
                &self.orphaned_records,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        registry.register(
            "ingest_replaying",
            "1 while a topic is read again from its beginning",
            self.replaying.clone(),
        );
        self.set_replaying(&[]);
    }

    /// Whose mass expiry is held, and how many instances that are.
    pub fn set_holding(&self, holding: &HoldingView, held_instances: u64) {
        set(&self.holding_clusters, holding.clusters.len());
        self.is_fleet_holding
            .set(i64::from(holding.fleet.is_some()));
        let held = i64::try_from(held_instances).unwrap_or(i64::MAX);
        self.held_instances.set(held);
    }

    /// What is kept of a log that is gone.
    pub fn set_kept(&self, unconfirmed: usize, orphaned: usize) {
        set(&self.unconfirmed_instances, unconfirmed);
        set(&self.orphaned_records, orphaned);
    }

    /// Which topics are read again.
    pub fn set_replaying(&self, topics: &[Topic]) {
        for topic in Topic::ALL {
            let is_replaying = topics.contains(&topic);
            let topic = topic.suffix();
            let gauge = self.replaying.get_or_create(&TopicLabel { topic });
            gauge.set(i64::from(is_replaying));
        }
    }

    /// A batch of records was read.
    pub fn on_records(&self, topic: Topic, outcomes: &OutcomeCounts) {
        self.records.add(topic, outcomes);
    }

    /// An announcement or withdrawal was refused.
    pub fn on_refused(&self, reason: RefusalReason) {
        count(&self.refused, reason.as_str());
    }

    /// An expire or tick was void.
    pub fn on_void(&self, reason: VoidReason) {
        count(&self.voids, reason.as_str());
    }

    /// A record was skipped.
    pub fn on_rejected(&self, reason: &RejectReason) {
        count(&self.rejected, reason.as_str());
    }

    /// An instance left.
    pub fn on_gone(&self, cause: GoneCause) {
        count(&self.gone, cause.as_str());
    }

    /// A key was announced in a partition that is not its own.
    pub fn on_wrong_partition(&self) {
        self.wrong_partition.inc();
    }

    /// A record of the config topic overwrote what its writer had not seen.
    pub fn on_conflict(&self) {
        self.conflicts.inc();
    }

    /// How many records of a partition were not read yet.
    pub fn set_lag(&self, topic: Topic, partition: PartitionId, records: u64) {
        let labels = PartitionLabels {
            topic: topic.suffix(),
            partition: partition.0,
        };
        let lag = i64::try_from(records).unwrap_or(i64::MAX);
        self.lag_records.get_or_create(&labels).set(lag);
    }

    /// Reading a topic failed.
    pub fn on_read_error(&self, topic: Topic) {
        let topic = topic.suffix();
        self.read_errors.get_or_create(&TopicLabel { topic }).inc();
    }

    /// A topic is read again from its beginning.
    pub fn on_replay(&self, topic: Topic) {
        let topic = topic.suffix();
        self.replays.get_or_create(&TopicLabel { topic }).inc();
    }

    /// Whether it is ready, whether it is stale, whether it keeps the log's time.
    pub fn set_state(&self, is_ready: bool, is_stale: bool, is_keeper: bool) {
        self.is_ready.set(i64::from(is_ready));
        self.is_stale.set(i64::from(is_stale));
        self.is_keeper.set(i64::from(is_keeper));
    }

    /// A record of this Observer's own was taken by the log, or was not.
    pub fn on_keeper_write(&self, kind: RecordKind, is_taken: bool) {
        let labels = WriteLabels {
            kind: kind.as_str(),
            result: if is_taken { "taken" } else { "failed" },
        };
        self.keeper_writes.get_or_create(&labels).inc();
    }
}

fn set(gauge: &Gauge, count: usize) {
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
}

fn count(family: &Family<ReasonLabel, Counter>, reason: &'static str) {
    family.get_or_create(&ReasonLabel { reason }).inc();
}
