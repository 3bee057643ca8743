//! Servers under test: ours and others', started alike, each with a core to itself. What they have in
//! common is in bench/README.md.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::kernel;

/// How long an answer of the control port may take: under a flood a server that is busy on its only
/// core has been seen to need 48 s.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A program that can be put under test.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// As tables call it.
    pub(crate) name: String,
    /// The program and its first arguments.
    pub(crate) command: Vec<OsString>,
    pub(crate) role: Role,
}

/// What ours is compared with a side for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is ours, on one core.
    Ours,
    /// Another server, on one core too.
    Peer,
    /// Ours again, on so many cores: a unit of work must cost about the same.
    OursOnCores(usize),
}

impl Side {
    /// The server of this program.
    ///
    /// # Errors
    /// The system does not say which program this is.
    pub(crate) fn ours() -> anyhow::Result<Self> {
        let own = std::env::current_exe()?.into_os_string();
        Ok(Self::waypost(vec![own, "serve".into()]))
    }

    pub(crate) fn waypost(command: Vec<OsString>) -> Self {
        Self {
            name: "waypost".to_owned(),
            command,
            role: Role::Ours,
        }
    }

    /// The same server on so many cores.
    pub(crate) fn on_cores(&self, count: usize) -> Self {
        Self {
            name: format!("{}, {count} cores", self.name),
            command: self.command.clone(),
            role: Role::OursOnCores(count),
        }
    }

    /// Where its server runs and where the load does: on cores of their own while there are enough, the
    /// load on any otherwise.
    pub(crate) fn placement(&self) -> (Cores, Cores) {
        let there_are = std::thread::available_parallelism().map_or(1, usize::from);
        let (server, wanted) = match self.role {
            Role::Ours | Role::Peer => (Cores::One(0), 1),
            Role::OursOnCores(count) => (Cores::First(count), count),
        };
        if there_are < 2 || wanted > there_are {
            return (Cores::Any, Cores::Any);
        }
        let load = if wanted < there_are {
            Cores::One(wanted)
        } else {
            Cores::Any
        };
        (server, load)
    }
}

/// Cores of the machine, by the numbers that `taskset` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// What the kernel gives.
    Any,
    One(usize),
    /// From the first one on.
    First(usize),
}

impl Cores {
    /// How many there are, as far as it is said.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Any | Self::One(_) => 1,
            Self::First(count) => count,
        }
    }

    /// As `taskset -c` takes them; `None` where it need not run.
    pub(crate) fn find_list(self) -> Option<String> {
        match self {
            Self::Any => None,
            Self::One(core) => Some(core.to_string()),
            Self::First(count) => Some(format!("0-{}", count.saturating_sub(1))),
        }
    }
}

/// A server that serves; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pid: u32,
    grpc: SocketAddr,
    control: SocketAddr,
}

impl Server {
    /// Starts a server with `clusters` clusters of `endpoints` endpoints, and waits until it serves.
    ///
    /// # Errors
    /// It cannot be started, or ends before it serves.
    pub(crate) fn start(
        side: &Side,
        cores: Cores,
        clusters: usize,
        endpoints: usize,
    ) -> anyhow::Result<Self> {
        Self::start_with(
            side,
            cores,
            clusters,
            ("--endpoints", endpoints.to_string()),
        )
    }

