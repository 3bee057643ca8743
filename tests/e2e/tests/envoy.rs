//! What an Envoy is given is accepted by Envoy itself: the file that `waypost bootstrap envoy` prints,
//! and what becomes of D2 properties. gRPC is given the latter too.
#![expect(
    clippy::unwrap_used,
    reason = "tests; helpers beside them are not recognised as such"
)]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use waypost_announcer::AnnouncerPool;
use waypost_core::ClusterName;
use waypost_e2e::clients::{Clients, bootstrap};
use waypost_e2e::fleet::{Fleet, announcement, pool_to_gateways};
use waypost_e2e::look;
use waypost_testkit::caller::Load;
use waypost_testkit::certificates::{Authority, Validity};
use waypost_testkit::envoy::Envoy;
use waypost_testkit::grpc::Language;
use waypost_testkit::http::{HttpLoad, HttpServer};
use waypost_testkit::https::{ClientCertificates, server_config};
use waypost_testkit::ports::free_addr;
use waypost_testkit::wait::eventually;
use waypost_testkit::waypost::{Server, ServerConfig, cli, write_bootstrap};

/// A bound on what should take a moment.
const SOON: Duration = Duration::from_secs(60);

/// Each property that is translated (docs/d2-properties.md): `CLUSTER` is replaced by a name.
const PROPERTIES: &str = r#"
kind: Cluster
name: CLUSTER
properties:
  slowStartProperties:
    { disabled: false, windowDurationSeconds: 1, aggression: 1.5, minWeightPercent: 10.0 }
  outlierDetectionConfig:
    interval: 5s
    baseEjectionTime: 20s
    maxEjectionTime: 60s
    maxEjectionPercent: 20
    consecutive5xx: 7
    enforcingSuccessRate: 50
    successRateMinimumHosts: 3
    failurePercentageThreshold: 90
    enforcingFailurePercentage: 10
---
kind: Service
name: CLUSTER
cluster: CLUSTER
path: /PATH
properties:
  loadBalancerStrategyList: [relative, degrader]
  transportClientProperties:
    http.requestTimeout: '15000'
    http.maxConcurrentConnections: '5000'
    http.poolWaiterSize: 4000
    http.poolSize: '100'
    http.maxClientRequestRetryRatio: 0.1
"#;

/// A service more, which tells requests apart: the cluster gets a ring.
const KEYED: &str = r#"
kind: Service
name: keyed
cluster: CLUSTER
properties:
  hash_header: x-member
  loadBalancerStrategyList: [degrader]
  loadBalancerStrategyProperties:
    http.loadBalancer.hashMethod: uriRegex
    http.loadBalancer.hashConfig: { regexes: ['[?&]id=([0-9]+)', '/members/([^/?]+)'] }
    http.loadBalancer.consistentHashBoundedLoadBalancingFactor: 1.5
"#;

const LOAD: Load = Load {
    rate: 50.0,
    concurrency: 2,
};

/// The calls that are made of a client after each change, at least.
const CALLS: usize = 50;

#[tokio::test]
async fn envoy_accepts_every_form_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let by_name = [
        "--to",
        "observers.example:18000",
        "--fabric",
        "east",
        "--zone",
        "a",
    ];
    let by_address = [
        "--to",
        "127.0.0.2:1,127.0.0.3:1",
        "--proxy-listen",
        "[::1]:0",
    ];
    for observers in [&by_name[..], &by_address[..]] {
        for protocol in ["delta", "sotw"] {
            for per_type in [&[][..], &["--per-type"]] {
                let how = ["--protocol", protocol, "--service", "greeter,profile"];
                let args = [observers, &how, per_type].concat();
                let file = folder.path().join("envoy.yaml");
                write_bootstrap("envoy", &args, &file).await.unwrap();
                let done = Envoy::validate(&file).await.unwrap();
                assert_eq!(done.code(), 0, "{args:?}: {}", done.stderr);
            }
        }
    }
}

async fn start_dev(folder: &Path) -> Server {
    let config = ServerConfig::dev(&folder.join("data"));
    config.start().await.unwrap()
}

async fn apply(dev: &Server, definitions: &str, cluster: &str, folder: &Path) {
    let file = folder.join("definitions.yaml");
    std::fs::write(&file, definitions.replace("CLUSTER", cluster)).unwrap();
    let to = dev.listen().to_string();
    let apply = ["apply", "-f", file.to_str().unwrap(), "--to", &to];
    let done = cli(&apply).await.unwrap();
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
}

