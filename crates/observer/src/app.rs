//! Builds the graph of an Observer, binds its ports, and hands back what runs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_core::record::KeeperId;
use waypost_core::{AnnouncementLog, LogError, SourceSlot};
use waypost_fold::{Access, KeeperSettings};
use waypost_runtime::{AdminServer, BindError, Readiness, SharedRegistry, WallClock};
use waypost_store::WriterTaken;
use waypost_tls::{ServerCertificates, ServerFiles, TlsError};
use waypost_xds::{AdsServer, AdsSettings, ListenError, ListenSettings, Listener, Serving};

use crate::admin::{self, AdminState};
use crate::csds::ClientStatus;
use crate::gateway::{Gateway, Sight};
use crate::health::{self, Health};
use crate::ingest::{Ingest, IngestParts};
use crate::load_reports::{LoadReporting, LoadReports};
use crate::locator::{LoadGate, Locator};
use crate::metrics::{Metrics, StreamMetrics};
use crate::progress::Progress;
use crate::settings::{LogWrites, Settings};
use crate::snapshot::SnapshotSettings;
use crate::tls::CertificateKeeper;

/// Why an Observer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The gRPC port could not be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The admin port could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The files of certificates cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// Reflection's descriptors cannot be read: a fault of this build.
    #[error("the descriptors for reflection cannot be read: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// Never in practice: the store is new.
    #[error(transparent)]
    Store(#[from] WriterTaken),
}

/// Why a running Observer must end: no waiting mends it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatalError {
    /// The log is set up wrongly, damaged, or held by another process, and nothing is served yet.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The task that reads the log died: a fault of this program.
    #[error("the task that reads the log died: {0}; start again, and report this")]
    IngestDied(String),
}

/// Looks once whether the log is set up as it must be; asked again while it says `Unavailable`.
pub type StartCheck = Box<dyn Fn() -> BoxFuture<'static, Result<(), LogError>> + Send + Sync>;

/// An Observer that is not started yet.
pub struct Observer {
    settings: Settings,
    log: Arc<dyn AnnouncementLog>,
    clock: WallClock,
    start_check: Option<StartCheck>,
    snapshot: Option<SnapshotSettings>,
    keeper_settings: KeeperSettings,
    listen_settings: ListenSettings,
    tls: Option<ServerFiles>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("settings", &self.settings)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// An Observer over `log`.
    #[must_use]
    pub fn new(settings: Settings, log: Arc<dyn AnnouncementLog>) -> Self {
        let access = match settings.log_writes {
            LogWrites::Keep => Access::ReadWrite,
            LogWrites::ReadOnly => Access::ReadOnly,
        };
        Self {
            settings,
            log,
            clock: WallClock::system(),
            start_check: None,
            snapshot: None,
            keeper_settings: KeeperSettings {
                access,
                ..KeeperSettings::default()
            },
            listen_settings: ListenSettings::default(),
            tls: None,
        }
    }

    /// Serves the gRPC port by TLS alone. The files are looked at again every ten seconds and on
    /// [`RunningObserver::reload_tls`]; what is renewed counts for connections made from then on.
    #[must_use]
    pub fn with_tls(mut self, files: ServerFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Takes another wall clock (tests move theirs by hand).
    #[must_use]
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Looks at the log's set-up before the first record is read: a wrong one ends the Observer
    /// through [`RunningObserver::failed`].
    #[must_use]
    pub fn with_start_check(mut self, check: StartCheck) -> Self {
        self.start_check = Some(check);
        self
    }

    /// Keeps what is served on disk between two lives.
    #[must_use]
    pub fn with_snapshot(mut self, settings: SnapshotSettings) -> Self {
        self.snapshot = Some(settings);
        self
    }

    /// Ticks at another pace (tests, whose log has a clock of its own).
    #[must_use]
    pub fn with_tick_interval(mut self, interval: Duration) -> Self {
        self.keeper_settings.tick_interval = interval;
        self
    }

    /// Sends connections away at this age, so that clients spread over the Observers that there are;
    /// zero: never. An hour unless it is said.
    #[must_use]
    pub fn with_connection_age_max(mut self, age_max: Duration) -> Self {
        self.listen_settings.connection_age_max = (!age_max.is_zero()).then_some(age_max);
        self
    }

    /// Serves connections with this many threads instead of one per core.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.listen_settings.threads = Some(threads);
        self
    }

