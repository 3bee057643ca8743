//! The Rust client library against `waypost dev`: instances are replaced one after another, the Observer is
//! killed and comes back, and a client starts while there is none. No call may fail.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use waypost_announcer::{Announcer, AnnouncerPool};
use waypost_client::{Client, Cluster, ClusterChannel, Stale, Standing};
use waypost_testkit::tonic_greeter::{TonicGreeter, hello};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::Form;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, announcement, pool_to_gateways, uri};

/// Calls in flight at most.
const WORKERS: usize = 8;
/// How long each server takes to answer, so that there is always something in flight.
const ANSWER_TAKES: Duration = Duration::from_millis(20);
/// What an instance waits between its withdrawal and its end: the agent's `--drain`.
const DRAIN: Duration = Duration::from_secs(1);
/// How soon after it was announced an instance is in the list.
const LISTED_WITHIN: Duration = Duration::from_secs(1);
/// How soon the client has an Observer again that came back: the longest of its first pauses, and what
/// starting takes.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(30);

/// A server and its announcement.
struct Instance {
    greeter: TonicGreeter,
    announcer: Announcer,
}

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("lists");
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await?;
    let pool = pool_to_gateways(&[dev.listen().to_string()])?;
    let (count, replaced) = form.pick((40, 20), (8, 4));
    figures.step(&format!(
        "{count} servers of tonic are announced to `waypost dev`"
    ));
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(Instance::start(&pool).await?);
    }

    let client = mk_client(&dev.listen().to_string(), &file)?;
    let cluster = client.cluster(CLUSTER)?;
    until_len(&cluster, count).await?;
    let load = Load::start(cluster.channel());
    replace(figures, &pool, &cluster, &load, &mut instances, replaced).await?;
    let dev = kill_and_start(figures, dev, &client, &load, form.pick(3, 1)).await?;
    figures.step("another instance is announced to the one that came back");
    instances.push(Instance::start(&pool).await?);
    until_len(&cluster, count + 1).await?;
    let newest = instances.last().context("it was added")?.greeter.name();
    load.until_answer(&newest).await?;

    let tally = load.finish().await?;
    figures.add("calls", tally.calls);
    let failed: usize = tally.failures_by_status.values().sum();
    for (status, count) in &tally.failures_by_status {
        figures.add(format!("  {status}"), count);
    }
    figures.add_at_most("failed calls", failed, 0)?;
    let metrics = client.metrics();
    figures.add("streams lost", metrics.streams_lost);
    figures.add("connections to servers", metrics.connections_opened);
    drop(cluster);
    client.close().await;
    start_without_observer(figures, dev, &file, count + 1).await
}

/// Replaces instances one after another: the new one is announced, the old one withdrawn, and ended at
/// once when its drain is over.
async fn replace(
    figures: &mut Figures,
    pool: &AnnouncerPool,
    cluster: &Cluster,
    load: &Load,
    instances: &mut Vec<Instance>,
    replaced: usize,
) -> anyhow::Result<()> {
    let count = instances.len();
    figures.step(&format!(
        "{replaced} of {count} are replaced, one after another"
    ));
    let mut slowest = Duration::ZERO;
    for _ in 0..replaced {
        let new = Instance::start(pool).await?;
        let acknowledged = Instant::now();
        let address = new.greeter.address();
        eventually("the new one is listed", SOON, || async {
            let list = cluster.endpoints();
            let listed = list.endpoints().iter().any(|e| e.address() == address);
            ensure!(listed, "{list:?}");
            Ok(())
        })
        .await?;
        slowest = slowest.max(acknowledged.elapsed());
        instances.push(new);
        let old = instances.remove(0);
        old.announcer.mark_down();
        old.announcer.settled().await?;
        sleep(DRAIN).await;
        old.greeter.kill().await?;
    }
    figures.add_within("listed after its announcement", slowest, LISTED_WITHIN)?;
    until_len(cluster, count).await?;
    for instance in instances.iter() {
        load.until_answer(&instance.greeter.name()).await?;
    }
    figures.add("failed calls while they were replaced", load.failed());
    Ok(())
}

/// Kills the Observer and starts it again, with calls going on while it is away.
async fn kill_and_start(
    figures: &mut Figures,
    dev: Server,
    client: &Client,
    load: &Load,
    rounds: usize,
) -> anyhow::Result<Server> {
    let mut dev = dev;
    let mut slowest = Duration::ZERO;
    for round in 1..=rounds {
        figures.step(&format!(
            "the Observer is killed (-9) and started again: round {round}"
        ));
        let down = dev.kill_9()?;
        eventually("the client notices", SOON, || async {
            ensure!(client.metrics().connected == 0, "it does not");
            Ok(())
        })
        .await?;
        load.until_more_calls(200).await?;
        dev = down.start().await?;
        let ready = Instant::now();
        eventually("the client is back", BACK_WITHIN + SOON, || async {
            let health = client.health();
            ensure!(health.is_fresh(), "{health:?}");
            Ok(())
        })
        .await?;
        slowest = slowest.max(ready.elapsed());
        load.until_more_calls(200).await?;
    }
    figures.add_within(
        "lists fresh after the Observer was ready",
        slowest,
        BACK_WITHIN,
    )?;
    figures.add("failed calls while it was killed", load.failed());
    Ok(dev)
}

