//! Programs that a program started: an agent leaves its server behind when it is killed, and a test
//! must not.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

/// A process that cannot be mistaken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descendant {
    pid: Pid,
    /// Clock ticks since the machine started.
    started_ticks: u64,
}

/// Everything that `ancestor` started and what that started, as of now.
pub(crate) fn descendants(ancestor: Pid) -> Vec<Descendant> {
    let mut found: Vec<Descendant> = Vec::new();
    let mut to_ask = vec![ancestor];
    while let Some(pid) = to_ask.pop() {
        let children = children(pid).into_iter().filter_map(Descendant::of);
        let new: Vec<_> = children.filter(|child| !found.contains(child)).collect();
        to_ask.extend(new.iter().map(|child| child.pid));
        found.extend(new);
    }
    found
}

impl Descendant {
    /// Ends it if it still runs.
    pub(crate) fn kill(self) {
        if Self::of(self.pid) == Some(self) {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    fn of(pid: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(folder(pid).join("stat")).ok()?;
        // The second field, the name in parentheses, may hold spaces; the start is the 22nd.
        let after_name = stat.rsplit_once(')')?.1;
        let started_ticks = after_name.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, started_ticks })
    }
}

fn children(pid: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(folder(pid).join("task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let pids = list.split_whitespace();
            pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn folder(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()))
}
