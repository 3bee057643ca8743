//! One task for a connection and all its streams. A turn polls whoever was woken, the HTTP/2 layer
//! and streams alike, until nobody is, and then writes once: what several streams say in one turn is
//! one system call, and a change that many streams of a connection wait for wakes one task. What a
//! stream has decided to say is written in the same turn: in a later one it would be as old as the
//! turns of all other connections are long.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use crate::limits::ROUNDS_PER_TURN_MAX;
use crate::registry::StreamHandle;
use crate::socket::Flusher;
use crate::turn::Turn;

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
pub(crate) struct Driver<W> {
    parts: FuturesUnordered<Part>,
    executor: ConnectionExecutor,
    flusher: Flusher<W>,
    turn: Arc<Turn>,
    /// Of `turn`.
    waker: Waker,
}

impl<W: AsyncWrite + Unpin> Driver<W> {
    /// `connection` gives its streams to `executor` and writes to the other side of `flusher`.
    pub(crate) fn new(
        connection: impl Future<Output = ()> + Send + 'static,
        executor: ConnectionExecutor,
        flusher: Flusher<W>,
    ) -> Self {
        let parts = FuturesUnordered::new();
        parts.push(Part::Connection(Box::pin(connection)));
        let turn = Arc::new(Turn::default());
        Self {
            parts,
            executor,
            flusher,
            waker: Waker::from(Arc::clone(&turn)),
            turn,
        }
    }

    /// Lets go of all parts, and gives back the half of the socket that writes.
    pub(crate) fn into_socket(self) -> W {
        self.flusher.into_inner()
    }

    /// Polls whoever was woken, a bounded number of them: `FuturesUnordered` stops after as many as
    /// it has parts, and wakes whom it leaves. Ready when the connection is over.
    fn poll_parts(&mut self) -> Poll<()> {
        let cx = &mut Context::from_waker(&self.waker);
        loop {
            match self.parts.poll_next_unpin(cx) {
                Poll::Ready(Some(Finished::Stream)) => {}
                Poll::Ready(Some(Finished::Connection) | None) => return Poll::Ready(()),
                Poll::Pending => match self.executor.next() {
                    Some(stream) => self.parts.push(stream),
                    None => return Poll::Pending,
                },
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Future for Driver<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        for round in 1..=ROUNDS_PER_TURN_MAX {
            self.turn.begin_round(cx.waker());
            let is_over = self.poll_parts().is_ready();
            if self.turn.is_woken() && !is_over && round < ROUNDS_PER_TURN_MAX {
                continue;
            }
            self.flusher.flush(cx);
            if is_over {
                return Poll::Ready(());
            }
            // The HTTP/2 layer may have waited for the room that there is now.
            if !self.turn.is_woken() {
                break;
            }
        }
        if self.turn.end() {
            // Others on this thread first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::IoSlice;

    use futures::task::AtomicWaker;
    use hyper::rt::Write as _;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::tcp::OwnedReadHalf;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::socket::{CollectingSocket, collect};
    use crate::testing::CountWakes;

    const STREAMS: usize = 5;

    /// What an HTTP/2 layer and its streams share.
    #[derive(Default)]
    struct Wire {
        said: Mutex<Vec<u8>>,
        layer: AtomicWaker,
        streams: [AtomicWaker; STREAMS],
    }

    /// Says a byte each time it is polled.
    fn mk_stream(wire: &Arc<Wire>, index: usize) -> impl Future<Output = ()> + Send + use<> {
        let wire = Arc::clone(wire);
        poll_fn(move |cx| {
            wire.streams[index].register(cx.waker());
            wire.said.lock().push(b's');
            wire.layer.wake();
            Poll::Pending
        })
    }

    /// Writes what was said; as often as `requests` says, a request for every stream arrives.
    fn mk_layer(
        wire: &Arc<Wire>,
        requests: &Arc<Mutex<usize>>,
        mut socket: CollectingSocket<OwnedReadHalf>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (wire, requests) = (Arc::clone(wire), Arc::clone(requests));
        poll_fn(move |cx| {
            wire.layer.register(cx.waker());
            let said = std::mem::take(&mut *wire.said.lock());
            let written = Pin::new(&mut socket).poll_write_vectored(cx, &[IoSlice::new(&said)]);
            assert!(matches!(written, Poll::Ready(Ok(count)) if count == said.len()));
            let mut requests = requests.lock();
            if *requests > 0 {
                *requests -= 1;
                wire.streams.iter().for_each(AtomicWaker::wake);
            }
            Poll::Pending
        })
    }

    #[tokio::test]
    async fn what_all_streams_answer_in_a_turn_is_written_in_that_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap());
        let (peer, accepted) = tokio::join!(peer, listener.accept());
        let (read, write) = accepted.unwrap().0.into_split();
        let (mut peer, (socket, flusher)) = (peer.unwrap(), collect(read, write));
        let (wire, requests) = (Arc::<Wire>::default(), Arc::default());
        let executor = ConnectionExecutor::default();
        for index in 0..STREAMS {
            executor.execute(mk_stream(&wire, index));
        }
        let layer = mk_layer(&wire, &requests, socket);
        let mut driver = Driver::new(layer, executor, flusher);
        let wakes = Arc::new(CountWakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut turn = || {
            let polled = Pin::new(&mut driver).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        };
        turn();
        assert!(wire.said.lock().is_empty());
        assert_eq!(wakes.count(), 0, "queued for what it has done");

        *requests.lock() = 1;
        wire.layer.wake();
        assert_eq!(wakes.count(), 1);
        turn();
        assert!(wire.said.lock().is_empty(), "said and not written");
        peer.read_exact(&mut [0; 2 * STREAMS]).await.unwrap();

        // One who never ends has others of the thread wait for a bounded time.
        *requests.lock() = usize::MAX;
        wire.layer.wake();
        turn();
        assert_eq!(wakes.count(), 3);
    }
}