/// A client that starts while no Observer runs serves from its file, and is confirmed later.
async fn start_without_observer(
    figures: &mut Figures,
    dev: Server,
    file: &Path,
    count: usize,
) -> anyhow::Result<()> {
    figures.step("the Observer is killed; another client starts without any");
    let server = dev.listen().to_string();
    let down = dev.kill_9()?;
    let client = mk_client(&server, file)?;
    let cluster = client.cluster(CLUSTER)?;
    let list = cluster.endpoints();
    figures.add("endpoints from the file, at once", list.len());
    ensure!(
        list.len() == count,
        "the file had {} of {count}",
        list.len()
    );
    let from_file = Standing::Stale(Stale::FromFile);
    ensure!(list.standing() == from_file, "{list:?}");
    let load = Load::start(cluster.channel());
    load.until_more_calls(500).await?;
    let list = cluster.endpoints();
    ensure!(
        list.standing() == from_file,
        "there is no Observer, yet {list:?}"
    );

    let _dev = down.start().await?;
    eventually("its list is fresh", BACK_WITHIN + SOON, || async {
        let health = client.health();
        ensure!(health.is_fresh(), "{health:?}");
        Ok(())
    })
    .await?;
    load.until_more_calls(200).await?;
    let tally = load.finish().await?;
    figures.add("calls of the client that started without", tally.calls);
    let failed: usize = tally.failures_by_status.values().sum();
    figures.add_at_most("failed calls of it", failed, 0)
}

fn mk_client(server: &str, file: &Path) -> anyhow::Result<Client> {
    let builder = Client::builder().application("waypost-e2e");
    Ok(builder.server(server).cache_file(file).build()?)
}

async fn until_len(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    eventually(&format!("{count} endpoints"), SOON, || async {
        let list = cluster.endpoints();
        ensure!(list.len() == count, "{list:?}");
        Ok(())
    })
    .await
}

impl Instance {
    /// Starts a server and announces it; returns once the log has it.
    async fn start(pool: &AnnouncerPool) -> anyhow::Result<Self> {
        let greeter = TonicGreeter::start(ANSWER_TAKES).await?;
        let announcer = pool.announce(announcement(&uri(&greeter.name()))?)?;
        announcer.settled().await?;
        Ok(Self { greeter, announcer })
    }
}

/// What came of calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: usize,
    answers_by_name: BTreeMap<String, usize>,
    pub(crate) failures_by_status: BTreeMap<String, usize>,
}

/// Workers that call without a pause until they are told to end.
pub(crate) struct Load {
    tally: Arc<Mutex<Tally>>,
    end: CancellationToken,
    workers: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(channel: ClusterChannel) -> Self {
        let mut load = Self {
            tally: Arc::default(),
            end: CancellationToken::new(),
            workers: JoinSet::new(),
        };
        for _ in 0..WORKERS {
            let (channel, tally) = (channel.clone(), Arc::clone(&load.tally));
            let end = load.end.clone();
            load.workers.spawn(async move {
                while !end.is_cancelled() {
                    let outcome = hello(channel.clone()).await;
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.calls += 1;
                    let count = match outcome {
                        Ok(name) => tally.answers_by_name.entry(name),
                        Err(status) => tally.failures_by_status.entry(status.to_string()),
                    };
                    *count.or_default() += 1;
                }
            });
        }
        load
    }

    fn tally(&self) -> Tally {
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn failed(&self) -> usize {
        self.tally().failures_by_status.values().sum()
    }

    pub(crate) async fn until_answer(&self, name: &str) -> anyhow::Result<()> {
        eventually(&format!("{name} is called"), SOON, || async {
            let tally = self.tally();
            ensure!(tally.answers_by_name.contains_key(name), "{tally:?}");
            Ok(())
        })
        .await
    }

    pub(crate) async fn until_more_calls(&self, calls: usize) -> anyhow::Result<()> {
        let goal = self.tally().calls + calls;
        eventually(&format!("{calls} more calls"), SOON, || async {
            let made = self.tally().calls;
            ensure!(made >= goal, "{made} of {goal}");
            Ok(())
        })
        .await
    }

    /// Lets the calls in flight end.
    pub(crate) async fn finish(mut self) -> anyhow::Result<Tally> {
        self.end.cancel();
        while let Some(worker) = self.workers.join_next().await {
            worker?;
        }
        Ok(self.tally())
    }
}
