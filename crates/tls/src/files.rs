//! Certificates and keys of PEM files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use waypost_core::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::time::Time;

use crate::error::TlsError;
use crate::limits::{CERTIFICATES_MAX, FILE_BYTES_MAX};
use crate::provider;

/// The files of a certificate, with what leads from it to a CA, and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM: the certificate first, then those of the CAs between.
    pub certificate: PathBuf,
    /// PEM: its private key (PKCS #8, PKCS #1 or SEC 1), without a pass phrase.
    pub key: PathBuf,
}

/// A file as it was at one moment.
pub(crate) struct Contents {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// What people are told of a file of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Of the first.
    pub(crate) subject: String,
    /// Of the one that ends first.
    pub(crate) not_after: Timestamp,
}

impl Contents {
    /// Reads a file. Blocks.
    pub(crate) fn read(path: &Path) -> Result<Self, TlsError> {
        let failed = |why| TlsError::Read {
            path: path.to_owned(),
            why,
        };
        let mut bytes = Vec::new();
        // Opening a pipe would wait for somebody to write to it, and it could be read only once.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(TlsError::NotAFile {
                path: path.to_owned(),
            });
        }
        let file = File::open(path).map_err(failed)?;
        let mut file = file.take(FILE_BYTES_MAX + 1);
        file.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(TlsError::TooLarge {
                path: path.to_owned(),
                bytes_max: FILE_BYTES_MAX,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// All certificates, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates = CertificateDer::pem_slice_iter(&self.bytes);
        let certificates: Vec<_> = certificates
            .take(CERTIFICATES_MAX)
            .collect::<Result<_, _>>()
            .map_err(|why| self.not_pem(&why))?;
        if certificates.is_empty() {
            return Err(self.missing("certificate", "CERTIFICATE"));
        }
        Ok(certificates)
    }

    /// All certificates as those of CAs that are believed.
    pub(crate) fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added = roots.add(certificate);
            added.map_err(|why| self.malformed(format!("no certificate of a CA: {why}")))?;
        }
        Ok(Arc::new(roots))
    }

    /// Whose certificates these are, and until when; each must be good at `now`.
    pub(crate) fn summary(
        &self,
        certificates: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<Summary, TlsError> {
        let mut summary: Option<Summary> = None;
        for der in certificates {
            let read = Certificate::from_der(der)
                .map_err(|why| self.malformed(format!("no X.509 certificate: {why}")))?;
            let body = &read.tbs_certificate;
            let not_before = to_timestamp(body.validity.not_before);
            let not_after = to_timestamp(body.validity.not_after);
            if now < not_before {
                return Err(TlsError::NotYetGood {
                    path: self.path.clone(),
                    subject: body.subject.to_string(),
                    not_before: show_time(not_before),
                });
            }
            if not_after < now {
                return Err(TlsError::Expired {
                    path: self.path.clone(),
                    subject: body.subject.to_string(),
                    not_after: show_time(not_after),
                });
            }
            let known = summary.get_or_insert_with(|| Summary {
                subject: body.subject.to_string(),
                not_after,
            });
            known.not_after = known.not_after.min(not_after);
        }
        summary.ok_or_else(|| self.missing("certificate", "CERTIFICATE"))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        match PrivateKeyDer::from_pem_slice(&self.bytes) {
            Ok(key) => Ok(key),
            Err(PemError::NoItemsFound) => {
                Err(self.missing("private key without a pass phrase", "PRIVATE KEY"))
            }
            Err(why) => Err(self.not_pem(&why)),
        }
    }

    fn not_pem(&self, why: &PemError) -> TlsError {
        self.malformed(match why {
            PemError::MissingSectionEnd { end_marker } => format!(
                "cut off: no -----END {}----- in it",
                String::from_utf8_lossy(end_marker)
            ),
            why => format!("not PEM: {why}"),
        })
    }

    fn malformed(&self, why: String) -> TlsError {
        TlsError::Malformed {
            path: self.path.clone(),
            why,
        }
    }

    fn missing(&self, what: &'static str, begin: &'static str) -> TlsError {
        TlsError::Missing {
            path: self.path.clone(),
            what,
            begin,
        }
    }
}

/// A certificate that is ready for use, if the key is its own.
pub(crate) fn certified(
    certificate: &Contents,
    chain: Vec<CertificateDer<'static>>,
    key: &Contents,
) -> Result<CertifiedKey, TlsError> {
    let certified = CertifiedKey::from_der(chain, key.key()?, &provider());
    certified.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::KeyMismatch {
            key: key.path.clone(),
            certificate: certificate.path.clone(),
        },
        Error::InvalidCertificate(_) => certificate.malformed(error.to_string()),
        error => key.malformed(error.to_string()),
    })
}

fn to_timestamp(time: Time) -> Timestamp {
    let seconds = time.to_unix_duration().as_secs();
    Timestamp(i64::try_from(seconds).unwrap_or(i64::MAX / 1000) * 1000)
}

/// Tells contents of files apart.
pub(crate) fn digest<'a>(files: impl Iterator<Item = &'a Contents>) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for file in files {
        hasher.update(&(file.bytes.len() as u64).to_le_bytes());
        hasher.update(&file.bytes);
    }
    hasher.digest128()
}

/// A time for people: UTC, to the second.
pub(crate) fn show_time(time: Timestamp) -> String {
    let shown = jiff::Timestamp::from_second(time.0.div_euclid(1000));
    shown.map_or_else(|_| format!("{} ms", time.0), |time| time.to_string())
}
