//! The faults, one after the other. Each ends with both Observers serving the same, a change that was
//! made after it included.

use std::time::Duration;

use anyhow::Context as _;
use waypost_testkit::process::Signal;
use waypost_testkit::wait::eventually;

use super::report::Report;
use super::stage::{PARTITIONS, SOON, Stage, create_topics};
use crate::Form;
use crate::figures::Figures;
use crate::fleet::{HEARTBEAT, TTL};
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
const ALL_KILLED: &str = "every broker and Observer is killed at once (-9)";

/// What happens, in this order.
const PHASES: [Phase; 8] = [
    phase(KEEPER_KILLED, true, 10),
    phase(KEEPER_STOPPED, false, 10),
    phase(BROKER_KILLED, false, 20),
    phase(BROKER_STOPPED, false, 20),
    phase(LOG_AWAY, true, 30),
    phase(GROWS, true, 20),
    phase(MADE_ANEW, true, 60),
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

/// Every key may find itself in another partition, and beats go to the old one for a while.
async fn grows(stage: &mut Stage) -> anyhow::Result<()> {
    let topic = Stage::topic("announcements");
    stage.admin.add_partitions(&topic, 2 * PARTITIONS).await?;
    // Everybody has beaten in its new partition, and the old copies have had the time to grow old.
    stage.call_on(TTL * stage.form.pick(4, 2)).await
}

/// Deleted and made under load, empty: whole after one heartbeat interval.
async fn made_anew(stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let topic = Stage::topic("announcements");
    stage.admin.delete_topic(&topic).await?;
    create_topics(&stage.kafka.bootstrap()).await?;
    let began = tokio::time::Instant::now();
    eventually("both notice", SOON, || async {
        for index in [0, 1] {
            let status = look::api(stage.observer(index)?.admin(), "status").await?;
            let log = &status["log"]["topics"][0]["partitions"];
            let end = log[0]["end"].as_i64().context("no end")?;
            let position = log[0]["position"].as_i64().context("no position")?;
            anyhow::ensure!(position <= end, "at {position} of {end}");
        }
        Ok(())
    })
    .await?;
    stage.all_confirmed().await?;
    let whole = began.elapsed();
    figures.add("whole after it was made anew", format_args!("{whole:.1?}"));
    // Who was forgotten would have left by then.
    stage.call_on(TTL * 2 + HEARTBEAT).await
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
