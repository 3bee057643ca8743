//! An unmodified Envoy in front of a service: real HTTP requests through its listener while instances
//! are replaced and the Observer dies. No request may fail, and Envoy may refuse nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_announcer::{Announcer, AnnouncerPool};
use waypost_testkit::caller::Load;
use waypost_testkit::envoy::Envoy;
use waypost_testkit::http::{HttpLoad, HttpServer};
use waypost_testkit::ports::free_addr;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli, write_bootstrap};

use crate::Form;
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, announcement, pool_to_gateways};
use crate::look;

/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(30);

/// Each changes a resource: the Cluster, and the timeout of its route.
const DEFINITIONS: &str = "\
kind: Cluster
name: greeter
properties:
  load_reports: true
---
kind: Service
name: greeter
cluster: greeter
properties:
  transportClientProperties:
    http.requestTimeout: '15000'
";

/// How an Envoy asks: what is added to `waypost bootstrap envoy`.
const SOTW: &[&str] = &["--protocol", "sotw"];
const DELTA: &[&str] = &["--protocol", "delta"];
const PER_TYPE_SOTW: &[&str] = &["--protocol", "sotw", "--per-type"];
const PER_TYPE_DELTA: &[&str] = &["--protocol", "delta", "--per-type"];

/// One stream for all types, state of the world.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_sotw(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    prove(SOTW, form, figures).await
}

/// One stream for all types, incremental.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_delta(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    prove(DELTA, form, figures).await
}

/// A stream for each type, in both variants one after the other.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_per_type(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    for how in [PER_TYPE_SOTW, PER_TYPE_DELTA] {
        figures.add("variant", how[1]);
        prove(how, form, figures).await?;
    }
    Ok(())
}

async fn prove(how: &[&str], form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let instances = form.pick(40, 10);
    let mut stage = Stage::start(how, instances, folder.path(), figures).await?;
    stage.replace(form.pick(20, 4), figures).await?;
    stage.define(folder.path(), figures).await?;
    // Ten seconds of them, or one, are answered while no Observer runs.
    let requests = form.pick(2_000, 200);
    let stage = stage.lose_the_observer(requests, figures).await?;
    stage.finish(figures).await
}

/// A server that is announced.
struct Instance {
    server: HttpServer,
    announcer: Announcer,
}

/// Everything that runs.
struct Stage {
    dev: Server,
    pool: AnnouncerPool,
    instances: Vec<Instance>,
    envoy: Envoy,
    load: HttpLoad,
}

impl Stage {
    async fn start(
        how: &[&str],
        count: usize,
        folder: &Path,
        figures: &mut Figures,
    ) -> anyhow::Result<Self> {
        figures.step(&format!(
            "`waypost dev` is ready; {count} HTTP servers are announced"
        ));
        let dev = ServerConfig::dev(&folder.join("data")).start().await?;
        let pool = pool_to_gateways(&[dev.listen().to_string()])?;
        let mut instances = Vec::with_capacity(count);
        for _ in 0..count {
            instances.push(Instance::announce(&pool).await?);
        }

        figures.step(&format!(
            "Envoy starts with `waypost bootstrap envoy {}`",
            how.join(" ")
        ));
        let (to, listen) = (dev.listen().to_string(), free_addr());
        let proxy = listen.to_string();
        let args = ["--to", &to, "--service", CLUSTER, "--proxy-listen", &proxy];
        let config = folder.join("envoy.yaml");
        write_bootstrap("envoy", &[&args, how].concat(), &config).await?;
        let started = now();
        let envoy = Envoy::start(&config, folder).await?;
        figures.add("Envoy live after", format_args!("{:.2} s", now() - started));

        let load = Load {
            rate: 200.0,
            concurrency: 8,
        };
        let load = HttpLoad::start(listen, CLUSTER, load)?;
        let stage = Self {
            dev,
            pool,
            instances,
            envoy,
            load,
        };
        stage.listed().await?;
        for instance in &stage.instances {
            stage.called(instance, started).await?;
        }
        Ok(stage)
    }

    /// Replaces instances one after another: a new one is used before an old one is withdrawn, and
    /// the old one stops once Envoy lists it no more.
    async fn replace(&mut self, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
        figures.step(&format!("{count} instances are replaced one after another"));
        let (mut used, mut gone) = (Vec::new(), Vec::new());
        for index in 0..count {
            let announced = now();
            let new = Instance::announce(&self.pool).await?;
            used.push(self.called(&new, announced).await? - announced);
            let old = std::mem::replace(&mut self.instances[index], new);
            let withdrawn = now();
            old.announcer.mark_down();
            old.announcer.settled().await?;
            self.not_listed(old.server.address()).await?;
            gone.push(now() - withdrawn);
            old.server.stop().await?;
        }
        figures.add("replaced", count);
        figures.add("used after its announcement, at most", longest(&used));
        figures.add("not listed after its withdrawal, at most", longest(&gone));
        self.listed().await
    }