    /// Binds both ports and starts every task. Returns at once; readiness says when it serves.
    ///
    /// # Errors
    /// A port cannot be opened. What is wrong with the log is said by readiness and, where no
    /// waiting mends it, by [`RunningObserver::failed`].
    pub async fn start(mut self) -> Result<RunningObserver, StartError> {
        let certificates = match self.tls.take() {
            Some(files) => Some(ServerCertificates::open(files, self.clock.now()).await?),
            None => None,
        };
        self.listen_settings.tls = certificates.as_ref().map(ServerCertificates::configs);
        let listener = Listener::bind(self.settings.listen)?;
        let admin_server = AdminServer::bind(self.settings.admin, "--admin").await?;
        self.start_on(listener, admin_server, certificates).await
    }

    async fn start_on(
        self,
        listener: Listener,
        admin_server: AdminServer,
        certificates: Option<ServerCertificates>,
    ) -> Result<RunningObserver, StartError> {
        let (grpc_address, admin_address) = (listener.local_addr(), admin_server.address());
        let (readiness, registry) = (Readiness::new(), SharedRegistry::default());
        let gate = LoadGate::closed("the log was not asked yet");
        let locator = Locator::new(gate.clone());
        let metrics = Metrics::register(&registry, locator.clone());
        let (progress, keeper_id) = (Progress::default(), KeeperId(rand::random()));
        let (failed_tx, loaded_tx) = (watch::Sender::new(None), watch::Sender::new(false));
        let identifier = identifier(grpc_address, keeper_id);

        let (ingest, questions) = Ingest::new(IngestParts {
            log: Arc::clone(&self.log),
            start_check: self.start_check,
            writer: locator.store().writer(SourceSlot::Log)?,
            newborn_grace: self.settings.newborn_grace,
            expiry_window: self.settings.expiry_window,
            keeper_id,
            snapshot: self.snapshot,
            keeper_settings: self.keeper_settings,
            progress: progress.clone(),
            readiness: readiness.clone(),
            gate: gate.clone(),
            loaded_tx: loaded_tx.clone(),
            metrics: metrics.ingest.clone(),
            failed_tx: failed_tx.clone(),
        });
        let sight = Sight::new(&locator, &questions, &gate);
        let (clock, writes) = (self.clock.clone(), self.settings.log_writes);
        let gateway = Gateway::new(self.log, progress, sight, clock, writes, metrics.gateway);
        let (stopping, stop) = (CancellationToken::new(), CancellationToken::new());
        let load_reports = LoadReports::new(metrics.load);
        let ads = mk_ads(&locator, &identifier, &metrics.streams, &self.clock);
        let (health, services) = mk_services(gateway, &load_reports, &stopping, &ads).await?;
        let serving = listener.serve(ads.clone(), services, self.listen_settings)?;
        let keeper = certificates.map(|c| keeper(c, &self.clock, &readiness, &registry));
        let routes = admin::routes(AdminState {
            locator,
            streams: ads.streams().clone(),
            load_reports,
            questions,
            readiness: readiness.clone(),
            clock: self.clock,
            settings: Arc::new(self.settings.clone()),
            identifier,
            grpc_address,
            admin_address,
            started: Instant::now(),
            watches: admin::watch_permits(),
        });

        let reload_tls = Arc::new(Notify::new());
        let keeping = keeper.map(|k| tokio::spawn(k.run(Arc::clone(&reload_tls), stop.clone())));
        let mut tasks = vec![
            tokio::spawn(supervise(ingest.run(stop.clone()), failed_tx.clone())),
            tokio::spawn(follow_health(health, loaded_tx, stopping.clone())),
            tokio::spawn(admin_server.run(readiness.clone(), registry, routes, stop.clone())),
        ];
        tasks.extend(keeping);
        tracing::debug!(%grpc_address, %admin_address, settings = ?self.settings, "the Observer runs");
        Ok(RunningObserver {
            grpc_address,
            admin_address,
            drain: self.settings.drain,
            readiness,
            stopping,
            stop,
            failed_tx,
            reload_tls,
            serving: Some(serving),
            tasks,
        })
    }
}

fn mk_ads(
    locator: &Locator,
    identifier: &str,
    metrics: &StreamMetrics,
    clock: &WallClock,
) -> AdsServer {
    AdsServer::new(
        Arc::new(locator.clone()),
        AdsSettings::new(identifier),
        Arc::new(metrics.to_handler(clock.clone())),
    )
}

