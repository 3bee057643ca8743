//! Unmodified gRPC clients and servers: who calls whom, and what came of each call.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::grpc::{Language, with_bootstrap};
use crate::limits::START_MAX;
use crate::parts::{self, Venv};
use crate::process::Process;

/// A server that answers with its own address, on one or more ports; killed when dropped.
#[derive(Debug)]
pub struct Greeter {
    /// The program.
    pub process: Process,
}

impl Greeter {
    /// Starts it and waits until it serves every port of 127.0.0.1.
    ///
    /// # Errors
    /// The Python environment is missing, or a port is taken.
    pub async fn start(ports: &[u16]) -> anyhow::Result<Self> {
        let process = Process::spawn("greeter", Self::command(ports)?)?;
        let mut greeter = Self { process };
        for port in ports {
            let line = format!("serving {port}");
            greeter
                .process
                .wait_for_line(&line, START_MAX, |seen| seen == line)
                .await?;
        }
        Ok(greeter)
    }

    /// The command line, for an agent that starts the server itself.
    ///
    /// # Errors
    /// The Python environment is missing.
    pub fn command(ports: &[u16]) -> anyhow::Result<Command> {
        let mut command = script(Venv::Grpc, "greeter.py")?;
        for port in ports {
            command.args(["--port", &port.to_string()]);
        }
        Ok(command)
    }
}

/// How a client calls.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls a second, all of its workers together.
    pub rate: f64,
    /// Workers: calls in flight at most.
    pub concurrency: u32,
}

/// A client that calls one target at a steady rate and writes down what came of each call; killed
/// when dropped.
#[derive(Debug)]
pub struct Caller {
    /// The program.
    pub process: Process,
    out: PathBuf,
    read: Mutex<ReadSoFar>,
}

/// Calls that were read, and the length of what they were read from.
#[derive(Debug, Default)]
struct ReadSoFar {
    calls: Calls,
    bytes: u64,
}

impl Caller {
    /// Starts it and waits for its first answer. `bootstrap` is the file for `xds:///` targets; calls
    /// are written to `out`, which must be new.
    ///
    /// # Errors
    /// The client is not installed, or no call is answered.
    pub async fn start(
        language: Language,
        target: &str,
        bootstrap: &Path,
        out: &Path,
        load: Load,
    ) -> anyhow::Result<Self> {
        let command = Self::command(language, target, bootstrap, out, load)?;
        Self::spawn(&format!("caller, {language}"), command, out).await
    }

    /// As `start`, in Python; tells what it was sent (CSDS) on a port of 127.0.0.1.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_with_csds(
        target: &str,
        bootstrap: &Path,
        out: &Path,
        load: Load,
        port: u16,
    ) -> anyhow::Result<Self> {
        let mut command = Self::command(Language::Python, target, bootstrap, out, load)?;
        command.args(["--csds", &port.to_string()]);
        Self::spawn("caller", command, out).await
    }

    fn command(
        language: Language,
        target: &str,
        bootstrap: &Path,
        out: &Path,
        load: Load,
    ) -> anyhow::Result<Command> {
        ensure!(!out.exists(), "{} exists already", out.display());
        let mut command = language.client()?;
        with_bootstrap(&mut command, bootstrap);
        command.args(["--target", target]).arg("--out").arg(out);
        command.args(["--rate", &load.rate.to_string()]);
        command.args(["--concurrency", &load.concurrency.to_string()]);
        Ok(command)
    }

    /// Starts a program that writes calls to `out`, and waits for the line `called`.
    pub(crate) async fn spawn(name: &str, command: Command, out: &Path) -> anyhow::Result<Self> {
        let mut process = Process::spawn(name, command)?;
        process
            .wait_for_line("the first answer", START_MAX, |line| line == "called")
            .await?;
        Ok(Self {
            process,
            out: out.to_owned(),
            read: Mutex::default(),
        })
    }

    /// What came of all calls that ended so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn calls(&self) -> anyhow::Result<Calls> {
        self.look(Calls::clone)
    }

    /// Looks at all calls that ended so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn look<T>(&self, look: impl FnOnce(&Calls) -> T) -> anyhow::Result<T> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.go_on(&self.out)
            .with_context(|| format!("{}", self.out.display()))?;
        Ok(look(&read.calls))
    }

    /// Lets the calls in flight end, ends the client and gives all calls.
    ///
    /// # Errors
    /// It does not end well.
    pub async fn finish(mut self) -> anyhow::Result<Calls> {
        let status = self.process.terminate().await?;
        ensure!(
            status.success(),
            "the caller ended with {status}\n{}",
            self.process.tail()
        );
        self.calls()
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// When it began, seconds since 1970-01-01 UTC.
    pub start: f64,
    /// When it ended.
    pub end: f64,
    /// Who answered, or the status and its text.
    pub outcome: Result<String, String>,
}

