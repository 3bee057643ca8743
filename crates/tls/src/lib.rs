//! TLS from files: what a server shows and whom it lets in ([`ServerFiles`], [`ServerCertificates`]),
//! whom a client believes and what it shows ([`ClientTls`], [`connect_lazy`]).
//!
//! Both sides read their files again while they run, so that certificates may be as short-lived as
//! anybody likes: a server by looking at them now and then, a client whenever it connects. What is
//! read but cannot be used leaves in force what was read before.
//!
//! TLS 1.2 and 1.3 by rustls, whose cryptography is ring's; HTTP/2 is agreed on by ALPN. Files are
//! PEM. Nothing here knows what is served or called.

mod address;
mod certificates;
mod client;
mod connector;
mod error;
mod files;
pub mod limits;
mod server;

pub use address::{AddressError, ServerAddress, connect_lazy};
pub use certificates::{Look, ServerCertificates};
pub use client::ClientTls;
pub use connector::TlsConnector;
pub use error::TlsError;
pub use files::Identity;
pub use server::{ClientCertificates, ClientVerification, ServerConfigs, ServerFiles};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The cryptography of both sides. Named at each use, so that no choice of another part of the
/// process counts.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The protocol that both sides agree on (ALPN; RFC 9113 section 3.2).
const ALPN_HTTP2: &[u8] = b"h2";
