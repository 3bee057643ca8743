//! The instances of a load: many clusters of a few, all announced from one task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use waypost_announcer::{
    Announcer, AnnouncerPool, GatewaySink, PartitionWeights, PoolOptions, Sink, Verdicts,
};
use waypost_core::{Announcement, ClusterName, InstanceUri, Timestamp};

use tokio::time::Instant;

/// Announced clusters and when each was changed last.
pub(crate) struct Instances {
    pool: AnnouncerPool,
    announcers: Vec<Announcer>,
    per_cluster: usize,
    changes: Arc<Changes>,
}

/// When each cluster was changed last: microseconds since the load began, 0 for never.
#[derive(Debug)]
pub(crate) struct Changes {
    began: Instant,
    by_cluster: Vec<AtomicU64>,
}

impl Instances {
    /// Announces `clusters` times `per_cluster` instances through a gateway; returns once the log has
    /// them all.
    pub(crate) async fn announce(
        gateway: &str,
        clusters: usize,
        per_cluster: usize,
        heartbeat: Duration,
    ) -> anyhow::Result<Self> {
        let sink: Arc<dyn Sink> = Arc::new(GatewaySink::new(&[gateway])?);
        let pool = AnnouncerPool::spawn(
            sink,
            PoolOptions {
                verdicts: Verdicts::Ignored,
            },
        );
        let mut announcers = Vec::with_capacity(clusters * per_cluster);
        for cluster in 0..clusters {
            for instance in 0..per_cluster {
                let [_, high, low, ..] = u32::try_from(cluster)?.to_be_bytes().map(u32::from)[..]
                else {
                    continue;
                };
                let uri = format!("grpc://10.{high}.{low}.{instance}:8080");
                let cluster = ClusterName::parse(&cluster_name(cluster))?;
                let uri = InstanceUri::parse(&uri)?;
                let mut announcement = Announcement::new(cluster, uri, Timestamp(0));
                announcement.heartbeat = heartbeat;
                announcement.ttl = heartbeat * 3;
                announcers.push(pool.announce(announcement)?);
            }
        }
        pool.settled().await?;
        let by_cluster = (0..clusters).map(|_| AtomicU64::new(0)).collect();
        let changes = Arc::new(Changes {
            began: Instant::now(),
            by_cluster,
        });
        Ok(Self {
            pool,
            announcers,
            per_cluster,
            changes,
        })
    }

    /// When each cluster was changed last.
    pub(crate) fn changes(&self) -> Arc<Changes> {
        Arc::clone(&self.changes)
    }

    /// Changes one instance of each cluster in turn, `rate` a second, for `time`; gives how many.
    pub(crate) async fn change(&self, rate: u32, time: Duration) -> anyhow::Result<usize> {
        let mut ticker = tokio::time::interval(Duration::from_secs(1) / rate);
        let end = Instant::now() + time;
        let clusters = self.changes.by_cluster.len();
        let mut changed = 0;
        while Instant::now() < end {
            ticker.tick().await;
            let (cluster, lap) = (changed % clusters, changed / clusters);
            let announcer = &self.announcers[cluster * self.per_cluster + lap % self.per_cluster];
            self.changes.mark(cluster);
            // Alternates, so that each lap over the instances is a change again.
            let weight = if (lap / self.per_cluster).is_multiple_of(2) {
                2.0
            } else {
                1.0
            };
            announcer.change_weight(PartitionWeights::from([(0, weight)]))?;
            changed += 1;
        }
        self.pool.settled().await?;
        Ok(changed)
    }
}

impl Changes {
    fn mark(&self, cluster: usize) {
        self.by_cluster[cluster].store(self.micros(), Ordering::Release);
    }

    /// How long ago a cluster was changed; `None` when it never was.
    pub(crate) fn find_age(&self, cluster: usize) -> Option<Duration> {
        let changed = self.by_cluster.get(cluster)?.load(Ordering::Acquire);
        (changed > 0).then(|| Duration::from_micros(self.micros().saturating_sub(changed)))
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The name of a cluster of the load.
pub(crate) fn cluster_name(number: usize) -> String {
    format!("cluster-{number}")
}

/// The number in the name of a cluster of the load.
pub(crate) fn find_cluster(name: &str) -> Option<usize> {
    name.strip_prefix("cluster-")?.parse().ok()
}
