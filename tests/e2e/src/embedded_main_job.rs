//! The main job on one machine: `waypost dev`, its agent and library, and grpcio in Python.
//!
//! No call may fail but those in flight on an instance at the moment it is killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use waypost_announcer::{Announcer, AnnouncerPool, Health, PartitionWeights};
use waypost_testkit::caller::{Greeter, Load};
use waypost_testkit::parts;
use waypost_testkit::ports::free_port;
use waypost_testkit::process::{Process, Signal};
use waypost_testkit::waypost::{Server, ServerConfig, command};

use crate::Form;
use crate::clients::{Clients, bootstrap};
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, Fleet, HEARTBEAT, TTL, pool_to_gateways, uri};
use crate::look;

/// How soon after it was announced an instance is used.
const USED_WITHIN: Duration = Duration::from_secs(1);
/// How soon after a change that takes it out an instance gets no new call.
const QUIET_WITHIN: Duration = Duration::from_secs(1);
/// How soon clients have a server again that was restarted: gRPC waits up to about a second and a
/// half before its first attempt to reconnect, longer before the next ones.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(20);

/// An agent that starts the server it announces.
struct Agent {
    process: Process,
    name: String,
}

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let config = ServerConfig::dev(&folder.path().join("data"));
    let dev = config.start().await?;
    figures.step("`waypost dev` is ready; the first instance is announced by its agent");
    let first = Agent::start(&dev).await?;

    let file = bootstrap(dev.listen(), folder.path()).await?;
    let load = Load {
        rate: form.pick(200.0, 100.0),
        concurrency: 8,
    };
    let clients = Clients::start(form.pick(2, 1), load, &file, folder.path()).await?;
    let pool = pool_to_gateways(&[dev.listen().to_string()])?;

    let second = add(figures, &dev, &clients).await?;
    let third = Fleet::announce(&pool, 1).await?;
    weigh(figures, &dev, &clients, &third).await?;
    drain(figures, &clients, &third).await?;
    withdraw(figures, &dev, &clients, second).await?;
    let no_failure_before_the_crash = clients.calls()?.failed();
    figures.add_at_most(
        "failed calls before the crash",
        no_failure_before_the_crash,
        0,
    )?;
    let failed_in_crash = crash(figures, &dev, &clients, third, pool).await?;
    let dev = restart(figures, dev, &clients, form).await?;

    let calls = clients.finish().await?;
    figures.add("calls", calls.0.len());
    figures.add("failed calls, all told", calls.failed());
    for (why, count) in calls.failures() {
        figures.add(format!("  {why}"), count);
    }
    ensure!(
        calls.failed() == failed_in_crash,
        "calls failed that no killed instance explains"
    );
    drop((first, dev));
    Ok(())
}

/// A second instance is used within a second of its announcement.
async fn add(figures: &mut Figures, dev: &Server, clients: &Clients) -> anyhow::Result<Agent> {
    figures.step("a second instance is announced by its agent");
    let agent = Agent::start(dev).await?;
    let acknowledged = now();
    let used = clients.all_reach(&agent.name, 0.0, SOON).await?;
    figures.add_within(
        "used after its announcement",
        seconds(used - acknowledged),
        USED_WITHIN,
    )?;
    Ok(agent)
}

/// A change of weight arrives, and an instance of weight 0 gets no new call.
async fn weigh(
    figures: &mut Figures,
    dev: &Server,
    clients: &Clients,
    fleet: &Fleet,
) -> anyhow::Result<()> {
    figures.step("a third instance, announced through the library, changes its weight");
    let (announcer, name) = only(fleet)?;
    clients.all_reach(name, 0.0, SOON).await?;
    let changed = now();
    announcer.change_weight(PartitionWeights::from([(0, 3.0)]))?;
    let weight = |item: &Value| item["weights"]["0"].as_f64() == Some(3.0);
    look::instance(dev.admin(), CLUSTER, &uri(name), SOON, weight).await?;
    clients.all_call_on(now(), 50, SOON).await?;
    figures.add(
        "calls failed while a weight changed",
        clients.calls()?.since(changed).failed(),
    );
    Ok(())
}

/// A draining instance gets no new call; one that is healthy again does.
async fn drain(figures: &mut Figures, clients: &Clients, fleet: &Fleet) -> anyhow::Result<()> {
    figures.step("the third instance drains, and comes back");
    let (announcer, name) = only(fleet)?;
    let drained = now();
    announcer.set_health(Health::Draining)?;
    quiet(
        figures,
        clients,
        name,
        drained,
        "no new call after draining",
    )
    .await?;
    let healthy = now();
    announcer.set_health(Health::Healthy)?;
    let used = clients.all_reach(name, healthy, SOON).await?;
    figures.add_within(
        "used again after draining",
        seconds(used - healthy),
        USED_WITHIN,
    )
}

