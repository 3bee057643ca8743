//! Readiness by name: what the process still waits for, and which of its inputs are stale.
//!
//! Two questions that must not be mixed (DESIGN invariants 1 and 9): *not ready* is a process that
//! cannot answer yet; *stale* is one that answers from what it knew. The first ends for good, the
//! second comes and goes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::PENDING_LISTED_MAX;

/// The registry; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pending: BTreeMap<String, String>,
    stale: BTreeMap<String, String>,
    notices: BTreeMap<String, String>,
    is_stopping: bool,
}

/// Something that is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTask {
    /// What.
    pub name: String,
    /// Why it is not there yet.
    pub reason: String,
}

impl Readiness {
    /// A registry that waits for nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on the process is not ready until the task is [`ReadinessTask::done`].
    #[must_use]
    pub fn register(&self, name: &str, reason: &str) -> ReadinessTask {
        self.0
            .state
            .lock()
            .pending
            .insert(name.into(), reason.into());
        ReadinessTask {
            registry: self.clone(),
            name: name.into(),
            is_done: false,
        }
    }

    /// What is still awaited, in name order.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingTask> {
        let state = self.0.state.lock();
        let entries = state.pending.iter();
        entries
            .map(|(name, reason)| PendingTask {
                name: name.clone(),
                reason: reason.clone(),
            })
            .collect()
    }

    /// Whether clients may be sent here: nothing is awaited and the process is not stopping.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let state = self.0.state.lock();
        state.pending.is_empty() && !state.is_stopping
    }

    /// Waits until [`Readiness::is_ready`].
    pub async fn ready(&self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Registered before the look, so that no change is missed between the two.
            changed.as_mut().enable();
            if self.is_ready() {
                return;
            }
            changed.await;
        }
    }

    /// Says that the input `name` is out of date, and why.
    pub fn set_stale(&self, name: &str, reason: &str) {
        let mut state = self.0.state.lock();
        if state.stale.get(name).is_none_or(|known| known != reason) {
            state.stale.insert(name.into(), reason.into());
        }
    }

    /// Says that the input `name` is up to date again.
    pub fn clear_stale(&self, name: &str) {
        self.0.state.lock().stale.remove(name);
    }

    /// Why what is served may be out of date, one line for each input.
    #[must_use]
    pub fn stale_reasons(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let entries = state.stale.iter();
        entries
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect()
    }

    /// Says something that an operator should look at although nothing is amiss with what is served:
    /// neither not ready nor stale.
    pub fn set_notice(&self, name: &str, text: &str) {
        let mut state = self.0.state.lock();
        if state.notices.get(name).is_none_or(|known| known != text) {
            state.notices.insert(name.into(), text.into());
        }
    }

    /// There is nothing to be said under `name` any more.
    pub fn clear_notice(&self, name: &str) {
        self.0.state.lock().notices.remove(name);
    }

    /// What an operator should look at, one line for each.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let entries = state.notices.iter();
        entries
            .map(|(name, text)| format!("{name}: {text}"))
            .collect()
    }

    /// From now on no client should be sent here: the process is about to stop.
    pub fn begin_stopping(&self) {
        self.0.state.lock().is_stopping = true;
    }

    /// The answer to a probe: whether it is good, and a text of one line for each reason.
    #[must_use]
    pub fn probe(&self, strictness: Strictness) -> (bool, String) {
        let pending = self.pending();
        let mut lines: Vec<String> = Vec::new();
        if self.0.state.lock().is_stopping {
            lines.push("not ready: stopping".to_owned());
        }
        let listed = pending.iter().take(PENDING_LISTED_MAX);
        lines.extend(listed.map(|t| format!("not ready: {}: {}", t.name, t.reason)));
        if pending.len() > PENDING_LISTED_MAX {
            let rest = pending.len() - PENDING_LISTED_MAX;
            lines.push(format!("not ready: and {rest} more"));
        }
        let is_ready = lines.is_empty();
        if is_ready {
            lines.push("ready".to_owned());
        }
        let stale = self.stale_reasons();
        let is_fresh = stale.is_empty();
        lines.extend(stale.into_iter().map(|line| format!("stale: {line}")));
        let notices = self.notices().into_iter();
        lines.extend(notices.map(|line| format!("notice: {line}")));
        let is_good = is_ready && (is_fresh || strictness == Strictness::StaleIsReady);
        (is_good, lines.join("\n") + "\n")
    }
}

/// What a probe takes for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// `/ready`: an Observer that serves what it knew is ready.
    StaleIsReady,
    /// `/ready?fresh`: only one whose inputs are up to date is.
    FreshOnly,
}

/// Something that readiness waits for. Dropping it without [`ReadinessTask::done`] leaves the
/// process not ready: a task that died has not finished.
#[derive(Debug)]
pub struct ReadinessTask {
    registry: Readiness,
    name: String,
    is_done: bool,
}

impl ReadinessTask {
    /// Says why it is not done yet.
    pub fn set_reason(&self, reason: &str) {
        let mut state = self.registry.0.state.lock();
        if let Some(known) = state.pending.get_mut(&self.name)
            && known != reason
        {
            reason.clone_into(known);
        }
    }

    /// It is there.
    pub fn done(mut self) {
        self.is_done = true;
        self.registry.0.state.lock().pending.remove(&self.name);
        self.registry.0.changed.notify_waiters();
    }
}

impl Drop for ReadinessTask {
    fn drop(&mut self) {
        if !self.is_done {
            self.set_reason("its task ended before it was done; see the process's log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_once_every_task_is_done() {
        let readiness = Readiness::new();
        let first = readiness.register("announcements/0", "at 0 of 4,000");
        let second = readiness.register("config/0", "not reached");
        first.set_reason("at 120 of 4,000");
        let (good, text) = readiness.probe(Strictness::StaleIsReady);
        assert!(!good);
        assert!(
            text.contains("announcements/0: at 120 of 4,000\n"),
            "{text}"
        );
        first.done();
        assert!(!readiness.is_ready());
        second.done();
        assert_eq!(
            readiness.probe(Strictness::FreshOnly),
            (true, "ready\n".to_owned())
        );
    }

    #[test]
    fn a_task_that_dies_is_not_done() {
        let readiness = Readiness::new();
        drop(readiness.register("config/0", "at 0"));
        let pending = readiness.pending();
        assert_eq!(pending.len(), 1);
        assert!(pending[0].reason.contains("ended"), "{pending:?}");
    }

    #[test]
    fn stale_is_ready_but_not_fresh() {
        let readiness = Readiness::new();
        readiness.set_stale("log", "no broker answers");
        let (good, text) = readiness.probe(Strictness::StaleIsReady);
        assert!(good, "{text}");
        assert!(text.contains("stale: log: no broker answers"), "{text}");
        assert!(!readiness.probe(Strictness::FreshOnly).0);
        readiness.clear_stale("log");
        assert!(readiness.probe(Strictness::FreshOnly).0);
    }

    #[test]
    fn a_stopping_process_is_not_ready_and_says_so() {
        let readiness = Readiness::new();
        readiness.begin_stopping();
        let (good, text) = readiness.probe(Strictness::StaleIsReady);
        assert!(!good && text.contains("stopping"), "{text}");
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let readiness = Readiness::new();
        let _tasks: Vec<_> = (0..PENDING_LISTED_MAX + 7)
            .map(|n| readiness.register(&format!("p/{n}"), "at 0"))
            .collect();
        let (_, text) = readiness.probe(Strictness::StaleIsReady);
        assert!(text.ends_with("not ready: and 7 more\n"), "{text}");
    }
}
