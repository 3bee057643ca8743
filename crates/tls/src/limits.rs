//! Every bound of TLS files, with its reason.

use std::time::Duration;

/// Largest file of certificates or keys, bytes: the bundle of all public CAs has a quarter of a MiB.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Certificates in one file: all public CAs are less than two hundred.
pub const CERTIFICATES_MAX: usize = 4_096;

/// How often a server looks whether its files have changed. Certificates live for an hour at least
/// and are renewed well before their end.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How long a client's handshake may take, and the reading of its files.
pub const CLIENT_HANDSHAKE_MAX: Duration = Duration::from_secs(10);