/// An agent that is asked to end withdraws first: no new call comes, and none fails.
async fn withdraw(
    figures: &mut Figures,
    dev: &Server,
    clients: &Clients,
    mut agent: Agent,
) -> anyhow::Result<()> {
    figures.step("the second instance is withdrawn (SIGTERM to its agent)");
    let asked = now();
    agent.process.signal(Signal::TERM)?;
    quiet(
        figures,
        clients,
        &agent.name,
        asked,
        "no new call after withdrawal",
    )
    .await?;
    agent.process.wait_exit(SOON).await?;
    look::instances(dev.admin(), CLUSTER, 2, SOON).await
}

/// An instance that dies with its announcer fails only what was in flight on it, and expires.
async fn crash(
    figures: &mut Figures,
    dev: &Server,
    clients: &Clients,
    fleet: Fleet,
    pool: AnnouncerPool,
) -> anyhow::Result<usize> {
    figures.step("the third instance and its announcer die (kill -9)");
    let Fleet {
        mut greeter,
        announcers,
        ..
    } = fleet;
    drop((announcers, pool));
    let killed = now();
    greeter.process.kill_9()?;
    clients.all_call_on(now(), 50, SOON).await?;
    let most = clients.concurrency();
    figures.add_at_most(
        "failed calls in flight on it",
        clients.calls()?.since(0.0).failed(),
        most,
    )?;

    let expired = TTL + HEARTBEAT + SOON;
    look::instances(dev.admin(), CLUSTER, 1, expired).await?;
    figures.add_within("expired after its death", seconds(now() - killed), expired)?;
    Ok(clients.calls()?.failed())
}

/// `dev` restarts and dies, each time with its data; clients keep calling what they know.
async fn restart(
    figures: &mut Figures,
    dev: Server,
    clients: &Clients,
    form: Form,
) -> anyhow::Result<Server> {
    let mut dev = dev;
    for round in 0..form.pick(3, 1) {
        figures.step(&format!(
            "`waypost dev` restarts, then is killed (-9): round {}",
            round + 1
        ));
        dev = dev.stop().await.context("SIGTERM to dev")?.start().await?;
        look::instances(dev.admin(), CLUSTER, 1, SOON).await?;
        clients.all_call_on(now(), 50, SOON).await?;
        dev = dev.kill_9()?.start().await?;
        look::instances(dev.admin(), CLUSTER, 1, SOON).await?;
        clients.all_call_on(now(), 50, SOON).await?;
    }
    figures.step("an instance is announced to the `dev` that came back");
    let began = now();
    let agent = Agent::start(&dev).await?;
    let used = clients.all_reach(&agent.name, began, BACK_WITHIN).await?;
    figures.add_within(
        "new instance used after the kill",
        seconds(used - began),
        BACK_WITHIN,
    )?;
    // Ends by being withdrawn, so that the end of the proof fails no call.
    let mut agent = agent;
    agent.process.terminate().await?;
    Ok(dev)
}

/// Waits until `name` has got no call for a while and says when the last one began.
async fn quiet(
    figures: &mut Figures,
    clients: &Clients,
    name: &str,
    since: f64,
    what: &str,
) -> anyhow::Result<()> {
    let bound = QUIET_WITHIN.as_secs_f64();
    clients.all_call_on(since + bound, 100, SOON).await?;
    let last = clients.last_answer(name, since)?;
    figures.add_within(what, seconds(last - since), QUIET_WITHIN)
}

fn only(fleet: &Fleet) -> anyhow::Result<(&Announcer, &str)> {
    let announcer = fleet.announcers.first().context("a fleet of one")?;
    Ok((announcer, fleet.names().first().context("a fleet of one")?))
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

impl Agent {
    /// Starts a server through `waypost announce` and waits until it says that the log has it.
    async fn start(dev: &Server) -> anyhow::Result<Self> {
        let port = free_port();
        let name = format!("127.0.0.1:{port}");
        let mut announce = Self::announce_command(dev, port)?;
        announce.arg("--").args(server_words(port)?);
        let mut process = Process::spawn("agent", announce)?;
        let acknowledged = |line: &str| line.contains("acknowledged");
        process
            .wait_for_line("acknowledged by the log", SOON, acknowledged)
            .await?;
        Ok(Self { process, name })
    }

    fn announce_command(dev: &Server, port: u16) -> anyhow::Result<Command> {
        let uri = format!("grpc://127.0.0.1:{port}");
        let check = format!("tcp://127.0.0.1:{port}");
        let to = dev.listen().to_string();
        let mut announce = command(&["announce", "--cluster", CLUSTER, "--uri", &uri])?;
        announce.args(["--health-check", &check, "--to", &to, "--drain", "2s"]);
        announce.args(["--heartbeat", "3s", "--ttl", "10s"]);
        Ok(announce)
    }
}

/// The command line of a greeter, as a user would type it after `--`.
fn server_words(port: u16) -> anyhow::Result<Vec<String>> {
    let greeter = Greeter::command(&[port])?;
    let program = greeter.get_program().to_string_lossy().into_owned();
    let args = greeter
        .get_args()
        .map(|word| word.to_string_lossy().into_owned());
    ensure!(
        Path::new(&program).starts_with(parts::dir()?),
        "not the test kit's Python: {program}"
    );
    Ok(std::iter::once(program).chain(args).collect())
}
