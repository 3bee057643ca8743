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
use tokio::io::{AsyncRead, AsyncWrite};

use crate::limits::WRITE_BYTES_MAX;

thread_local! {
    /// Memory that the connections of this thread collect in, one after another.
    static SPARE: RefCell<Vec<u8>> = RefCell::default();
}

/// Makes of the halves of a socket the side that HTTP/2 reads and writes and the side that flushes it.
pub(crate) fn collect<R: AsyncRead, W: AsyncWrite>(
    read: R,
    write: W,
) -> (CollectingSocket<R>, Flusher<W>) {
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

    /// Keeps what the peer has not taken, in memory of that size, and returns the rest: peers that do
    /// not read may be many.
    fn keep_rest(&mut self) {
        let rest = self.bytes.split_off(self.taken);
        self.give_back();
        self.bytes = rest;
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
pub(crate) struct CollectingSocket<R> {
    read: TokioIo<R>,
    outgoing: Arc<Mutex<Outgoing>>,
}

impl<R: AsyncRead + Unpin> Read for CollectingSocket<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

impl<R: Unpin> Write for CollectingSocket<R> {
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
pub(crate) struct Flusher<W> {
    write: W,
    outgoing: Arc<Mutex<Outgoing>>,
}

impl<W: AsyncWrite + Unpin> Flusher<W> {
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
                    outgoing.keep_rest();
                    return;
                }
            }
        }
        outgoing.give_back();
        // TLS has taken more than the system has; a plain socket has nothing to flush.
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.write).poll_flush(cx) {
            outgoing.error = Some(error.kind());
        }
        if let Some(waker) = outgoing.waiting.take() {
            waker.wake();
        }
    }

    /// The half that writes.
    pub(crate) fn into_inner(self) -> W {
        self.write
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    type Sides = (CollectingSocket<OwnedReadHalf>, Flusher<OwnedWriteHalf>);

    async fn mk_connection() -> (Sides, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap());
        let (peer, accepted) = tokio::join!(peer, listener.accept());
        let (read, write) = accepted.unwrap().0.into_split();
        (collect(read, write), peer.unwrap())
    }

    async fn write(socket: &mut CollectingSocket<OwnedReadHalf>, parts: &[&[u8]]) -> usize {
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        poll_fn(|cx| Pin::new(&mut *socket).poll_write_vectored(cx, &slices))
            .await
            .unwrap()
    }

    async fn flush(flusher: &mut Flusher<OwnedWriteHalf>) {
        poll_fn(|cx| {
            flusher.flush(cx);
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_written_in_a_turn_arrives_in_order_once_it_is_flushed() {
        let ((mut socket, mut flusher), mut peer) = mk_connection().await;
        assert_eq!(write(&mut socket, &[b"a", b"", b"bc"]).await, 3);
        assert_eq!(write(&mut socket, &[b"d"]).await, 1);
        assert!(peer.try_read(&mut [0; 1]).is_err(), "sent before its time");
        flush(&mut flusher).await;
        let mut read = [0; 4];
        peer.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcd");
        assert_eq!(flusher.outgoing.lock().bytes.capacity(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_holds_up_itself_and_loses_nothing() {
        let ((mut socket, mut flusher), mut peer) = mk_connection().await;
        let mut sent = Vec::new();
        while !flusher.outgoing.lock().is_full {
            for _ in 0..40 {
                let part = vec![u8::try_from(sent.len() % 251).unwrap(); 1000];
                sent.extend_from_slice(&part);
                write(&mut socket, &[&part]).await;
            }
            flush(&mut flusher).await;
        }
        {
            let outgoing = flusher.outgoing.lock();
            let (kept, room) = (outgoing.bytes.len(), outgoing.bytes.capacity());
            assert!(kept <= 40_000, "{kept} bytes");
            assert_eq!(room, kept, "room that nobody needs");
        }
        let refused = poll_fn(|cx| {
            let refused = Pin::new(&mut socket).poll_write(cx, b"more").is_pending();
            Poll::Ready(refused)
        });
        assert!(refused.await, "took more than the peer does");

        let mut read = vec![0; sent.len()];
        let reading = peer.read_exact(&mut read);
        let flushing = poll_fn(|cx| {
            flusher.flush(cx);
            match flusher.outgoing.lock().is_full {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        });
        let (done, ()) = tokio::join!(reading, flushing);
        done.unwrap();
        assert!(read == sent, "other bytes than were sent");
        assert_eq!(write(&mut socket, &[b"more"]).await, 4);
    }
}
