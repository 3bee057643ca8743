//! Delta: what a client of a real server must see. Each check names its rule of docs/xds-rules.md.

use anyhow::ensure;
use waypost_core::ResourceType;
use waypost_testkit::probe::{DeltaProbe, mk_node};

use super::{QUIET, Stage, urn};

/// Rules and that they hold.
pub(super) type Held = Vec<(&'static str, &'static str)>;

pub(super) async fn check(stage: &mut Stage) -> anyhow::Result<Held> {
    let eds = ResourceType::ClusterLoadAssignment.type_url();
    let uri = ResourceType::D2Uri.type_url();
    let mut probe = DeltaProbe::open(stage.connect().await?, mk_node("")).await?;
    let mut held: Held = Vec::new();
    let mut holds = |rule| held.push((rule, "holds"));

    probe.subscribe(eds, &["alpha", "nobody"]).await?;
    let first = probe.expect_update(eds, "alpha").await?;
    holds("a named resource comes with its version");
    if probe.held(eds).contains_key("nobody") {
        anyhow::bail!("something came for a cluster that nobody announced");
    }
    stage.weigh("alpha", "10.0.0.1", 2.0).await?;
    let second = probe.expect_update(eds, "alpha").await?;
    ensure!(
        first.version != second.version,
        "another value under one version"
    );
    stage.weigh("alpha", "10.0.0.1", 1.0).await?;
    let third = probe.expect_update(eds, "alpha").await?;
    ensure!(
        first.version == third.version,
        "one value under two versions"
    );
    holds("versions come from content");
    probe.expect_quiet(QUIET).await?;
    holds("a heartbeat sends nothing");

    probe.subscribe(uri, &[&urn("alpha", "*")]).await?;
    probe.expect_update(uri, &urn("alpha", "10.0.0.2")).await?;
    stage.announce("alpha", "10.0.0.4").await?;
    probe.expect_update(uri, &urn("alpha", "10.0.0.4")).await?;
    stage.withdraw("alpha", "10.0.0.4").await?;
    probe.expect_removed(uri, &urn("alpha", "10.0.0.4")).await?;
    holds("a glob follows what comes and goes");

    probe.subscribe(eds, &["beta"]).await?;
    probe.expect_update(eds, "beta").await?;
    stage.withdraw("beta", "10.0.0.3").await?;
    probe.expect_update(eds, "beta").await?;
    holds("a known cluster without instances is empty, not removed");
    stage.announce("beta", "10.0.0.3").await?;
    let response = probe.receive(waypost_testkit::probe::RESPONSE_MAX).await?;
    probe.nack(&response, "no").await?;
    probe.expect_quiet(QUIET).await?;
    holds("a NACK is answered with nothing");

    probe.unsubscribe(eds, &["alpha"]).await?;
    probe.unsubscribe(uri, &[&urn("alpha", "*")]).await?;
    probe.subscribe(uri, &[&urn("beta", "*")]).await?;
    probe.expect_update(uri, &urn("beta", "10.0.0.3")).await?;
    stage.weigh("alpha", "10.0.0.2", 3.0).await?;
    probe.expect_quiet(QUIET).await?;
    stage.weigh("alpha", "10.0.0.2", 1.0).await?;
    holds("nothing comes for what is not subscribed");

    reconnect(stage).await?;
    holds("a client that comes back to a server killed (-9) gets only what differs");
    Ok(held)
}

/// Versions survive the server: a client that presents them gets nothing but the difference. (Of a
/// cluster that nobody has left: names that left are said again, for clients that present none.)
async fn reconnect(stage: &mut Stage) -> anyhow::Result<()> {
    let uri = ResourceType::D2Uri.type_url();
    for host in ["10.0.1.1", "10.0.1.2"] {
        stage.announce("kept", host).await?;
    }
    let mut probe = DeltaProbe::open(stage.connect().await?, mk_node("")).await?;
    probe.subscribe(uri, &[&urn("kept", "*")]).await?;
    probe.expect_update(uri, &urn("kept", "10.0.1.1")).await?;
    ensure!(probe.held(uri).len() == 2, "{:?}", probe.held(uri));
    stage.crash().await?;
    let channel = stage.connect().await?;
    probe.reconnect(Some(channel), true).await?;
    probe.expect_quiet(QUIET).await?;
    stage.weigh("kept", "10.0.1.1", 5.0).await?;
    probe.expect_update(uri, &urn("kept", "10.0.1.1")).await?;
    Ok(())
}
