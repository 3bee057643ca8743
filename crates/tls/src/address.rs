//! Where a server is, and whether TLS is spoken there.

use std::fmt;

use tonic::transport::{Channel, Endpoint};

use crate::client::ClientTls;
use crate::connector::TlsConnector;

/// `HOST:PORT` without TLS, `https://HOST:PORT` with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    authority: String,
    is_tls: bool,
}

/// What is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad address {0:?}; expected HOST:PORT or https://HOST:PORT, for example 127.0.0.1:18000")]
pub struct AddressError(pub String);

impl ServerAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// It is not of this form; it must name a port.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let bad = || AddressError(text.to_owned());
        let (authority, is_tls) = match text.split_once("://") {
            None => (text, false),
            Some(("https", authority)) => (authority, true),
            Some(_) => return Err(bad()),
        };
        let parsed: http::uri::Authority = authority.parse().map_err(|_| bad())?;
        if parsed.port_u16().is_none() || parsed.host().is_empty() || authority.contains('@') {
            return Err(bad());
        }
        Ok(Self {
            authority: authority.to_owned(),
            is_tls,
        })
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether TLS is spoken there.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// An endpoint of tonic's, with tonic's settings.
    ///
    /// # Errors
    /// Never for an address that was read; tonic reads it again.
    pub fn to_endpoint(&self) -> Result<Endpoint, AddressError> {
        let text = self.to_string();
        Endpoint::from_shared(text.clone()).map_err(|_| AddressError(text))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// A channel that connects when it is first used, and again when it must: by `tls` if the address of
/// the endpoint says so (see [`ServerAddress::to_endpoint`]).
#[must_use]
pub fn connect_lazy(endpoint: &Endpoint, tls: &ClientTls) -> Channel {
    if endpoint.uri().scheme_str() == Some("https") {
        endpoint.connect_with_connector_lazy(TlsConnector::new(tls.clone()))
    } else {
        endpoint.connect_lazy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_port_and_says_whether_tls_is_spoken_there() {
        for (text, shown) in [
            ("h:1", "http://h:1"),
            ("https://h:1", "https://h:1"),
            ("https://[::1]:18000", "https://[::1]:18000"),
        ] {
            assert_eq!(ServerAddress::parse(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "h",
            ":1",
            "u@h:1",
            "h:99999",
            "https://h",
            "http://h:1",
            "https://h:1/x",
        ] {
            assert_eq!(ServerAddress::parse(bad), Err(AddressError(bad.to_owned())));
        }
    }
}
