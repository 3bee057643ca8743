//! One task for a connection and all its streams. A turn polls whoever was woken, the HTTP/2 layer
//! and streams alike, and then writes once: what several streams say in one turn is one system
//! call, and a change that many streams of a connection wait for wakes one task.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hyper::rt::Executor;
use parking_lot::Mutex;

use crate::registry::StreamHandle;
use crate::socket::Flusher;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the streams of one connection from hyper. hyper asks it to run a stream right after the
/// service was called for it, so the service leaves the handle of an xDS stream here.
#[derive(Clone, Default)]
pub(crate) struct ConnectionExecutor {
    starting: Arc<Mutex<Starting>>,
}

#[derive(Default)]
struct Starting {
    opened: Option<Arc<StreamHandle>>,
    streams: VecDeque<Part>,
}

impl ConnectionExecutor {
    /// `handle` belongs to the next stream that hyper starts.
    pub(crate) fn opened(&self, handle: Option<Arc<StreamHandle>>) {
        self.starting.lock().opened = handle;
    }

    /// The stream that is to be polled next. One after another, with the HTTP/2 layer in between: it
    /// keeps the room for as many frames as ever waited for it at once.
    fn next(&self) -> Option<Part> {
        self.starting.lock().streams.pop_front()
    }
}

impl<F> Executor<F> for ConnectionExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut starting = self.starting.lock();
        let handle = starting.opened.take();
        starting.streams.push_back(Part::Stream {
            future: Box::pin(future),
            handle,
        });
    }
}

/// What the task of a connection polls.
enum Part {
    /// The HTTP/2 layer.
    Connection(BoxFuture),
    Stream {
        future: BoxFuture,
        /// Of an xDS stream.
        handle: Option<Arc<StreamHandle>>,
    },
}

/// Which part is over.
enum Finished {
    Connection,
    Stream,
}

impl Future for Part {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        match self.get_mut() {
            Self::Connection(connection) => {
                connection.as_mut().poll(cx).map(|()| Finished::Connection)
            }
            Self::Stream { future, handle } => {
                if future.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Finished::Stream);
                }
                // A stream whose client does not read is not asked for frames: it is dropped here,
                // and the HTTP/2 layer resets it.
                match handle {
                    Some(handle) if handle.poll_cut_off(cx).is_ready() => {
                        Poll::Ready(Finished::Stream)
                    }
                    _ => Poll::Pending,
                }
            }
        }
    }
}

/// The task of a connection: over when the HTTP/2 layer is, which ends the streams that are left.
pub(crate) struct Driver {
    parts: FuturesUnordered<Part>,
    executor: ConnectionExecutor,
    flusher: Flusher,
}

impl Driver {
    /// `connection` gives its streams to `executor` and writes to the other side of `flusher`.
    pub(crate) fn new(
        connection: impl Future<Output = ()> + Send + 'static,
        executor: ConnectionExecutor,
        flusher: Flusher,
    ) -> Self {
        let parts = FuturesUnordered::new();
        parts.push(Part::Connection(Box::pin(connection)));
        Self {
            parts,
            executor,
            flusher,
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = loop {
            match self.parts.poll_next_unpin(cx) {
                Poll::Ready(Some(Finished::Stream)) => {}
                Poll::Ready(Some(Finished::Connection) | None) => break true,
                Poll::Pending => match self.executor.next() {
                    Some(stream) => self.parts.push(stream),
                    None => break false,
                },
            }
        };
        self.flusher.flush(cx);
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
