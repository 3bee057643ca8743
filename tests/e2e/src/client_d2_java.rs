//! rest.li's own D2 client, version 29, in its three modes at once: real R2 requests while instances are
//! replaced and the Observer dies. No request may fail, and the client may refuse and miss nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::sleep;
use waypost_announcer::AnnouncerPool;
use waypost_testkit::d2_caller::{D2Caller, D2Program, MODES};
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::Form;
use crate::clock::now;
use crate::d2_fleet::{
    DEFINED, DEFINITIONS, DEFINITIONS_CHANGED, Instance, LOAD, SOON, define, url,
};
use crate::figures::Figures;
use crate::fleet::{CLUSTER, pool_to_gateways};
use crate::look;

/// What an instance waits between its withdrawal and its end: the agent's `--drain`. Nothing tells from
/// outside when this client lists an instance no more.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out; also where no client is named.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let program = D2Program::compile(folder.path()).await?;
    let count = form.pick(40, 8);
    let mut stage = Stage::start(&program, count, folder.path(), figures).await?;
    stage.replace(form.pick(20, 4), figures).await?;
    figures.step("service and cluster are defined anew");
    define(DEFINITIONS_CHANGED, stage.dev.listen(), folder.path()).await?;
    stage.all_called(now()).await?;
    for round in 1..=form.pick(3, 1) {
        figures.step(&format!(
            "`waypost dev` is killed (-9) and started again: round {round}"
        ));
        stage = stage.lose_the_observer(figures).await?;
    }
    stage.finish(figures).await
}

/// Everything that runs.
struct Stage {
    dev: Server,
    pool: AnnouncerPool,
    instances: Vec<Instance>,
    callers: Vec<D2Caller>,
}

impl Stage {
    async fn start(
        program: &D2Program,
        count: usize,
        folder: &Path,
        figures: &mut Figures,
    ) -> anyhow::Result<Self> {
        figures.step(&format!(
            "`waypost dev` is ready; {count} HTTP servers are announced"
        ));
        let dev = ServerConfig::dev(&folder.join("data")).start().await?;
        let pool = pool_to_gateways(&[dev.listen().to_string()])?;
        let mut instances = Vec::new();
        for _ in 0..count {
            instances.push(Instance::announce(&pool).await?);
        }
        define(DEFINITIONS, dev.listen(), folder).await?;
        look::instances(dev.admin(), CLUSTER, count, SOON).await?;
        figures.step("clients start in the modes map, glob, and glob with known versions");
        let urls = DEFINED.map(url);
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let started = now();
        let mut callers = Vec::new();
        for mode in MODES {
            let own = folder.join(mode);
            let caller = D2Caller::start(program, mode, dev.listen(), &urls, LOAD, &own);
            callers.push(caller.await?);
        }
        let stage = Self {
            dev,
            pool,
            instances,
            callers,
        };
        stage.all_called(started).await?;
        Ok(stage)
    }

    /// Replaces instances one after another: a new one is used by every client before an old one is
    /// withdrawn, and the old one stops when its drain is over.
    async fn replace(&mut self, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
        figures.step(&format!("{count} instances are replaced one after another"));
        let mut used = 0.0_f64;
        for index in 0..count {
            let announced = now();
            let new = Instance::announce(&self.pool).await?;
            used = used.max(self.called(&new, announced).await? - announced);
            let old = std::mem::replace(&mut self.instances[index], new);
            old.announcer.mark_down();
            old.announcer.settled().await?;
            sleep(DRAIN).await;
            old.server.stop().await?;
        }
        figures.add("replaced", count);
        figures.add(
            "used by every client after its announcement, at most",
            format_args!("{used:.3} s"),
        );
        Ok(())
    }

    /// The Observer is killed and started again; meanwhile requests go on.
    async fn lose_the_observer(mut self, figures: &mut Figures) -> anyhow::Result<Self> {
        let killed = now();
        let config = self.dev.kill_9()?;
        for caller in &self.callers {
            eventually("requests without an Observer", SOON, || async {
                let answered = caller.look(|calls| calls.count_since(killed))?;
                ensure!(answered >= 100, "{}: {answered}", caller.mode());
                Ok(())
            })
            .await?;
        }
        self.dev = config.start().await?;
        figures.add("  away for", format_args!("{:.2} s", now() - killed));
        look::instances(self.dev.admin(), CLUSTER, self.instances.len(), SOON).await?;
        let back = now();
        let new = Instance::announce(&self.pool).await?;
        let used = self.called(&new, back).await? - back;
        figures.add(
            "  a new instance is used by every client after",
            format_args!("{used:.2} s"),
        );
        self.instances.push(new);
        Ok(self)
    }

    async fn finish(self, figures: &mut Figures) -> anyhow::Result<()> {
        let read = look::refused(self.dev.admin(), "d2", self.callers.len(), SOON).await?;
        figures.add_at_most("refusals that the Observer read", read, 0)?;
        for caller in self.callers {
            finish_caller(caller, figures).await?;
        }
        Ok(())
    }

    async fn all_called(&self, since: f64) -> anyhow::Result<()> {
        for instance in &self.instances {
            self.called(instance, since).await?;
        }
        Ok(())
    }

    /// Waits until an instance answered every client in a request that began after `since`; gives the
    /// last start.
    async fn called(&self, instance: &Instance, since: f64) -> anyhow::Result<f64> {
        let name = instance.name();
        let mut last = since;
        for caller in &self.callers {
            let start = eventually("an instance is called", SOON, || async {
                let first = caller.look(|calls| {
                    let call = calls.find_first_answer(&name, since);
                    call.map(|call| call.start)
                })?;
                first.with_context(|| format!("{}: {name} is not", caller.mode()))
            });
            last = last.max(start.await?);
        }
        Ok(last)
    }
}

async fn finish_caller(caller: D2Caller, figures: &mut Figures) -> anyhow::Result<()> {
    let mode = caller.mode();
    let finished = caller.finish().await?;
    figures.add(format!("mode {mode}: requests"), finished.calls.0.len());
    figures.add("  failed while it started", finished.failed_before);
    for (why, count) in finished.calls.failures() {
        figures.add(format!("  {why}"), count);
    }
    for (attribute, value) in &finished.jmx {
        figures.add(format!("  {attribute}"), value);
    }
    figures.add_at_most("  failed", finished.calls.failed(), 0)?;
    let number = |name: &str| {
        let value = finished.jmx.get(name).copied();
        value.with_context(|| format!("XdsClientJmx has no {name}"))
    };
    let awaited = number("ActiveInitialWaitTimeMillis")?;
    ensure!(awaited == 0.0, "{mode}: subscriptions without an answer");
    let invalid = number("ResourceInvalidCount")?;
    ensure!(invalid == 0.0, "{mode}: invalid resources");
    // The cluster that never exists is said to be missing on every stream, and nothing else is.
    let streams = number("ReconnectionCount")? + 1.0;
    let missing = number("ResourceNotFoundCount")?;
    ensure!(
        missing <= streams,
        "{mode}: {missing} missing, {streams} streams"
    );
    Ok(())
}
