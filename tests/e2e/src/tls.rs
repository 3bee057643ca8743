//! TLS on the gRPC port, with every kind of client at once: without it, by the Observer's certificate alone, and
//! with certificates on both sides. The certificates are renewed while calls go on, and the Observer is killed, so
//! that everybody connects again by the new ones. No call may fail, and no stream ends for a renewal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_announcer::{Announcer, AnnouncerPool, ClientTls, GatewaySink, PoolOptions};
use waypost_client::{Client, Cluster};
use waypost_core::ClusterName;
use waypost_testkit::caller;
use waypost_testkit::certificates::{Authority, Validity};
use waypost_testkit::envoy::Envoy;
use waypost_testkit::http::{HttpLoad, HttpServer};
use waypost_testkit::ports::free_addr;
use waypost_testkit::process::Signal;
use waypost_testkit::tonic_greeter::TonicGreeter;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, write_bootstrap};

use crate::Form;
use crate::client_rust::Load;
use crate::clients::Clients;
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, announcement, uri};
use crate::look;

/// The cluster that Envoy's requests go to.
const WEB: &str = "web";
/// How long each server of gRPC takes to answer, so that there is always something in flight.
const ANSWER_TAKES: Duration = Duration::from_millis(10);
/// What an instance waits between its withdrawal and its end.
const DRAIN: Duration = Duration::from_secs(1);
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(40);
/// Of grpcio and of Envoy, each.
const LOAD: caller::Load = caller::Load {
    rate: 50.0,
    concurrency: 4,
};

/// Who shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nobody: there is no TLS.
    Plain,
    /// The Observer.
    Server,
    /// The Observer and its clients.
    Mutual,
}

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    for mode in [Mode::Plain, Mode::Server, Mode::Mutual] {
        let name = match mode {
            Mode::Plain => "without TLS",
            Mode::Server => "the Observer shows a certificate",
            Mode::Mutual => "both sides show certificates",
        };
        figures.add("mode", name);
        figures.step(&format!("{name}: everything starts"));
        let folder = tempfile::tempdir()?;
        let mut stage = Stage::start(mode, folder.path()).await?;
        for round in 1..=form.pick(3, 1) {
            figures.step("the certificates are renewed, and instances replaced");
            stage.renew(round).await?;
            stage.replace().await?;
        }
        let lost = stage.client.metrics().streams_lost;
        let what = "streams of the Rust client that ended for it";
        figures.add_at_most(what, usize::try_from(lost)?, 0)?;
        figures.step("the Observer is killed (-9) and started again; instances are replaced");
        stage = stage.restart().await?;
        stage.replace().await?;
        stage.finish(figures).await?;
    }
    Ok(())
}

/// Everything that runs.
struct Stage {
    mode: Mode,
    pki: Pki,
    dev: Server,
    pool: AnnouncerPool,
    greeter: Instance<TonicGreeter>,
    web: Instance<HttpServer>,
    grpcio: Clients,
    envoy: Envoy,
    requests: HttpLoad,
    client: Client,
    cluster: Cluster,
    load: Load,
}

struct Instance<S> {
    server: S,
    announcer: Announcer,
}

/// The files of certificates.
struct Pki {
    authority: Authority,
    folder: PathBuf,
}

