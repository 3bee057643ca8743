//! Rules that need more than a case can say: bytes that no client sends, clients that do not read,
//! many of them, and the end of a server.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: what cannot be set up fails the test"
)]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use waypost_conformance::engine::EngineTarget;
use waypost_conformance::target::Target as _;
use waypost_core::ResourceType;
use waypost_testkit::probe::{DeltaProbe, SotwProbe, connect, mk_node, remaining_chunks};
use waypost_testkit::wait::eventually;
use waypost_xds::{ListenError, Listener};

const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const DEADLINE: Duration = Duration::from_secs(30);

fn mk_target(with: &[(&str, &str)]) -> EngineTarget {
    let with: Vec<_> = with
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    EngineTarget::start(&with).unwrap()
}

async fn mk_delta(target: &EngineTarget) -> DeltaProbe {
    let channel = connect(&target.address()).await.unwrap();
    DeltaProbe::open(channel, mk_node("probe")).await.unwrap()
}

/// Sends `body` to `path` and returns the status that ends the call, wherever it stands.
async fn call(address: &str, path: &str, body: &[u8]) -> (String, String) {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let mut headers = response.headers().clone();
    let collected = response.into_body().collect().await.unwrap();
    if let Some(trailers) = collected.trailers() {
        headers.extend(trailers.clone());
    }
    let text = |name: &str| {
        let value = headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    };
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test]
async fn malformed_requests_end_their_stream_and_no_other() {
    let target = mk_target(&[]);
    target.set(ResourceType::D2Node, "a", "v1", 0).unwrap();
    let mut probe = mk_delta(&target).await;
    let node = ResourceType::D2Node.type_url();
    probe.subscribe(node, &["a"]).await.unwrap();
    probe.expect_update(node, "a").await.unwrap();

    let cases: [(&str, &[u8], &str, &str); 6] = [
        (
            "no protobuf",
            &[0, 0, 0, 0, 2, 0xff, 0xff],
            "3",
            "malformed",
        ),
        ("compressed", &[1, 0, 0, 0, 0], "12", "identity"),
        ("an odd flag", &[9, 0, 0, 0, 0], "3", "flag"),
        ("half a message", &[0, 0, 0, 0, 9, 1], "3", "within"),
        (
            "huge",
            &[0, 0xff, 0xff, 0xff, 0xff],
            "8",
            "request_bytes_max",
        ),
        ("nothing", &[], "0", ""),
    ];
    for (what, bytes, code, text) in cases {
        let (status, message) = call(&target.address(), DELTA, bytes).await;
        assert_eq!(status, code, "{what}: {message}");
        assert!(message.contains(text), "{what}: {message}");
    }
    target.set(ResourceType::D2Node, "a", "v2", 0).unwrap();
    probe.expect_update(node, "a").await.unwrap();
}

#[tokio::test]
async fn a_client_that_closes_its_side_gets_its_answer_and_then_the_end() {
    let target = mk_target(&[]);
    target.set(ResourceType::D2Node, "a", "v1", 0).unwrap();
    // type_url = indis.Node, resource_names_subscribe = a, b
    let mut message = b"\x12\x1etype.googleapis.com/indis.Node".to_vec();
    message.extend_from_slice(b"\x1a\x01a\x1a\x01b");
    let mut body = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
    body.extend_from_slice(&message);
    let socket = TcpStream::connect(target.address()).await.unwrap();
    let (mut sender, connection) =
        http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{}{DELTA}", target.address()))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    let bytes = collected.to_bytes();
    let response = DeltaDiscoveryResponse::decode(&bytes[5..]).unwrap();
    assert_eq!(response.resources[0].name, "a");
    assert_eq!(response.removed_resources, ["b"]);
}

#[tokio::test]
async fn methods_that_are_not_served_are_refused_and_per_type_ones_are() {
    let target = mk_target(&[]);
    let unserved = [
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/Nope",
        "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
        "/grpc.health.v1.Health/Check",
    ];
    for path in unserved {
        let (status, _) = call(&target.address(), path, &[]).await;
        assert_eq!(status, "12", "{path}");
    }
    let services = [
        ("cluster", "ClusterDiscoveryService", "Clusters"),
        ("endpoint", "EndpointDiscoveryService", "Endpoints"),
        ("listener", "ListenerDiscoveryService", "Listeners"),
        ("route", "RouteDiscoveryService", "Routes"),
    ];
    for (package, service, noun) in services {
        for variant in ["Stream", "Delta"] {
            let path = format!("/envoy.service.{package}.v3.{service}/{variant}{noun}");
            // A request without a type: it follows from the method.
            let (status, message) = call(&target.address(), &path, &[0, 0, 0, 0, 0]).await;
            assert_eq!(status, "0", "{path}: {message}");
        }
    }
    let wrong = b"\x00\x00\x00\x00\x05\x12\x03x.y";
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters";
    let (status, message) = call(&target.address(), path, wrong).await;
    assert_eq!(status, "3", "{message}");
}

