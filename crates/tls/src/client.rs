//! Whom a client believes, and what it shows.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use crate::error::TlsError;
use crate::files::{Contents, Identity, certified, digest};
use crate::{ALPN_HTTP2, provider};

/// How a client connects by TLS. The default believes the CAs that are installed on the machine and
/// shows nothing. Files are read again for each connection, so that what was renewed is used, and what
/// cannot be used (half of a file that is being written) leaves in force what was read before; clones
/// share it.
#[derive(Clone, Default)]
pub struct ClientTls {
    ca: Option<PathBuf>,
    identity: Option<Identity>,
    server_name: Option<String>,
    last: Arc<Mutex<Option<Last>>>,
}

/// What was made of the files when they were last read.
struct Last {
    digest: u128,
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Believes the CAs of this PEM file, and no others.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Shows this certificate to servers that ask for one.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some(Identity {
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// Expects the server's certificate to be for this name (a DNS name or an IP address) instead of
    /// the one that is connected to.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files once, to find out early what is wrong with them. Blocks.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn check(&self) -> Result<(), TlsError> {
        self.read().map(drop)
    }

    pub(crate) fn find_server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The configuration for a connection made now: what the files give, else what they gave before.
    /// Blocks.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        self.read().or_else(|error| {
            let last = self.last.lock();
            let before = last.as_ref().map(|last| Arc::clone(&last.config));
            before.inspect(|_| {
                tracing::warn!(%error, "TLS: the files cannot be used; what was read before is");
            }).ok_or(error)
        })
    }

    fn read(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let read = |path: &PathBuf| Contents::read(path);
        let ca = self.ca.as_ref().map(read).transpose()?;
        let identity = match &self.identity {
            Some(identity) => Some((read(&identity.certificate)?, read(&identity.key)?)),
            None => None,
        };
        let files = ca.iter().chain(identity.iter().flat_map(|(c, k)| [c, k]));
        let digest = digest(files);
        if let Some(last) = self.last.lock().as_ref().filter(|l| l.digest == digest) {
            return Ok(Arc::clone(&last.config));
        }
        let roots = match &ca {
            Some(ca) => ca.roots()?,
            None => system_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots);
        let mut config = match &identity {
            Some((certificate, key)) => {
                let certified = certified(certificate, certificate.certificates()?, key)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        let config = Arc::new(config);
        *self.last.lock() = Some(Last {
            digest,
            config: Arc::clone(&config),
        });
        Ok(config)
    }
}

/// The CAs that are installed on this machine.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One that cannot be read is of no use; the others are.
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added == 0 {
        let why = loaded.errors.first();
        let why = why.map_or_else(String::new, |error| format!(": {error}"));
        return Err(TlsError::NoSystemRoots { why });
    }
    Ok(Arc::new(roots))
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("ca", &self.ca)
            .field("identity", &self.identity)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use waypost_testkit::certificates::Authority;

    use super::*;

    #[test]
    fn half_of_a_file_leaves_in_force_what_was_read_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let ca = Authority::new("ca").unwrap();
        let tls = ClientTls::default().ca(&file);
        assert!(tls.config().is_err(), "nothing was read before");
        ca.write(&file).unwrap();
        let before = tls.config().unwrap();

        let whole = ca.pem();
        std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        assert!(Arc::ptr_eq(&tls.clone().config().unwrap(), &before));
        assert!(
            tls.check().is_err(),
            "what is wrong is said where it is asked for"
        );

        Authority::new("next").unwrap().write(&file).unwrap();
        assert!(!Arc::ptr_eq(&tls.config().unwrap(), &before));
    }
}
