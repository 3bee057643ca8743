//! Connections that begin with a TLS handshake, and how those who come without one are told.
//!
//! A client that connects and says nothing costs its socket: a handshake has memory and a permit only once
//! the first byte is there. Only what was written after the handshake is HTTP/2's.

use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Chain, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::events::{Event, EventHandler, HandshakeFailure};
use crate::limits;
use crate::server::refusal;
use crate::status::{Code, Status};

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The content type of the first TLS record (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// What a caller of HTTP/1.1 is told where TLS is spoken.
const TELL_HTTP1: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    this port speaks HTTP/2 over TLS; connect with TLS\n";

/// The halves of a TLS connection: what is read begins with the HTTP/2 preface.
pub(crate) type SecureHalves = (Chain<Cursor<Vec<u8>>, ReadHalf<Secure>>, WriteHalf<Secure>);

type Secure = TlsStream<TcpStream>;

/// What a peer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// The whole preface of HTTP/2, without TLS.
    Preface,
    /// The beginning of a TLS handshake.
    Tls,
    /// Something else.
    Else,
    /// Nothing: it has closed its side before.
    Nothing,
}

/// Waits until it is clear what a peer speaks. Looks only: nothing is taken from the socket.
pub(crate) async fn first_words(socket: &TcpStream) -> Spoken {
    let mut seen = [0; PREFACE.len()];
    loop {
        match socket.peek(&mut seen).await {
            Ok(0) | Err(_) => return Spoken::Nothing,
            Ok(_) if seen[0] == TLS_HANDSHAKE => return Spoken::Tls,
            Ok(count) if !PREFACE.starts_with(&seen[..count]) => return Spoken::Else,
            Ok(count) if count == PREFACE.len() => return Spoken::Preface,
            // A part of it: the socket stays readable, so only time tells whether more has come.
            Ok(_) => tokio::time::sleep(limits::PREFACE_POLL).await,
        }
    }
}

/// The handshakes of one listener.
pub(crate) struct Handshakes {
    configs: watch::Receiver<Arc<ServerConfig>>,
    permits: Semaphore,
}

impl Handshakes {
    pub(crate) fn new(configs: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self {
            configs,
            permits: Semaphore::new(limits::HANDSHAKES_MAX),
        }
    }

    /// Shakes hands by the configuration in force, and waits for the preface. `None` if nothing came of it: the
    /// peer was told why as far as it can be, and `events` were.
    pub(crate) async fn shake(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        events: &dyn EventHandler,
    ) -> Option<SecureHalves> {
        let report = |reason, detail: &str| {
            events.on_event(&Event::HandshakeFailed {
                peer,
                reason,
                detail,
            });
        };
        let deadline = Instant::now() + limits::HANDSHAKE_TIMEOUT;
        let too_slow = || report(HandshakeFailure::TooSlow, "it did not finish in time");
        match timeout_at(deadline, first_words(&socket)).await {
            Ok(Spoken::Tls) => {}
            // Who asks whether the port is open says nothing.
            Ok(Spoken::Nothing) => return None,
            Ok(spoken) => {
                let detail = "it speaks without TLS; this port takes TLS only";
                report(HandshakeFailure::Plaintext, detail);
                tell(socket, spoken).await;
                return None;
            }
            Err(_) => {
                too_slow();
                return None;
            }
        }
        match timeout_at(deadline, self.accept(socket)).await {
            Ok(Ok(stream)) => read_preface(stream).await,
            Ok(Err(error)) => {
                let (reason, detail) = explain(&error);
                report(reason, &detail);
                None
            }
            Err(_) => {
                too_slow();
                None
            }
        }
    }

    async fn accept(&self, socket: TcpStream) -> io::Result<Secure> {
        // Never closed.
        let _permit = self.permits.acquire().await;
        let config = Arc::clone(&self.configs.borrow());
        TlsAcceptor::from(config).accept(socket).await
    }
}

/// Ends a TLS connection so that the peer knows that nothing was cut off.
pub(crate) async fn say_goodbye(mut socket: WriteHalf<Secure>) {
    let _ = timeout(limits::CLOSE_GRACE, socket.shutdown()).await;
}

/// Waits for the preface, for which hyper has no deadline.
async fn read_preface(stream: Secure) -> Option<SecureHalves> {
    let (mut read, write) = tokio::io::split(stream);
    let mut preface = vec![0; PREFACE.len()];
    let reading = timeout(limits::PREFACE_TIMEOUT, read.read_exact(&mut preface));
    // What is none is hyper's to refuse.
    reading.await.ok()?.ok()?;
    Some((Cursor::new(preface).chain(read), write))
}

/// Tells a peer in its own words that TLS is spoken here.
async fn tell(mut socket: TcpStream, spoken: Spoken) {
    let telling = async {
        match spoken {
            Spoken::Preface => tell_http2(socket).await,
            _ => {
                let _ = socket.write_all(TELL_HTTP1).await;
                let _ = socket.shutdown().await;
            }
        }
    };
    let _ = timeout(limits::TELL_TIMEOUT, telling).await;
}

async fn tell_http2(socket: TcpStream) {
    let status = Status::new(
        Code::Unavailable,
        "this port takes TLS only; connect with TLS (https://)",
    );
    let service = service_fn(move |_: http::Request<Incoming>| {
        std::future::ready(Ok::<_, std::convert::Infallible>(refusal(&status)))
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::TOLD_CALLS_MAX)
        .serve_connection(TokioIo::new(socket), service);
    let _ = served.await;
}

/// Why a handshake failed, and what to look at.
fn explain(error: &io::Error) -> (HandshakeFailure, String) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(Error::NoCertificatesPresented) => (
            HandshakeFailure::ClientCertificate,
            "it shows no client certificate, and this port wants one".to_owned(),
        ),
        Some(Error::InvalidCertificate(why)) => (
            HandshakeFailure::ClientCertificate,
            format!("its client certificate {}", explain_certificate(why)),
        ),
        Some(Error::AlertReceived(alert)) => (
            HandshakeFailure::RefusedByPeer,
            format!("it refuses: {}", explain_alert(*alert)),
        ),
        Some(Error::PeerIncompatible(why)) => (
            HandshakeFailure::Protocol,
            format!("it and this server have no TLS in common (1.2 or 1.3 is needed): {why:?}"),
        ),
        Some(Error::NoApplicationProtocol) => (
            HandshakeFailure::Protocol,
            "it does not offer HTTP/2 (ALPN h2)".to_owned(),
        ),
        Some(cause) => (HandshakeFailure::Protocol, cause.to_string()),
        None => (
            HandshakeFailure::RefusedByPeer,
            format!("it broke off: {error}"),
        ),
    }
}

fn explain_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            format!("expired {} ago", show_age(Duration::from_secs(ago)))
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not good yet; is a clock wrong?".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "is signed by none of the CAs that this port believes".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not one for clients (extended key usage clientAuth)".to_owned()
        }
        other => format!("is not good: {other}"),
    }
}

fn explain_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => {
            "it does not know the CA of this server's certificate".to_owned()
        }
        AlertDescription::CertificateExpired => "this server's certificate has expired".to_owned(),
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            format!("it does not take this server's certificate ({alert:?})")
        }
        alert => format!("{alert:?}"),
    }
}

fn show_age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
