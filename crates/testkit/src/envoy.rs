//! An unmodified Envoy: started with a configuration file, looked at through its admin port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::limits::START_MAX;
use crate::parts;
use crate::process::{Finished, Process};
use crate::wait::eventually;
use crate::waypost::http_get;

/// How long a look at a configuration may take.
const VALIDATE_MAX: Duration = Duration::from_secs(60);

/// A running Envoy; killed when dropped.
#[derive(Debug)]
pub struct Envoy {
    /// The program.
    pub process: Process,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts it, keeping its files in `folder`, and waits until it is live: what it needs to serve has
    /// come.
    ///
    /// # Errors
    /// It is not installed, refuses the file, or is not live in time; shows its output.
    pub async fn start(config: &Path, folder: &Path) -> anyhow::Result<Self> {
        let admin_file = folder.join("envoy-admin.txt");
        let mut command = command(config)?;
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        command.arg("--admin-address-path").arg(&admin_file);
        let process = Process::spawn("envoy", command)?;
        let live = async {
            let admin = eventually("Envoy's admin port", START_MAX, || async {
                let text = std::fs::read_to_string(&admin_file)?;
                text.trim().parse().with_context(|| text.clone())
            })
            .await?;
            eventually("Envoy is live", START_MAX, || async {
                let (status, body) = http_get(admin, "/ready").await?;
                ensure!(status == 200, "HTTP {status}: {body}");
                Ok(admin)
            })
            .await
        };
        let admin = live.await.with_context(|| process.tail())?;
        Ok(Self { process, admin })
    }

    /// Lets it read a configuration and do nothing else.
    ///
    /// # Errors
    /// It is not installed, or does not end.
    pub async fn validate(config: &Path) -> anyhow::Result<Finished> {
        let mut command = command(config)?;
        command.args(["--mode", "validate"]);
        Process::run("envoy", command, VALIDATE_MAX).await
    }

    /// Where its admin port is.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its counters and gauges whose names match a regular expression.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn stats(&self, pattern: &str) -> anyhow::Result<BTreeMap<String, u64>> {
        let text = self.get(&format!("/stats?filter={pattern}")).await?;
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(text.lines().filter_map(value).collect())
    }

    /// The endpoints of a cluster, each with its health as the control plane said it; none if it does
    /// not know the cluster.
    ///
    /// # Errors
    /// It does not answer as documented.
    pub async fn endpoints(&self, cluster: &str) -> anyhow::Result<BTreeMap<SocketAddr, String>> {
        let clusters: Value = serde_json::from_str(&self.get("/clusters?format=json").await?)?;
        let all = clusters["cluster_statuses"].as_array();
        let found = all.into_iter().flatten().find(|one| one["name"] == cluster);
        let hosts = found.and_then(|one| one["host_statuses"].as_array());
        hosts.into_iter().flatten().map(endpoint).collect()
    }

    /// The names of the clusters that it has, its bootstrap file's too.
    ///
    /// # Errors
    /// It does not answer as documented.
    pub async fn clusters(&self) -> anyhow::Result<Vec<String>> {
        let clusters: Value = serde_json::from_str(&self.get("/clusters?format=json").await?)?;
        let all = clusters["cluster_statuses"]
            .as_array()
            .into_iter()
            .flatten();
        let names = all.filter_map(|one| one["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// It has ended before, or does not end.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.process.terminate().await?;
        Ok(())
    }

    async fn get(&self, path: &str) -> anyhow::Result<String> {
        let (status, body) = http_get(self.admin, path).await?;
        ensure!(status == 200, "Envoy: {path}: HTTP {status}: {body}");
        Ok(body)
    }
}

fn command(config: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(parts::envoy()?);
    command.arg("--config-path").arg(config);
    Ok(command)
}

fn endpoint(host: &Value) -> anyhow::Result<(SocketAddr, String)> {
    let address = &host["address"]["socket_address"];
    let ip = address["address"].as_str().unwrap_or_default();
    let port = address["port_value"].as_u64().unwrap_or(0);
    let address = SocketAddr::new(
        ip.parse().with_context(|| host.to_string())?,
        u16::try_from(port)?,
    );
    // What is not said is healthy.
    let health = host["health_status"]["eds_health_status"].as_str();
    Ok((address, health.unwrap_or("HEALTHY").to_owned()))
}