impl Stage {
    async fn start(mode: Mode, folder: &Path) -> anyhow::Result<Self> {
        let pki = Pki::new(folder)?;
        let flags = pki.server_flags(mode);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let config = ServerConfig::dev(&folder.join("data")).args(&flags);
        let dev = config.start().await?;
        let to = match mode {
            Mode::Plain => dev.listen().to_string(),
            Mode::Server | Mode::Mutual => format!("https://{}", dev.listen()),
        };
        let tls = pki.client(mode);
        let sink = GatewaySink::with_tls(&[&to], &tls)?;
        let pool = AnnouncerPool::spawn(Arc::new(sink), PoolOptions::default());
        let greeter = start_greeter(&pool).await?;
        let web = start_web(&pool).await?;

        let flags = pki.client_flags(mode);
        let flags: Vec<&str> = ["--to", &to]
            .into_iter()
            .chain(flags.iter().map(String::as_str))
            .collect();
        let bootstrap = folder.join("bootstrap.json");
        write_bootstrap("grpc", &flags, &bootstrap).await?;
        let grpcio = Clients::start(1, LOAD, &bootstrap, folder).await?;

        let listen = free_addr();
        let proxy = listen.to_string();
        let of_envoy = ["--service", WEB, "--proxy-listen", &proxy];
        let config = folder.join("envoy.yaml");
        write_bootstrap("envoy", &[&flags[..], &of_envoy].concat(), &config).await?;
        let envoy = Envoy::start(&config, folder).await?;
        let requests = HttpLoad::start(listen, WEB, LOAD)?;

        let client = Client::builder()
            .application("waypost-e2e")
            .server(&to)
            .tls(tls)
            .build()?;
        let cluster = client.cluster(CLUSTER)?;
        cluster.ready().await;
        let load = Load::start(cluster.channel());
        let stage = Self {
            mode,
            pki,
            dev,
            pool,
            greeter,
            web,
            grpcio,
            envoy,
            requests,
            client,
            cluster,
            load,
        };
        stage.all_call(0.0).await?;
        Ok(stage)
    }

    /// Renews the certificates of both sides, and waits until the Observer has its own.
    async fn renew(&self, round: usize) -> anyhow::Result<()> {
        if self.mode == Mode::Plain {
            return Ok(());
        }
        self.pki.issue()?;
        self.dev.process.signal(Signal::HUP)?;
        let wanted = format!(r#"observer_tls_reloads_total{{outcome="renewed"}} {round}"#);
        eventually("the new certificate is in force", SOON, || async {
            let (_, text) = self.dev.get("/metrics").await?;
            ensure!(text.lines().any(|line| line == wanted), "no line {wanted}");
            let (_, ready) = self.dev.get("/ready").await?;
            ensure!(ready == "ready\n", "{ready}");
            Ok(())
        })
        .await
    }

    /// Replaces the instance of each cluster: the new one is called by everybody before the old one goes.
    async fn replace(&mut self) -> anyhow::Result<()> {
        let since = now();
        let greeter = std::mem::replace(&mut self.greeter, start_greeter(&self.pool).await?);
        let web = std::mem::replace(&mut self.web, start_web(&self.pool).await?);
        self.all_call(since).await?;
        for announcer in [&greeter.announcer, &web.announcer] {
            announcer.mark_down();
            announcer.settled().await?;
        }
        eventually("the old ones are listed no more", SOON, || async {
            let old = web.server.address();
            ensure!(
                !self.envoy.endpoints(WEB).await?.contains_key(&old),
                "Envoy has {old}"
            );
            ensure!(
                self.cluster.endpoints().len() == 1,
                "{:?}",
                self.cluster.endpoints()
            );
            Ok(())
        })
        .await?;
        tokio::time::sleep(DRAIN).await;
        greeter.server.stop().await?;
        web.server.stop().await
    }

    async fn restart(self) -> anyhow::Result<Self> {
        let dev = self.dev.kill_9()?.start().await?;
        look::instances(dev.admin(), CLUSTER, 1, SOON).await?;
        look::instances(dev.admin(), WEB, 1, SOON).await?;
        Ok(Self { dev, ..self })
    }

    /// Waits until each kind of client was answered by the instances there are, in calls begun after `since`.
    async fn all_call(&self, since: f64) -> anyhow::Result<()> {
        let greeter = self.greeter.server.name();
        self.grpcio.all_reach(&greeter, since, SOON).await?;
        self.load.until_answer(&greeter).await?;
        let web = self.web.server.address().to_string();
        eventually("Envoy calls the new one", SOON, || async {
            let calls = self.requests.calls_since(since);
            calls
                .find_first_answer(&web, since)
                .context("it does not")
                .map(drop)
        })
        .await
    }

    async fn finish(self, figures: &mut Figures) -> anyhow::Result<()> {
        let refused = self.envoy.stats("update_rejected").await?;
        let refused = usize::try_from(refused.values().sum::<u64>())?;
        figures.add_at_most("updates refused by Envoy", refused, 0)?;
        let grpcio = self.grpcio.finish().await?;
        let envoy = self.requests.finish().await;
        for (client, calls) in [("grpcio", grpcio), ("Envoy", envoy)] {
            for (why, count) in calls.failures() {
                figures.add(format!("  {client}: {why}"), count);
            }
            figures.add(format!("calls through {client}"), calls.0.len());
            figures.add_at_most(&format!("  failed through {client}"), calls.failed(), 0)?;
        }
        let tally = self.load.finish().await?;
        for (why, count) in &tally.failures_by_status {
            figures.add(format!("  the Rust client: {why}"), count);
        }
        figures.add("calls through the Rust client", tally.calls);
        let failed = tally.failures_by_status.values().sum();
        figures.add_at_most("  failed through the Rust client", failed, 0)?;
        drop(self.cluster);
        self.client.close().await;
        self.envoy.stop().await
    }
}

impl Pki {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let authority = Authority::new("waypost e2e")?;
        authority.write(&folder.join("ca.pem"))?;
        let pki = Self {
            authority,
            folder: folder.to_owned(),
        };
        pki.issue()?;
        Ok(pki)
    }

