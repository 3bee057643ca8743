//! One program that a test starts: captured, waited for, signalled by its id, killed when dropped.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};
use tokio::time::Instant;

use crate::descendants::{Descendant, descendants};
use crate::limits::{
    OUTPUT_LINES_MAX, OUTPUT_LINES_SHOWN, OUTPUT_READ_MAX, POLL_INTERVAL, STOP_MAX,
};

/// Where a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A running program. It leads a process group of its own, which is killed when this is dropped with
/// everything that it started, also in groups of their own, so that nothing outlives the test.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Arc<Mutex<Output>>,
    /// What reads its output: each ends with its pipe.
    readers: Vec<JoinHandle<()>>,
    /// What it left behind when it was killed.
    orphans: Vec<Descendant>,
}

#[derive(Debug, Default)]
struct Output {
    lines: VecDeque<(Stream, String)>,
    dropped: usize,
}

/// What a program did that ran to its end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Finished {
    /// Its exit code; -1 when a signal ended it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }
}

impl Process {
    /// Starts a program without standard input. `name` is what messages call it.
    ///
    /// # Errors
    /// It could not be started.
    pub fn spawn(name: &str, mut command: Command) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| format!("{name}: cannot start {:?}", command.get_program()))?;
        let output = Arc::new(Mutex::new(Output::default()));
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let stdout = stdout.map(|pipe| capture(Stream::Stdout, pipe, &output));
        let stderr = stderr.map(|pipe| capture(Stream::Stderr, pipe, &output));
        Ok(Self {
            name: name.to_owned(),
            child,
            output,
            readers: stdout.into_iter().chain(stderr).collect(),
            orphans: Vec::new(),
        })
    }

    /// Starts a program and waits for its end.
    ///
    /// # Errors
    /// It could not be started, or did not end within `deadline`.
    pub async fn run(name: &str, command: Command, deadline: Duration) -> anyhow::Result<Finished> {
        let mut process = Self::spawn(name, command)?;
        let status = process.wait_exit(deadline).await?;
        Ok(Finished {
            status,
            stdout: process.text(Stream::Stdout),
            stderr: process.text(Stream::Stderr),
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All lines written so far, in the order read; both streams.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock()
            .lines
            .iter()
            .map(|(_, line)| line.clone())
            .collect()
    }

    /// What was written to one stream so far.
    #[must_use]
    pub fn text(&self, stream: Stream) -> String {
        let output = self.lock();
        output
            .lines
            .iter()
            .filter(|(from, _)| *from == stream)
            .map(|(_, line)| format!("{line}\n"))
            .collect()
    }

    /// How many lines were written so far: a mark for [`Process::wait_for_line_after`].
    #[must_use]
    pub fn mark(&self) -> usize {
        let output = self.lock();
        output.dropped + output.lines.len()
    }

    /// Waits for a line on either stream and gives it.
    ///
    /// # Errors
    /// No such line within `deadline`, or the program ended without one. Shows its last lines.
    pub async fn wait_for_line(
        &mut self,
        what: &str,
        deadline: Duration,
        matches: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        self.wait_for_line_after(0, what, deadline, matches).await
    }

    /// As [`Process::wait_for_line`], looking only at lines written after `mark`.
    ///
    /// # Errors
    /// As there.
    pub async fn wait_for_line_after(
        &mut self,
        mark: usize,
        what: &str,
        deadline: Duration,
        matches: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let end = Instant::now() + deadline;
        loop {
            // Asked before the lines are looked at: what a program wrote before its end is seen.
            let ended = self.child.try_wait()?;
            if ended.is_some() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if let Some(line) = self.find_line(mark, &matches) {
                return Ok(line);
            }
            if let Some(status) = ended {
                bail!(
                    "{}: {what}: it ended ({status}) first\n{}",
                    self.name,
                    self.tail()
                );
            }
            if Instant::now() >= end {
                bail!(
                    "{}: {what}: not within {deadline:?}\n{}",
                    self.name,
                    self.tail()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system cannot say.
    pub fn try_wait(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It did not end within `deadline`. Shows its last lines.
    pub async fn wait_exit(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.read_to_the_end().await;
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!(
                    "{}: it did not end within {deadline:?}\n{}",
                    self.name,
                    self.tail()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The readers see the end of the pipes later than the kernel reaps, on a busy machine much later;
    /// a child that it left behind may hold them open for ever.
    async fn read_to_the_end(&self) {
        let end = Instant::now() + OUTPUT_READ_MAX;
        while Instant::now() < end && !self.readers.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends a signal to the program itself (not to its group).
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.id()?, signal)
            .with_context(|| format!("{}: cannot send {signal:?}", self.name))
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// It has ended before, or does not end.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_exit(STOP_MAX).await
    }

    /// Ends it at once (SIGKILL) and waits for it to be gone, its sockets and locks with it. What it
    /// started runs on until this is dropped.
    ///
    /// # Errors
    /// The system cannot say.
    pub fn kill_9(&mut self) -> anyhow::Result<()> {
        self.orphans.extend(descendants(self.id()?));
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its last lines, for messages.
    #[must_use]
    pub fn tail(&self) -> String {
        let lines = self.lines();
        let from = lines.len().saturating_sub(OUTPUT_LINES_SHOWN);
        lines[from..]
            .iter()
            .map(|line| format!("    {} | {line}\n", self.name))
            .collect()
    }

    fn find_line(&self, mark: usize, matches: &impl Fn(&str) -> bool) -> Option<String> {
        let output = self.lock();
        let skip = mark.saturating_sub(output.dropped);
        output
            .lines
            .iter()
            .skip(skip)
            .map(|(_, line)| line)
            .find(|line| matches(line))
            .cloned()
    }

    fn id(&self) -> anyhow::Result<Pid> {
        let raw = i32::try_from(self.child.id())?;
        Pid::from_raw(raw).context("process id 0")
    }

    fn lock(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(group) = self.id() {
            if matches!(self.child.try_wait(), Ok(None)) {
                self.orphans.extend(descendants(group));
            }
            // The group may be empty already; nothing else can have its number while we hold the
            // unreaped child or its id is fresh.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.orphans.drain(..).for_each(Descendant::kill);
    }
}

fn capture(
    stream: Stream,
    pipe: impl Read + Send + 'static,
    output: &Arc<Mutex<Output>>,
) -> JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut raw = Vec::new();
        while matches!(reader.read_until(b'\n', &mut raw), Ok(read) if read > 0) {
            let line = String::from_utf8_lossy(&raw).trim_end().to_owned();
            raw.clear();
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            if output.lines.len() == OUTPUT_LINES_MAX {
                output.lines.pop_front();
                output.dropped += 1;
            }
            output.lines.push_back((stream, line));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::START_MAX;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_line_written_just_before_the_end_is_found() {
        let mut process = Process::spawn("sh", shell("echo up; exit 3")).unwrap();
        let line = process
            .wait_for_line("up", START_MAX, |line| line == "up")
            .await
            .unwrap();
        assert_eq!(line, "up");
        assert_eq!(process.wait_exit(STOP_MAX).await.unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn a_program_that_ends_without_the_line_fails_at_once_and_shows_its_output() {
        let mut process = Process::spawn("sh", shell("echo no luck >&2; exit 1")).unwrap();
        let error = process
            .wait_for_line("up", START_MAX, |line| line == "up")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
    }

    #[tokio::test]
    async fn what_a_program_started_ends_with_it() {
        for script in [
            "sleep 600 & echo $!; wait",
            "setsid sh -c 'echo $$; exec sleep 600' & wait",
        ] {
            for killed_first in [false, true] {
                let mut process = Process::spawn("sh", shell(script)).unwrap();
                let pid = process
                    .wait_for_line("a pid", START_MAX, |_| true)
                    .await
                    .unwrap();
                if killed_first {
                    process.kill_9().unwrap();
                    assert!(!is_gone(&pid), "{script}: gone too early");
                }
                drop(process);
                let state = || async {
                    anyhow::ensure!(is_gone(&pid), "{script}: still there");
                    Ok(())
                };
                crate::wait::eventually("the grandchild is gone", STOP_MAX, state)
                    .await
                    .unwrap();
            }
        }
    }

    fn is_gone(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }
}
