//! The main job of a fabric: Apache Kafka, two Observers behind one name, many instances, grpcio.
//!
//! Killing an Observer fails no call and delays no change for longer than clients take to reconnect.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_testkit::caller::Load;
use waypost_testkit::dns::DnsServer;
use waypost_testkit::kafka::KafkaBroker;
use waypost_testkit::ports::{free_port, loopback};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli};

use crate::Form;
use crate::clients::{Clients, bootstrap_by_name};
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, Fleet, pool_to_kafka};
use crate::look;

/// The one name of both Observers.
const NAME: &str = "observers.waypost.test";
/// The topics of the proof.
const PREFIX: &str = "waypost";
/// How soon every client calls an instance that is announced after an Observer died.
const USED_WITHIN: Duration = Duration::from_secs(10);
/// How soon an Observer is ready after it was started over a log this small.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(60);

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    figures.step("Apache Kafka starts, topics are made");
    let kafka = KafkaBroker::start().await?;
    create_topics(&kafka.bootstrap()).await?;

    figures.step("two Observers start, at 127.0.0.2 and 127.0.0.3");
    let port = free_port();
    let left = observer(&kafka, 2, port);
    let right = observer(&kafka, 3, port);
    let (left, right) = (left.start().await?, right.start().await?);
    let dns = DnsServer::start(&[left.listen().ip(), right.listen().ip()])?;

    let instances = form.pick(200, 40);
    figures.step(&format!(
        "{instances} instances are announced through the library"
    ));
    let pool = pool_to_kafka(&kafka.bootstrap(), PREFIX)?;
    let fleet = Fleet::announce(&pool, instances).await?;
    for server in [&left, &right] {
        look::instances(server.admin(), CLUSTER, instances, SOON).await?;
    }

    let file = bootstrap_by_name(NAME, port, &dns, folder.path()).await?;
    let load = Load {
        rate: form.pick(100.0, 50.0),
        concurrency: 8,
    };
    let clients = Clients::start(form.pick(4, 2), load, &file, folder.path()).await?;
    clients.all_call_on(now(), instances, SOON).await?;

    let late = Fleet::prepare(&pool, 1).await?;
    let (killed, survivor) = kill_the_busy_one(figures, left, right).await?;
    announce_after(figures, &late, &clients).await?;
    figures.add_at_most("failed calls", clients.calls()?.failed(), 0)?;
    come_back(figures, &killed, &survivor, instances).await?;

    let calls = clients.finish().await?;
    figures.add("instances", instances);
    figures.add("calls", calls.0.len());
    figures.add("instances that answered", calls.answers().len());
    figures.add_at_most("failed calls, all told", calls.failed(), 0)?;
    pool.mark_down_all();
    pool.settled().await?;
    look::instances(survivor.admin(), CLUSTER, 0, SOON).await?;
    drop((fleet, late));
    Ok(())
}

/// `waypost topics create` for one broker.
///
/// # Errors
/// It does not exit 0.
pub async fn create_topics(bootstrap: &str) -> anyhow::Result<()> {
    let args = [
        "topics",
        "create",
        "--kafka",
        bootstrap,
        "--topic-prefix",
        PREFIX,
    ];
    let development = ["--replication", "1", "--partitions", "4"];
    let done = cli(&[&args[..], &development].concat()).await?;
    ensure!(
        done.code() == 0,
        "topics create exits {}: {}{}",
        done.code(),
        done.stdout,
        done.stderr
    );
    Ok(())
}

/// An Observer over a broker, on 127.0.0.`host`. A log that was just made has no old announcers to
/// wait for.
#[must_use]
pub fn observer(kafka: &KafkaBroker, host: u8, port: u16) -> ServerConfig {
    ServerConfig::observer(&kafka.bootstrap(), PREFIX)
        .listen(SocketAddr::new(loopback(host), port))
        .args(&["--newborn-grace", "1s"])
}

/// Kills (-9) the Observer that serves the clients. Gives how to start it again, and the other one.
async fn kill_the_busy_one(
    figures: &mut Figures,
    left: Server,
    right: Server,
) -> anyhow::Result<(ServerConfig, Server)> {
    let streams = |server: &Server| {
        let admin = server.admin();
        async move {
            let status = look::api(admin, "status").await?;
            status["counts"]["streams"]
                .as_u64()
                .context("status without counts.streams")
        }
    };
    let counts = (streams(&left).await?, streams(&right).await?);
    figures.add(
        "streams on the two Observers",
        format_args!("{} and {}", counts.0, counts.1),
    );
    ensure!(counts.0 + counts.1 > 0, "no client has a stream");
    let (busy, other) = if counts.0 >= counts.1 {
        (left, right)
    } else {
        (right, left)
    };
    figures.step(&format!("the Observer at {} is killed (-9)", busy.listen()));
    Ok((busy.kill_9()?, other))
}

/// An instance announced right after the kill is called by every client soon.
async fn announce_after(
    figures: &mut Figures,
    late: &Fleet,
    clients: &Clients,
) -> anyhow::Result<()> {
    figures.step("an instance is announced after the kill");
    let began = now();
    late.mark_up().await?;
    let name = late.names().first().context("a fleet of one")?;
    let reached = clients.all_reach(name, began, USED_WITHIN + SOON).await?;
    let took = Duration::from_secs_f64((reached - began).max(0.0));
    figures.add_within(
        "called by every client after kill and announcement",
        took,
        USED_WITHIN,
    )?;
    // Withdrawn, then left serving until no client can have it in flight.
    late.mark_down().await?;
    clients.all_call_on(now() + 1.0, 20, SOON).await
}

/// A new Observer replays, is ready, and serves the very same bytes.
async fn come_back(
    figures: &mut Figures,
    killed: &ServerConfig,
    survivor: &Server,
    instances: usize,
) -> anyhow::Result<()> {
    figures.step("a new Observer starts in the place of the killed one");
    let began = now();
    let mut server = killed.spawn()?;
    server.ready(READY_WITHIN + SOON).await?;
    let took = Duration::from_secs_f64((now() - began).max(0.0));
    figures.add_within("ready after replay", took, READY_WITHIN)?;
    // Ready means whole: no waiting for instances here.
    let found = look::uris(server.admin(), CLUSTER).await?.len();
    ensure!(
        found == instances,
        "ready with {found} of {instances} instances"
    );
    let versions = eventually("equal versions on both Observers", SOON, || async {
        let (old, new) = (
            look::versions(survivor.admin(), CLUSTER).await?,
            look::versions(server.admin(), CLUSTER).await?,
        );
        ensure!(old == new, "{old} and {new}");
        Ok(old)
    })
    .await?;
    figures.add("equal versions on both Observers", versions);
    server.stop().await.context("SIGTERM to an Observer")?;
    Ok(())
}
