//! TLS on the gRPC port: who is let in, who is told what, and certificates that change while streams are open.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use waypost_core::AnnouncementLog;
use waypost_core::ResourceType::Cluster;
use waypost_log::MemoryLog;
use waypost_observer::{Observer, RunningObserver, StartError};
use waypost_testkit::certificates::{Authority, CertificateFiles, Validity};
use waypost_tls::{ClientCertificates, ClientTls, ClientVerification, Identity, ServerFiles};

use common::xds::{Delta, node};
use common::{DEADLINE, Life, eventually, get, metric, mk_announcement, mk_log, mk_settings};

/// A folder of certificates, and the CA that signs them.
struct World {
    folder: TempDir,
    ca: Authority,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::new("the CA").unwrap();
        ca.write(&folder.path().join("ca.pem")).unwrap();
        Self { folder, ca }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn issue(&self, name: &str) -> CertificateFiles {
        self.ca.issue(self.path(), name, Validity::Now).unwrap()
    }

    /// The files of an Observer that asks clients for certificates of the CA, or not.
    fn server(&self, clients: Option<ClientCertificates>) -> ServerFiles {
        let CertificateFiles { certificate, key } = self.issue("observer");
        ServerFiles {
            identity: Identity { certificate, key },
            clients: clients.map(|certificates| ClientVerification {
                ca: self.path().join("ca.pem"),
                certificates,
            }),
        }
    }

    /// A client that believes the CA.
    fn client(&self) -> ClientTls {
        ClientTls::default().ca(self.path().join("ca.pem"))
    }
}

async fn start(log: &MemoryLog, files: ServerFiles) -> Result<RunningObserver, StartError> {
    let log: Arc<dyn AnnouncementLog> = Arc::new(log.clone());
    let observer = Observer::new(mk_settings(), log)
        .with_threads(1)
        .with_tls(files);
    let observer = observer.start().await?;
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .expect("it is ready");
    Ok(observer)
}

fn channel(observer: &RunningObserver, tls: &ClientTls) -> Channel {
    let url = format!("https://{}", observer.grpc_address());
    let endpoint = Endpoint::from_shared(url).unwrap();
    waypost_tls::connect_lazy(&endpoint, tls)
}

/// One call; the error is all that a person would read of it.
async fn call(channel: Channel) -> Result<(), String> {
    let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
    let answer = client.check(tonic_health::pb::HealthCheckRequest::default());
    match answer.await {
        Ok(_) => Ok(()),
        Err(status) => Err(waypost_announcer::explain(&status)),
    }
}

