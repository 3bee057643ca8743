//! Several brokers that are one cluster.

use anyhow::{Context as _, ensure};

use super::KafkaBroker;
use super::admin::KafkaAdmin;
use super::setup::Node;

/// Brokers of one cluster, each broker and controller in one JVM of about 200 MB. A topic with three
/// copies survives any one of three.
#[derive(Debug)]
pub struct KafkaCluster {
    brokers: Vec<KafkaBroker>,
}

impl KafkaCluster {
    /// Starts `count` brokers and waits until all answer.
    ///
    /// # Errors
    /// As [`KafkaBroker::start`].
    pub async fn start(count: u32) -> anyhow::Result<Self> {
        Self::start_with(count, &[]).await
    }

    /// As [`KafkaCluster::start`], with broker properties that replace or add to the usual ones.
    ///
    /// # Errors
    /// As there.
    pub async fn start_with(count: u32, properties: &[(&str, &str)]) -> anyhow::Result<Self> {
        ensure!(count > 0, "a cluster needs a broker");
        let nodes: Vec<Node> = (1..=count).map(Node::new).collect();
        // All at once: none of them answers before most of them elected a controller.
        let starting = nodes
            .iter()
            .map(|node| KafkaBroker::start_node(*node, &nodes, properties));
        let brokers = futures::future::try_join_all(starting).await?;
        Ok(Self { brokers })
    }

    /// `HOST:PORT` of every broker, for `--kafka`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let all: Vec<String> = self.brokers.iter().map(KafkaBroker::bootstrap).collect();
        all.join(",")
    }

    /// Every broker, by ascending number.
    #[must_use]
    pub fn brokers(&self) -> &[KafkaBroker] {
        &self.brokers
    }

    /// One broker, to be stopped, killed, suspended or started again.
    ///
    /// # Errors
    /// The cluster has no broker of this number.
    pub fn broker_mut(&mut self, id: i32) -> anyhow::Result<&mut KafkaBroker> {
        let found = self.brokers.iter_mut().find(|broker| broker.id() == id);
        found.with_context(|| format!("the cluster has no broker {id}"))
    }

    /// Starts every broker that does not run, all at once: one alone may have nobody to elect a
    /// controller with.
    ///
    /// # Errors
    /// One does not come up.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        let stopped = self.brokers.iter_mut().filter(|b| !b.is_started());
        let starting = stopped.map(KafkaBroker::restart);
        futures::future::try_join_all(starting).await.map(|_| ())
    }

    /// What an operator may do to its topics.
    ///
    /// # Errors
    /// As [`KafkaAdmin::new`].
    pub fn admin(&self) -> anyhow::Result<KafkaAdmin> {
        KafkaAdmin::new(&self.bootstrap())
    }

    /// Moves the leader of one partition by Kafka's own tool: to its preferred broker, or, in an
    /// unclean election, to any that lives, whatever it lacks (the topic must allow it).
    ///
    /// # Errors
    /// Nothing to elect, or nobody.
    pub async fn elect(&self, topic: &str, partition: u32, kind: Election) -> anyhow::Result<()> {
        let broker = self.brokers.iter().find(|broker| broker.is_started());
        let broker = broker.context("no broker runs")?;
        let partition = partition.to_string();
        let args = [
            "--bootstrap-server",
            &broker.bootstrap(),
            "--topic",
            topic,
            "--partition",
            &partition,
            "--election-type",
            kind.as_str(),
        ];
        const TOOL: &str = "org.apache.kafka.tools.LeaderElectionCommand";
        let done = broker.tool(TOOL, &args).await?;
        // Where there is nothing to elect it says so and exits 0.
        ensure!(done.stdout.contains("Successfully"), "{}", done.stdout);
        Ok(())
    }
}

/// Who may become leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// The broker that the topic was created with as first.
    Preferred,
    /// Any that lives; what only the others have is lost.
    Unclean,
}

impl Election {
    fn as_str(self) -> &'static str {
        match self {
            Self::Preferred => "preferred",
            Self::Unclean => "unclean",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait::eventually;

    const SOON: Duration = Duration::from_secs(60);

    async fn leader(admin: &KafkaAdmin, topic: &str) -> anyhow::Result<i32> {
        let leaders = admin.leaders(topic).await?;
        leaders.first().copied().context("no partition")
    }

    async fn until_led(
        admin: &KafkaAdmin,
        what: &str,
        by: impl Fn(i32) -> bool,
    ) -> anyhow::Result<i32> {
        eventually(what, SOON, || async {
            let leader = leader(admin, "t").await?;
            ensure!(by(leader), "broker {leader} leads");
            Ok(leader)
        })
        .await
    }

    /// Broker `b` has none of what `a` took while it was away; then only `b` is left.
    #[tokio::test]
    async fn a_partition_goes_from_broker_to_broker_and_to_one_that_lacks_records_if_it_must() {
        let mut cluster = KafkaCluster::start(3).await.unwrap();
        let admin = cluster.admin().unwrap();
        let unclean = [("unclean.leader.election.enable", "false")];
        admin.create_topic("t", 1, 2, &unclean).await.unwrap();
        let a = leader(&admin, "t").await.unwrap();
        cluster.broker_mut(a).unwrap().pause().unwrap();
        let b = until_led(&admin, "after a suspension", |id| id >= 0 && id != a)
            .await
            .unwrap();
        cluster.broker_mut(a).unwrap().resume().unwrap();
        let back = || async { cluster.elect("t", 0, Election::Preferred).await };
        eventually("the preferred one is in sync", SOON, back)
            .await
            .unwrap();
        until_led(&admin, "by the preferred one", |id| id == a)
            .await
            .unwrap();

        cluster.broker_mut(b).unwrap().kill().unwrap();
        until_led(&admin, "with one copy less", |id| id == a)
            .await
            .unwrap();
        eventually("the copy that is gone is not in sync", SOON, || async {
            ensure!(admin.in_sync("t").await? == [vec![a]]);
            Ok(())
        })
        .await
        .unwrap();
        cluster.broker_mut(a).unwrap().kill().unwrap();
        cluster.broker_mut(b).unwrap().restart().await.unwrap();
        until_led(&admin, "by nobody", |id| id < 0).await.unwrap();
        let elected = || async { cluster.elect("t", 0, Election::Unclean).await };
        eventually("an unclean election", SOON, elected)
            .await
            .unwrap();
        until_led(&admin, "by the one that is left", |id| id == b)
            .await
            .unwrap();
    }
}
