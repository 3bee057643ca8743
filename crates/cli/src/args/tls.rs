//! The flags of TLS: of the port that is served, and of whom is connected to.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use waypost_tls::{ClientCertificates, ClientTls, ClientVerification, Identity, ServerFiles};

use crate::exit::Failure;

/// Of a port that is served.
#[derive(Debug, Args)]
pub(crate) struct ListenTlsArgs {
    /// The certificate of the gRPC port, PEM, with those that lead from it to a CA. It is read again when it
    /// changes. [default: none, the port is served without TLS]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of that certificate, PEM. [default: none, must be given with --tls-cert]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The CAs whose client certificates are let in, PEM. [default: none, clients are not asked for one]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is refused; a bad one is refused either way.
    #[arg(long, value_name = "WHETHER", default_value = "required")]
    pub(crate) tls_client_auth: ClientAuthArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientAuthArg {
    /// It is refused.
    Required,
    /// It is let in.
    Optional,
}

impl ListenTlsArgs {
    /// The files of the server; `None` for no TLS.
    pub(crate) fn files(&self) -> Result<Option<ServerFiles>, Failure> {
        let usage = |text: &str| Err(Failure::usage(text));
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Ok(Some(ServerFiles {
                identity: Identity {
                    certificate: certificate.clone(),
                    key: key.clone(),
                },
                clients: self.tls_client_ca.as_ref().map(|ca| ClientVerification {
                    ca: ca.clone(),
                    certificates: match self.tls_client_auth {
                        ClientAuthArg::Required => ClientCertificates::Required,
                        ClientAuthArg::Optional => ClientCertificates::Optional,
                    },
                }),
            })),
            (Some(_), None) => usage("--tls-cert needs --tls-key, the key of the certificate"),
            (None, Some(_)) => usage("--tls-key needs --tls-cert, the certificate of the key"),
            (None, None) if self.tls_client_ca.is_some() => usage(
                "--tls-client-ca needs --tls-cert and --tls-key: without TLS clients show nothing",
            ),
            (None, None) => Ok(None),
        }
    }

    /// The same as `/config_dump` shows it: names of files, no secrets.
    pub(crate) fn shown(&self) -> [(&'static str, String); 4] {
        let path = |path: &Option<PathBuf>| {
            path.as_ref()
                .map_or_else(String::new, |path| path.display().to_string())
        };
        let auth = match (&self.tls_client_ca, self.tls_client_auth) {
            (None, _) => "none",
            (Some(_), ClientAuthArg::Required) => "required",
            (Some(_), ClientAuthArg::Optional) => "optional",
        };
        [
            ("tls-cert", path(&self.tls_cert)),
            ("tls-key", path(&self.tls_key)),
            ("tls-client-ca", path(&self.tls_client_ca)),
            ("tls-client-auth", auth.to_owned()),
        ]
    }
}

/// Of whoever connects to an Observer's gRPC port by an address that begins with `https://`.
#[derive(Debug, Default, Args)]
pub(crate) struct ConnectTlsArgs {
    /// The CAs that the Observer's certificate may be of, PEM, for https:// addresses. [default: those
    /// installed on this machine]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate to show the Observer, PEM. [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of that certificate, PEM. [default: none, must be given with --tls-cert]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The name that the Observer's certificate must be for. [default: the host of the address]
    #[arg(long, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
}

impl ConnectTlsArgs {
    /// The certificate to show, and its key.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, Failure> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Ok(Some(Identity {
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            (None, None) => Ok(None),
            _ => Err(Failure::usage(
                "--tls-cert and --tls-key belong together: a certificate and its key",
            )),
        }
    }

    /// Whether any of them is.
    pub(crate) fn is_given(&self) -> bool {
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        files.into_iter().any(Option::is_some) || self.tls_server_name.is_some()
    }

    /// How to connect to `addresses`. Files are looked at now if one of them is to be used.
    pub(crate) fn client(&self, addresses: &[String]) -> Result<ClientTls, Failure> {
        let mut tls = ClientTls::default();
        if let Some(ca) = &self.tls_ca {
            tls = tls.ca(ca);
        }
        if let Some(Identity { certificate, key }) = self.identity()? {
            tls = tls.identity(certificate, key);
        }
        if let Some(name) = &self.tls_server_name {
            tls = tls.server_name(name);
        }
        if addresses.iter().any(|address| is_tls(address)) {
            tls.check().map_err(|e| Failure::usage(e.to_string()))?;
        }
        Ok(tls)
    }
}

/// Whether an address says that TLS is spoken there.
pub(crate) fn is_tls(address: &str) -> bool {
    address.starts_with("https://")
}