async fn failures(observer: &RunningObserver, reason: &str) -> f64 {
    let labels = format!(r#"{{reason="{reason}"}}"#);
    let name = "observer_tls_handshakes_failed_total";
    metric(observer, &format!("{name}{labels}")).await
}

async fn until_failure(observer: &RunningObserver, reason: &str, count: f64) {
    let what = format!("{count} handshakes failed: {reason}");
    eventually(&what, || async {
        (failures(observer, reason).await >= count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_believes_the_ca_is_served_and_others_say_why_not() {
    let world = World::new();
    let observer = start(&mk_log(1), world.server(None)).await.unwrap();
    call(channel(&observer, &world.client())).await.unwrap();

    let stranger = Authority::new("another CA").unwrap();
    let file = stranger.write(&world.path().join("stranger.pem")).unwrap();
    let error = call(channel(&observer, &ClientTls::default().ca(file))).await;
    let error = error.unwrap_err();
    assert!(
        error.contains("signed by no CA that this client believes"),
        "{error}"
    );
    until_failure(&observer, "refused_by_peer", 1.0).await;

    let misnamed = world.client().server_name("elsewhere.example");
    let error = call(channel(&observer, &misnamed)).await.unwrap_err();
    assert!(error.contains("not for elsewhere.example"), "{error}");

    // The admin port is as it was.
    let (status, text) = get(&observer, "/ready").await;
    assert_eq!((status, text.as_str()), (200, "ready\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_are_asked_for_as_the_setting_says() {
    let world = World::new();
    let good = world.issue("good");
    let over = world
        .ca
        .issue(world.path(), "over", Validity::Over)
        .unwrap();
    let stranger = Authority::new("another CA").unwrap();
    let strange = stranger
        .issue(world.path(), "strange", Validity::Now)
        .unwrap();
    let show = |files: &CertificateFiles| world.client().identity(&files.certificate, &files.key);

    for demand in [ClientCertificates::Required, ClientCertificates::Optional] {
        let observer = start(&mk_log(1), world.server(Some(demand))).await.unwrap();
        call(channel(&observer, &show(&good))).await.unwrap();
        call(channel(&observer, &show(&over))).await.unwrap_err();
        call(channel(&observer, &show(&strange))).await.unwrap_err();
        until_failure(&observer, "client_certificate", 2.0).await;

        let without = call(channel(&observer, &world.client())).await;
        match demand {
            ClientCertificates::Required => {
                without.unwrap_err();
                until_failure(&observer, "client_certificate", 3.0).await;
            }
            ClientCertificates::Optional => without.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificates_count_for_new_connections_and_open_streams_go_on() {
    let world = World::new();
    let log = mk_log(1);
    let observer = start(&log, world.server(None)).await.unwrap();
    let life = Life::new(&log, 1, mk_announcement("greeter", 1));
    life.announce().await;
    let open = channel(&observer, &world.client());
    let mut stream = Delta::open_on(open, node()).await.unwrap();
    stream.subscribe(Cluster, &["greeter"]).await;
    stream.next().await;

    // Another CA signs from now on: who believes only the old one is served no longer, the stream is.
    let next = Authority::new("the next CA").unwrap();
    next.write(&world.path().join("ca2.pem")).unwrap();
    let CertificateFiles { certificate, key } =
        next.issue(world.path(), "observer", Validity::Now).unwrap();
    observer.reload_tls();
    let believes_next = ClientTls::default().ca(world.path().join("ca2.pem"));
    eventually("the new certificate is shown", || async {
        call(channel(&observer, &believes_next)).await.ok()
    })
    .await;
    call(channel(&observer, &world.client())).await.unwrap_err();
    stream.subscribe(Cluster, &["greeter"]).await;
    let again = stream.next().await;
    assert_eq!(again.resources.len(), 1, "the stream went on: {again:?}");
    let renewed = r#"observer_tls_reloads_total{outcome="renewed"}"#;
    assert!(metric(&observer, renewed).await >= 1.0);

    // What cannot be used changes nothing, and is said.
    std::fs::write(&key, "not a key").unwrap();
    observer.reload_tls();
    let notice = eventually("the bad file is named", || async {
        let (status, text) = get(&observer, "/ready").await;
        assert_eq!(status, 200, "{text}");
        text.contains("notice: tls: ").then_some(text)
    })
    .await;
    assert!(notice.contains(key.to_str().unwrap()), "{notice}");
    assert!(notice.contains("in force until 4000-"), "{notice}");
    call(channel(&observer, &believes_next)).await.unwrap();
    let refused = r#"observer_tls_reloads_total{outcome="refused"}"#;
    assert!(metric(&observer, refused).await >= 1.0);

    // Expired is as bad; mended is forgotten.
    next.issue(world.path(), "observer", Validity::Over)
        .unwrap();
    observer.reload_tls();
    eventually("the expired one is named", || async {
        let (_, text) = get(&observer, "/ready").await;
        text.contains("CN=observer expired at 2021-").then_some(())
    })
    .await;
    next.issue(world.path(), "observer", Validity::Now).unwrap();
    observer.reload_tls();
    eventually("nothing is wrong any more", || async {
        let (_, text) = get(&observer, "/ready").await;
        (text == "ready\n").then_some(())
    })
    .await;
    assert!(certificate.exists());
    let not_after = metric(&observer, "observer_tls_certificate_not_after_seconds").await;
    assert!(not_after > 6.4e10, "{not_after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_without_tls_is_told_and_who_speaks_tls_elsewhere_is_counted() {
    let world = World::new();
    let observer = start(&mk_log(1), world.server(None)).await.unwrap();
    let error = call(common::channel(&observer).await).await.unwrap_err();
    assert!(error.contains("this port takes TLS only"), "{error}");
    until_failure(&observer, "plaintext", 1.0).await;

    let mut curl = TcpStream::connect(observer.grpc_address()).await.unwrap();
    curl.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        .await
        .unwrap();
    let mut told = String::new();
    curl.read_to_string(&mut told).await.unwrap();
    assert!(
        told.starts_with("HTTP/1.1 400 ") && told.contains("over TLS"),
        "{told}"
    );

    let plain = common::start(&mk_log(1)).await;
    let error = call(channel(&plain, &world.client())).await.unwrap_err();
    assert!(error.contains("TLS handshake"), "{error}");
    until_failure(&plain, "not_served", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_and_at_least_tls_1_2_are_agreed_on() {
    let world = World::new();
    let observer = start(&mk_log(1), world.server(None)).await.unwrap();
    let address = observer.grpc_address();
    for (version, expected) in [
        (&rustls::version::TLS12, rustls::ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, rustls::ProtocolVersion::TLSv1_3),
    ] {
        let session = shake(&world, address, version, &[b"h2"]).await.unwrap();
        let (_, session) = session.get_ref();
        assert_eq!(session.protocol_version(), Some(expected));
        assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
    }
    let only_http1 = shake(&world, address, &rustls::version::TLS13, &[b"http/1.1"]).await;
    only_http1.unwrap_err();
    until_failure(&observer, "protocol", 1.0).await;

    // A ClientHello of TLS 1.1 (RFC 4346): a fatal alert is the answer.
    let mut old = TcpStream::connect(address).await.unwrap();
    old.write_all(&client_hello_1_1()).await.unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).await.unwrap();
    assert_eq!((answer[0], answer[5]), (21, 2), "{answer:?}");
    until_failure(&observer, "protocol", 2.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_end_a_start_with_one_line() {
    let world = World::new();
    let files = world.server(None);
    let with = |change: &dyn Fn(&mut ServerFiles)| {
        let mut files = files.clone();
        change(&mut files);
        files
    };
    let other = world.issue("other");
    let over = world
        .ca
        .issue(world.path(), "over", Validity::Over)
        .unwrap();
    let cases = [
        (
            with(&|f| f.identity.key = "/nowhere.key".into()),
            "cannot read /nowhere.key",
        ),
        (
            with(&|f| f.identity.certificate = f.identity.key.clone()),
            "no certificate in it",
        ),
        (
            with(&|f| f.identity.key = f.identity.certificate.clone()),
            "no private key",
        ),
        (
            with(&|f| f.identity.key = other.key.clone()),
            "is not the key of the certificate",
        ),
        (
            with(&|f| {
                f.identity = Identity {
                    certificate: over.certificate.clone(),
                    key: over.key.clone(),
                };
            }),
            "CN=over expired at 2021-01-01",
        ),
    ];
    for (files, expected) in cases {
        let error = start(&mk_log(1), files).await.expect_err("it starts");
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.lines().count() == 1,
            "{text}"
        );
    }
}

type Tls = tokio_rustls::client::TlsStream<TcpStream>;

async fn shake(
    world: &World,
    address: SocketAddr,
    version: &'static rustls::SupportedProtocolVersion,
    alpn: &[&[u8]],
) -> std::io::Result<Tls> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(world.ca.pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, socket).await
}

/// With one cipher of its time, TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA.
fn client_hello_1_1() -> Vec<u8> {
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    let length = u8::try_from(body.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(body);
    record
}
