//! gRPC as its own implementations do it: one program for each, a client and an xDS-enabled server, which
//! take the same words and write the same lines.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, ensure};

use crate::caller::script;
use crate::parts::{self, Venv};
use crate::process::Process;

/// Memory that a JVM may take for its heap: programs this small need a fraction of it.
const JAVA_HEAP: &str = "-Xmx128m";

/// An implementation of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// grpcio: C-core, which C++, Ruby, PHP and others share.
    Python,
    /// grpc-go.
    Go,
    /// grpc-java.
    Java,
    /// tonic-xds, which is a client alone.
    Rust,
}

impl Language {
    /// The client, without its arguments (`crates/testkit/python/caller.py` says which).
    ///
    /// # Errors
    /// It is not installed.
    pub(crate) fn client(self) -> anyhow::Result<Command> {
        match self {
            Self::Python => script(Venv::Grpc, "caller.py"),
            Self::Go => go("call"),
            Self::Java => java("call"),
            Self::Rust => Ok(Command::new(parts::interop_rust()?)),
        }
    }

    fn server(self) -> anyhow::Result<Command> {
        match self {
            Self::Python => {
                let mut command = script(Venv::Grpc, "greeter.py")?;
                command.arg("--xds");
                Ok(command)
            }
            Self::Go => go("serve"),
            Self::Java => java("serve"),
            Self::Rust => bail!("tonic-xds has no server"),
        }
    }
}

impl fmt::Display for Language {
    /// As the implementation calls itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Python => "grpcio",
            Self::Go => "grpc-go",
            Self::Java => "grpc-java",
            Self::Rust => "tonic-xds",
        })
    }
}

/// An xDS-enabled server on 127.0.0.1 that answers with its own address; killed when dropped. It serves
/// nothing before it has its configuration.
#[derive(Debug)]
pub struct XdsGreeter {
    /// The program.
    pub process: Process,
    port: u16,
}

impl XdsGreeter {
    /// Starts it, without waiting for anything. `bootstrap` is its bootstrap file.
    ///
    /// # Errors
    /// It is not installed.
    pub fn spawn(language: Language, port: u16, bootstrap: &Path) -> anyhow::Result<Self> {
        let mut command = language.server()?;
        command.args(["--port", &port.to_string()]);
        with_bootstrap(&mut command, bootstrap);
        let process = Process::spawn("xds-greeter", command)?;
        Ok(Self { process, port })
    }

    /// What it answers.
    #[must_use]
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until it says that it serves.
    ///
    /// # Errors
    /// It does not in time, or ended; shows its output.
    pub async fn serving(&mut self, deadline: Duration) -> anyhow::Result<()> {
        let line = self.serving_line();
        let waited = self.process.wait_for_line(&line, deadline, |l| l == line);
        waited.await.map(drop)
    }

    /// Whether it has said that it serves, so far.
    #[must_use]
    pub fn has_served(&self) -> bool {
        self.process.lines().contains(&self.serving_line())
    }

    /// Lets the calls in flight end, and ends it.
    ///
    /// # Errors
    /// It does not end well.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.terminate().await?;
        ensure!(status.success(), "{status}\n{}", self.process.tail());
        Ok(())
    }

    fn serving_line(&self) -> String {
        format!("serving {}", self.port)
    }
}

/// Has a program take its bootstrap file from `file`, whatever the environment of the test says.
pub(crate) fn with_bootstrap(command: &mut Command, file: &Path) {
    command
        .env("GRPC_XDS_BOOTSTRAP", file)
        .env_remove("GRPC_XDS_BOOTSTRAP_CONFIG");
}

fn go(program: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(parts::interop_go()?);
    command.arg(program).env("NO_PROXY", "*");
    Ok(command)
}

fn java(program: &str) -> anyhow::Result<Command> {
    let folder = parts::interop_java()?;
    let resources = parts::source_root().join("tests/interop/java/src/main/resources");
    let (folder, resources) = (folder.display(), resources.display());
    let class_path = format!("{folder}/classes:{folder}/lib/*:{resources}");
    let mut command = Command::new(parts::program("java")?);
    // What is quick to start rather than quick in the end.
    command.args([JAVA_HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args(["-cp", &class_path, "waypost.interop.Main", program]);
    Ok(command)
}
