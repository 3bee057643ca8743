//! A D2 client that does on the wire what rest.li's does, in its three modes at once: real HTTP requests
//! while instances are replaced and the Observer dies. No request may fail, and nothing may be refused.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use waypost_announcer::AnnouncerPool;
use waypost_d2_client::{D2Client, Mode, Report};
use waypost_testkit::caller::Calls;
use waypost_testkit::http::HttpLoad;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::Form;
use crate::clock::now;
use crate::d2_fleet::{
    DEFINED_OR_NOT, DEFINITIONS, DEFINITIONS_CHANGED, Instance, LOAD, SOON, define, url,
};
use crate::figures::Figures;
use crate::fleet::{CLUSTER, pool_to_gateways};
use crate::look;

/// What no client may ever find: it is asked for to learn of the connection.
const NEVER: &str = "/d2/clusters/NonExistentCluster";

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut stage = Stage::start(form.pick(40, 8), folder.path(), figures).await?;
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

/// A client in one mode, and its requests.
struct Caller {
    mode: &'static str,
    client: Arc<D2Client>,
    load: HttpLoad,
}

/// Everything that runs.
struct Stage {
    dev: Server,
    pool: AnnouncerPool,
    instances: Vec<Instance>,
    callers: Vec<Caller>,
}

impl Stage {
    async fn start(count: usize, folder: &Path, figures: &mut Figures) -> anyhow::Result<Self> {
        figures.step(&format!(
            "`waypost dev` is ready; {count} HTTP servers are announced"
        ));
        let dev = ServerConfig::dev(&folder.join("data")).start().await?;
        let pool = pool_to_gateways(&[dev.listen().to_string()])?;
        let mut stage = Self {
            dev,
            pool,
            instances: Vec::new(),
            callers: Vec::new(),
        };
        for _ in 0..count {
            stage.instances.push(Instance::announce(&stage.pool).await?);
        }
        define(DEFINITIONS, stage.dev.listen(), folder).await?;
        look::instances(stage.dev.admin(), CLUSTER, count, SOON).await?;
        figures.step("clients start in the modes map, glob, and glob with known versions");
        let started = now();
        for (mode, how) in Mode::ALL {
            let caller = Caller::start(mode, how, &stage.dev.listen().to_string()).await?;
            stage.callers.push(caller);
        }
        stage.listed().await?;
        stage.all_called(started).await?;
        Ok(stage)
    }

    /// Replaces instances one after another: a new one is used by every client before an old one is
    /// withdrawn, and the old one stops once no client lists it or has a request under way that may
    /// have chosen it.
    async fn replace(&mut self, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
        figures.step(&format!("{count} instances are replaced one after another"));
        let (mut used, mut gone) = (0.0_f64, 0.0_f64);
        for index in 0..count {
            let announced = now();
            let new = Instance::announce(&self.pool).await?;
            used = used.max(self.called(&new, announced).await? - announced);
            let old = std::mem::replace(&mut self.instances[index], new);
            let withdrawn = now();
            old.announcer.mark_down();
            old.announcer.settled().await?;
            self.listed().await?;
            gone = gone.max(now() - withdrawn);
            self.settled().await?;
            old.server.stop().await?;
        }
        figures.add("replaced", count);
        figures.add(
            "used by every client after its announcement, at most",
            format_args!("{used:.3} s"),
        );
        figures.add(
            "listed by none after its withdrawal, at most",
            format_args!("{gone:.3} s"),
        );
        Ok(())
    }

    /// The Observer is killed and started again; meanwhile requests go on.
    async fn lose_the_observer(mut self, figures: &mut Figures) -> anyhow::Result<Self> {
        let killed = now();
        let config = self.dev.kill_9()?;
        for caller in &self.callers {
            eventually("requests without an Observer", SOON, || async {
                let answered = caller.load.calls_since(killed).0.len();
                ensure!(answered >= 100, "{}: {answered}", caller.mode);
                Ok(())
            })
            .await?;
        }
        self.dev = config.start().await?;
        figures.add("  away for", format_args!("{:.2} s", now() - killed));
        look::instances(self.dev.admin(), CLUSTER, self.instances.len(), SOON).await?;
        for caller in &self.callers {
            let report = caller.answered_again().await?;
            let (sent, removed) = (report.resources_of_stream, report.removals_of_stream);
            figures.add(
                format!("  sent again in mode {}", caller.mode),
                format_args!("{sent} resources, {removed} removals"),
            );
            if caller.mode == "glob with versions" {
                ensure!(sent == 0, "what is known was sent again: {report:?}");
            }
        }
        self.listed().await?;

        let back = now();
        let new = Instance::announce(&self.pool).await?;
        let used = self.called(&new, back).await? - back;
        figures.add(
            "  a new instance is used by every client after",
            format_args!("{used:.2} s"),
        );
        self.instances.push(new);
        self.listed().await?;
        Ok(self)
    }