async fn mk_services(
    gateway: Gateway,
    load_reports: &LoadReports,
    stopping: &CancellationToken,
    ads: &AdsServer,
) -> Result<(Health, tonic::service::Routes), StartError> {
    let health = Health::new().await;
    let load_reporting = LoadReporting::new(load_reports.clone(), stopping.clone());
    let client_status = ClientStatus::new(ads.streams().clone());
    let services = health::services(&health, gateway, load_reporting, client_status)?;
    Ok((health, services))
}

fn keeper(
    certificates: ServerCertificates,
    clock: &WallClock,
    readiness: &Readiness,
    registry: &SharedRegistry,
) -> CertificateKeeper {
    let metrics = Metrics::register_tls(registry);
    CertificateKeeper::new(certificates, clock.clone(), readiness.clone(), metrics)
}

/// The name in `control_plane.identifier`, by which people find the Observer that a client is
/// connected to.
fn identifier(grpc_address: SocketAddr, keeper_id: KeeperId) -> String {
    let host = gethostname::gethostname();
    let port = grpc_address.port();
    format!("{}:{port}/{keeper_id}", host.to_string_lossy())
}

/// Runs the ingest task. Without it the Observer would go stale for ever and say nothing.
async fn supervise(
    ingest: impl Future<Output = ()> + Send + 'static,
    failed_tx: watch::Sender<Option<FatalError>>,
) {
    if let Err(died) = tokio::spawn(ingest).await {
        tracing::error!(%died, "the task that reads the log died");
        failed_tx.send_replace(Some(FatalError::IngestDied(died.to_string())));
    }
}

/// Says SERVING once everything was read, and NOT_SERVING again once it is told to stop.
async fn follow_health(
    health: Health,
    loaded_tx: watch::Sender<bool>,
    stopping: CancellationToken,
) {
    let mut loaded_rx = loaded_tx.subscribe();
    let is_loaded = tokio::select! {
        loaded = loaded_rx.wait_for(|loaded| *loaded) => loaded.is_ok(),
        () = stopping.cancelled() => false,
    };
    if is_loaded {
        health.set_loaded(true).await;
    }
    stopping.cancelled().await;
    health.set_loaded(false).await;
}

/// A started Observer. Dropping it stops it at once; [`RunningObserver::shutdown`] does so politely.
pub struct RunningObserver {
    grpc_address: SocketAddr,
    admin_address: SocketAddr,
    drain: Duration,
    readiness: Readiness,
    /// Cancelled when it begins to send clients away.
    stopping: CancellationToken,
    /// Cancelled when every task must end.
    stop: CancellationToken,
    failed_tx: watch::Sender<Option<FatalError>>,
    reload_tls: Arc<Notify>,
    serving: Option<Serving>,
    tasks: Vec<JoinHandle<()>>,
}

impl fmt::Debug for RunningObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningObserver")
            .field("grpc_address", &self.grpc_address)
            .field("admin_address", &self.admin_address)
            .finish_non_exhaustive()
    }
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
        self.readiness.ready().await;
    }

    /// Waits for an error that no waiting mends (a topic set up wrongly, a damaged log): the process
    /// should say it and end. Never returns while all is well or the log is merely away.
    pub async fn failed(&self) -> FatalError {
        let mut failed_rx = self.failed_tx.subscribe();
        // The sender lives as long as `self`, so the wait ends with an error only.
        match failed_rx.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(error)) => error.clone(),
            _ => FatalError::Log(LogError::Closed),
        }
    }

    /// Looks at the files of certificates now. Does nothing where there is no TLS.
    pub fn reload_tls(&self) {
        self.reload_tls.notify_one();
    }

    /// Sends clients away over the drain time of the settings, then stops every task.
    pub async fn shutdown(self) {
        let drain = self.drain;
        self.stop_within(drain).await;
    }

    /// Stops every task; clients are sent away within `drain`.
    pub async fn stop_within(mut self, drain: Duration) {
        self.readiness.begin_stopping();
        self.stopping.cancel();
        if let Some(serving) = self.serving.take() {
            serving.shut_down(drain).await;
        }
        self.stop.cancel();
        for task in self.tasks.drain(..) {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the Observer ended badly");
            }
        }
    }
}

impl Drop for RunningObserver {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.stop.cancel();
    }
}
