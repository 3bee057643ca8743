//! What the proof plays on: brokers, Observers behind one name, instances, clients.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::Instant;
use waypost_announcer::AnnouncerPool;
use waypost_testkit::caller::Load;
use waypost_testkit::dns::DnsServer;
use waypost_testkit::kafka::{KafkaAdmin, KafkaCluster};
use waypost_testkit::ports::{free_port, loopback};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli};

use super::witness::{Seen, Witness};
use crate::Form;
use crate::clients::{Clients, bootstrap_by_name};
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, Fleet, HEARTBEAT, pool_to_gateways, pool_to_kafka, uri};
use crate::look;

/// The one name of both Observers.
const NAME: &str = "observers.waypost.test";
/// The topics of the proof.
const PREFIX: &str = "waypost";
/// Partitions of the announcements at first.
pub(super) const PARTITIONS: u32 = 4;
/// A bound on everything that should take a moment.
pub(super) const SOON: Duration = Duration::from_secs(120);

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) form: Form,
    pub(super) kafka: KafkaCluster,
    pub(super) admin: KafkaAdmin,
    /// The two Observers; `None`: killed.
    pub(super) observers: [Option<Server>; 2],
    configs: [ServerConfig; 2],
    witnesses: Vec<Witness>,
    pub(super) clients: Clients,
    /// Instances that are there all the time, most announced to Kafka, some through the gateways.
    fleets: Vec<Fleet>,
    pools: Vec<AnnouncerPool>,
    /// Comes and goes, to see whether changes arrive.
    marker: Fleet,
    /// Changes made to the cluster so far.
    pub(super) changes: usize,
    _dns: DnsServer,
}

impl Stage {
    /// Starts everything, and waits until every client calls.
    ///
    /// # Errors
    /// A part does not start.
    pub(super) async fn set(
        form: Form,
        figures: &mut Figures,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        figures.step("three brokers start, topics are made with three copies");
        let kafka = KafkaCluster::start(3).await?;
        let bootstrap = kafka.bootstrap();
        create_topics(&bootstrap).await?;
        figures.step("two Observers start, at 127.0.0.2 and 127.0.0.3");
        let port = free_port();
        let config = |host| {
            ServerConfig::observer(&bootstrap, PREFIX)
                .listen(SocketAddr::new(loopback(host), port))
                // Longer than a heartbeat interval, as it must be.
                .args(&["--newborn-grace", "5s"])
        };
        let configs = [config(2), config(3)];
        let (left, right) = tokio::try_join!(configs[0].start(), configs[1].start())?;
        let dns = DnsServer::start(&[left.listen().ip(), right.listen().ip()])?;

        let (by_kafka, by_gateway) = form.pick((400, 100), (48, 12));
        figures.step(&format!(
            "{by_kafka} instances are announced to Kafka, {by_gateway} through the gateways"
        ));
        let gateways = [left.listen().to_string(), right.listen().to_string()];
        let pools = vec![
            pool_to_kafka(&bootstrap, PREFIX)?,
            pool_to_gateways(&gateways)?,
        ];
        let fleets = vec![
            Fleet::announce(&pools[0], by_kafka).await?,
            Fleet::announce(&pools[1], by_gateway).await?,
        ];
        let marker = Fleet::prepare(&pools[0], 1).await?;
        let always = fleets.iter().flat_map(Fleet::names).cloned().collect();
        let observers = [Some(left), Some(right)];
        let witnesses = watch(&observers, &always).await?;
        let file = bootstrap_by_name(NAME, port, &dns, folder).await?;
        let load = Load {
            rate: form.pick(60.0, 40.0),
            concurrency: 6,
        };
        let clients = Clients::start(form.pick(3, 2), load, &file, folder).await?;
        clients.all_call_on(now(), 50, SOON).await?;
        figures.add("instances", always.len());
        Ok(Self {
            form,
            admin: kafka.admin()?,
            kafka,
            observers,
            configs,
            witnesses,
            clients,
            fleets,
            pools,
            marker,
            changes: 0,
            _dns: dns,
        })
    }

    /// The full name of a topic.
    pub(super) fn topic(suffix: &str) -> String {
        format!("{PREFIX}.{suffix}")
    }

