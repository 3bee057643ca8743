//! Instances that really serve, announced through the announcer library.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use waypost_announcer::{Announcer, AnnouncerPool, GatewaySink, LogSink, PoolOptions, Sink};
use waypost_core::{Announcement, ClusterName, InstanceUri, Timestamp};
use waypost_log::kafka::{KafkaLog, KafkaSettings};
use waypost_testkit::caller::Greeter;
use waypost_testkit::ports::free_port;

/// The cluster that proofs announce and call.
pub const CLUSTER: &str = "greeter";

/// Heartbeat and time-to-live of test instances: the shortest that the rules allow.
pub const HEARTBEAT: Duration = Duration::from_secs(3);
/// See [`HEARTBEAT`].
pub const TTL: Duration = Duration::from_secs(10);

/// Real servers in one process, each announced.
#[derive(Debug)]
pub struct Fleet {
    /// The process that serves.
    pub greeter: Greeter,
    /// Their announcers, in the order of [`Fleet::names`].
    pub announcers: Vec<Announcer>,
    names: Vec<String>,
}

impl Fleet {
    /// Starts `count` servers and announces them; returns once the log has them all.
    ///
    /// # Errors
    /// A server does not start, or the log does not take an announcement.
    pub async fn announce(pool: &AnnouncerPool, count: usize) -> anyhow::Result<Self> {
        let fleet = Self::prepare(pool, count).await?;
        fleet.mark_up().await?;
        Ok(fleet)
    }

    /// Starts `count` servers that are announced later.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn prepare(pool: &AnnouncerPool, count: usize) -> anyhow::Result<Self> {
        let ports: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let greeter = Greeter::start(&ports).await?;
        let mut fleet = Self {
            greeter,
            announcers: Vec::new(),
            names: Vec::new(),
        };
        for port in ports {
            let name = format!("127.0.0.1:{port}");
            fleet.announcers.push(pool.add(announcement(&uri(&name))?)?);
            fleet.names.push(name);
        }
        Ok(fleet)
    }

    /// Announces all of them; returns once the log has them.
    ///
    /// # Errors
    /// The announcer's task has ended.
    pub async fn mark_up(&self) -> anyhow::Result<()> {
        self.announcers.iter().for_each(Announcer::mark_up);
        for announcer in &self.announcers {
            announcer.settled().await?;
        }
        Ok(())
    }

    /// Withdraws all of them; returns once the log has it.
    ///
    /// # Errors
    /// The announcer's task has ended.
    pub async fn mark_down(&self) -> anyhow::Result<()> {
        self.announcers.iter().for_each(Announcer::mark_down);
        for announcer in &self.announcers {
            announcer.settled().await?;
        }
        Ok(())
    }

    /// What the servers answer with: their addresses.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// The URI of a server that answers with `name`.
#[must_use]
pub fn uri(name: &str) -> String {
    format!("grpc://{name}")
}

/// An announcement of [`CLUSTER`] with test times.
///
/// # Errors
/// Not a URI.
pub fn announcement(uri: &str) -> anyhow::Result<Announcement> {
    let cluster = ClusterName::parse(CLUSTER)?;
    let mut announcement = Announcement::new(cluster, InstanceUri::parse(uri)?, Timestamp(0));
    announcement.heartbeat = HEARTBEAT;
    announcement.ttl = TTL;
    announcement.application = "waypost-e2e".to_owned();
    Ok(announcement)
}

/// Announces through the gateways of Observers.
///
/// # Errors
/// A bad address.
pub fn pool_to_gateways(addresses: &[String]) -> anyhow::Result<AnnouncerPool> {
    let sink: Arc<dyn Sink> = Arc::new(GatewaySink::new(addresses)?);
    Ok(AnnouncerPool::spawn(sink, PoolOptions::default()))
}

/// Announces through Kafka, as a server that links the library does.
///
/// # Errors
/// Settings that Kafka's client does not take.
pub fn pool_to_kafka(bootstrap: &str, topic_prefix: &str) -> anyhow::Result<AnnouncerPool> {
    let settings = KafkaSettings::new(bootstrap, topic_prefix);
    let log = KafkaLog::open(settings).context("Kafka")?;
    let sink: Arc<dyn Sink> = Arc::new(LogSink::new(Arc::new(log)));
    Ok(AnnouncerPool::spawn(sink, PoolOptions::default()))
}
