//! Wakes of the tasks of one thread by other threads. Waking a task of another thread costs a lock
//! and a system call; a change that thousands of streams wait for would pay them thousands of times.
//! So wakes are posted to the thread, which is woken for the first of them and wakes its tasks
//! itself.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
}

/// Tasks of one thread that are to be woken. Each stream posts once until it was polled, so there
/// are at most as many as streams.
#[derive(Default)]
pub(crate) struct Mailbox {
    posted: Mutex<Vec<Waker>>,
    /// The task that wakes them.
    postman: AtomicWaker,
}

impl Mailbox {
    /// The mailbox of this thread, where something runs one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Lets the thread of the mailbox wake a task.
    pub(crate) fn post(&self, waker: Waker) {
        let is_first = {
            let mut posted = self.posted.lock();
            posted.push(waker);
            posted.len() == 1
        };
        if is_first {
            self.postman.wake();
        }
    }

    /// Gives this thread a mailbox. What is returned wakes whom others post there, for ever.
    pub(crate) fn open() -> impl Future<Output = ()> {
        let mailbox = Arc::new(Self::default());
        CURRENT.set(Some(Arc::clone(&mailbox)));
        let mut wakers = Vec::new();
        poll_fn(move |cx| {
            mailbox.postman.register(cx.waker());
            std::mem::swap(&mut *mailbox.posted.lock(), &mut wakers);
            wakers.drain(..).for_each(Waker::wake);
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;
    use crate::testing::CountWakes;

    #[test]
    fn many_posts_wake_the_thread_once_and_each_task() {
        let (postman, task) = (Arc::<CountWakes>::default(), Arc::<CountWakes>::default());
        let waker = Waker::from(Arc::clone(&postman));
        let mut running = std::pin::pin!(Mailbox::open());
        for round in 1..=2 {
            assert!(
                running
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            let mailbox = Mailbox::current().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|| mailbox.post(Waker::from(Arc::clone(&task))));
                }
            });
            assert_eq!(postman.count(), round);
        }
        assert!(
            running
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(task.count(), 200);
    }
}