    /// Cluster and service get definitions that change what Envoy holds of both: the cluster warms again
    /// and needs its endpoints for it.
    async fn define(&self, folder: &Path, figures: &mut Figures) -> anyhow::Result<()> {
        figures.step("cluster and service are defined anew");
        let file = folder.join("definitions.yaml");
        std::fs::write(&file, DEFINITIONS)?;
        let file = file.display().to_string();
        let to = self.dev.listen().to_string();
        let defined = now();
        let done = cli(&["apply", "-f", &file, "--to", &to]).await?;
        ensure!(done.code() == 0, "waypost apply: {}", done.stderr);
        eventually("Envoy has both", SOON, || async {
            let stats = self.envoy.stats("cluster_modified|config_reload$").await?;
            let changed = |name: &str| stats.iter().find(|(key, _)| key.contains(name));
            let modified = changed("cluster_modified").map_or(0, |(_, count)| *count);
            let reloaded = changed(".rds.").map_or(0, |(_, count)| *count);
            ensure!(modified >= 1 && reloaded >= 2, "{stats:?}");
            Ok(())
        })
        .await?;
        self.listed().await?;
        for instance in &self.instances {
            self.called(instance, defined).await?;
        }
        Ok(())
    }

    /// The Observer is killed and started again; meanwhile Envoy serves what it knows.
    async fn lose_the_observer(
        mut self,
        requests: usize,
        figures: &mut Figures,
    ) -> anyhow::Result<Self> {
        figures.step("`waypost dev` is killed (-9), and started again");
        let killed = now();
        let config = self.dev.kill_9()?;
        eventually("requests without an Observer", SOON, || async {
            let answered = self.load.calls_since(killed).0.len();
            ensure!(answered >= requests, "{answered}");
            Ok(())
        })
        .await?;
        self.dev = config.start().await?;
        figures.add("away for", format_args!("{:.2} s", now() - killed));
        look::instances(self.dev.admin(), CLUSTER, self.instances.len(), SOON).await?;

        let back = now();
        let new = Instance::announce(&self.pool).await?;
        let acknowledged = now();
        let used = self.called(&new, back).await? - acknowledged;
        figures.add(
            "a new instance in the log after the restart",
            format_args!("{:.2} s", acknowledged - back),
        );
        figures.add(
            "  and used after that",
            format_args!("{:.2} s", used.max(0.0)),
        );
        self.instances.push(new);
        self.listed().await?;
        Ok(self)
    }

    async fn finish(self, figures: &mut Figures) -> anyhow::Result<()> {
        let envoy = &self.envoy;
        let refused = envoy.stats("update_rejected").await?;
        for part in ["lds", "cds", "rds", &format!("cluster.{CLUSTER}.")] {
            let counted = refused.keys().any(|name| name.contains(part));
            ensure!(counted, "Envoy counts no updates of {part}: {refused:?}");
        }
        let accepted: u64 = envoy.stats("update_success").await?.values().sum();
        let retried: u64 = envoy.stats("upstream_rq_retry$").await?.values().sum();
        let read = look::refused(self.dev.admin(), "envoy", 1, SOON).await?;

        let calls = self.load.finish().await;
        figures.add("requests", calls.0.len());
        figures.add("requests that Envoy tried again", retried);
        figures.add("updates accepted by Envoy", accepted);
        let (refused, failed) = (refused.values().sum::<u64>(), calls.failed());
        figures.add_at_most("updates refused by Envoy", usize::try_from(refused)?, 0)?;
        figures.add_at_most("refusals that the Observer read", read, 0)?;
        for (why, count) in calls.failures() {
            figures.add(format!("  {why}"), count);
        }
        figures.add_at_most("requests failed", failed, 0)?;
        self.envoy.stop().await
    }

    /// Waits until Envoy lists the instances there are, and no other.
    async fn listed(&self) -> anyhow::Result<()> {
        let instances = self.instances.iter();
        let wanted: BTreeSet<SocketAddr> = instances.map(|i| i.server.address()).collect();
        eventually("Envoy lists the instances there are", SOON, || async {
            let listed = self.envoy.endpoints(CLUSTER).await?;
            let listed: BTreeSet<SocketAddr> = listed.into_keys().collect();
            ensure!(listed == wanted, "{listed:?}, not {wanted:?}");
            Ok(())
        })
        .await
    }

    async fn not_listed(&self, address: SocketAddr) -> anyhow::Result<()> {
        eventually("Envoy lists it no more", SOON, || async {
            let listed = self.envoy.endpoints(CLUSTER).await?;
            ensure!(!listed.contains_key(&address), "{address} is listed");
            Ok(())
        })
        .await
    }

    /// Waits until an instance answered a request that began after `since`; gives its start.
    async fn called(&self, instance: &Instance, since: f64) -> anyhow::Result<f64> {
        let name = instance.server.address().to_string();
        eventually("an instance is called", SOON, || async {
            let calls = self.load.calls_since(since);
            let call = calls.find_first_answer(&name, since);
            Ok(call.with_context(|| format!("{name} is not"))?.start)
        })
        .await
    }
}

impl Instance {
    /// Starts a server and announces it; returns once the log has it.
    async fn announce(pool: &AnnouncerPool) -> anyhow::Result<Self> {
        let server = HttpServer::start().await?;
        let uri = format!("http://{}", server.address());
        let announcer = pool.announce(announcement(&uri)?)?;
        announcer.settled().await?;
        Ok(Self { server, announcer })
    }
}

fn longest(seconds: &[f64]) -> String {
    format!("{:.3} s", seconds.iter().copied().fold(0.0, f64::max))
}
