//! The real `waypost` binary, as a user starts it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::limits::START_MAX;
use crate::process::{Finished, Process};
use crate::wait::eventually;
use crate::{parts, ports};

/// How long a looking command may take.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// How to start `waypost dev` or `waypost observer`: kept, so that the same one can be started again
/// at the same addresses after it was killed.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    name: String,
    args: Vec<String>,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl ServerConfig {
    /// `waypost dev` with its data in `data`, on free ports of 127.0.0.1.
    #[must_use]
    pub fn dev(data: &Path) -> Self {
        let args = vec![
            "dev".to_owned(),
            "--data".to_owned(),
            data.display().to_string(),
        ];
        Self {
            name: "dev".to_owned(),
            args,
            listen: ports::free_addr(),
            admin: ports::free_addr(),
        }
    }

    /// `waypost observer` that follows a Kafka, on free ports of 127.0.0.1.
    #[must_use]
    pub fn observer(kafka: &str, topic_prefix: &str) -> Self {
        let args = ["observer", "--kafka", kafka, "--topic-prefix", topic_prefix];
        Self {
            name: "observer".to_owned(),
            args: args.map(str::to_owned).to_vec(),
            listen: ports::free_addr(),
            admin: ports::free_addr(),
        }
    }

    /// With another gRPC address.
    #[must_use]
    pub fn listen(mut self, listen: SocketAddr) -> Self {
        self.listen = listen;
        self.admin = SocketAddr::new(listen.ip(), self.admin.port());
        self
    }

    /// With more arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Its gRPC address.
    #[must_use]
    pub fn listen_addr(&self) -> SocketAddr {
        self.listen
    }

    /// Its admin address.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// The command, not yet run.
    ///
    /// # Errors
    /// The binary is not built.
    pub fn command(&self) -> anyhow::Result<Command> {
        let mut command = command(&self.args.iter().map(String::as_str).collect::<Vec<_>>())?;
        command.args([
            "--listen",
            &self.listen.to_string(),
            "--admin",
            &self.admin.to_string(),
        ]);
        Ok(command)
    }

    /// Starts it, without waiting for anything.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self) -> anyhow::Result<Server> {
        let process = Process::spawn(&self.name, self.command()?)?;
        Ok(Server {
            config: self.clone(),
            process,
        })
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// It is not ready in time; shows its output.
    pub async fn start(&self) -> anyhow::Result<Server> {
        let mut server = self.spawn()?;
        server.ready(START_MAX).await?;
        Ok(server)
    }
}

/// A running `waypost dev` or `waypost observer`; killed when dropped.
#[derive(Debug)]
pub struct Server {
    /// The program: its output, signals and end.
    pub process: Process,
    config: ServerConfig,
}

impl Server {
    /// Its gRPC address.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.config.listen
    }

    /// Its admin address.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.config.admin
    }

    /// Waits for `/ready` to say yes.
    ///
    /// # Errors
    /// It is not ready in time, or ended; shows its output.
    pub async fn ready(&mut self, deadline: Duration) -> anyhow::Result<()> {
        let admin = self.config.admin;
        let process = std::cell::RefCell::new(&mut self.process);
        let waited = eventually("ready", deadline, || async {
            if let Some(status) = process.borrow_mut().try_wait()? {
                return Ok(Err(anyhow::anyhow!("it ended ({status})")));
            }
            let (status, body) = http_get(admin, "/ready").await?;
            ensure!(status == 200, "HTTP {status}: {body}");
            Ok(Ok(()))
        })
        .await;
        waited
            .and_then(std::convert::identity)
            .with_context(|| self.process.tail())
    }

    /// One GET of the admin port: status and body.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        http_get(self.config.admin, path).await
    }

    /// A looking command against this server.
    ///
    /// # Errors
    /// It cannot be run or does not end.
    pub async fn cli(&self, args: &[&str]) -> anyhow::Result<Finished> {
        let server = self.config.admin.to_string();
        cli(&[args, &["--server", &server]].concat()).await
    }

    /// The JSON that a looking command prints with `-o json`.
    ///
    /// # Errors
    /// It does not exit 0 or does not print JSON.
    pub async fn cli_json(&self, args: &[&str]) -> anyhow::Result<serde_json::Value> {
        let done = self.cli(&[args, &["-o", "json"]].concat()).await?;
        ensure!(
            done.code() == 0,
            "waypost {args:?} exits {}: {}",
            done.code(),
            done.stderr
        );
        serde_json::from_str(&done.stdout)
            .with_context(|| format!("waypost {args:?} printed no JSON: {}", done.stdout))
    }

    /// Kills it (SIGKILL) and gives what starts it again.
    ///
    /// # Errors
    /// The system cannot.
    pub fn kill_9(mut self) -> anyhow::Result<ServerConfig> {
        self.process.kill_9()?;
        Ok(self.config.clone())
    }

    /// Asks it to end and gives what starts it again.
    ///
    /// # Errors
    /// It does not end, or not with exit code 0.
    pub async fn stop(mut self) -> anyhow::Result<ServerConfig> {
        let status = self.process.terminate().await?;
        ensure!(
            status.success(),
            "it ended with {status}\n{}",
            self.process.tail()
        );
        Ok(self.config.clone())
    }
}

/// A command line of the binary, not yet run. Takes no setting from the environment of the test.
///
/// # Errors
/// The binary is not built.
pub fn command(args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(parts::waypost()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WAYPOST_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    Ok(command)
}

/// Runs the binary to its end.
///
/// # Errors
/// It cannot be run or does not end.
pub async fn cli(args: &[&str]) -> anyhow::Result<Finished> {
    Process::run("waypost", command(args)?, COMMAND_MAX).await
}

/// Writes the client configuration that `waypost bootstrap` prints into `file`.
///
/// # Errors
/// It does not exit 0.
pub async fn write_bootstrap(kind: &str, args: &[&str], file: &Path) -> anyhow::Result<PathBuf> {
    let done = cli(&[&["bootstrap", kind], args].concat()).await?;
    ensure!(
        done.code() == 0,
        "waypost bootstrap {kind} exits {}: {}",
        done.code(),
        done.stderr
    );
    std::fs::write(file, done.stdout)?;
    Ok(file.to_owned())
}

/// One GET: status and body.
///
/// # Errors
/// Nobody answers.
pub async fn http_get(addr: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()?;
    let answer = client.get(format!("http://{addr}{path}")).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}
