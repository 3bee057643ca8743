//! The D2 client of rest.li 29, in a small program of ours (`tests/interop/d2`). The client is not in
//! any registry: whoever has one names its jars in [`CLASSPATH`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::caller::{Caller, Calls, Load};
use crate::limits::COMPILE_MAX;
use crate::parts::source_root;
use crate::process::{Process, Stream};

/// The variable that names the jars of a client, as `java -cp` takes them.
pub const CLASSPATH: &str = "WAYPOST_D2_CLASSPATH";

/// The client's modes, as the program calls them.
pub const MODES: [&str; 3] = ["map", "glob", "glob-irv"];

/// The program, compiled against somebody's client.
#[derive(Clone, Debug)]
pub struct D2Program {
    classpath: String,
}

impl D2Program {
    /// Compiles it into `folder`.
    ///
    /// # Errors
    /// [`CLASSPATH`] is not set, or the compiler refuses.
    pub async fn compile(folder: &Path) -> anyhow::Result<Self> {
        let jars = std::env::var(CLASSPATH)
            .ok()
            .filter(|jars| !jars.is_empty());
        let jars = jars.with_context(|| {
            format!("set {CLASSPATH} to the jars of a rest.li D2 client 29.x, separated by colons")
        })?;
        let mut command = Command::new("javac");
        command.args(["-nowarn", "-encoding", "UTF-8", "-cp", &jars]);
        command.arg("-d").arg(folder);
        command.arg(source_root().join("tests/interop/d2/D2Caller.java"));
        let done = Process::run("javac", command, COMPILE_MAX).await?;
        ensure!(done.code() == 0, "javac: {}{}", done.stdout, done.stderr);
        Ok(Self {
            classpath: format!("{}:{jars}", folder.display()),
        })
    }
}

/// A client that makes requests at a steady rate; killed when dropped.
#[derive(Debug)]
pub struct D2Caller {
    caller: Caller,
    mode: &'static str,
}

/// What came of it in the end.
#[derive(Clone, Debug)]
pub struct D2Finished {
    /// Requests that failed before the first answer of each URL, while the program started.
    pub failed_before: u64,
    /// All requests after that.
    pub calls: Calls,
    /// The numbers of `XdsClientJmx`, by attribute.
    pub jmx: BTreeMap<String, f64>,
}

impl D2Caller {
    /// Starts it in one of [`MODES`] and waits for its first answer. Its files, and what came of its
    /// requests, are in `folder`, which must be empty.
    ///
    /// # Errors
    /// It ends, or no request is answered.
    pub async fn start(
        program: &D2Program,
        mode: &'static str,
        server: SocketAddr,
        urls: &[&str],
        load: Load,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let out = folder.join("calls.jsonl");
        std::fs::create_dir_all(folder)?;
        let mut command = Command::new("java");
        command.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-cp", &program.classpath, "D2Caller"]);
        command.args([&server.to_string(), mode]);
        command.arg(folder.join("files")).arg(&out);
        command.args([load.rate.to_string(), load.concurrency.to_string()]);
        command.args(urls);
        let caller = Caller::spawn(&format!("D2 client ({mode})"), command, &out).await?;
        Ok(Self { caller, mode })
    }

    /// Its mode.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        self.mode
    }

    /// Looks at all requests that ended so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn look<T>(&self, look: impl FnOnce(&Calls) -> T) -> anyhow::Result<T> {
        self.caller.look(look)
    }

    /// Lets the requests under way end, ends the client and gives what came of it.
    ///
    /// # Errors
    /// It does not end well, or says nothing of `XdsClientJmx`.
    pub async fn finish(mut self) -> anyhow::Result<D2Finished> {
        let process = &mut self.caller.process;
        let status = process.terminate().await?;
        ensure!(status.success(), "{status}\n{}", process.tail());
        let stdout = process.text(Stream::Stdout);
        let line = stdout.lines().find(|line| line.starts_with("{\"jmx\":"));
        let line = line.with_context(|| format!("no line of JMX in {stdout}"))?;
        let jmx: Value = serde_json::from_str(line)?;
        let numbers = jmx["jmx"].as_object().context("no object")?.iter();
        let numbers = numbers.filter_map(|(key, value)| Some((key.clone(), value.as_f64()?)));
        let before = stdout.lines().find(|line| line.starts_with("{\"before\":"));
        let before: Value = serde_json::from_str(before.context("no line of what was before")?)?;
        Ok(D2Finished {
            failed_before: before["before"].as_u64().context("no number")?,
            calls: self.caller.calls()?,
            jmx: numbers.collect(),
        })
    }
}
