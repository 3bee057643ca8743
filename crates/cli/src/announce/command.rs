//! COMMAND and the signals that concern it.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Failure;

/// The server that the agent started.
#[derive(Debug)]
pub(super) struct Command {
    child: Child,
    pid: Option<Pid>,
}

impl Command {
    /// Starts it in a process group of its own: a Ctrl-C in the terminal must reach the agent alone,
    /// which withdraws before it passes it on.
    pub(super) fn start(program: &str, words: &[String]) -> Result<Self, Failure> {
        let child = tokio::process::Command::new(program)
            .args(words)
            .process_group(0)
            .spawn()
            .map_err(|e| Failure::failed(format!("cannot start {program}: {e}")))?;
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        Ok(Self { child, pid })
    }

    /// Waits until it ends. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Passes a signal on: an interrupt to its whole group, as a terminal would, any other to itself.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else {
            return;
        };
        let sent = if signal == Signal::INT {
            kill_process_group(pid, signal)
        } else {
            kill_process(pid, signal)
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "the signal did not reach the command; it has ended");
        }
    }
}

/// The exit code that a shell would give: the command's own, or 128 and the signal that killed it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
}

/// A signal that the agent got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// To stop: SIGTERM or SIGINT. Withdraw first.
    Stop(Signal),
    /// Something between the sender and COMMAND: passed on as it is.
    Other(Signal),
}

/// The signals that the agent listens for.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
    quit: unix::Signal,
    user1: unix::Signal,
    user2: unix::Signal,
}

impl Signals {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hangup: unix::signal(SignalKind::hangup())?,
            quit: unix::signal(SignalKind::quit())?,
            user1: unix::signal(SignalKind::user_defined1())?,
            user2: unix::signal(SignalKind::user_defined2())?,
        })
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Got {
        tokio::select! {
            _ = self.terminate.recv() => Got::Stop(Signal::TERM),
            _ = self.interrupt.recv() => Got::Stop(Signal::INT),
            _ = self.hangup.recv() => Got::Other(Signal::HUP),
            _ = self.quit.recv() => Got::Other(Signal::QUIT),
            _ = self.user1.recv() => Got::Other(Signal::USR1),
            _ = self.user2.recv() => Got::Other(Signal::USR2),
        }
    }
}
