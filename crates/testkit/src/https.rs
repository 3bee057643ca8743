//! What makes an [`HttpServer`](crate::http::HttpServer) one of HTTPS.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificates::{Authority, CertificateFiles};

/// Whether a server asks its clients for certificates.
#[derive(Clone, Copy)]
pub enum ClientCertificates<'a> {
    /// It does not.
    NotAsked,
    /// Each must have one of an authority.
    Of(&'a Authority),
}

/// What a server of HTTPS shows, and asks for.
///
/// # Errors
/// The files cannot be read.
pub fn server_config(
    files: &CertificateFiles,
    clients: ClientCertificates<'_>,
) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match clients {
        ClientCertificates::NotAsked => builder.with_no_client_auth(),
        ClientCertificates::Of(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&files.key)?;
    Ok(Arc::new(builder.with_single_cert(chain, key)?))
}

/// Accepts connections of TLS, one handshake after the other; whoever fails in it is forgotten.
pub(crate) struct TlsListener {
    pub(crate) tcp: TcpListener,
    pub(crate) acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = Listener::accept(&mut self.tcp).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
