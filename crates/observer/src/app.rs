//! Builds the graph of an Observer, binds its ports, and hands back what runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use waypost_core::{AnnouncementLog, LogError, Topic};
use waypost_runtime::{AdminServer, BindError, Readiness, SharedRegistry, WallClock, bind_tcp};

use crate::settings::Settings;

/// Why an Observer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The log is set up wrongly, damaged, or held by another process.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Looks once whether the log is set up as it must be; asked again while it says `Unavailable`.
pub type StartCheck = Box<dyn Fn() -> BoxFuture<'static, Result<(), LogError>> + Send + Sync>;

/// An Observer that is not started yet.
pub struct Observer {
    settings: Settings,
    log: Arc<dyn AnnouncementLog>,
    clock: WallClock,
    _start_check: Option<StartCheck>,
}

impl Observer {
    /// An Observer over `log`.
    #[must_use]
    pub fn new(settings: Settings, log: Arc<dyn AnnouncementLog>) -> Self {
        Self {
            settings,
            log,
            clock: WallClock::system(),
            _start_check: None,
        }
    }

    /// Looks at the log's set-up before the first record is read: a wrong one ends the Observer
    /// through [`RunningObserver::failed`].
    #[must_use]
    pub fn with_start_check(mut self, check: StartCheck) -> Self {
        self._start_check = Some(check);
        self
    }

    /// Takes another wall clock (tests move theirs by hand).
    #[must_use]
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Binds both ports and starts every task. Returns at once; readiness says when it serves.
    ///
    /// # Errors
    /// A port cannot be opened, or the log can never be read as it is. A log that merely cannot be
    /// reached is no error: the Observer keeps trying and readiness says so.
    pub async fn start(self) -> Result<RunningObserver, StartError> {
        let grpc = bind_tcp(self.settings.listen, "--listen").await?;
        let admin = AdminServer::bind(self.settings.admin, "--admin").await?;
        match self.log.partition_count(Topic::Announcements).await {
            Ok(_) => {}
            Err(error) if error.is_transient() => tracing::warn!(%error, "waiting for the log"),
            Err(error) => return Err(error.into()),
        }
        let stop = CancellationToken::new();
        let readiness = Readiness::new();
        let grpc_address = grpc.local_addr().unwrap_or(self.settings.listen);
        let admin_address = admin.address();
        let serving = tokio::spawn(admin.run(
            readiness.clone(),
            SharedRegistry::default(),
            Router::new(),
            stop.clone(),
        ));
        Ok(RunningObserver {
            grpc_address,
            admin_address,
            readiness,
            stop,
            failed: watch::Sender::new(None),
            tasks: vec![serving],
            _grpc: grpc,
        })
    }
}

/// A started Observer. Dropping it stops it at once; [`RunningObserver::shutdown`] does so politely.
#[derive(Debug)]
pub struct RunningObserver {
    grpc_address: SocketAddr,
    admin_address: SocketAddr,
    readiness: Readiness,
    stop: CancellationToken,
    failed: watch::Sender<Option<LogError>>,
    tasks: Vec<JoinHandle<()>>,
    _grpc: TcpListener,
}

impl RunningObserver {
    /// Where xDS, the gateway, health and reflection are served.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// Where the admin port is served.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// What it still waits for, and what is stale.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Waits until everything that existed at start was read and clients are served.
    pub async fn ready(&self) {
        while !self.readiness.is_ready() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for an error that no waiting mends (a topic set up wrongly, a damaged log): the process
    /// should say it and end. Never returns while all is well or the log is merely away.
    pub async fn failed(&self) -> LogError {
        let mut failed_rx = self.failed.subscribe();
        match failed_rx.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(error)) => error.clone(),
            _ => LogError::Closed,
        }
    }

    /// Sends clients away over the drain time of the settings, then stops every task.
    pub async fn shutdown(mut self) {
        self.readiness.begin_stopping();
        self.stop.cancel();
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }

    /// Stops every task without waiting for clients.
    pub async fn stop_now(mut self) {
        self.stop.cancel();
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for RunningObserver {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
