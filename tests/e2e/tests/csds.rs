//! What an unmodified gRPC client says that it was sent is what the Observer says that it sent: under plain names,
//! and under those of gRPC's federation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ConfigStatus};
use waypost_e2e::fleet::{CLUSTER, announcement, pool_to_gateways, uri};
use waypost_testkit::caller::{Caller, Load};
use waypost_testkit::ports::free_addr;
use waypost_testkit::tonic_greeter::TonicGreeter;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{ServerConfig, write_bootstrap};
use xxhash_rust::xxh3::xxh3_64;

const SOON: Duration = Duration::from_secs(30);

type ByTypeAndName = BTreeMap<(String, String), GenericXdsConfig>;

/// What one side says of all clients that it has, which are one.
async fn ask(side: SocketAddr) -> anyhow::Result<ByTypeAndName> {
    let mut csds = ClientStatusDiscoveryServiceClient::connect(format!("http://{side}")).await?;
    let answer = csds.fetch_client_status(ClientStatusRequest::default());
    let configs = answer.await?.into_inner().config;
    let resources = configs.into_iter().flat_map(|c| c.generic_xds_configs);
    let by_name = resources.map(|r| ((r.type_url.clone(), r.name.clone()), r));
    Ok(by_name.collect())
}

fn compare(client: &ByTypeAndName, observer: &ByTypeAndName) -> anyhow::Result<()> {
    let (theirs, ours): (Vec<_>, Vec<_>) = (client.keys().collect(), observer.keys().collect());
    ensure!(
        theirs == ours && theirs.len() == 4,
        "{theirs:?}, not {ours:?}"
    );
    for (key, theirs) in client {
        let ours = &observer[key];
        ensure!(
            theirs.client_status() == ours.client_status(),
            "{key:?}: {:?}, not {:?}",
            theirs.client_status(),
            ours.client_status()
        );
        ensure!(ours.config_status() == ConfigStatus::Synced, "{ours:?}");
        // The Observer's versions are digests of what it serves; those of a client of the state of the world are
        // of whole responses.
        let content = theirs.xds_config.as_ref().context("no content")?;
        let digest = format!("{:016x}", xxh3_64(&content.value));
        ensure!(
            digest == ours.version_info,
            "{key:?}: {digest}, not {}",
            ours.version_info
        );
        ensure!(theirs.xds_config == ours.xds_config, "{key:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn observer_and_grpc_client_agree_on_what_was_sent_under_either_kind_of_name() {
    let folder = tempfile::tempdir().unwrap();
    let dev = ServerConfig::dev(&folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let pool = pool_to_gateways(&[dev.listen().to_string()]).unwrap();
    let mut greeters = Vec::new();
    let announce = async || {
        let greeter = TonicGreeter::start(Duration::ZERO).await.unwrap();
        let announced = announcement(&uri(&greeter.name())).unwrap();
        let announcer = pool.announce(announced).unwrap();
        announcer.settled().await.unwrap();
        (greeter, announcer)
    };
    greeters.push(announce().await);

    let authority = ["--authority", "an.authority"];
    for (label, more, prefix) in [
        ("plain", &[][..], CLUSTER),
        (
            "federated",
            &authority[..],
            "xdstp://an.authority/envoy.config.",
        ),
    ] {
        let to = dev.listen().to_string();
        let file = folder.path().join(format!("{label}.json"));
        let args = [&["--to", &to], more].concat();
        let bootstrap = write_bootstrap("grpc", &args, &file).await.unwrap();
        let load = Load {
            rate: 20.0,
            concurrency: 1,
        };
        let (csds, out) = (free_addr(), folder.path().join(format!("{label}.jsonl")));
        let target = format!("xds:///{CLUSTER}");
        let started = Caller::start_with_csds(&target, &bootstrap, &out, load, csds.port());
        let caller = started.await.unwrap();
        for _ in 0..2 {
            eventually("both sides agree", SOON, || async {
                let (client, observer) = (ask(csds).await?, ask(dev.listen()).await?);
                let named = |(_, name): &(String, String)| name.starts_with(prefix);
                ensure!(client.keys().all(named), "{:?}", client.keys());
                compare(&client, &observer)
            })
            .await
            .unwrap();
            greeters.push(announce().await);
        }
        let calls = caller.finish().await.unwrap();
        assert_eq!(calls.failed(), 0, "{:?}", calls.failures());
    }
}
