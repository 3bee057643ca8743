//! State of the world: what a client of a real server must see. Each check names its rule of
//! docs/xds-rules.md.

use anyhow::ensure;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;
use waypost_core::ResourceType;
use waypost_testkit::probe::{SotwProbe, mk_node};

use super::delta::Held;
use super::{QUIET, Stage};

pub(super) async fn check(stage: &mut Stage) -> anyhow::Result<Held> {
    let eds = ResourceType::ClusterLoadAssignment.type_url();
    let lds = ResourceType::Listener.type_url();
    let mut probe = SotwProbe::open(stage.connect().await?, mk_node("")).await?;
    let mut held: Held = Vec::new();
    let mut holds = |rule| held.push((rule, "holds"));

    probe.subscribe(lds, &["alpha"]).await?;
    probe
        .expect_update(lds, |response| response.resources.len() == 1)
        .await?;
    probe.subscribe(lds, &["nobody"]).await?;
    probe
        .expect_update(lds, |response| response.resources.len() == 1)
        .await?;
    holds("a set of listeners says by leaving out that one does not exist");

    probe.subscribe(eds, &["alpha"]).await?;
    let first = probe
        .expect_update(eds, |response| response.resources.len() == 1)
        .await?;
    stage.weigh("alpha", "10.0.0.1", 2.0).await?;
    let second = probe
        .expect_update(eds, |response| response.resources.len() == 1)
        .await?;
    ensure!(
        first.version_info != second.version_info,
        "another value under one version"
    );
    holds("a change comes under another version");

    let mut stale = probe.request(eds);
    stale.response_nonce.clone_from(&first.nonce);
    stale.version_info.clone_from(&first.version_info);
    probe.send(stale).await?;
    probe.expect_quiet(QUIET).await?;
    holds("a stale nonce is not answered, a heartbeat sends nothing");

    stage.weigh("alpha", "10.0.0.1", 3.0).await?;
    let third = probe.receive(waypost_testkit::probe::RESPONSE_MAX).await?;
    probe.nack(&third, "no").await?;
    probe.expect_quiet(QUIET).await?;
    stage.weigh("alpha", "10.0.0.1", 1.0).await?;
    probe
        .expect_update(eds, |response| response.resources.len() == 1)
        .await?;
    holds("a NACK is answered with nothing, the next change comes");

    wildcard(stage).await?;
    holds("a wildcard of clusters is always the whole set");
    Ok(held)
}

/// Everything, each time anything changes.
async fn wildcard(stage: &mut Stage) -> anyhow::Result<()> {
    let cds = ResourceType::Cluster.type_url();
    let mut probe = SotwProbe::open(stage.connect().await?, mk_node("probe")).await?;
    probe.send(probe.request(cds)).await?;
    let has = |response: &DiscoveryResponse, wanted: &[&str]| {
        let names = response
            .resources
            .iter()
            .map(|any| Cluster::decode(any.value.as_slice()));
        let mut names: Vec<String> = names.filter_map(Result::ok).map(|one| one.name).collect();
        names.sort();
        names == wanted
    };
    probe
        .expect_update(cds, |response| has(response, &["alpha", "beta", "kept"]))
        .await?;
    stage.announce("gamma", "10.0.0.9").await?;
    probe
        .expect_update(cds, |response| {
            has(response, &["alpha", "beta", "gamma", "kept"])
        })
        .await?;
    Ok(())
}
