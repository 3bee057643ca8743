//! The load as the runner sees it: its processes, told what to do together.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

use crate::kernel;
use crate::load::LoadOptions;
use crate::load::command::{Command, Counted};
use crate::load::stats::{Line, Report};
use crate::server::{Cores, pinned};

/// The processes of a load; they end when dropped.
#[derive(Debug)]
pub(crate) struct Clients {
    processes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Clients {
    /// Starts a load of `processes` processes; connections and streams are divided evenly, `streams_max`
    /// being the most that will ever be opened.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(crate) fn start(
        options: &LoadOptions,
        processes: usize,
        streams_max: usize,
        cores: Cores,
    ) -> anyhow::Result<Self> {
        let start = |index| {
            let part = LoadOptions {
                connections: options.connections.div_ceil(processes),
                first_stream: index * streams_max.div_ceil(processes),
                ..options.clone()
            };
            Process::start(&part, cores)
        };
        Ok(Self {
            processes: (0..processes).map(start).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Opens streams until there are so many in all; gives what opening them took.
    ///
    /// # Errors
    /// Not all were answered `within` this time; or a process of the load failed.
    pub(crate) fn open(&mut self, streams: usize, within: Duration) -> anyhow::Result<Report> {
        let streams_each = streams.div_ceil(self.processes.len());
        let report = self.tell(Command::Open {
            streams: streams_each,
            within,
        })?;
        ensure!(
            report.reached,
            "{} of {streams} streams were answered within {} s",
            report.counts.answered,
            within.as_secs()
        );
        report.check()
    }

    /// Forgets what was counted and starts the clock of reports again.
    ///
    /// # Errors
    /// A process of the load failed.
    pub(crate) fn mark(&mut self) -> anyhow::Result<()> {
        self.tell(Command::Mark).map(drop)
    }

    /// What was seen since the last mark.
    ///
    /// # Errors
    /// A stream or a process of the load failed.
    pub(crate) fn report(&mut self) -> anyhow::Result<Report> {
        self.tell(Command::Report)?.check()
    }

    /// Waits until so many were counted since the mark, or time is up.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub(crate) fn wait_until(
        &mut self,
        what: Counted,
        count: u64,
        within: Duration,
    ) -> anyhow::Result<Report> {
        let count = count.div_ceil(self.processes.len() as u64);
        let command = Command::Until {
            what,
            count,
            within,
        };
        self.tell(command)?.check()
    }

    /// Slow readers stop reading.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub(crate) fn pause(&mut self) -> anyhow::Result<()> {
        self.tell(Command::Pause)?.check().map(drop)
    }

    /// Slow readers read again.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        self.tell(Command::Resume)?.check().map(drop)
    }

    /// CPU time that the load has used.
    ///
    /// # Errors
    /// A process of the load has ended.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let times = self.processes.iter();
        times
            .map(|process| kernel::cpu_time(process.child.id()))
            .sum()
    }

    fn tell(&mut self, command: Command) -> anyhow::Result<Report> {
        for process in &mut self.processes {
            writeln!(process.commands, "{command}").context("the load has ended")?;
        }
        let lines = self.processes.iter_mut().map(Process::answer);
        Report::of(&lines.collect::<anyhow::Result<Vec<Line>>>()?)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may be gone already.
            drop(process.child.kill());
            drop(process.child.wait());
        }
    }
}

impl Process {
    fn start(options: &LoadOptions, cores: Cores) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?.into_os_string();
        let mut command = pinned(&[own, "load".into()], cores)?;
        for (name, value) in args(options) {
            command.arg(format!("--{name}")).arg(value);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self {
            commands: child.stdin.take().context("a load without input")?,
            answers: BufReader::new(child.stdout.take().context("a load without output")?),
            child,
        })
    }

    fn answer(&mut self) -> anyhow::Result<Line> {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line)?;
        ensure!(length > 0, "the load has ended; it says why above");
        Ok(serde_json::from_str(&line)?)
    }
}

impl Report {
    /// Whether every stream lives and every message was a response.
    fn check(self) -> anyhow::Result<Self> {
        let counts = &self.counts;
        ensure!(counts.failed == 0, "{} streams ended", counts.failed);
        ensure!(
            counts.malformed == 0,
            "{} messages were no responses",
            counts.malformed
        );
        Ok(self)
    }
}

fn args(options: &LoadOptions) -> Vec<(&'static str, String)> {
    let mut args = vec![
        ("grpc", options.grpc.to_string()),
        ("connections", options.connections.to_string()),
        ("kind", spelled(&options.kind)),
        ("variant", spelled(&options.variant)),
        ("clusters", options.clusters.to_string()),
        ("names", options.names.to_string()),
        ("first-stream", options.first_stream.to_string()),
        ("unanswered-max", options.unanswered_max.to_string()),
        ("slow-percent", options.slow_percent.to_string()),
    ];
    args.extend(options.then.map(|then| ("then", then.to_string())));
    args
}

fn spelled<V: ValueEnum>(value: &V) -> String {
    let spelled = value.to_possible_value();
    spelled.map_or_else(String::new, |value| value.get_name().to_owned())
}