    /// Instances that are there all the time.
    pub(super) fn always(&self) -> usize {
        self.fleets.iter().map(|fleet| fleet.names().len()).sum()
    }

    /// Whether an instance is announced through the gateways, by `HOST:PORT`.
    pub(super) fn is_by_gateway(&self, name: &str) -> bool {
        self.fleets[1].names().iter().any(|other| other == name)
    }

    /// What the witnesses have seen.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.witnesses.iter().map(Witness::seen).collect()
    }

    /// Which Observer is the keeper.
    ///
    /// # Errors
    /// None says that it is, in time.
    pub(super) async fn find_keeper(&self) -> anyhow::Result<usize> {
        eventually("one Observer is the keeper", SOON, || async {
            for (index, observer) in self.observers.iter().enumerate() {
                let admin = observer.as_ref().context("it does not run")?.admin();
                if look::api(admin, "status").await?["keeper"]["role"] == "keeper" {
                    return Ok(index);
                }
            }
            anyhow::bail!("none is")
        })
        .await
    }

    /// One Observer that runs.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn observer(&self, index: usize) -> anyhow::Result<&Server> {
        self.observers[index].as_ref().context("it does not run")
    }

    /// Kills an Observer (-9).
    ///
    /// # Errors
    /// It does not run.
    pub(super) fn kill_observer(&mut self, index: usize) -> anyhow::Result<()> {
        let observer = self.observers[index].take().context("it does not run")?;
        observer.kill_9().map(|_| ())
    }

    /// Starts an Observer that was killed, and waits until it is ready: ready means whole.
    ///
    /// # Errors
    /// It is not, or not ready in time.
    pub(super) async fn start_observer(&mut self, index: usize) -> anyhow::Result<()> {
        let mut server = self.configs[index].spawn()?;
        server.ready(SOON).await?;
        let found = look::uris(server.admin(), CLUSTER).await?.len();
        self.observers[index] = Some(server);
        let always = self.always();
        ensure!(found >= always, "ready with {found} of {always} instances");
        Ok(())
    }

    /// Makes a change and waits until both Observers serve it and the very same: how long that took.
    ///
    /// # Errors
    /// They do not, in time.
    pub(super) async fn converge(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let always = self.always();
        self.changes += 2;
        self.mark_up().await?;
        self.both_serve(always + 1).await?;
        let took = began.elapsed();
        let name = self.marker.names().first().context("a fleet of one")?;
        self.clients.all_reach(name, 0.0, SOON).await?;
        self.mark_down().await?;
        self.both_serve(always).await?;
        Ok(took)
    }

    /// The URI of the instance that comes and goes.
    ///
    /// # Errors
    /// None.
    pub(super) fn marker_uri(&self) -> anyhow::Result<String> {
        let name = self.marker.names().first().context("a fleet of one")?;
        Ok(uri(name))
    }

    /// Announces the instance that comes and goes.
    ///
    /// # Errors
    /// The log does not take it, for long.
    pub(super) async fn mark_up(&self) -> anyhow::Result<()> {
        let marked = tokio::time::timeout(SOON, self.marker.mark_up()).await;
        marked.context("the log does not take an announcement")?
    }

    /// Withdraws it.
    ///
    /// # Errors
    /// The log does not take it, for long.
    pub(super) async fn mark_down(&self) -> anyhow::Result<()> {
        let marked = tokio::time::timeout(SOON, self.marker.mark_down()).await;
        marked.context("the log does not take a withdrawal")?
    }

    /// Runs a command of the binary that writes, through the gateways of both Observers.
    ///
    /// # Errors
    /// It does not exit 0.
    pub(super) async fn waypost(&self, args: &[&str]) -> anyhow::Result<()> {
        let gateways = self.configs.each_ref().map(|c| c.listen_addr().to_string());
        let done = cli(&[args, &["--to", &gateways.join(",")]].concat()).await?;
        ensure!(done.code() == 0, "waypost {args:?}: {}", done.stderr);
        Ok(())
    }

    /// Waits until both Observers serve so many instances, by the same versions.
    ///
    /// # Errors
    /// They do not, in time.
    pub(super) async fn both_serve(&self, count: usize) -> anyhow::Result<()> {
        eventually(&format!("both serve {count} instances"), SOON, || async {
            let mut versions = Vec::new();
            for observer in self.observers.iter().flatten() {
                let found = look::uris(observer.admin(), CLUSTER).await?.len();
                ensure!(found == count, "{} serves {found}", observer.admin());
                versions.push(look::versions(observer.admin(), CLUSTER).await?);
            }
            ensure!(versions[0] == *versions.last().context("none runs")?);
            Ok(())
        })
        .await
    }

    /// Which log each Observer reads, as it says.
    ///
    /// # Errors
    /// One does not know.
    pub(super) async fn identities(&self) -> anyhow::Result<Vec<String>> {
        let mut identities = Vec::new();
        for observer in self.observers.iter().flatten() {
            let status = look::api(observer.admin(), "status").await?;
            let identity = status["log"]["identity"].as_str();
            identities.push(identity.context("no identity")?.to_owned());
        }
        Ok(identities)
    }

    /// Waits until no Observer holds an instance that it has not read in this log.
    ///
    /// # Errors
    /// One does, after a long time.
    pub(super) async fn all_confirmed(&self) -> anyhow::Result<()> {
        eventually("everything is confirmed", SOON, || async {
            for observer in self.observers.iter().flatten() {
                let status = look::api(observer.admin(), "status").await?;
                let count = &status["counts"]["unconfirmed_instances"];
                ensure!(*count == 0, "{count} are not, at {}", observer.admin());
            }
            Ok(())
        })
        .await
    }

    /// Waits until each client has called for this long.
    ///
    /// # Errors
    /// One stopped calling.
    pub(super) async fn call_on(&self, time: Duration) -> anyhow::Result<()> {
        let until = now() + time.as_secs_f64();
        self.clients.all_call_on(until, 1, time + SOON).await
    }

    /// Withdraws everything and ends.
    ///
    /// # Errors
    /// A call failed, or an instance stays.
    pub(super) async fn end(self, figures: &mut Figures) -> anyhow::Result<()> {
        // Everybody has had the time to beat, and the log the time to notice who has not.
        self.call_on(HEARTBEAT * 4).await?;
        let lost: BTreeSet<String> = self.seen().into_iter().flat_map(|s| s.lost).collect();
        let calls = self.clients.finish().await?;
        figures.add("calls", calls.0.len());
        figures.add("instances that answered", calls.answers().len());
        figures.add_at_most("failed calls, all told", calls.failed(), 0)?;
        figures.add_at_most("instances lost, all told", lost.len(), 0)?;
        for pool in &self.pools {
            pool.mark_down_all();
            pool.settled().await?;
        }
        for observer in self.observers.iter().flatten() {
            look::instances(observer.admin(), CLUSTER, 0, SOON).await?;
        }
        Ok(())
    }
}

/// `waypost topics create`, with the copies of a cluster.
///
/// # Errors
/// It does not exit 0.
pub(super) async fn create_topics(bootstrap: &str) -> anyhow::Result<()> {
    let partitions = PARTITIONS.to_string();
    let args = [
        "topics",
        "create",
        "--kafka",
        bootstrap,
        "--topic-prefix",
        PREFIX,
        "--partitions",
        &partitions,
    ];
    let done = cli(&args).await?;
    ensure!(
        done.code() == 0,
        "topics create exits {}: {}{}",
        done.code(),
        done.stdout,
        done.stderr
    );
    Ok(())
}

async fn watch(
    observers: &[Option<Server>; 2],
    always: &BTreeSet<String>,
) -> anyhow::Result<Vec<Witness>> {
    let mut witnesses = Vec::new();
    for observer in observers.iter().flatten() {
        look::instances(observer.admin(), CLUSTER, always.len(), SOON).await?;
        let witness = Witness::start(observer.listen(), always);
        eventually("the witness is answered", SOON, || async {
            ensure!(witness.seen().responses > 0);
            Ok(())
        })
        .await?;
        witnesses.push(witness);
    }
    Ok(witnesses)
}