    async fn finish(self, figures: &mut Figures) -> anyhow::Result<()> {
        let read = look::refused(self.dev.admin(), "d2", self.callers.len(), SOON).await?;
        figures.add_at_most("refusals that the Observer read", read, 0)?;
        for caller in self.callers {
            caller.finish(figures).await?;
        }
        Ok(())
    }

    /// Waits until every client lists the instances there are, and no other.
    async fn listed(&self) -> anyhow::Result<()> {
        let instances = self.instances.iter();
        let wanted: BTreeSet<String> = instances.map(Instance::uri).collect();
        for caller in &self.callers {
            eventually("the instances there are are listed", SOON, || async {
                let listed = caller.client.find_hosts(CLUSTER).unwrap_or_default();
                ensure!(
                    listed == wanted,
                    "{}: {listed:?}, not {wanted:?}",
                    caller.mode
                );
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until every request is over that is under way now.
    async fn settled(&self) -> anyhow::Result<()> {
        let since = now();
        for caller in &self.callers {
            eventually("requests under way end", SOON, || async {
                ensure!(!caller.load.has_older_than(since), "{}", caller.mode);
                Ok(())
            })
            .await?;
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
                let calls = caller.load.calls_since(since);
                let call = calls.find_first_answer(&name, since);
                let call = call.with_context(|| format!("{}: {name} is not", caller.mode));
                Ok(call?.start)
            });
            last = last.max(start.await?);
        }
        Ok(last)
    }
}

impl Caller {
    async fn start(mode: &'static str, how: Mode, server: &str) -> anyhow::Result<Self> {
        let client = Arc::new(D2Client::start(server, "prove", how).await?);
        if let Err(why) = client.pre_check() {
            anyhow::bail!("{mode}: the check before the start fails: {why}");
        }
        let mut number = 0;
        let load = HttpLoad::start_with(LOAD, || {
            number += 1;
            let service = DEFINED_OR_NOT[number % DEFINED_OR_NOT.len()];
            let client = Arc::clone(&client);
            Ok(move || get(Arc::clone(&client), url(service)))
        })?;
        let directory = client.directory().await?;
        ensure!(directory.is_complete, "{mode}: {directory:?}");
        let has_all = DEFINED_OR_NOT
            .iter()
            .all(|s| directory.services.contains(*s));
        ensure!(has_all, "{mode}: {directory:?}");
        Ok(Self { mode, client, load })
    }

    /// Waits until the client has a stream whose answers are all there.
    async fn answered_again(&self) -> anyhow::Result<Report> {
        eventually("everything is answered again", SOON, || async {
            let report = self.client.report();
            let ready = report.is_connected && report.awaited.is_empty();
            // With versions told the cluster that never exists is all that is answered.
            let answered = report.removals_of_stream > 0;
            ensure!(ready && answered, "{}: {report:?}", self.mode);
            Ok(report)
        })
        .await
    }

    async fn finish(self, figures: &mut Figures) -> anyhow::Result<()> {
        let report = self.client.report();
        let calls: Calls = self.load.finish().await;
        figures.add(format!("mode {}: requests", self.mode), calls.0.len());
        for (why, count) in calls.failures() {
            figures.add(format!("  {why}"), count);
        }
        figures.add_at_most("  failed", calls.failed(), 0)?;
        let nacks = usize::try_from(report.counters.nacks)?;
        figures.add("  streams that were answered", report.streams_answered);
        figures.add("  responses confirmed", report.counters.acks);
        figures.add_at_most("  responses refused", nacks, 0)?;
        figures.add_at_most("  invalid resources", report.invalid.len(), 0)?;
        let missing = report.not_found.iter().filter(|name| *name != NEVER);
        figures.add_at_most("  resources not found that exist", missing.count(), 0)?;
        figures.add_at_most("  subscriptions without an answer", report.awaited.len(), 0)
    }
}

async fn get(client: Arc<D2Client>, url: String) -> anyhow::Result<String> {
    Ok(client.get(&url).await?.body)
}
