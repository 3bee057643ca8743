//! Listening sockets, with errors that say what to do.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// A socket could not be opened. The text names the address, what is wrong and the flag that chooses
/// another.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody else listens there.
    #[error(
        "cannot listen on {address}: the port is in use by another process; stop that one or choose another with {flag} HOST:PORT"
    )]
    InUse {
        /// The address asked for.
        address: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
    },
    /// The machine has no such address.
    #[error(
        "cannot listen on {address}: this machine has no such address; choose one that it has with {flag} HOST:PORT"
    )]
    NoSuchAddress {
        /// The address asked for.
        address: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
    },
    /// Ports below 1024 need a right that this process does not have.
    #[error(
        "cannot listen on {address}: not permitted for this user; choose a port above 1023 with {flag} HOST:PORT"
    )]
    NotPermitted {
        /// The address asked for.
        address: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
    },
    /// Anything else.
    #[error("cannot listen on {address} ({flag}): {source}")]
    Other {
        /// The address asked for.
        address: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Listens on `address` (port 0: one that is free). `flag` is the command line flag that the address
/// came from, for the error's text.
///
/// # Errors
/// See [`BindError`].
pub async fn bind_tcp(address: SocketAddr, flag: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address, flag },
            io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress { address, flag },
            io::ErrorKind::PermissionDenied => BindError::NotPermitted { address, flag },
            _ => BindError::Other {
                address,
                flag,
                source,
            },
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_says_which_and_how_to_choose_another() {
        let first = bind_tcp("127.0.0.1:0".parse().unwrap(), "--listen")
            .await
            .unwrap();
        let address = first.local_addr().unwrap();
        let error = bind_tcp(address, "--listen").await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        assert!(error.contains("in use"), "{error}");
        assert!(error.contains("--listen HOST:PORT"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_refused_with_the_flag() {
        let error = bind_tcp("192.0.2.1:0".parse().unwrap(), "--admin")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no such address"), "{error}");
        assert!(error.to_string().contains("--admin"), "{error}");
    }
}
