//! Opens connections for a channel: TCP, then TLS.

use std::fmt;
use std::io;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tower::{BoxError, Service};

use crate::ALPN_HTTP2;
use crate::client::ClientTls;
use crate::error::TlsError;
use crate::limits::CLIENT_HANDSHAKE_MAX;

/// A connector for [`tonic::transport::Endpoint::connect_with_connector_lazy`]: each connection by
/// what the files of its [`ClientTls`] say at that moment.
#[derive(Clone)]
pub struct TlsConnector {
    tcp: HttpConnector,
    tls: ClientTls,
}

impl TlsConnector {
    /// Connects by `tls`.
    #[must_use]
    pub fn new(tls: ClientTls) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self { tcp, tls }
    }
}

impl Service<Uri> for TlsConnector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    /// What is wrong, in one line.
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.clone();
        let connecting = self.tcp.call(uri.clone());
        async move {
            let name = server_name(&tls, &uri)?;
            let socket = connecting.await?.into_inner();
            let handshake = timeout(CLIENT_HANDSHAKE_MAX, shake(tls, name, socket));
            let stream = handshake.await.map_err(|_| {
                let seconds = CLIENT_HANDSHAKE_MAX.as_secs();
                format!("no TLS handshake with {uri} within {seconds} s")
            })??;
            Ok(TokioIo::new(stream))
        }
        .boxed()
    }
}

async fn shake(
    tls: ClientTls,
    name: ServerName<'static>,
    socket: TcpStream,
) -> Result<TlsStream<TcpStream>, BoxError> {
    let config = tokio::task::spawn_blocking(move || tls.config()).await??;
    let connector = tokio_rustls::TlsConnector::from(config);
    let stream = connector.connect(name.clone(), socket).await;
    let stream = stream.map_err(|error| explain(&error, &name))?;
    let (_, session) = stream.get_ref();
    if session.alpn_protocol() != Some(ALPN_HTTP2) {
        return Err("the server does not agree on HTTP/2 (ALPN h2)".into());
    }
    Ok(stream)
}

/// The name that the server's certificate must be for.
fn server_name(tls: &ClientTls, uri: &Uri) -> Result<ServerName<'static>, TlsError> {
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = tls.find_server_name().unwrap_or(host);
    let parsed = ServerName::try_from(name.to_owned());
    parsed.map_err(|_| TlsError::BadServerName(name.to_owned()))
}

/// What a failed handshake means, and what to look at.
fn explain(error: &io::Error, name: &ServerName<'_>) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let Some(cause) = cause else {
        return format!("the TLS handshake broke off: {error}");
    };
    match cause {
        Error::InvalidCertificate(why) => {
            let name = name.to_str();
            match why {
                CertificateError::UnknownIssuer => {
                    "the server's certificate is signed by no CA that this client believes"
                        .to_owned()
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    format!("the server's certificate is not for {name}")
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the server's certificate has expired".to_owned()
                }
                why => format!("the server's certificate is not good: {why}"),
            }
        }
        Error::InvalidMessage(_) => {
            "what answers speaks no TLS; is its port one without?".to_owned()
        }
        Error::AlertReceived(alert) => format!("the server refuses: {}", explain_alert(*alert)),
        cause => format!("the TLS handshake failed: {cause}"),
    }
}

fn explain_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it wants a client certificate".to_owned(),
        AlertDescription::CertificateExpired => "the client certificate has expired".to_owned(),
        AlertDescription::UnknownCA => {
            "it does not know the CA of the client certificate".to_owned()
        }
        alert => format!("{alert:?}"),
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector")
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}
