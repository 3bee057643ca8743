//! Whether a task that is having its turn was woken meanwhile. A task whose parts wake each other
//! goes on at once instead of standing in the queue of its thread again behind all other tasks, and
//! is not queued for a wake that it has answered already.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

/// Nobody polls the parts: a wake queues the task.
const IDLE: u8 = 0;
/// The parts are being polled.
const RUNNING: u8 = 1;
/// The parts are being polled, and one was woken since the round began.
const WOKEN: u8 = 2;

/// The waker that parts of a task are polled with.
#[derive(Default)]
pub(crate) struct Turn {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Turn {
    /// A round begins; wakes outside of rounds go to `task`.
    pub(crate) fn begin_round(&self, task: &Waker) {
        self.task.register(task);
        self.state.store(RUNNING, Ordering::SeqCst);
    }

    /// Whether a part was woken since the round began.
    pub(crate) fn is_woken(&self) -> bool {
        self.state.load(Ordering::SeqCst) == WOKEN
    }

    /// No more rounds: from now on a wake queues the task. True if a part was woken since the round
    /// began, which nobody has seen to.
    pub(crate) fn end(&self) -> bool {
        self.state.swap(IDLE, Ordering::SeqCst) == WOKEN
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let order = Ordering::SeqCst;
        if self.state.compare_exchange(RUNNING, WOKEN, order, order) == Err(IDLE) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CountWakes;

    #[test]
    fn a_wake_within_a_turn_is_seen_by_the_turn_and_one_outside_queues_the_task() {
        let tasks = Arc::new(CountWakes::default());
        let task = Waker::from(Arc::clone(&tasks));
        let turn = Arc::new(Turn::default());
        let waker = Waker::from(Arc::clone(&turn));

        turn.begin_round(&task);
        assert!(!turn.is_woken());
        waker.wake_by_ref();
        assert!(turn.is_woken());
        turn.begin_round(&task);
        assert!(!turn.end());
        assert_eq!(tasks.count(), 0);

        waker.wake_by_ref();
        assert_eq!(tasks.count(), 1);

        turn.begin_round(&task);
        waker.wake_by_ref();
        assert!(turn.end());
        assert_eq!(tasks.count(), 1);
    }
}
