//! TLS on the gRPC port, with every kind of client at once: without it, by the Observer's certificate alone, and
//! with certificates on both sides. The certificates are renewed while calls go on, and the Observer is killed, so
//! that everybody connects again by the new ones; in the end all of them are of another authority. No call may
//! fail, and no stream ends for a renewal.

mod pki;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_announcer::{Announcer, AnnouncerPool, GatewaySink, PoolOptions};
use waypost_client::{Client, Cluster};
use waypost_core::ClusterName;
use waypost_testkit::caller;
use waypost_testkit::envoy::Envoy;
use waypost_testkit::grpc::Language;
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
use pki::{Mode, Pki};

/// The cluster that Envoy's requests go to.
const WEB: &str = "web";
/// How long each server of gRPC takes to answer, so that there is always something in flight.
const ANSWER_TAKES: Duration = Duration::from_millis(10);
/// What an instance waits between its withdrawal and its end.
const DRAIN: Duration = Duration::from_secs(1);
/// A bound on everything. Most takes a moment; grpc-java reads its files every minute, however often it was told
/// to, and then waits longer each time before it connects again.
const SOON: Duration = Duration::from_secs(240);
/// Of each client of gRPC and of Envoy.
const LOAD: caller::Load = caller::Load {
    rate: 50.0,
    concurrency: 4,
};
/// How often gRPC reads its files again, as `waypost bootstrap` writes it and as the proof has the patience for.
const REFRESH: [&str; 2] = [
    r#""refresh_interval": "60s""#,
    r#""refresh_interval": "1s""#,
];

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
        let mut stage = Stage::start(mode, languages(form, mode), folder.path()).await?;
        for round in 1..=form.pick(3, 1) {
            figures.step("the certificates are renewed, and instances replaced");
            stage.renew(round).await?;
            stage.replace().await?;
        }
        let lost = stage.rust.client.metrics().streams_lost;
        let what = "streams of the Rust client that ended for it";
        figures.add_at_most(what, usize::try_from(lost)?, 0)?;
        figures.step("the Observer is killed (-9) and started again; instances are replaced");
        stage = stage.restart(|_| Ok(())).await?;
        stage.replace().await?;
        if let Some(web) = stage.web.take() {
            web.finish(figures).await?;
        }
        if mode != Mode::Plain {
            // Envoy, which reads its files once, has ended; the short form does not wait for grpc-java.
            if form == Form::Short {
                stage.finish_grpc(Language::Java, figures).await?;
            }
            figures.step("the same, and the certificates of all are of another authority");
            stage = stage.restart(Pki::change_authority).await?;
            stage.replace().await?;
        }
        stage.finish(figures).await?;
    }
    Ok(())
}

/// The languages of gRPC in a mode. In the short form those whose programs take seconds to start are there
/// once, where both sides show certificates.
fn languages(form: Form, mode: Mode) -> &'static [Language] {
    match (form, mode) {
        (Form::Short, Mode::Plain | Mode::Server) => &[Language::Python],
        (Form::Full, _) | (_, Mode::Mutual) => &[Language::Python, Language::Go, Language::Java],
    }
}

/// Everything that runs.
struct Stage {
    mode: Mode,
    pki: Pki,
    dev: Server,
    pool: AnnouncerPool,
    greeter: Instance<TonicGreeter>,
    grpc: Vec<(Language, Clients)>,
    rust: RustClient,
    /// Until it is finished.
    web: Option<Web>,
}

struct Instance<S> {
    server: S,
    announcer: Announcer,
}

/// The Rust client, and its calls.
struct RustClient {
    client: Client,
    cluster: Cluster,
    load: Load,
}

/// Envoy, whom it calls, and the requests through it.
struct Web {
    instance: Instance<HttpServer>,
    envoy: Envoy,
    requests: HttpLoad,
}

impl Stage {
    async fn start(mode: Mode, languages: &[Language], folder: &Path) -> anyhow::Result<Self> {
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

        let flags = pki.client_flags(mode);
        let flags: Vec<&str> = ["--to", &to]
            .into_iter()
            .chain(flags.iter().map(String::as_str))
            .collect();
        let grpc = start_grpc(languages, mode, &flags, folder).await?;
        let web = Web::start(&pool, &flags, folder).await?;
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
            grpc,
            rust: RustClient {
                client,
                cluster,
                load,
            },
            web: Some(web),
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
        let mut old_web = None;
        if let Some(web) = &mut self.web {
            let new = start_web(&self.pool).await?;
            old_web = Some(std::mem::replace(&mut web.instance, new));
        }
        self.all_call(since).await?;
        let announcer = old_web.as_ref().map(|web| &web.announcer);
        for announcer in announcer.into_iter().chain([&greeter.announcer]) {
            announcer.mark_down();
            announcer.settled().await?;
        }
        eventually("the old ones are listed no more", SOON, || async {
            if let (Some(web), Some(old)) = (&self.web, &old_web) {
                let old = old.server.address();
                let listed = web.envoy.endpoints(WEB).await?;
                ensure!(!listed.contains_key(&old), "Envoy has {old}");
            }
            let listed = self.rust.cluster.endpoints();
            ensure!(listed.len() == 1, "{listed:?}");
            Ok(())
        })
        .await?;
        tokio::time::sleep(DRAIN).await;
        if let Some(web) = old_web {
            web.server.stop().await?;
        }
        greeter.server.stop().await
    }

