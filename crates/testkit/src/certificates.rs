//! Certificates for one test: a CA, and what it signs, as PEM files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A CA whose certificates only those believe who were told of it.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key in files.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

/// For how long a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// For as long as any test runs.
    Now,
    /// It ended long ago.
    Over,
    /// It begins when no test runs any more.
    ToCome,
}

impl Authority {
    /// A new CA.
    ///
    /// # Errors
    /// Never, unless the machine has no randomness.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// Its own certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes its own certificate to `file`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> anyhow::Result<PathBuf> {
        replace(file, &self.pem())?;
        Ok(file.to_owned())
    }

    /// Signs a certificate of its own key for `localhost` and 127.0.0.1, good for servers and clients, and
    /// writes it to `NAME.pem` and `NAME.key` in `folder`, in place of what is there.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn issue(
        &self,
        folder: &Path,
        name: &str,
        validity: Validity,
    ) -> anyhow::Result<CertificateFiles> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        let loopback = rcgen::SanType::IpAddress(IpAddr::from([127, 0, 0, 1]));
        params.subject_alt_names.push(loopback);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let (first_year, last_year) = match validity {
            Validity::Now => (2020, 4000),
            Validity::Over => (2020, 2021),
            Validity::ToCome => (3000, 4000),
        };
        params.not_before = date_time_ymd(first_year, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let files = CertificateFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        replace(&files.key, &key.serialize_pem())?;
        replace(&files.certificate, &certificate.pem())?;
        Ok(files)
    }
}

/// Puts `text` in the place of a file at once, as those who renew certificates do.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, file))
        .with_context(|| format!("writing {}", file.display()))
}
