//! The faults, one after the other. Each ends with both Observers serving the same, a change that was
//! made after it included.

use std::time::Duration;

use anyhow::Context as _;
use waypost_testkit::caller::Greeter;
use waypost_testkit::ports::free_port;
use waypost_testkit::process::Signal;
use waypost_testkit::wait::eventually;

use super::foreign;
use super::report::Report;
use super::stage::{PARTITIONS, SOON, Stage, create_topics};
use crate::Form;
use crate::figures::Figures;
use crate::fleet::{HEARTBEAT, TTL, uri};
use crate::look;

/// One fault.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    /// Which, as the figures call it.
    pub(super) name: &'static str,
    /// Whether the short form has it.
    in_short: bool,
    /// How soon both Observers serve a change that is made once the fault is over.
    within: Duration,
}

const KEEPER_KILLED: &str = "the keeper is killed (-9)";
const KEEPER_STOPPED: &str = "the keeper is stopped for three time-to-live";
const BROKER_KILLED: &str = "a broker is killed (-9)";
const BROKER_STOPPED: &str = "a broker is stopped";
const LOG_AWAY: &str = "the log is away";
const GROWS: &str = "partitions 4 to 8";
const MADE_ANEW: &str = "the topic is made anew";
const CONFIG_MADE_ANEW: &str = "the config topic is made anew";
const WITHOUT_HEADERS: &str = "kcat, without headers, and ours";
const ALL_KILLED: &str = "every broker and Observer is killed at once (-9)";

/// What happens, in this order.
const PHASES: [Phase; 10] = [
    phase(KEEPER_KILLED, true, 10),
    phase(KEEPER_STOPPED, false, 10),
    phase(BROKER_KILLED, false, 20),
    phase(BROKER_STOPPED, false, 20),
    phase(LOG_AWAY, true, 30),
    phase(GROWS, true, 20),
    phase(MADE_ANEW, true, 60),
    phase(CONFIG_MADE_ANEW, true, 20),
    phase(WITHOUT_HEADERS, true, 10),
    phase(ALL_KILLED, false, 90),
];

const fn phase(name: &'static str, in_short: bool, within_s: u64) -> Phase {
    Phase {
        name,
        in_short,
        within: Duration::from_secs(within_s),
    }
}

/// The phases of a form.
pub(super) fn of(form: Form) -> impl Iterator<Item = Phase> {
    PHASES
        .into_iter()
        .filter(move |phase| form == Form::Full || phase.in_short)
}

/// Runs one phase and adds its figures.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub(super) async fn run(
    phase: Phase,
    stage: &mut Stage,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    figures.step(phase.name);
    let report = Report::begin(phase.name, stage);
    match phase.name {
        KEEPER_KILLED => keeper_killed(stage).await?,
        KEEPER_STOPPED => keeper_stopped(stage).await?,
        BROKER_KILLED => broker_killed(stage).await?,
        BROKER_STOPPED => broker_stopped(stage).await?,
        LOG_AWAY => log_away(stage).await?,
        GROWS => grows(stage).await?,
        MADE_ANEW => made_anew(stage, figures).await?,
        CONFIG_MADE_ANEW => config_made_anew(stage, figures).await?,
        WITHOUT_HEADERS => without_headers(stage).await?,
        _ => all_killed(stage).await?,
    }
    let converged = stage.converge().await?;
    report.end(stage, figures, converged, phase.within)
}

/// The other one takes over; a new one replays and serves the same.
async fn keeper_killed(stage: &mut Stage) -> anyhow::Result<()> {
    let keeper = stage.find_keeper().await?;
    stage.kill_observer(keeper)?;
    stage.converge().await?;
    stage.start_observer(keeper).await
}

/// What it missed makes nobody old: it reads on and expires nobody on its own account.
async fn keeper_stopped(stage: &mut Stage) -> anyhow::Result<()> {
    let keeper = stage.find_keeper().await?;
    stage.observer(keeper)?.process.signal(Signal::STOP)?;
    stage.call_on(TTL * 3).await?;
    stage.observer(keeper)?.process.signal(Signal::CONT)
}

/// Its partitions get other leaders; it comes back.
async fn broker_killed(stage: &mut Stage) -> anyhow::Result<()> {
    let leader = leader_of_partition_0(stage).await?;
    stage.kafka.broker_mut(leader)?.kill()?;
    stage.converge().await?;
    stage.kafka.broker_mut(leader)?.restart().await
}

/// Its connections stay open, and nothing is answered.
async fn broker_stopped(stage: &mut Stage) -> anyhow::Result<()> {
    let leader = leader_of_partition_0(stage).await?;
    stage.kafka.broker_mut(leader)?.pause()?;
    stage.converge().await?;
    stage.call_on(TTL).await?;
    stage.kafka.broker_mut(leader)?.resume()
}

/// Every broker hangs: the log accepts nothing, then works. Time stands still with it.
async fn log_away(stage: &mut Stage) -> anyhow::Result<()> {
    for broker in stage.kafka.brokers() {
        broker.pause()?;
    }
    let away = stage.call_on(TTL * stage.form.pick(36, 3)).await;
    for broker in stage.kafka.brokers() {
        broker.resume()?;
    }
    away
}

