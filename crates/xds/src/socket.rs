//! The socket of one connection, written in few system calls: what the HTTP/2 layer writes during
//! one turn of the connection's task is collected and goes out in one write at the end of the turn.
//!
//! Nothing is kept for an idle connection: the memory for collecting belongs to the thread and is
//! lent for one turn. Only what the peer does not take stays with its connection, and until it is
//! gone the HTTP/2 layer is told to wait, as by any full socket.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::limits::WRITE_BYTES_MAX;

thread_local! {
    /// Memory that the connections of this thread collect in, one after another.
    static SPARE: RefCell<Vec<u8>> = RefCell::default();
}

/// Cuts a socket into the side that HTTP/2 reads and writes and the side that flushes it.
pub(crate) fn split(socket: TcpStream) -> (CollectingSocket, Flusher) {
    let (read, write) = socket.into_split();
    let outgoing = Arc::new(Mutex::new(Outgoing::default()));
    let socket = CollectingSocket {
        read: TokioIo::new(read),
        outgoing: Arc::clone(&outgoing),
    };
    (socket, Flusher { write, outgoing })
}

/// What was written and is not yet in the system's hands.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// How many of them the system has taken.
    taken: usize,
    /// The HTTP/2 layer, if it waits for room.
    waiting: Option<Waker>,
    /// The peer did not take everything: nothing is added until it has.
    is_full: bool,
    /// The socket is broken.
    error: Option<io::ErrorKind>,
}

impl Outgoing {
    /// Whether anything may be added; otherwise `cx` is woken when it may.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(kind) = self.error {
            return Poll::Ready(Err(kind.into()));
        }
        if !self.is_full && self.bytes.len() < WRITE_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        self.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn add(&mut self, slices: &[IoSlice<'_>]) -> usize {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.take();
        }
        for slice in slices {
            self.bytes.extend_from_slice(slice);
        }
        slices.iter().map(|slice| slice.len()).sum()
    }

    /// Returns the memory for the thread's next turn.
    fn give_back(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.taken = 0;
        if bytes.capacity() > 0 {
            bytes.clear();
            SPARE.replace(bytes);
        }
    }
}

/// The side of a socket that HTTP/2 reads and writes.
pub(crate) struct CollectingSocket {
    read: TokioIo<OwnedReadHalf>,
    outgoing: Arc<Mutex<Outgoing>>,
}

impl Read for CollectingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

impl Write for CollectingSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut outgoing = self.outgoing.lock();
        std::task::ready!(outgoing.poll_room(cx))?;
        Poll::Ready(Ok(outgoing.add(slices)))
    }

    /// The turn's end flushes.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Waits until everything is written; the socket is closed when both sides are dropped.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.bytes.is_empty() || outgoing.error.is_some() {
            return Poll::Ready(Ok(()));
        }
        outgoing.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The side of a socket that hands to the system what was collected.
pub(crate) struct Flusher {
    write: OwnedWriteHalf,
    outgoing: Arc<Mutex<Outgoing>>,
}

impl Flusher {
    /// Writes what was collected, as much as the peer takes; `cx` is woken when it takes more.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        let mut outgoing = self.outgoing.lock();
        let outgoing = &mut *outgoing;
        outgoing.is_full = false;
        while let Some(rest) = outgoing.bytes.get(outgoing.taken..)
            && !rest.is_empty()
        {
            match Pin::new(&mut self.write).poll_write(cx, rest) {
                Poll::Ready(Ok(count)) if count > 0 => outgoing.taken += count,
                Poll::Ready(result) => {
                    let error = result.err().map(|error| error.kind());
                    outgoing.error = Some(error.unwrap_or(io::ErrorKind::WriteZero));
                    outgoing.taken = outgoing.bytes.len();
                }
                Poll::Pending => {
                    outgoing.is_full = true;
                    return;
                }
            }
        }
        outgoing.give_back();
        if let Some(waker) = outgoing.waiting.take() {
            waker.wake();
        }
    }
}
