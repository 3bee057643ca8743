//! Files as a server and a client read them, and read them again.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::path::{Path, PathBuf};

use waypost_core::Timestamp;
use waypost_testkit::certificates::{Authority, CertificateFiles, Validity};
use waypost_tls::{
    ClientCertificates, ClientTls, ClientVerification, Identity, Look, ServerCertificates,
    ServerFiles,
};

/// Some time in 2027.
const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Some time in 2020, when what is over now was good.
const THEN: Timestamp = Timestamp(1_590_000_000_000);

fn mk_files(folder: &Path, ca: &Authority, validity: Validity) -> ServerFiles {
    let CertificateFiles { certificate, key } = ca.issue(folder, "server", validity).unwrap();
    ServerFiles {
        identity: Identity { certificate, key },
        clients: None,
    }
}

#[tokio::test]
async fn what_changes_is_taken_over_once_and_what_is_bad_is_said_once_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let files = mk_files(folder.path(), &ca, Validity::Now);
    let mut certificates = ServerCertificates::open(files.clone(), NOW).await.unwrap();
    let configs = certificates.configs();
    assert_eq!(certificates.subject(), "CN=server");
    assert_eq!(certificates.not_after_text(), "4000-01-01T00:00:00Z");
    assert_eq!(certificates.look(NOW).await, Look::Unchanged);

    mk_files(folder.path(), &ca, Validity::Now);
    assert_eq!(certificates.look(NOW).await, Look::Renewed);
    assert!(configs.has_changed().unwrap());
    assert_eq!(certificates.look(NOW).await, Look::Unchanged);

    let good = std::fs::read(&files.identity.key).unwrap();
    let strange = ca_key(folder.path());
    let bad: [(&[u8], &str); 4] = [
        (
            &good[..good.len() / 2],
            "cut off: no -----END PRIVATE KEY----- in it",
        ),
        (b"", "no private key without a pass phrase in it"),
        (
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "server.key",
        ),
        (&strange, "is not the key of the certificate"),
    ];
    for (bytes, expected) in bad {
        std::fs::write(&files.identity.key, bytes).unwrap();
        let Look::Refused(why) = certificates.look(NOW).await else {
            panic!("{expected}: taken over")
        };
        assert!(why.contains(expected), "{why}");
        assert_eq!(certificates.problem(), Some(&*why));
        assert_eq!(certificates.look(NOW).await, Look::Unchanged);
    }
    std::fs::remove_file(&files.identity.key).unwrap();
    assert!(
        matches!(certificates.look(NOW).await, Look::Refused(why) if why.contains("cannot read"))
    );
    std::fs::create_dir(&files.identity.key).unwrap();
    assert!(
        matches!(certificates.look(NOW).await, Look::Refused(why) if why.contains("is not a file"))
    );
    std::fs::remove_dir(&files.identity.key).unwrap();
    std::fs::write(&files.identity.key, good).unwrap();
    assert_eq!(certificates.look(NOW).await, Look::Renewed);
    assert_eq!(certificates.problem(), None);
}

#[tokio::test]
async fn sessions_are_not_resumed_and_http2_is_all_that_is_offered() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let files = mk_files(folder.path(), &ca, Validity::Now);
    let certificates = ServerCertificates::open(files, NOW).await.unwrap();
    let config = certificates.configs().borrow().clone();
    assert!(!config.session_storage.can_cache());
    assert!(!config.ticketer.enabled());
    assert_eq!(config.send_tls13_tickets, 0);
    assert_eq!(config.alpn_protocols, [b"h2"]);
}

#[tokio::test]
async fn the_cas_of_clients_are_read_again_and_the_end_of_what_is_in_force_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let clients = ca.write(&folder.path().join("clients.pem")).unwrap();
    let mut files = mk_files(folder.path(), &ca, Validity::Now);
    files.clients = Some(ClientVerification {
        ca: clients.clone(),
        certificates: ClientCertificates::Required,
    });
    let mut certificates = ServerCertificates::open(files, THEN).await.unwrap();
    Authority::new("next").unwrap().write(&clients).unwrap();
    assert_eq!(certificates.look(THEN).await, Look::Renewed);
    std::fs::write(&clients, "").unwrap();
    assert!(
        matches!(certificates.look(THEN).await, Look::Refused(why) if why.contains("clients.pem"))
    );

    ca.write(&clients).unwrap();
    mk_files(folder.path(), &ca, Validity::Over);
    assert_eq!(certificates.look(THEN).await, Look::Renewed);
    assert_eq!(certificates.not_after_text(), "2021-01-01T00:00:00Z");
}

#[tokio::test]
async fn what_is_no_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let mut files = mk_files(folder.path(), &ca, Validity::Now);
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    files.identity.key = pipe;
    let error = ServerCertificates::open(files, NOW).await.unwrap_err();
    assert!(error.to_string().contains("pipe is not a file"), "{error}");
}

#[tokio::test]
async fn a_certificate_whose_time_has_not_come_does_not_come_into_force() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let files = mk_files(folder.path(), &ca, Validity::Now);
    let mut certificates = ServerCertificates::open(files.clone(), NOW).await.unwrap();
    mk_files(folder.path(), &ca, Validity::ToCome);
    let expected = "CN=server is good only from 3000-01-01T00:00:00Z on";
    let Look::Refused(why) = certificates.look(NOW).await else {
        panic!("it came into force")
    };
    assert!(why.contains(expected), "{why}");
    let error = ServerCertificates::open(files, NOW).await.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn a_certificate_that_runs_out_stays_in_force_and_none_that_has_run_out_comes_into_it() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let files = mk_files(folder.path(), &ca, Validity::Over);
    let error = ServerCertificates::open(files.clone(), NOW)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("CN=server expired at 2021-01-01T00:00:00Z"),
        "{error}"
    );

    let mut certificates = ServerCertificates::open(files, THEN).await.unwrap();
    assert_eq!(certificates.look(NOW).await, Look::Unchanged);
    assert!(certificates.not_after() < NOW);
}

#[test]
fn a_client_says_which_of_its_files_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new("ca").unwrap();
    let root = ca.write(&folder.path().join("ca.pem")).unwrap();
    let own = ca.issue(folder.path(), "client", Validity::Now).unwrap();
    let tls = ClientTls::default().ca(&root);
    tls.check().unwrap();
    tls.clone()
        .identity(&own.certificate, &own.key)
        .check()
        .unwrap();
    let nowhere = PathBuf::from("/nowhere.pem");
    for (bad, expected) in [
        (
            ClientTls::default().ca(&nowhere),
            "cannot read /nowhere.pem",
        ),
        (ClientTls::default().ca(&own.key), "no certificate in it"),
        (
            tls.clone().identity(&own.certificate, &own.certificate),
            "no private key",
        ),
    ] {
        let error = bad.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A key of nobody's here.
fn ca_key(folder: &Path) -> Vec<u8> {
    let other = Authority::new("other").unwrap();
    let files = other.issue(folder, "other", Validity::Now).unwrap();
    std::fs::read(files.key).unwrap()
}