#[tokio::test]
async fn hundreds_of_streams_share_one_connection() {
    let target = mk_target(&[]);
    target.set(ResourceType::D2Node, "a", "v1", 0).unwrap();
    let channel = connect(&target.address()).await.unwrap();
    let node = ResourceType::D2Node.type_url();
    let mut probes = Vec::new();
    for _ in 0..300 {
        let mut probe = DeltaProbe::open(channel.clone(), mk_node("probe"))
            .await
            .unwrap();
        probe.subscribe(node, &["a"]).await.unwrap();
        probes.push(probe);
    }
    for probe in &mut probes {
        probe.expect_update(node, "a").await.unwrap();
    }
    target.set(ResourceType::D2Node, "a", "v2", 0).unwrap();
    for probe in &mut probes {
        probe.expect_update(node, "a").await.unwrap();
    }
    assert_eq!(target.server().streams().len(), 300);
}

#[tokio::test]
async fn a_thousand_requests_of_one_name_are_all_answered() {
    let target = mk_target(&[]);
    let mut probe = mk_delta(&target).await;
    let node = ResourceType::D2Node.type_url();
    let names: Vec<String> = (0..1000).map(|i| format!("/d2/services/{i}")).collect();
    for (index, name) in names.iter().enumerate() {
        if index % 2 == 0 {
            target.set(ResourceType::D2Node, name, "v", 0).unwrap();
        }
        probe.subscribe(node, &[name]).await.unwrap();
    }
    let (mut found, mut absent) = (0, 0);
    while found + absent < 1000 {
        let response = probe.receive(DEADLINE).await.unwrap();
        found += response.resources.len();
        absent += response.removed_resources.len();
        probe.ack(&response).await.unwrap();
    }
    assert_eq!((found, absent), (500, 500));
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_only_itself_and_then_gets_the_latest() {
    let target = mk_target(&[]);
    let big = 20_000;
    target.set(ResourceType::D2Node, "a", "v0", big).unwrap();
    let node = ResourceType::D2Node.type_url();
    let mut slow = mk_delta(&target).await;
    slow.subscribe(node, &["a"]).await.unwrap();
    slow.expect_update(node, "a").await.unwrap();
    let mut quick = mk_delta(&target).await;
    quick.subscribe(node, &["a"]).await.unwrap();
    quick.expect_update(node, "a").await.unwrap();

    let updates = 500;
    for update in 1..=updates {
        let value = format!("v{update}");
        target.set(ResourceType::D2Node, "a", &value, big).unwrap();
        quick.expect_update(node, "a").await.unwrap();
    }
    let mut responses = 0;
    loop {
        let response = slow.receive(DEADLINE).await.unwrap();
        slow.ack(&response).await.unwrap();
        responses += 1;
        let payload = &response.resources[0].resource.as_ref().unwrap().value;
        if target.value_of(payload) == format!("v{updates}") {
            break;
        }
    }
    slow.expect_quiet(Duration::from_millis(200)).await.unwrap();
    println!("a client that slept through {updates} updates of {big} bytes got {responses}");
    assert!(responses < updates / 2, "{responses} responses");
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off() {
    let target = mk_target(&[("stall_timeout_ms", "500")]);
    let big = 100_000;
    let node = ResourceType::D2Node.type_url();
    target.set(ResourceType::D2Node, "a", "v", big).unwrap();
    let mut slow = mk_delta(&target).await;
    slow.subscribe(node, &["a"]).await.unwrap();
    slow.expect_update(node, "a").await.unwrap();
    let mut update = 0;
    eventually("the stream is cut off", DEADLINE, || {
        update += 1;
        let value = format!("v{update}");
        target.set(ResourceType::D2Node, "a", &value, big).unwrap();
        let open = target.server().streams().len();
        async move {
            anyhow::ensure!(open == 0, "{open} streams are open");
            Ok(())
        }
    })
    .await
    .unwrap();
    assert_eq!(target.locator().subscriptions(), 0);
}

#[tokio::test]
async fn closed_streams_leave_nothing_behind() {
    let target = mk_target(&[]);
    let node = ResourceType::D2Node.type_url();
    for round in 0..100 {
        let mut delta = mk_delta(&target).await;
        delta.subscribe(node, &["a", "*"]).await.unwrap();
        let channel = connect(&target.address()).await.unwrap();
        let mut sotw = SotwProbe::open(channel, mk_node("probe")).await.unwrap();
        sotw.subscribe(node, &["a", "b"]).await.unwrap();
        if round % 2 == 0 {
            delta.expect_removed(node, "a").await.unwrap();
        }
    }
    eventually("everything is given back", DEADLINE, || async {
        let left = (
            target.server().streams().len(),
            target.locator().subscriptions(),
        );
        anyhow::ensure!(left == (0, 0), "{left:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_large_collection_comes_in_messages_that_every_client_accepts() {
    let target = mk_target(&[]);
    let hosts = 20_000;
    for host in 0..hosts {
        let name = format!("xdstp:///indis.D2URI/c/https%3A%2F%2Fh{host:05}%3A8443");
        target.set(ResourceType::D2Uri, &name, "v", 500).unwrap();
    }
    let mut probe = mk_delta(&target).await;
    let uri = ResourceType::D2Uri.type_url();
    probe
        .subscribe(uri, &["xdstp:///indis.D2URI/c/*"])
        .await
        .unwrap();
    let mut counts = Vec::new();
    let mut seen = 0;
    while counts.last() != Some(&0) {
        // The client refuses messages of more than 4 MiB, as gRPC's do.
        let response = probe.receive(DEADLINE).await.unwrap();
        probe.ack(&response).await.unwrap();
        counts.push(remaining_chunks(&response.nonce).unwrap());
        seen += response.resources.len();
    }
    assert_eq!(seen, hosts);
    let expected: Vec<u32> = (0..u32::try_from(counts.len()).unwrap()).rev().collect();
    assert_eq!(counts, expected);
    assert!(counts.len() > 1);
}

#[tokio::test]
async fn a_client_may_come_back_with_sixteen_mebibytes_of_versions() {
    let target = mk_target(&[]);
    target.set(ResourceType::D2Node, "a", "v", 0).unwrap();
    let mut probe = mk_delta(&target).await;
    let node = ResourceType::D2Node.type_url();
    // As many bytes as 150,000 names of a usual length take.
    let filler = "x".repeat(280);
    let versions = (0..50_000)
        .map(|i| {
            (
                format!("/d2/clusters/{filler}{i:06}"),
                "0123456789abcdef".to_owned(),
            )
        })
        .collect();
    let request = DeltaDiscoveryRequest {
        type_url: node.to_owned(),
        resource_names_subscribe: vec!["a".to_owned(), "*".to_owned()],
        initial_resource_versions: versions,
        ..Default::default()
    };
    probe.send(request).await.unwrap();
    let mut removed = 0;
    while removed < 50_000 {
        let response = probe.receive(DEADLINE).await.unwrap();
        removed += response.removed_resources.len();
        probe.ack(&response).await.unwrap();
    }
    assert_eq!(removed, 50_000);
}

#[tokio::test]
async fn a_drain_spreads_the_ends_of_streams_and_refuses_new_ones() {
    let target = mk_target(&[]);
    let server = target.server().clone();
    let address = target.address();
    let mut probes = Vec::new();
    for _ in 0..10 {
        let mut probe = mk_delta(&target).await;
        let node = ResourceType::D2Node.type_url();
        probe.subscribe(node, &["a"]).await.unwrap();
        probe.expect_removed(node, "a").await.unwrap();
        probes.push(probe);
    }
    let drain = Duration::from_secs(1);
    let start = Instant::now();
    let shutdown = tokio::spawn(target.shut_down(drain));
    let ends = probes.into_iter().map(|mut probe| async move {
        let status = probe.expect_end().await.unwrap();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
        start.elapsed()
    });
    let ends = futures::future::join_all(ends).await;
    let first = ends.iter().min().unwrap();
    let last = ends.iter().max().unwrap();
    assert!(*first < drain / 2, "the first ended after {first:?}");
    assert!(*last > drain / 2, "the last ended after {last:?}");
    tokio::time::timeout(DEADLINE, shutdown)
        .await
        .unwrap()
        .unwrap();
    assert!(server.streams().is_empty());
    assert!(
        TcpStream::connect(&address).await.is_err(),
        "still accepting"
    );
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_clients_that_do_not_read() {
    let target = mk_target(&[]);
    let node = ResourceType::D2Node.type_url();
    target
        .set(ResourceType::D2Node, "a", "v", 1_000_000)
        .unwrap();
    let mut probe = mk_delta(&target).await;
    probe.subscribe(node, &["a"]).await.unwrap();
    eventually("the request is there", DEADLINE, || async {
        let views = target.server().streams().view(1);
        anyhow::ensure!(views.iter().any(|v| !v.types.is_empty()), "{views:?}");
        Ok(())
    })
    .await
    .unwrap();
    let shutdown = target.shut_down(Duration::ZERO);
    tokio::time::timeout(Duration::from_secs(10), shutdown)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_taken_port_is_said_to_be_taken() {
    let target = mk_target(&[]);
    let address = target.address().parse().unwrap();
    let error = Listener::bind(address).unwrap_err();
    assert!(matches!(error, ListenError::AddressInUse { .. }), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn the_view_of_streams_shows_who_asks_for_what_and_how_it_goes() {
    let target = mk_target(&[]);
    target.set(ResourceType::D2Node, "a", "v", 0).unwrap();
    let channel = connect(&target.address()).await.unwrap();
    let mut probe = DeltaProbe::open(channel, mk_node("rest.li")).await.unwrap();
    let node = ResourceType::D2Node.type_url();
    probe.subscribe(node, &["a", "b", "c"]).await.unwrap();
    let response = probe.receive(DEADLINE).await.unwrap();
    probe.nack(&response, "cannot decode a").await.unwrap();
    let view = eventually("the rejection is seen", DEADLINE, || async {
        let mut views = target.server().streams().view(2);
        let view = views.pop().ok_or_else(|| anyhow::anyhow!("no stream"))?;
        anyhow::ensure!(view.types.iter().any(|t| t.acks.nacks == 1), "{view:?}");
        Ok(view)
    })
    .await
    .unwrap();
    assert_eq!(view.node.as_ref().unwrap().user_agent, "rest.li");
    assert_eq!(view.variant.client, waypost_core::ClientKind::D2);
    let of_type = &view.types[0];
    assert_eq!(
        (of_type.subscriptions, &of_type.names[..]),
        (3, &["a".into(), "b".into()][..])
    );
    assert_eq!(of_type.acks.last_error.as_deref(), Some("cannot decode a"));
    assert_eq!(of_type.acks.last_nonce_sent, Some(response.nonce));
    assert_eq!(of_type.acks.last_nonce_acked, None);
    assert_eq!(of_type.acks.responses, 1);
    let found = target.server().streams().find(view.id, 0).unwrap();
    assert_eq!(found.id, view.id);
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_no_stream() {
    let target = mk_target(&[]);
    drop(TcpStream::connect(target.address()).await.unwrap());
    let silent = TcpStream::connect(target.address()).await.unwrap();
    let mut halting = TcpStream::connect(target.address()).await.unwrap();
    halting.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let mut probe = mk_delta(&target).await;
    let node = ResourceType::D2Node.type_url();
    probe.subscribe(node, &["a"]).await.unwrap();
    probe.expect_removed(node, "a").await.unwrap();
    assert_eq!(target.server().streams().len(), 1);
    // Nothing is set up for them either, so that the wait for a preface is what ends them.
    for connection in [&silent, &halting] {
        let answer = connection.try_read(&mut [0; 1]).map_err(|e| e.kind());
        assert_eq!(answer, Err(std::io::ErrorKind::WouldBlock));
    }
    // The rest of it, and empty settings.
    let rest = b"\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    halting.write_all(rest).await.unwrap();
    let mut answer = [0; 9];
    halting.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[3], 4, "settings");
}

/// What the fallback of a listener may be: any tower service.
#[expect(dead_code, reason = "checked by the compiler")]
fn any_service_fits(listener: Listener, server: waypost_xds::AdsServer) {
    let service = tower::service_fn(|_request: http::Request<hyper::body::Incoming>| async {
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::new())))
    });
    let _ = listener.serve(server, service, waypost_xds::ListenSettings::default());
}