    /// Kills the Observer, has something done to its files, and starts it again.
    async fn restart(
        mut self,
        meanwhile: impl FnOnce(&mut Pki) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let config = self.dev.kill_9()?;
        meanwhile(&mut self.pki)?;
        self.dev = config.start().await?;
        look::instances(self.dev.admin(), CLUSTER, 1, SOON).await?;
        if self.web.is_some() {
            look::instances(self.dev.admin(), WEB, 1, SOON).await?;
        }
        Ok(self)
    }

    /// Waits until each kind of client was answered by the instances there are, in calls begun after `since`.
    async fn all_call(&self, since: f64) -> anyhow::Result<()> {
        let greeter = self.greeter.server.name();
        for (language, clients) in &self.grpc {
            let reached = clients.all_reach(&greeter, since, SOON).await;
            reached.with_context(|| language.to_string())?;
        }
        self.rust.load.until_answer(&greeter).await?;
        match &self.web {
            Some(web) => web.called(since).await,
            None => Ok(()),
        }
    }

    /// Ends the client of a language, if there is one.
    async fn finish_grpc(
        &mut self,
        language: Language,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let Some(at) = self.grpc.iter().position(|(one, _)| *one == language) else {
            return Ok(());
        };
        let (_, clients) = self.grpc.remove(at);
        add_calls(&language.to_string(), &clients.finish().await?, figures)
    }

    async fn finish(mut self, figures: &mut Figures) -> anyhow::Result<()> {
        // Those, and the Rust client.
        let streams = self.grpc.len() + 1;
        let refused = look::refused(self.dev.admin(), "grpc", streams, SOON).await?;
        figures.add_at_most("refusals that the Observer read", refused, 0)?;
        for language in [Language::Python, Language::Go, Language::Java] {
            self.finish_grpc(language, figures).await?;
        }
        let RustClient {
            client,
            cluster,
            load,
        } = self.rust;
        let tally = load.finish().await?;
        for (why, count) in &tally.failures_by_status {
            figures.add(format!("  the Rust client: {why}"), count);
        }
        figures.add("calls through the Rust client", tally.calls);
        let failed = tally.failures_by_status.values().sum();
        figures.add_at_most("  failed through the Rust client", failed, 0)?;
        drop(cluster);
        client.close().await;
        Ok(())
    }
}

impl Web {
    async fn start(pool: &AnnouncerPool, flags: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let instance = start_web(pool).await?;
        let listen = free_addr();
        let proxy = listen.to_string();
        let own = ["--service", WEB, "--proxy-listen", &proxy];
        let config = folder.join("envoy.yaml");
        write_bootstrap("envoy", &[flags, &own].concat(), &config).await?;
        Ok(Self {
            instance,
            envoy: Envoy::start(&config, folder).await?,
            requests: HttpLoad::start(listen, WEB, LOAD)?,
        })
    }

    async fn called(&self, since: f64) -> anyhow::Result<()> {
        let name = self.instance.server.address().to_string();
        eventually("Envoy calls the new one", SOON, || async {
            let calls = self.requests.calls_since(since);
            let answer = calls.find_first_answer(&name, since);
            answer.context("it does not").map(drop)
        })
        .await
    }

    async fn finish(self, figures: &mut Figures) -> anyhow::Result<()> {
        let refused = self.envoy.stats("update_rejected").await?;
        ensure!(!refused.is_empty(), "Envoy counts no updates");
        let refused = usize::try_from(refused.values().sum::<u64>())?;
        figures.add_at_most("updates refused by Envoy", refused, 0)?;
        add_calls("Envoy", &self.requests.finish().await, figures)?;
        self.envoy.stop().await
    }
}

/// Starts a client of each language.
async fn start_grpc(
    languages: &[Language],
    mode: Mode,
    flags: &[&str],
    folder: &Path,
) -> anyhow::Result<Vec<(Language, Clients)>> {
    let bootstrap = folder.join("bootstrap.json");
    write_bootstrap("grpc", flags, &bootstrap).await?;
    let text = std::fs::read_to_string(&bootstrap)?;
    let [written, wanted] = REFRESH;
    ensure!(
        mode == Mode::Plain || text.contains(written),
        "no {written} in {text}"
    );
    std::fs::write(&bootstrap, text.replace(written, wanted))?;
    let mut grpc = Vec::new();
    for &language in languages {
        let own = folder.join(language.to_string());
        std::fs::create_dir(&own)?;
        let clients = Clients::start_in(language, 1, LOAD, &bootstrap, &own).await;
        let clients = clients.with_context(|| language.to_string())?;
        grpc.push((language, clients));
    }
    Ok(grpc)
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

fn add_calls(client: &str, calls: &caller::Calls, figures: &mut Figures) -> anyhow::Result<()> {
    for (why, count) in calls.failures() {
        figures.add(format!("  {client}: {why}"), count);
    }
    figures.add(format!("calls through {client}"), calls.0.len());
    figures.add_at_most(&format!("  failed through {client}"), calls.failed(), 0)
}
