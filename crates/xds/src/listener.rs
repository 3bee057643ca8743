//! Accepts connections and drives them: one thread and one single-threaded runtime per core, all
//! accepting from one socket. xDS methods go to the engine, everything else to another service. With or without
//! TLS a connection is served by the same code over another kind of socket.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::age;
use crate::connection::ConnectionService;
use crate::drive::{ConnectionExecutor, Driver};
use crate::events::{Event, HandshakeFailure, RefusalReason};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::secure::{self, Handshakes, Spoken};
use crate::server::AdsServer;
use crate::socket::{CollectingSocket, Flusher, collect};

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process has the port.
    #[error(
        "cannot listen on {address}: the port is in use by another process; stop it or choose another --listen address"
    )]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// How connections are treated. [`ListenSettings::default`] has the defaults of
/// [`limits`](crate::limits).
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Threads, each with a runtime of its own; `None` for one per core.
    pub threads: Option<usize>,
    /// HTTP/2 streams that one connection may have open.
    pub streams_per_connection_max: u32,
    /// Connections that may be open; one more is closed at once.
    pub connections_max: usize,
    /// How often an HTTP/2 ping asks whether a peer still lives.
    pub keepalive_interval: Duration,
    /// How long the answer may take before the connection is closed.
    pub keepalive_timeout: Duration,
    /// Age at which a connection is told to go away and its streams end; `None`: never.
    pub connection_age_max: Option<Duration>,
    /// TLS for every connection, by what is in force when it is made; `None` for none. The configuration should
    /// offer `h2` by ALPN.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            threads: None,
            streams_per_connection_max: limits::STREAMS_PER_CONNECTION_MAX_DEFAULT,
            connections_max: limits::CONNECTIONS_MAX_DEFAULT,
            keepalive_interval: limits::KEEPALIVE_INTERVAL_DEFAULT,
            keepalive_timeout: limits::KEEPALIVE_TIMEOUT_DEFAULT,
            connection_age_max: Some(limits::CONNECTION_AGE_MAX_DEFAULT),
            tls: None,
        }
    }
}