/// A web server, announced as an instance of `cluster`.
async fn announce(
    pool: &AnnouncerPool,
    cluster: &str,
) -> (HttpServer, waypost_announcer::Announcer) {
    let server = HttpServer::start().await.unwrap();
    let announcer = announce_as("http", &server, pool, cluster).await;
    (server, announcer)
}

async fn announce_as(
    scheme: &str,
    server: &HttpServer,
    pool: &AnnouncerPool,
    cluster: &str,
) -> waypost_announcer::Announcer {
    let mut announcement = announcement(&format!("{scheme}://{}", server.address())).unwrap();
    announcement.cluster = ClusterName::parse(cluster).unwrap();
    let announcer = pool.announce(announcement).unwrap();
    announcer.settled().await.unwrap();
    announcer
}

/// Waits until the stream of a kind of client has acknowledged a response of a type after `responses` of
/// them; gives how many it has had. A refusal is a failure.
async fn acked(admin: SocketAddr, client: &str, type_url: &str, responses: u64) -> u64 {
    let what = format!("{client} takes {type_url}");
    let looked = eventually(&what, SOON, || async {
        let streams = look::all(admin, "streams").await?;
        let of_kind = streams.iter().filter(|stream| stream["client"] == client);
        let types = of_kind.flat_map(|stream| stream["types"].as_array());
        let found = types.flatten().find(|t| t["type_url"] == type_url);
        let found = found.cloned().unwrap_or(Value::Null);
        let now = found["responses"].as_u64().unwrap_or(0);
        ensure!(found["nacks"] == 0, "{found}");
        ensure!(
            now > responses && found["nonce_sent"] == found["nonce_acked"],
            "{found}"
        );
        Ok(now)
    });
    looked.await.unwrap()
}

const CLUSTER_TYPE: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

