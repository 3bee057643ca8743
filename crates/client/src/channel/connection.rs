//! One connection to one endpoint, and whether it is still open.
//!
//! tonic's channel connects again by itself once its connection broke, and fails the request that made it
//! do so. A request must not be the one to find out, so this knows when the connection ends: hyper
//! drops the socket then.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::limits::{CONNECT_MAX, KEEPALIVE, KEEPALIVE_ANSWER_MAX};

/// An open connection, or one that was.
pub(super) struct Connection {
    channel: Channel,
    is_closed: Arc<AtomicBool>,
}

/// A socket that says when it is dropped.
struct Socket {
    stream: TcpStream,
    is_closed: Arc<AtomicBool>,
}

impl Connection {
    /// Connects to the first of these addresses that accepts.
    ///
    /// # Errors
    /// None does, in time.
    pub(super) async fn open(addresses: &[SocketAddr]) -> Result<Self, tonic::transport::Error> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let addresses: Arc<[SocketAddr]> = addresses.into();
        let authority = addresses.first().map(ToString::to_string);
        let endpoint = Endpoint::from_shared(format!("http://{}", authority.unwrap_or_default()))?
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_ANSWER_MAX);
        let flag = Arc::clone(&is_closed);
        let connector = tower::service_fn(move |_| {
            let (addresses, is_closed) = (Arc::clone(&addresses), Arc::clone(&flag));
            async move {
                let stream = TcpStream::connect(&addresses[..]).await?;
                stream.set_nodelay(true)?;
                Ok::<_, io::Error>(TokioIo::new(Socket { stream, is_closed }))
            }
        });
        let channel = endpoint.connect_with_connector(connector).await?;
        Ok(Self { channel, is_closed })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
