//! What the protocol costs at its edges, on a real `waypost dev`: a thousand requests at once, a
//! cluster of twenty thousand hosts, clients that come and go a hundred thousand times.

mod cycles;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use prost::Message as _;
use waypost_announcer::{Announcer, AnnouncerPool};
use waypost_core::limits::TTL_MAX;
use waypost_core::{Announcement, ClusterName, InstanceUri, ResourceType, Timestamp};
use waypost_testkit::probe::{DeltaProbe, connect, mk_node, remaining_chunks};
use waypost_testkit::waypost::{Server, ServerConfig};

use crate::figures::Figures;
use crate::fleet::pool_to_gateways;
use crate::{Form, look};

/// Requests of one name that are sent before any answer is read.
const REQUESTS: usize = 1000;
/// What gRPC's clients accept of a message unless they are told otherwise.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest that one answer, or the log, may take: everything is debug builds on few cores.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// The cluster with many hosts.
const CROWD: &str = "crowd";

/// Runs the proof.
///
/// # Errors
/// It does not hold, or could not be carried out.
pub async fn prove(form: Form, figures: &mut Figures) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await?;
    let pool = pool_to_gateways(&[server.listen().to_string()])?;

    let hosts = form.pick(20_000, 18_000);
    figures.step("a cluster with many hosts is announced");
    let _announcers = announce(&pool, hosts).await?;
    look::instances(server.admin(), CROWD, hosts, ANSWER_MAX).await?;
    figures.add("hosts of the large cluster", hosts);

    figures.step("requests of one name each, back to back");
    requests(&server, figures).await?;
    figures.step("the large cluster through a glob");
    glob(&server, hosts, figures).await?;
    figures.step("clients come and go");
    cycles::check(&server, form.pick(100_000, 3_000), figures).await
}

/// Announces hosts; returns when the log has them all.
async fn announce(pool: &AnnouncerPool, hosts: usize) -> anyhow::Result<Vec<Announcer>> {
    let mut announcers = Vec::with_capacity(hosts);
    for host in 0..hosts {
        let uri = InstanceUri::parse(&format!("https://host-{host:05}.example.com:8443/app"))?;
        let mut announcement = Announcement::new(ClusterName::parse(CROWD)?, uri, Timestamp(0));
        announcement.application = "waypost-e2e".to_owned();
        // One process beats for all of them, through one gateway: seldom, so that none expires.
        announcement.heartbeat = TTL_MAX / 3;
        announcement.ttl = TTL_MAX;
        let announcer = pool.add(announcement)?;
        announcer.mark_up();
        announcers.push(announcer);
    }
    for announcer in &announcers {
        announcer.settled().await?;
    }
    Ok(announcers)
}

/// Every one of many requests is answered: with the resource, or with its absence.
async fn requests(server: &Server, figures: &mut Figures) -> anyhow::Result<()> {
    let map = ResourceType::D2UriMap.type_url();
    let channel = connect(&server.listen().to_string()).await?;
    let mut probe = DeltaProbe::open(channel, mk_node("")).await?;
    let mut open: BTreeSet<String> = BTreeSet::new();
    for index in 0..REQUESTS {
        let name = format!("/d2/uris/nobody-{index}");
        probe.subscribe(map, &[&name]).await?;
        open.insert(name);
    }
    let mut messages = 0;
    while !open.is_empty() {
        let response = probe.receive(ANSWER_MAX).await?;
        probe.ack(&response).await?;
        messages += 1;
        let found = response.resources.iter().map(|resource| &resource.name);
        for name in found.chain(&response.removed_resources) {
            ensure!(
                open.remove(name),
                "{name} was answered twice, or not asked for"
            );
        }
    }
    figures.add(
        "requests of one name",
        format_args!("{REQUESTS}, all answered, in {messages} messages"),
    );
    Ok(())
}

/// A collection comes whole, in messages that every client accepts and that count down.
async fn glob(server: &Server, hosts: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let uri = ResourceType::D2Uri.type_url();
    let channel = connect(&server.listen().to_string()).await?;
    let mut probe = DeltaProbe::open(channel, mk_node("rest.li")).await?;
    probe
        .subscribe(uri, &[&format!("xdstp:///indis.D2URI/{CROWD}/*")])
        .await?;
    let (mut messages, mut largest, mut left) = (0, 0, u32::MAX);
    while left > 0 {
        let response = probe.receive(ANSWER_MAX).await?;
        probe.ack(&response).await?;
        let now = remaining_chunks(&response.nonce)?;
        ensure!(messages == 0 || now + 1 == left, "{now} left after {left}");
        left = now;
        messages += 1;
        largest = largest.max(response.encoded_len());
    }
    figures.add(
        "the large cluster",
        format_args!("{messages} messages, the largest of {largest} bytes"),
    );
    ensure!(
        messages > 1,
        "one message: the cluster was not large enough"
    );
    figures.add_at_most("largest message", largest, MESSAGE_BYTES_MAX - 1)?;
    let held = probe.held(uri).len();
    ensure!(held == hosts, "{held} of {hosts} hosts came");
    Ok(())
}