#[tokio::test(flavor = "multi_thread")]
async fn envoy_takes_what_becomes_of_every_d2_property() {
    let folder = tempfile::tempdir().unwrap();
    let dev = start_dev(folder.path()).await;
    let pool = pool_to_gateways(&[dev.listen().to_string()]).unwrap();
    let _server = announce(&pool, "web").await;
    apply(&dev, PROPERTIES, "web", folder.path()).await;

    let (to, listen) = (dev.listen().to_string(), free_addr());
    let proxy = listen.to_string();
    let args = [
        "--to",
        &to,
        "--service",
        "web,keyed",
        "--proxy-listen",
        &proxy,
    ];
    let config = folder.path().join("envoy.yaml");
    write_bootstrap("envoy", &args, &config).await.unwrap();
    let envoy = Envoy::start(&config, folder.path()).await.unwrap();
    let responses = acked(dev.admin(), "envoy", CLUSTER_TYPE, 0).await;
    let load = HttpLoad::start(listen, "web", LOAD).unwrap();
    let called = async |times: usize| {
        let what = format!("{times} requests");
        let called = eventually(&what, SOON, || async {
            let made = load.calls_since(0.0).0.len();
            ensure!(made >= times, "{made}");
            Ok(())
        });
        called.await.unwrap();
    };
    called(CALLS).await;
    apply(&dev, KEYED, "web", folder.path()).await;
    acked(dev.admin(), "envoy", CLUSTER_TYPE, responses).await;
    let made = load.calls_since(0.0).0.len();
    called(made + CALLS).await;

    let refused = envoy.stats("update_rejected").await.unwrap();
    assert_eq!(refused.values().sum::<u64>(), 0, "{refused:?}");
    let calls = load.finish().await;
    assert_eq!(calls.failed(), 0, "{:?}", calls.failures());
    envoy.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_in_every_language_takes_what_becomes_of_every_d2_property() {
    for language in [Language::Python, Language::Go, Language::Java] {
        let folder = tempfile::tempdir().unwrap();
        let dev = start_dev(folder.path()).await;
        let pool = pool_to_gateways(&[dev.listen().to_string()]).unwrap();
        let fleet = Fleet::announce(&pool, 2).await.unwrap();
        apply(&dev, PROPERTIES, "greeter", folder.path()).await;

        let file = bootstrap(dev.listen(), folder.path()).await.unwrap();
        let clients = Clients::start_in(language, 1, LOAD, &file, folder.path());
        let clients = clients.await.unwrap();
        let responses = acked(dev.admin(), "grpc", CLUSTER_TYPE, 0).await;
        for name in fleet.names() {
            clients.all_reach(name, 0.0, SOON).await.unwrap();
        }
        apply(&dev, KEYED, "greeter", folder.path()).await;
        acked(dev.admin(), "grpc", CLUSTER_TYPE, responses).await;
        let changed = waypost_e2e::clock::now();
        clients.all_call_on(changed, CALLS, SOON).await.unwrap();
        let calls = clients.finish().await.unwrap();
        assert_eq!(calls.failed(), 0, "{language:?}: {:?}", calls.failures());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_calls_an_instance_of_both_families_at_the_address_that_answers() {
    let folder = tempfile::tempdir().unwrap();
    let dev = start_dev(folder.path()).await;
    let pool = pool_to_gateways(&[dev.listen().to_string()]).unwrap();
    // It listens on IPv6 and says that it does on an IPv4 address too, where nobody is.
    let server = HttpServer::start_at(Ipv6Addr::LOCALHOST.into())
        .await
        .unwrap();
    let mut both = announcement(&format!("http://{}", server.address())).unwrap();
    both.cluster = ClusterName::parse("web").unwrap();
    both.ipv4 = Some(Ipv4Addr::new(127, 0, 0, 2));
    let announcer = pool.announce(both).unwrap();
    announcer.settled().await.unwrap();

    let (to, listen) = (dev.listen().to_string(), free_addr());
    let proxy = listen.to_string();
    let args = ["--to", &to, "--service", "web", "--proxy-listen", &proxy];
    let config = folder.path().join("envoy.yaml");
    write_bootstrap("envoy", &args, &config).await.unwrap();
    let envoy = Envoy::start(&config, folder.path()).await.unwrap();
    let load = HttpLoad::start(listen, "web", LOAD).unwrap();
    let answered = eventually("requests are answered", SOON, || async {
        let calls = load.calls_since(0.0);
        ensure!(calls.0.len() >= CALLS, "{}", calls.0.len());
        Ok(())
    });
    answered.await.unwrap();
    let calls = load.finish().await;
    assert_eq!(calls.failed(), 0, "{:?}", calls.failures());
    envoy.stop().await.unwrap();

    // One that can use IPv4 alone is not told of the address that answers.
    let args = [&args[..], &["--address-families", "ipv4"]].concat();
    write_bootstrap("envoy", &args, &config).await.unwrap();
    let other = tempfile::tempdir().unwrap();
    let envoy = Envoy::start(&config, other.path()).await.unwrap();
    let port = server.address().port();
    let listed = envoy.endpoints("web").await.unwrap();
    let listed: Vec<_> = listed.into_keys().collect();
    assert_eq!(listed, [SocketAddr::from(([127, 0, 0, 2], port))]);
    envoy.stop().await.unwrap();
}

/// Instances by service: what they speak, and what the cluster says of their certificates.
const OVER_TLS: &str = "
kind: Cluster
name: asks-nobody
properties: { sslSessionValidationStrings: [localhost] }
---
kind: Cluster
name: asks-clients
properties: { sslSessionValidationStrings: [other.example, localhost] }
---
kind: Cluster
name: other-name
properties: { sslSessionValidationStrings: [other.example] }
";

#[tokio::test(flavor = "multi_thread")]
async fn envoy_speaks_tls_to_instances_as_their_uris_and_its_own_certificates_say() {
    let folder = tempfile::tempdir().unwrap();
    let dev = start_dev(folder.path()).await;
    let pool = pool_to_gateways(&[dev.listen().to_string()]).unwrap();
    apply(&dev, OVER_TLS, "", folder.path()).await;
    let authority = Authority::new("instances").unwrap();
    let issue = |name| authority.issue(folder.path(), name, Validity::Now).unwrap();
    let (of_servers, of_envoy) = (issue("server"), issue("envoy"));
    let ca = authority.write(&folder.path().join("ca.pem")).unwrap();
    let mut instances = vec![announce(&pool, "plain").await];
    for (cluster, clients) in [
        ("asks-nobody", ClientCertificates::NotAsked),
        ("asks-clients", ClientCertificates::Of(&authority)),
        ("other-name", ClientCertificates::NotAsked),
    ] {
        let config = server_config(&of_servers, clients).unwrap();
        let server = HttpServer::start_tls(config).await.unwrap();
        let announcer = announce_as("https", &server, &pool, cluster).await;
        instances.push((server, announcer));
    }

    let believes = ["--upstream-ca", ca.to_str().unwrap()];
    let shows = [
        "--upstream-cert",
        of_envoy.certificate.to_str().unwrap(),
        "--upstream-key",
        of_envoy.key.to_str().unwrap(),
    ];
    let mutual = [&believes[..], &shows].concat();
    // Of each Envoy the answers of the instances above, in their order.
    let cases: [(&[&str], [u16; 4]); 3] = [
        (&[], [200, 502, 502, 502]),
        (&believes, [200, 200, 503, 503]),
        (&mutual, [200, 200, 200, 503]),
    ];
    for (flags, expected) in cases {
        let (statuses, wrong_names) = ask_all(&dev, flags).await;
        assert_eq!(statuses, expected, "{flags:?}");
        // Who believes no authority does not look at certificates.
        assert_eq!(wrong_names > 0, !flags.is_empty(), "{flags:?}");
    }
}

/// What an Envoy with these flags answers for each service, and how many certificates it refused for their names.
async fn ask_all(dev: &Server, flags: &[&str]) -> ([u16; 4], u64) {
    let folder = tempfile::tempdir().unwrap();
    let (to, listen) = (dev.listen().to_string(), free_addr());
    let proxy = listen.to_string();
    let services = ["plain", "asks-nobody", "asks-clients", "other-name"];
    let named = services.join(",");
    let args = ["--to", &to, "--service", &named, "--proxy-listen", &proxy];
    let config = folder.path().join("envoy.yaml");
    let args = [&args[..], flags].concat();
    write_bootstrap("envoy", &args, &config).await.unwrap();
    let envoy = Envoy::start(&config, folder.path()).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut statuses = [0; 4];
    for (status, service) in statuses.iter_mut().zip(services) {
        eventually("Envoy knows its instance", SOON, || async {
            let known = envoy.endpoints(service).await?;
            ensure!(known.len() == 1, "{service}: {known:?}");
            Ok(())
        })
        .await
        .unwrap();
        let request = client
            .get(format!("http://{proxy}/"))
            .header("host", service);
        let answer = request.send().await.unwrap();
        *status = answer.status().as_u16();
    }
    let wrong_names = envoy.stats("ssl.fail_verify_san").await.unwrap();
    envoy.stop().await.unwrap();
    (statuses, wrong_names.values().sum())
}

/// An application, and what it calls at first and then.
const CALLEES: [&str; 2] = [
    "kind: Callees\nname: shop\nservices: [web]\n",
    "kind: Callees\nname: shop\nservices: [web, prices]\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn envoy_routes_to_what_its_application_is_said_to_call() {
    let folder = tempfile::tempdir().unwrap();
    let dev = start_dev(folder.path()).await;
    let pool = pool_to_gateways(&[dev.listen().to_string()]).unwrap();
    let _web = announce(&pool, "web").await;
    let _prices = announce(&pool, "prices").await;
    apply(&dev, CALLEES[0], "", folder.path()).await;

    let (to, listen) = (dev.listen().to_string(), free_addr());
    let proxy = listen.to_string();
    let args = ["--to", &to, "--node-id", "shop", "--proxy-listen", &proxy];
    let config = folder.path().join("envoy.yaml");
    write_bootstrap("envoy", &args, &config).await.unwrap();
    let written = std::fs::read_to_string(&config).unwrap();
    let (named, others): (Vec<_>, Vec<_>) = written
        .lines()
        .partition(|line| line.contains("waypost.services:"));
    assert_eq!(named.len(), 1, "{written}");
    std::fs::write(&config, others.join("\n")).unwrap();
    let envoy = Envoy::start(&config, folder.path()).await.unwrap();

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answers = async |expected: [u16; 2]| {
        let what = format!("web and prices answer {expected:?}");
        let answered = eventually(&what, SOON, || async {
            let mut statuses = [0; 2];
            for (status, service) in statuses.iter_mut().zip(["web", "prices"]) {
                let request = client.get(format!("http://{proxy}/"));
                let answer = request.header("host", service).send().await?;
                *status = answer.status().as_u16();
            }
            ensure!(statuses == expected, "{statuses:?}");
            Ok(())
        });
        answered.await.unwrap();
    };
    answers([200, 404]).await;
    apply(&dev, CALLEES[1], "", folder.path()).await;
    answers([200, 200]).await;
    let refused = envoy.stats("update_rejected").await.unwrap();
    assert_eq!(refused.values().sum::<u64>(), 0, "{refused:?}");
    envoy.stop().await.unwrap();
}
