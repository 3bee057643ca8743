//! What an operator may do to topics, by a client of this process: Kafka's own tools start a JVM for
//! each step.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::metadata::MetadataPartition;

use crate::limits::START_MAX;
use crate::wait::eventually;

/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// How long one broker may take to say what there is: one that hangs looks alive to librdkafka, so
/// another try, at another broker, is worth more than patience.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A topic's settings that let a test see compaction within seconds.
pub const COMPACT_QUICKLY: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("min.compaction.lag.ms", "0"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("segment.ms", "100"),
];

/// An administrator of one cluster.
pub struct KafkaAdmin {
    config: ClientConfig,
    client: AdminClient<DefaultClientContext>,
}

impl std::fmt::Debug for KafkaAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KafkaAdmin")
    }
}

impl KafkaAdmin {
    /// For the cluster that `bootstrap` (`HOST:PORT,…`) belong to. Reaches nothing yet.
    ///
    /// # Errors
    /// librdkafka cannot be set up.
    pub fn new(bootstrap: &str) -> anyhow::Result<Self> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("reconnect.backoff.max.ms", "500")
            // Looking for a topic must not make one up.
            .set("allow.auto.create.topics", "false");
        Ok(Self {
            client: config.create()?,
            config,
        })
    }

    /// Creates a topic with these settings, and waits until each partition has a leader.
    ///
    /// # Errors
    /// It exists, or Kafka refuses.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        copies: u32,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let (partitions, copies) = (i32::try_from(partitions)?, i32::try_from(copies)?);
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(copies));
        for (setting, value) in settings {
            topic = topic.set(setting, value);
        }
        self.make(&topic, name).await
    }

    /// Creates a topic with one copy of each partition, on the brokers named, and waits until each
    /// leads.
    ///
    /// # Errors
    /// It exists, or Kafka refuses.
    pub async fn create_topic_on(
        &self,
        name: &str,
        brokers: &[i32],
        settings: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let each: Vec<[i32; 1]> = brokers.iter().map(|broker| [*broker]).collect();
        let assignment: Vec<&[i32]> = each.iter().map(<[i32; 1]>::as_slice).collect();
        let partitions = i32::try_from(brokers.len())?;
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Variable(&assignment));
        for (setting, value) in settings {
            topic = topic.set(setting, value);
        }
        self.make(&topic, name).await
    }

    async fn make(&self, topic: &NewTopic<'_>, name: &str) -> anyhow::Result<()> {
        let made = self.client.create_topics([topic], &options()).await?;
        one(made, "create", name)?;
        eventually("leaders of the new topic", START_MAX, || async {
            let leaders = self.leaders(name).await?;
            ensure!(leaders.iter().all(|leader| *leader >= 0), "{leaders:?}");
            Ok(())
        })
        .await
    }

    /// Deletes a topic, and waits until it is gone.
    ///
    /// # Errors
    /// It does not exist, or Kafka refuses.
    pub async fn delete_topic(&self, name: &str) -> anyhow::Result<()> {
        let deleted = self.client.delete_topics(&[name], &options()).await?;
        one(deleted, "delete", name)?;
        eventually("the topic is gone", START_MAX, || async {
            ensure!(self.leaders(name).await.is_err(), "it is still there");
            Ok(())
        })
        .await
    }

    /// Lets a topic grow to `partitions`.
    ///
    /// # Errors
    /// It has as many, or Kafka refuses.
    pub async fn add_partitions(&self, name: &str, partitions: u32) -> anyhow::Result<()> {
        let more = NewPartitions::new(name, usize::try_from(partitions)?);
        let made = self.client.create_partitions([&more], &options()).await?;
        one(made, "add partitions to", name)
    }

    /// Replaces every setting of a topic; what is not named gets the broker's default.
    ///
    /// # Errors
    /// Kafka refuses.
    pub async fn set_settings(&self, name: &str, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut config = AlterConfig::new(ResourceSpecifier::Topic(name));
        for (setting, value) in settings {
            config = config.set(setting, value);
        }
        let done = self.client.alter_configs([&config], &options()).await?;
        let failed = done.into_iter().find_map(Result::err);
        ensure!(failed.is_none(), "settings of {name}: {failed:?}");
        Ok(())
    }

    /// The number of the broker that leads each partition; -1 where none does.
    ///
    /// # Errors
    /// Nobody answers, or there is no such topic.
    pub async fn leaders(&self, name: &str) -> anyhow::Result<Vec<i32>> {
        self.of_each_partition(name, MetadataPartition::leader)
            .await
    }

    /// The numbers of the brokers that have all of each partition.
    ///
    /// # Errors
    /// As [`KafkaAdmin::leaders`].
    pub async fn in_sync(&self, name: &str) -> anyhow::Result<Vec<Vec<i32>>> {
        self.of_each_partition(name, |partition| partition.isr().to_vec())
            .await
    }

    async fn of_each_partition<T>(
        &self,
        name: &str,
        what: impl Fn(&MetadataPartition) -> T,
    ) -> anyhow::Result<Vec<T>> {
        // By a client of its own each time, which begins at any broker: one that has a connection goes on
        // asking there, whether or not that broker has been suspended meanwhile.
        let looked = || async {
            let (config, topic) = (self.config.clone(), name.to_owned());
            let asked = tokio::task::spawn_blocking(move || {
                let client: AdminClient<DefaultClientContext> = config.create()?;
                client.inner().fetch_metadata(Some(&topic), LOOK_MAX)
            });
            Ok(asked.await??)
        };
        let metadata = eventually("what brokers say", REQUEST_MAX, looked).await?;
        let found = metadata.topics().iter().find(|topic| topic.name() == name);
        let found = found.with_context(|| format!("no topic {name}"))?;
        ensure!(
            found.error().is_none() && !found.partitions().is_empty(),
            "no topic {name}: {:?}",
            found.error()
        );
        Ok(found.partitions().iter().map(what).collect())
    }
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(REQUEST_MAX))
        .operation_timeout(Some(REQUEST_MAX))
}

fn one<E: std::fmt::Debug>(
    results: Vec<Result<String, E>>,
    what: &str,
    topic: &str,
) -> anyhow::Result<()> {
    match results.into_iter().next() {
        Some(Ok(_)) => Ok(()),
        other => anyhow::bail!("Kafka does not {what} {topic}: {other:?}"),
    }
}
