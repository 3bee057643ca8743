//! The xDS rules: every conformance case in its variants, and the same rules where they meet data, on
//! a real `waypost dev`.
//!
//! Cases need a server that can be told what to serve, resource by resource; a real one makes its
//! resources from announcements. So the cases are played against the engine, and what a client lives
//! on is checked again on the whole.

mod delta;
mod sotw;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use waypost_announcer::{Announcer, AnnouncerPool};
use waypost_core::{Announcement, ClusterName, InstanceUri, Timestamp};
use waypost_testkit::ports::free_addr;
use waypost_testkit::probe::{DeltaProbe, SotwProbe, connect, mk_node};
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::figures::Figures;
use crate::fleet::{HEARTBEAT, TTL, pool_to_gateways};
use crate::{Form, conformance};

/// Longest that a start may take.
const START_MAX: Duration = Duration::from_secs(120);
/// How long nothing may come: longer than a heartbeat, so that one is among it.
const QUIET: Duration = Duration::from_secs(4);

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(_form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    figures.step("every conformance case, in its variants, against the engine");
    conformance::play_all(figures).await?;

    figures.step("what clients live on, in both variants, against `waypost dev`");
    let folder = tempfile::tempdir()?;
    let config = ServerConfig::dev(&folder.path().join("data"));
    let mut stage = Stage::set_up(config.start().await?).await?;
    for (rule, done) in delta::check(&mut stage).await? {
        figures.add(format!("dev, delta, {rule}"), done);
    }
    for (rule, done) in sotw::check(&mut stage).await? {
        figures.add(format!("dev, sotw, {rule}"), done);
    }
    figures.step("an Observer that is not loaded answers nothing");
    not_loaded().await?;
    figures.add("observer, both, not loaded is not empty", "holds");
    Ok(())
}

/// A fresh Observer without its log refuses streams of both variants before any response.
async fn not_loaded() -> anyhow::Result<()> {
    let nobody = free_addr().to_string();
    let observer = ServerConfig::observer(&nobody, "waypost").spawn()?;
    let address = observer.listen().to_string();
    let connected = || async { connect(&address).await };
    let channel = waypost_testkit::wait::eventually("a port", START_MAX, connected).await?;
    let refused = |outcome: anyhow::Error| -> anyhow::Result<()> {
        let status = outcome
            .downcast_ref::<tonic::Status>()
            .context("no status")?;
        ensure!(status.code() == tonic::Code::Unavailable, "{status}");
        Ok(())
    };
    match DeltaProbe::open(channel.clone(), mk_node("")).await {
        Err(error) => refused(error)?,
        Ok(mut probe) => refused(probe.expect_end().await?.into())?,
    }
    match SotwProbe::open(channel, mk_node("")).await {
        Err(error) => refused(error)?,
        Ok(mut probe) => refused(probe.expect_end().await?.into())?,
    }
    Ok(())
}

/// A real server with a few instances.
pub(crate) struct Stage {
    server: Option<Server>,
    pool: AnnouncerPool,
    announcers: BTreeMap<(String, String), Announcer>,
}

impl Stage {
    async fn set_up(server: Server) -> anyhow::Result<Self> {
        let pool = pool_to_gateways(&[server.listen().to_string()])?;
        let mut stage = Self {
            server: Some(server),
            pool,
            announcers: BTreeMap::new(),
        };
        for (cluster, host) in [
            ("alpha", "10.0.0.1"),
            ("alpha", "10.0.0.2"),
            ("beta", "10.0.0.3"),
        ] {
            stage.announce(cluster, host).await?;
        }
        Ok(stage)
    }

    /// Announces an instance, or announces it again, and waits until it is served.
    async fn announce(&mut self, cluster: &str, host: &str) -> anyhow::Result<()> {
        let key = (cluster.to_owned(), host.to_owned());
        if !self.announcers.contains_key(&key) {
            let uri = InstanceUri::parse(&format!("grpc://{host}:80"))?;
            let cluster = ClusterName::parse(cluster)?;
            let mut announcement = Announcement::new(cluster, uri, Timestamp(0));
            announcement.heartbeat = HEARTBEAT;
            announcement.ttl = TTL * 3;
            self.announcers
                .insert(key.clone(), self.pool.add(announcement)?);
        }
        let announcer = self.announcers.get(&key).context("no such instance")?;
        announcer.mark_up();
        announcer.judged().await?;
        Ok(())
    }

    /// Changes the weight of an instance, once the log has it.
    async fn weigh(&self, cluster: &str, host: &str, weight: f64) -> anyhow::Result<()> {
        let announcer = self.announcers.get(&(cluster.to_owned(), host.to_owned()));
        let announcer = announcer.context("no such instance")?;
        announcer.change_weight([(0, weight)].into())?;
        announcer.settled().await?;
        Ok(())
    }

    /// Withdraws an instance, once the log has it.
    async fn withdraw(&self, cluster: &str, host: &str) -> anyhow::Result<()> {
        let announcer = self.announcers.get(&(cluster.to_owned(), host.to_owned()));
        let announcer = announcer.context("no such instance")?;
        announcer.mark_down();
        announcer.settled().await?;
        Ok(())
    }

    /// Kills the server (-9) and starts it again with its data.
    async fn crash(&mut self) -> anyhow::Result<()> {
        let server = self.server.take().context("no server")?;
        self.server = Some(server.kill_9()?.start().await?);
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<tonic::transport::Channel> {
        let server = self.server.as_ref().context("no server")?;
        connect(&server.listen().to_string()).await
    }
}

/// The URN of an instance of a cluster, or of them all (`*`), as docs/resources.md spells it.
fn urn(cluster: &str, host: &str) -> String {
    if host == "*" {
        return format!("xdstp:///indis.D2URI/{cluster}/*");
    }
    format!("xdstp:///indis.D2URI/{cluster}/grpc%3A%2F%2F{host}%3A80")
}
