//! What a server shows, and whom it lets in.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use tokio::sync::watch;
use waypost_core::Timestamp;

use crate::error::TlsError;
use crate::files::{Contents, Identity, certified, digest};
use crate::{ALPN_HTTP2, provider};

/// The configuration for the next handshake, always the newest.
pub type ServerConfigs = watch::Receiver<Arc<ServerConfig>>;

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate and key.
    pub identity: Identity,
    /// Whom it lets in; `None` for everybody, unasked.
    pub clients: Option<ClientVerification>,
}

/// By what a server knows clients that it lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientVerification {
    /// PEM: the CAs whose certificates are good, all of them.
    pub ca: PathBuf,
    /// Whether clients must have one.
    pub certificates: ClientCertificates,
}

/// Whether clients must show a certificate. One that is shown must be good either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Who shows none is refused.
    Required,
    /// Who shows none is let in: for the time in which a fleet gets its certificates.
    Optional,
}

/// The files of a server as they were at one moment.
pub(crate) struct ServerContents {
    certificate: Contents,
    key: Contents,
    clients: Option<(Contents, ClientCertificates)>,
}

/// A configuration, and what people are told of it.
pub(crate) struct ServerIdentity {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) subject: String,
    pub(crate) not_after: Timestamp,
}

impl ServerFiles {
    /// Reads all of them. Blocks.
    pub(crate) fn read(&self) -> Result<ServerContents, TlsError> {
        let clients = match &self.clients {
            Some(clients) => Some((Contents::read(&clients.ca)?, clients.certificates)),
            None => None,
        };
        Ok(ServerContents {
            certificate: Contents::read(&self.identity.certificate)?,
            key: Contents::read(&self.identity.key)?,
            clients,
        })
    }
}

impl ServerContents {
    pub(crate) fn digest(&self) -> u128 {
        let clients = self.clients.iter().map(|(ca, _)| ca);
        digest([&self.certificate, &self.key].into_iter().chain(clients))
    }

    /// Makes a configuration, if all of it can be used at `now`. Sessions are not resumed: whoever
    /// comes back is looked at again, by what the files say then.
    pub(crate) fn to_identity(&self, now: Timestamp) -> Result<ServerIdentity, TlsError> {
        let chain = self.certificate.certificates()?;
        let summary = self.certificate.summary(&chain, now)?;
        let certified = certified(&self.certificate, chain, &self.key)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Setup)?;
        let builder = match &self.clients {
            Some((ca, certificates)) => {
                builder.with_client_cert_verifier(verifier(ca, *certificates)?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerIdentity {
            config: Arc::new(config),
            subject: summary.subject,
            not_after: summary.not_after,
        })
    }
}

fn verifier(
    ca: &Contents,
    certificates: ClientCertificates,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder = WebPkiClientVerifier::builder_with_provider(ca.roots()?, provider());
    let builder = match certificates {
        ClientCertificates::Required => builder,
        ClientCertificates::Optional => builder.allow_unauthenticated(),
    };
    let built = builder.build();
    built.map_err(|error| TlsError::Setup(rustls::Error::General(error.to_string())))
}