    /// Signs new certificates in the place of the old ones.
    fn issue(&self) -> anyhow::Result<()> {
        for name in ["observer", "client"] {
            self.authority.issue(&self.folder, name, Validity::Now)?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn server_flags(&self, mode: Mode) -> Vec<String> {
        let own = [
            "--tls-cert".to_owned(),
            self.file("observer.pem"),
            "--tls-key".to_owned(),
            self.file("observer.key"),
        ];
        let clients = ["--tls-client-ca".to_owned(), self.file("ca.pem")];
        match mode {
            Mode::Plain => Vec::new(),
            Mode::Server => own.into(),
            Mode::Mutual => own.into_iter().chain(clients).collect(),
        }
    }

    fn client_flags(&self, mode: Mode) -> Vec<String> {
        let ca = ["--tls-ca".to_owned(), self.file("ca.pem")];
        let own = [
            "--tls-cert".to_owned(),
            self.file("client.pem"),
            "--tls-key".to_owned(),
            self.file("client.key"),
        ];
        match mode {
            Mode::Plain => Vec::new(),
            Mode::Server => ca.into(),
            Mode::Mutual => ca.into_iter().chain(own).collect(),
        }
    }

    fn client(&self, mode: Mode) -> ClientTls {
        let tls = ClientTls::default().ca(self.file("ca.pem"));
        match mode {
            Mode::Plain => ClientTls::default(),
            Mode::Server => tls,
            Mode::Mutual => tls.identity(self.file("client.pem"), self.file("client.key")),
        }
    }
}

async fn start_greeter(pool: &AnnouncerPool) -> anyhow::Result<Instance<TonicGreeter>> {
    let server = TonicGreeter::start(ANSWER_TAKES).await?;
    let announcer = pool.announce(announcement(&uri(&server.name()))?)?;
    announcer.settled().await?;
    Ok(Instance { server, announcer })
}

async fn start_web(pool: &AnnouncerPool) -> anyhow::Result<Instance<HttpServer>> {
    let server = HttpServer::start().await?;
    let mut announcement = announcement(&format!("http://{}", server.address()))?;
    announcement.cluster = ClusterName::parse(WEB)?;
    let announcer = pool.announce(announcement)?;
    announcer.settled().await?;
    Ok(Instance { server, announcer })
}