    /// Starts a server of ours with a fleet in clusters of very different sizes.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_fleet(
        side: &Side,
        cores: Cores,
        clusters: u32,
        instances: u32,
    ) -> anyhow::Result<Self> {
        let clusters = clusters as usize;
        Self::start_with(
            side,
            cores,
            clusters,
            ("--instances", instances.to_string()),
        )
    }

    fn start_with(
        side: &Side,
        cores: Cores,
        clusters: usize,
        shape: (&str, String),
    ) -> anyhow::Result<Self> {
        let args = [
            ("--clusters", clusters.to_string()),
            shape,
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--control", "127.0.0.1:0".to_owned()),
        ];
        let mut command = pinned(&side.command, cores)?;
        for (name, value) in args {
            command.arg(name).arg(value);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let output = child.stdout.take().context("a server without output")?;
        let mut lines = BufReader::new(output).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.starts_with("ready "));
        let Some(ready) = ready else {
            let status = child.wait()?;
            anyhow::bail!("{} ended before it served ({status})", side.name);
        };
        // What else it prints is read, or it would wait for a reader one day.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let field = |name: &str| {
            let mut words = ready.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .with_context(|| format!("no {name}= in {ready:?}"))
        };
        Ok(Self {
            pid: field("pid")?.parse()?,
            grpc: field("grpc")?.parse()?,
            control: field("control")?.parse()?,
            child,
        })
    }

    /// Where it serves xDS.
    pub(crate) fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Begins to make `rate` changes a second.
    ///
    /// # Errors
    /// The control port does not answer.
    pub(crate) fn start_changes(&self, rate: u64) -> anyhow::Result<()> {
        self.ask(&format!("/start?rate={rate}")).map(drop)
    }

    /// Stops making changes; gives how many were made since they began.
    ///
    /// # Errors
    /// As [`Self::start_changes`].
    pub(crate) fn stop_changes(&self) -> anyhow::Result<u64> {
        number(&self.ask("/stop")?)
    }

    /// How many changes were made since they began.
    ///
    /// # Errors
    /// As [`Self::start_changes`].
    pub(crate) fn count_changes(&self) -> anyhow::Result<u64> {
        number(&self.ask("/count")?)
    }

    /// Makes one change in a cluster.
    ///
    /// # Errors
    /// As [`Self::start_changes`].
    pub(crate) fn change_once(&self, cluster: usize) -> anyhow::Result<()> {
        self.ask(&format!("/once?i={cluster}")).map(drop)
    }

    /// Has everybody announced again, so many times (ours only); returns once all of it was read.
    ///
    /// # Errors
    /// As [`Self::start_changes`].
    pub(crate) fn beat(&self, rounds: u32) -> anyhow::Result<()> {
        self.ask(&format!("/beat?rounds={rounds}")).map(drop)
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// It does not run any more.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        kernel::cpu_time(self.pid)
    }

    /// Bytes of it that are in memory.
    ///
    /// # Errors
    /// As [`Self::cpu_time`].
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        kernel::resident_bytes(self.pid)
    }

    /// Kills it, as a machine that fails would.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn ask(&self, path: &str) -> anyhow::Result<String> {
        let what = || format!("control port: {path}");
        let mut socket = TcpStream::connect(self.control).with_context(what)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: control\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).with_context(what)?;
        let (head, body) = answer.split_once("\r\n\r\n").with_context(what)?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        ensure!(status.starts_with('2'), "{path}: {status} {body}");
        Ok(body.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.kill());
    }
}

/// The first word of an answer; ours says more behind it.
fn number(answer: &str) -> anyhow::Result<u64> {
    let word = answer.split_whitespace().next().unwrap_or_default();
    word.parse()
        .with_context(|| format!("{answer:?} is no number of changes"))
}

/// A command that runs on these cores alone.
///
/// # Errors
/// The command is empty.
pub(crate) fn pinned(command: &[OsString], cores: Cores) -> anyhow::Result<Command> {
    let (program, args) = command.split_first().context("an empty command")?;
    let mut pinned = match cores.find_list() {
        Some(list) => {
            let mut taskset = Command::new("taskset");
            taskset.arg("-c").arg(list).arg(program);
            taskset
        }
        None => Command::new(program),
    };
    pinned.args(args);
    Ok(pinned)
}

/// The same command on these cores alone.
pub(crate) fn pinned_command(command: &Command, cores: Cores) -> anyhow::Result<Command> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<OsString> = words.map(ToOwned::to_owned).collect();
    let mut pinned = pinned(&words, cores)?;
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    Ok(pinned)
}
