//! Unmodified gRPC, client and xDS-enabled server, in three languages, and tonic-xds, a client alone: calls
//! through `xds:///` while instances are replaced and the Observer dies. No call may fail, and no client may refuse anything.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use waypost_announcer::{Announcer, AnnouncerPool};
use waypost_testkit::caller::Load;
use waypost_testkit::grpc::{Language, XdsGreeter};
use waypost_testkit::ports::free_port;
use waypost_testkit::tonic_greeter::TonicGreeter;
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::Form;
use crate::clients::{Clients, bootstrap};
use crate::clock::now;
use crate::figures::Figures;
use crate::fleet::{CLUSTER, announcement, pool_to_gateways, uri};
use crate::look;

/// How long each instance takes to answer: with [`LOAD`] ten calls are in flight at any time, so that one
/// that stops too early fails some.
const ANSWER_TAKES: Duration = Duration::from_millis(50);
/// What the client does.
const LOAD: Load = Load {
    rate: 200.0,
    concurrency: 16,
};
/// A bound on everything that should take a moment.
const SOON: Duration = Duration::from_secs(60);

/// grpcio (C-core).
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_python(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    prove(Language::Python, form, figures).await
}

/// grpc-go.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_go(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    prove(Language::Go, form, figures).await
}

/// grpc-java.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_java(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    prove(Language::Java, form, figures).await
}

/// tonic-xds.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove_tonic(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let count = form.pick(40, 10);
    let mut stage = Stage::start(Language::Rust, count, folder.path(), figures).await?;
    stage.replace(form.pick(20, 4), figures).await?;
    let calls = form.pick(500, 100);
    let stage = stage.lose_the_observer_alone(calls, figures).await?;
    stage.finish(Vec::new(), figures).await
}

async fn prove(language: Language, form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut stage = Stage::start(language, form.pick(40, 10), folder.path(), figures).await?;
    stage.replace(form.pick(20, 4), figures).await?;
    let server = stage.serve_over_xds(figures).await?;
    let calls = form.pick(500, 100);
    let (stage, late) = stage.lose_the_observer(&server, calls, figures).await?;
    stage.finish(vec![server, late], figures).await
}

/// An instance: a server and its announcement.
struct Instance {
    greeter: TonicGreeter,
    announcer: Announcer,
}

/// A server that takes its configuration over xDS, and its announcement.
struct XdsInstance {
    greeter: XdsGreeter,
    _announcer: Announcer,
}

/// `waypost dev`, instances, and a client that calls them all the time.
struct Stage {
    language: Language,
    dev: Server,
    pool: AnnouncerPool,
    instances: Vec<Instance>,
    bootstrap: PathBuf,
    clients: Clients,
}

impl Stage {
    async fn start(
        language: Language,
        count: usize,
        folder: &Path,
        figures: &mut Figures,
    ) -> anyhow::Result<Self> {
        figures.step(&format!("{count} servers are announced to `waypost dev`"));
        let dev = ServerConfig::dev(&folder.join("data")).start().await?;
        let pool = pool_to_gateways(&[dev.listen().to_string()])?;
        let mut instances = Vec::with_capacity(count);
        for _ in 0..count {
            instances.push(Instance::announce(&pool).await?);
        }

        figures.step(&format!(
            "a client ({language}) calls with what `waypost bootstrap grpc` prints"
        ));
        let bootstrap = bootstrap(dev.listen(), folder).await?;
        if language == Language::Rust {
            name_by_url(&bootstrap)?;
        }
        let started = now();
        let clients = Clients::start_in(language, 1, LOAD, &bootstrap, folder).await?;
        figures.add(
            "first answer after the client's start",
            format_args!("{:.2} s", now() - started),
        );
        for instance in &instances {
            clients
                .all_reach(&instance.greeter.name(), started, SOON)
                .await?;
        }
        Ok(Self {
            language,
            dev,
            pool,
            instances,
            bootstrap,
            clients,
        })
    }

    /// Replaces instances one after another: a new one is called before an old one is withdrawn, and
    /// the old one stops once it is called no more.
    async fn replace(&mut self, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
        figures.step(&format!("{count} instances are replaced one after another"));
        let round = self.instances.len() + 1;
        let (mut used, mut left) = (Vec::new(), Vec::new());
        for index in 0..count {
            let new = Instance::announce(&self.pool).await?;
            let acknowledged = now();
            let name = new.greeter.name();
            let called = self.clients.all_reach(&name, 0.0, SOON).await?;
            used.push(called - acknowledged);
            let old = std::mem::replace(&mut self.instances[index], new);
            old.announcer.mark_down();
            old.announcer.settled().await?;
            let (withdrawn, name) = (now(), old.greeter.name());
            let calls = rounds(self.language) * round;
            let last = self.clients.all_leave(&name, withdrawn, calls, SOON);
            left.push(last.await? - withdrawn);
            old.greeter.stop().await?;
        }
        figures.add("replaced", count);
        figures.add("called after its announcement, at most", longest(&used));
        figures.add("last called after its withdrawal, at most", longest(&left));
        figures.add("calls failed meanwhile", self.clients.calls()?.failed());
        Ok(())
    }

    /// A server of the same language with xDS comes up, is announced, and serves the client.
    async fn serve_over_xds(&mut self, figures: &mut Figures) -> anyhow::Result<XdsInstance> {
        figures.step("an xDS-enabled server takes its Listener and is announced");
        let started = now();
        let mut greeter = self.spawn_xds()?;
        greeter.serving(SOON).await?;
        figures.add(
            "xDS-enabled server SERVING after its start",
            format_args!("{:.2} s", now() - started),
        );
        self.announce_xds(greeter).await
    }

