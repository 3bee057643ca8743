//! What can be wrong with files, in one line each.

use std::io;
use std::path::PathBuf;

/// Why TLS cannot be had from these files. The text names the file and what is expected.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// A folder, a pipe or a device: what is read again and again is a file.
    #[error("{} is not a file", .path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A file is larger than any that is meant.
    #[error("{}: larger than {bytes_max} bytes, so it is no file of certificates", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound.
        bytes_max: u64,
    },
    /// A file has nothing of what it should have.
    #[error("{}: no {what} in it; expected PEM text, -----BEGIN {begin}-----", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is looked for, for people.
        what: &'static str,
        /// What it begins with.
        begin: &'static str,
    },
    /// What a file has cannot be read.
    #[error("{}: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A certificate's time is over.
    #[error("{}: the certificate of {subject} expired at {not_after}", .path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// Whose certificate.
        subject: String,
        /// When, in UTC.
        not_after: String,
    },
    /// A certificate's time has not come: no client would take it.
    #[error("{}: the certificate of {subject} is good only from {not_before} on; is a clock wrong?", .path.display())]
    NotYetGood {
        /// The file.
        path: PathBuf,
        /// Whose certificate.
        subject: String,
        /// From when on, in UTC.
        not_before: String,
    },
    /// The key of another certificate.
    #[error("{} is not the key of the certificate in {}", .key.display(), .certificate.display())]
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// This machine has no CA certificates where they usually are.
    #[error("no CA certificates are installed on this machine{why}; name a file of them")]
    NoSystemRoots {
        /// What was said about it, after a colon; empty if nothing.
        why: String,
    },
    /// A name that no certificate can be for.
    #[error("{0:?} is no name that a certificate can be for: expected a DNS name or an IP address")]
    BadServerName(String),
    /// The TLS library does not take it.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}