/// Calls in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls(pub Vec<Call>);

impl ReadSoFar {
    fn go_on(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // A line that is being written now has no end yet.
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        for line in whole {
            self.calls.0.push(Call::parse(line)?);
            self.bytes += u64::try_from(line.len())?;
        }
        Ok(())
    }
}

impl Calls {
    /// How many calls failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.0.iter().filter(|call| call.outcome.is_err()).count()
    }

    /// The failed calls by what was said.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<&str, usize> {
        count(self.0.iter().filter_map(|call| call.outcome.as_ref().err()))
    }

    /// The answered calls by who answered.
    #[must_use]
    pub fn answers(&self) -> BTreeMap<&str, usize> {
        count(self.0.iter().filter_map(|call| call.outcome.as_ref().ok()))
    }

    /// When a call that `by` answered first began after `since`.
    #[must_use]
    pub fn find_first_answer(&self, by: &str, since: f64) -> Option<&Call> {
        self.0
            .iter()
            .find(|call| call.start >= since && call.outcome.as_deref() == Ok(by))
    }

    /// The last start of a call that `by` answered and that began at or after `since`; `since` when there
    /// is none.
    #[must_use]
    pub fn last_answer(&self, by: &str, since: f64) -> f64 {
        let answered = |call: &&Call| call.outcome.as_deref() == Ok(by);
        let answers = self.0.iter().filter(answered);
        answers.map(|call| call.start).fold(since, f64::max)
    }

    /// How many calls began at or after `since`.
    #[must_use]
    pub fn count_since(&self, since: f64) -> usize {
        self.0.iter().filter(|call| call.start >= since).count()
    }

    /// The calls that began at or after `since`.
    #[must_use]
    pub fn since(&self, since: f64) -> Self {
        Self(
            self.0
                .iter()
                .filter(|call| call.start >= since)
                .cloned()
                .collect(),
        )
    }
}

impl Call {
    fn parse(line: &str) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| {
            value[key]
                .as_f64()
                .with_context(|| format!("{key} in {line}"))
        };
        let outcome = if value["ok"] == Value::Bool(true) {
            Ok(text("by"))
        } else {
            Err(format!("{}: {}", text("code"), text("why")))
        };
        Ok(Self {
            start: number("start")?,
            end: number("end")?,
            outcome,
        })
    }
}

/// A script of the test kit, to be run by one of its Pythons.
///
/// # Errors
/// The Python environment is missing.
pub fn script(venv: Venv, name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(parts::python(venv)?);
    command.arg(
        parts::source_root()
            .join("crates/testkit/python")
            .join(name),
    );
    // Loopback only, whatever proxy the machine is set up with.
    command
        .env("no_proxy", "*")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

fn count<'a>(words: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word.as_str()).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_call_is_read_once_and_not_before_its_line_is_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut read = ReadSoFar::default();
        let mut seen = |text: &str| {
            file.write_all(text.as_bytes()).unwrap();
            read.go_on(file.path()).unwrap();
            let calls = read.calls.0.iter();
            calls.map(|call| call.outcome.clone()).collect::<Vec<_>>()
        };
        let (a, b) = (Ok("a".to_owned()), Err("X: why".to_owned()));
        let first = "{\"start\":1,\"end\":2,\"ok\":true,\"by\":\"a\"}\n";
        assert_eq!(
            seen(&format!("{first}{{\"start\":3,")),
            std::slice::from_ref(&a)
        );
        let rest = "\"end\":4,\"ok\":false,\"code\":\"X\",\"why\":\"why\"}\n";
        assert_eq!(seen(rest), [a.clone(), b.clone()]);
        assert_eq!(seen(""), [a, b]);
    }
}