/// A bound socket that nobody serves yet. Connections wait in the system's queue.
#[derive(Debug)]
pub struct Listener {
    socket: StdListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address`; port 0 lets the system choose.
    ///
    /// # Errors
    /// The port is taken, or the system refuses.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let io_error = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::AddressInUse { address },
            _ => ListenError::Io { address, source },
        };
        let socket = StdListener::bind(address).map_err(io_error)?;
        socket.set_nonblocking(true).map_err(io_error)?;
        let address = socket.local_addr().map_err(io_error)?;
        Ok(Self { socket, address })
    }

    /// The address with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves `server`'s methods and, for every other path, `fallback` (health, reflection, other
    /// gRPC services as one tower service). Requests carry the peer's [`PeerAddress`] as an
    /// extension. Returns at once; threads do the work.
    ///
    /// # Errors
    /// No thread or runtime could be started.
    pub fn serve<F, B>(
        self,
        server: AdsServer,
        fallback: F,
        settings: ListenSettings,
    ) -> Result<Serving, ListenError>
    where
        F: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        F::Error: std::fmt::Display + Send + 'static,
        F::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let address = self.address;
        let io_error = |source| ListenError::Io { address, source };
        let shared = Arc::new(Shared {
            server: server.clone(),
            connections: AtomicUsize::new(0),
            stop_accepting: CancellationToken::new(),
            stop: CancellationToken::new(),
            tracker: TaskTracker::new(),
            handshakes: settings.tls.clone().map(Handshakes::new),
            settings,
        });
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = shared.settings.threads.unwrap_or(cores).max(1);
        let mut workers = Vec::with_capacity(threads);
        for index in 0..threads {
            let socket = self.socket.try_clone().map_err(io_error)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(io_error)?;
            let worker = Worker {
                shared: Arc::clone(&shared),
                fallback: fallback.clone(),
                sweeps: index == 0,
            };
            let thread = std::thread::Builder::new()
                .name(format!("xds-{index}"))
                .spawn(move || runtime.block_on(worker.run(socket)))
                .map_err(io_error)?;
            workers.push(thread);
        }
        Ok(Serving {
            shared,
            address,
            workers,
        })
    }
}

/// The address of the other side, in the extensions of every request.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// A listener at work. Dropping it stops everything at once; [`Serving::shut_down`] is the kind way.
pub struct Serving {
    shared: Arc<Shared>,
    address: SocketAddr,
    workers: Vec<JoinHandle<()>>,
}

impl Serving {
    /// The address that is served.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Stops accepting, tells every connection to go away (GOAWAY, so that new calls go elsewhere),
    /// ends the xDS streams evenly over `drain`, and closes what is left. Takes at most `drain` and
    /// a little more, also if clients do not read.
    pub async fn shut_down(mut self, drain: Duration) {
        self.shared.server.refuse_streams();
        self.shared.stop_accepting.cancel();
        self.shared.server.drain(drain).await;
        self.shared.tracker.close();
        let closed = self.shared.tracker.wait();
        let _ = tokio::time::timeout(limits::CLOSE_GRACE, closed).await;
        self.shared.stop.cancel();
        let workers = std::mem::take(&mut self.workers);
        let joined = tokio::task::spawn_blocking(move || join_all(workers));
        if joined.await.is_err() {
            tracing::warn!("a listener thread panicked");
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.stop_accepting.cancel();
        self.shared.stop.cancel();
    }
}

fn join_all(workers: Vec<JoinHandle<()>>) {
    for worker in workers {
        if worker.join().is_err() {
            tracing::warn!("a listener thread panicked");
        }
    }
}

struct Shared {
    server: AdsServer,
    settings: ListenSettings,
    /// Where TLS is spoken.
    handshakes: Option<Handshakes>,
    connections: AtomicUsize,
    /// No new connections; the open ones are told to go away.
    stop_accepting: CancellationToken,
    /// The threads end.
    stop: CancellationToken,
    tracker: TaskTracker,
}

struct Worker<F> {
    shared: Arc<Shared>,
    fallback: F,
    /// Whether this one also cuts off streams that stall.
    sweeps: bool,
}

impl<F, B> Worker<F>
where
    F: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    F::Error: std::fmt::Display + Send + 'static,
    F::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    async fn run(self, socket: StdListener) {
        if self.sweeps {
            tokio::spawn(sweep(Arc::clone(&self.shared)));
        }
        tokio::spawn(Mailbox::open());
        let stop = self.shared.stop.clone();
        match TcpListener::from_std(socket) {
            Ok(listener) => self.accept(listener).await,
            Err(error) => tracing::error!(%error, "cannot accept connections"),
        }
        stop.cancelled().await;
    }

    async fn accept(&self, listener: TcpListener) {
        let stop_accepting = self.shared.stop_accepting.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop_accepting.cancelled() => return,
            };
            match accepted {
                Ok((socket, peer)) => self.admit(socket, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(limits::ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    fn admit(&self, socket: TcpStream, peer: SocketAddr) {
        let shared = Arc::clone(&self.shared);
        let open = shared.connections.fetch_add(1, Ordering::AcqRel);
        let guard = ConnectionGuard(Arc::clone(&shared));
        if open >= shared.settings.connections_max {
            let reason = RefusalReason::ConnectionLimit;
            shared.server.events().on_event(&Event::Refused { reason });
            return;
        }
        let fallback = self.fallback.clone();
        let served = async move {
            serve_connection(&guard.0, socket, peer, fallback).await;
        };
        tokio::spawn(shared.tracker.track_future(served));
    }
}

/// Counts a connection while it lives.
struct ConnectionGuard(Arc<Shared>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn serve_connection<F, B>(shared: &Shared, socket: TcpStream, peer: SocketAddr, fallback: F)
where
    F: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    F::Error: std::fmt::Display + Send + 'static,
    F::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    // Small responses must not wait for the acknowledgement of the one before.
    let _ = socket.set_nodelay(true);
    if let Some(handshakes) = &shared.handshakes {
        // In a box: the room for a handshake would be kept for every plain connection too.
        return Box::pin(serve_secure(shared, handshakes, socket, peer, fallback)).await;
    }
    // hyper has no deadline for a preface: a peer that sends a part of it would be kept for ever.
    let spoken = tokio::time::timeout(limits::PREFACE_TIMEOUT, secure::first_words(&socket));
    match spoken.await {
        Ok(Spoken::Preface | Spoken::Else) => {}
        Ok(Spoken::Tls) => {
            let event = Event::HandshakeFailed {
                peer,
                reason: HandshakeFailure::NotServed,
                detail: "it speaks TLS; this port is served without",
            };
            return shared.server.events().on_event(&event);
        }
        Ok(Spoken::Nothing) | Err(_) => return,
    }
    let (read, write) = socket.into_split();
    serve_http2(shared, collect(read, write), peer, fallback).await;
}

async fn serve_secure<F, B>(
    shared: &Shared,
    handshakes: &Handshakes,
    socket: TcpStream,
    peer: SocketAddr,
    fallback: F,
) where
    F: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    F::Error: std::fmt::Display + Send + 'static,
    F::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    // In a box that goes when it is over.
    let shaken = Box::pin(handshakes.shake(socket, peer, shared.server.events())).await;
    if let Some((read, write)) = shaken {
        let socket = serve_http2(shared, collect(read, write), peer, fallback).await;
        secure::say_goodbye(socket).await;
    }
}

/// Serves a connection whose preface is there, to its end.
async fn serve_http2<R, W, F, B>(
    shared: &Shared,
    (socket, flusher): (CollectingSocket<R>, Flusher<W>),
    peer: SocketAddr,
    fallback: F,
) -> W
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Unpin,
    F: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    F::Error: std::fmt::Display + Send + 'static,
    F::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let executor = ConnectionExecutor::default();
    let service = ConnectionService::new(shared.server.clone(), peer, fallback, executor.clone());
    let connection = http2::Builder::new(executor.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(shared.settings.streams_per_connection_max)
        .keep_alive_interval(shared.settings.keepalive_interval)
        .keep_alive_timeout(shared.settings.keepalive_timeout)
        .max_send_buf_size(limits::SEND_BUFFER_BYTES_MAX)
        .max_header_list_size(limits::HEADER_LIST_BYTES_MAX)
        .auto_date_header(false)
        .serve_connection(socket, service);
    // In a box, since what a block takes over and pins has room in it twice.
    let mut connection = Box::pin(connection);
    let stop_accepting = shared.stop_accepting.clone();
    let (server, age_max) = (shared.server.clone(), shared.settings.connection_age_max);
    let connection = async move {
        let result = tokio::select! {
            result = connection.as_mut() => Some(result),
            () = stop_accepting.cancelled() => {
                connection.as_mut().graceful_shutdown();
                Some(connection.await)
            }
            () = age::reached(age_max) => {
                connection.as_mut().graceful_shutdown();
                age::retire(&mut connection, &server, peer).await
            }
        };
        if let Some(Err(error)) = result {
            tracing::debug!(%peer, %error, "connection ended");
        }
    };
    let mut driver = Driver::new(connection, executor, flusher);
    (&mut driver).await;
    driver.into_socket()
}

async fn sweep(shared: Arc<Shared>) {
    let period = shared.server.settings().stall_timeout / 4;
    loop {
        tokio::time::sleep(period.max(limits::SWEEP_PERIOD_MIN)).await;
        shared.server.cut_off_stalled();
    }
}