/// Every key may find itself in another partition, and beats go to the old one for a while: those of
/// one producer, who never looks, for as long as it lives.
async fn grows(stage: &mut Stage) -> anyhow::Result<()> {
    let always = stage.always();
    let (port, uri) = loop {
        let port = free_port();
        let uri = uri(&format!("127.0.0.1:{port}"));
        if foreign::moves(&uri)? {
            break (port, uri);
        }
    };
    let _serves = Greeter::start(&[port]).await?;
    stage.changes += 2;
    let mut stale = foreign::beat(stage, &uri).await?;
    stage.both_serve(always + 1).await?;
    let topic = Stage::topic("announcements");
    stage.admin.add_partitions(&topic, 2 * PARTITIONS).await?;
    // Everybody has beaten in its new partition, and the old copies have had the time to grow old.
    stage.call_on(TTL * stage.form.pick(4, 2)).await?;
    stage.both_serve(always + 1).await?;
    stale.terminate().await?;
    stage.both_serve(always).await?;
    // It serves until nobody can have it in flight.
    stage.call_on(HEARTBEAT).await
}

/// Deleted and made under load, empty: whole after one heartbeat interval.
async fn made_anew(stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let topic = Stage::topic("announcements");
    let before = stage.identities().await?;
    stage.admin.delete_topic(&topic).await?;
    create_topics(&stage.kafka.bootstrap()).await?;
    let began = tokio::time::Instant::now();
    eventually("both notice", SOON, || async {
        let now = stage.identities().await?;
        let differ = now.iter().zip(&before).all(|(now, before)| now != before);
        anyhow::ensure!(differ, "{now:?}");
        Ok(())
    })
    .await?;
    let noticed = began.elapsed();
    figures.add(
        "noticed that it was made anew",
        format_args!("{noticed:.1?}"),
    );
    stage.all_confirmed().await?;
    let whole = began.elapsed();
    figures.add("whole after it was made anew", format_args!("{whole:.1?}"));
    // Who was forgotten would have left by then.
    stage.call_on(TTL * 2 + HEARTBEAT).await
}

/// Definitions have no heartbeat: they are served on, named, and an operator writes them again.
async fn config_made_anew(stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "kind: Cluster\nname: profile\n")?;
    let file = file.path().display().to_string();
    stage.waypost(&["apply", "--file", &file]).await?;
    until_orphaned(stage, 0).await?;
    let topic = Stage::topic("config");
    stage.admin.delete_topic(&topic).await?;
    create_topics(&stage.kafka.bootstrap()).await?;
    let began = tokio::time::Instant::now();
    until_orphaned(stage, 1).await?;
    let named = began.elapsed();
    figures.add("orphaned definition named", format_args!("{named:.1?}"));
    stage.waypost(&["config", "restore", "--all"]).await?;
    until_orphaned(stage, 0).await
}

/// Both Observers serve the definition, and name it so often among those that the log lacks.
async fn until_orphaned(stage: &Stage, times: usize) -> anyhow::Result<()> {
    eventually(&format!("profile orphaned {times} times"), SOON, || async {
        for index in [0, 1] {
            let admin = stage.observer(index)?.admin();
            look::api(admin, "clusters/profile").await?;
            let status = look::api(admin, "status").await?;
            let orphaned = status["orphaned"].as_array().context("no list")?;
            let named = orphaned.iter().filter(|it| it["name"] == "profile").count();
            anyhow::ensure!(named == times, "{orphaned:?} at {admin}");
        }
        Ok(())
    })
    .await
}

/// Announced, beaten and purged by kcat; announced by the library, purged by kcat and back with the
/// next beat. A new Observer reads the same of it.
async fn without_headers(stage: &mut Stage) -> anyhow::Result<()> {
    let (always, uri) = (stage.always(), stage.marker_uri()?);
    stage.changes += 2;
    for _ in 0..4 {
        foreign::announce(stage, &uri).await?;
        stage.both_serve(always + 1).await?;
        stage.call_on(HEARTBEAT).await?;
    }
    foreign::purge(stage, &uri).await?;
    stage.both_serve(always).await?;

    stage.changes += 4;
    stage.mark_up().await?;
    stage.both_serve(always + 1).await?;
    foreign::purge(stage, &uri).await?;
    stage.call_on(HEARTBEAT * 2).await?;
    stage.both_serve(always + 1).await?;
    let standby = 1 - stage.find_keeper().await?;
    stage.kill_observer(standby)?;
    stage.start_observer(standby).await?;
    stage.both_serve(always + 1).await?;
    stage.mark_down().await?;
    stage.both_serve(always).await
}

/// Nobody is there to ask. What clients know goes on, and is served again.
async fn all_killed(stage: &mut Stage) -> anyhow::Result<()> {
    for index in [0, 1] {
        stage.kill_observer(index)?;
    }
    let ids: Vec<i32> = stage.kafka.brokers().iter().map(|b| b.id()).collect();
    for id in &ids {
        stage.kafka.broker_mut(*id)?.kill()?;
    }
    stage.call_on(TTL).await?;
    stage.kafka.restart().await?;
    for index in [0, 1] {
        stage.start_observer(index).await?;
    }
    Ok(())
}

async fn leader_of_partition_0(stage: &Stage) -> anyhow::Result<i32> {
    let leaders = stage.admin.leaders(&Stage::topic("announcements")).await?;
    leaders.first().copied().context("no partition")
}