    /// The Observer is killed and started again. Meanwhile the client calls whom it knows, the
    /// xDS-enabled server among them, and one that started without an Observer waits for it.
    async fn lose_the_observer(
        mut self,
        server: &XdsInstance,
        calls: usize,
        figures: &mut Figures,
    ) -> anyhow::Result<(Self, XdsInstance)> {
        self.refused_nothing(1 + 1).await?;
        figures.step("`waypost dev` is killed (-9), and started again");
        let killed = now();
        let config = self.dev.kill_9()?;
        let mut late = XdsGreeter::spawn(self.language, free_port(), &self.bootstrap)?;
        self.clients.all_call_on(killed, calls, SOON).await?;
        let name = server.greeter.name();
        self.clients.all_reach(&name, killed, SOON).await?;
        ensure!(!late.has_served(), "it serves without a configuration");
        self.dev = config.start().await?;
        let back = now();
        figures.add("away for", format_args!("{:.2} s", back - killed));
        // The one more is the xDS-enabled server.
        let count = self.instances.len() + 1;
        look::instances(self.dev.admin(), CLUSTER, count, SOON).await?;

        late.serving(SOON).await?;
        figures.add(
            "a server that started meanwhile SERVING after",
            format_args!("{:.2} s", now() - back),
        );
        let announced = now();
        let late = self.announce_xds(late).await?;
        figures.add(
            "it is announced and called within",
            format_args!("{:.2} s", now() - announced),
        );
        Ok((self, late))
    }

    /// The Observer is killed and started again. Meanwhile the client calls whom it knows, and afterwards
    /// whoever is announced.
    async fn lose_the_observer_alone(
        mut self,
        calls: usize,
        figures: &mut Figures,
    ) -> anyhow::Result<Self> {
        self.refused_nothing(1).await?;
        figures.step("`waypost dev` is killed (-9), and started again");
        let killed = now();
        let config = self.dev.kill_9()?;
        self.clients.all_call_on(killed, calls, SOON).await?;
        self.dev = config.start().await?;
        let back = now();
        figures.add("away for", format_args!("{:.2} s", back - killed));
        let new = Instance::announce(&self.pool).await?;
        let called = self
            .clients
            .all_reach(&new.greeter.name(), back, SOON)
            .await?;
        let took = format_args!("{:.2} s", called - back).to_string();
        figures.add("a new instance called after that", took);
        self.instances.push(new);
        Ok(self)
    }

    async fn finish(self, servers: Vec<XdsInstance>, figures: &mut Figures) -> anyhow::Result<()> {
        self.refused_nothing(1 + servers.len()).await?;
        let calls = self.clients.finish().await?;
        figures.add("calls", calls.0.len());
        let answers = calls.answers();
        for server in &servers {
            let answered = answers.get(server.greeter.name().as_str());
            figures.add(
                "calls answered by an xDS-enabled server",
                answered.unwrap_or(&0),
            );
        }
        for (why, count) in calls.failures() {
            figures.add(format!("  {why}"), count);
        }
        figures.add_at_most("calls failed", calls.failed(), 0)?;
        for server in servers {
            server.greeter.stop().await?;
        }
        Ok(())
    }

    fn spawn_xds(&self) -> anyhow::Result<XdsGreeter> {
        XdsGreeter::spawn(self.language, free_port(), &self.bootstrap)
    }

    /// Announces a server that serves, and waits until the client calls it.
    async fn announce_xds(&self, greeter: XdsGreeter) -> anyhow::Result<XdsInstance> {
        let name = greeter.name();
        let announcer = self.pool.announce(announcement(&uri(&name))?)?;
        announcer.settled().await?;
        self.clients.all_reach(&name, 0.0, SOON).await?;
        Ok(XdsInstance {
            greeter,
            _announcer: announcer,
        })
    }

    /// Streams of so many programs are open, and nobody refused what came over them.
    async fn refused_nothing(&self, programs: usize) -> anyhow::Result<()> {
        let refused = look::refused(self.dev.admin(), "grpc", programs, SOON).await?;
        ensure!(refused == 0, "{refused} responses were refused");
        Ok(())
    }
}

impl Instance {
    /// Starts a server and announces it; returns once the log has it.
    async fn announce(pool: &AnnouncerPool) -> anyhow::Result<Self> {
        let greeter = TonicGreeter::start(ANSWER_TAKES).await?;
        let announcer = pool.announce(announcement(&uri(&greeter.name()))?)?;
        announcer.settled().await?;
        Ok(Self { greeter, announcer })
    }
}

/// tonic-xds 0.1.0-alpha.4 takes the address of an Observer as a URL alone, not as gRPC names it.
fn name_by_url(bootstrap: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(bootstrap)?;
    ensure!(text.contains("\"dns:///"), "no dns:/// in {text}");
    Ok(std::fs::write(
        bootstrap,
        text.replace("\"dns:///", "\"http://"),
    )?)
}

/// How often a client goes round its list before an instance that is not called meanwhile counts as left:
/// it takes all in turn, or, tonic-xds, at random.
fn rounds(language: Language) -> usize {
    match language {
        Language::Python | Language::Go | Language::Java => 3,
        Language::Rust => 10,
    }
}

fn longest(seconds: &[f64]) -> String {
    format!("{:.3} s", seconds.iter().copied().fold(0.0, f64::max))
}
