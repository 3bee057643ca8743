//! The files of certificates that an Observer and its clients read, and the flags that name them.

use std::path::{Path, PathBuf};

use waypost_announcer::ClientTls;
use waypost_testkit::certificates::{Authority, Validity};

/// Who shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nobody: there is no TLS.
    Plain,
    /// The Observer.
    Server,
    /// The Observer and its clients.
    Mutual,
}

/// One authority, what it signed for the Observer and for clients, and the files of all of it.
pub(super) struct Pki {
    authority: Authority,
    folder: PathBuf,
}

impl Pki {
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let pki = Self {
            authority: Authority::new("waypost e2e")?,
            folder: folder.to_owned(),
        };
        pki.authority.write(&pki.folder.join("ca.pem"))?;
        pki.issue()?;
        Ok(pki)
    }

    /// Signs new certificates in the place of the old ones.
    pub(super) fn issue(&self) -> anyhow::Result<()> {
        for name in ["observer", "client"] {
            self.authority.issue(&self.folder, name, Validity::Now)?;
        }
        Ok(())
    }

    /// Puts another authority, and what it signed, in the place of everything: who still goes by what it
    /// read before believes nobody and is believed by nobody.
    pub(super) fn change_authority(&mut self) -> anyhow::Result<()> {
        *self = Self::new(&self.folder)?;
        Ok(())
    }

    /// The flags of an Observer.
    pub(super) fn server_flags(&self, mode: Mode) -> Vec<String> {
        let own = self.identity_flags("observer");
        match mode {
            Mode::Plain => Vec::new(),
            Mode::Server => own.into(),
            Mode::Mutual => {
                let clients = ["--tls-client-ca".to_owned(), self.file("ca.pem")];
                own.into_iter().chain(clients).collect()
            }
        }
    }

    /// The flags by which `waypost bootstrap` tells a client of them.
    pub(super) fn client_flags(&self, mode: Mode) -> Vec<String> {
        let ca = ["--tls-ca".to_owned(), self.file("ca.pem")];
        match mode {
            Mode::Plain => Vec::new(),
            Mode::Server => ca.into(),
            Mode::Mutual => ca
                .into_iter()
                .chain(self.identity_flags("client"))
                .collect(),
        }
    }

    /// What the libraries are told of them.
    pub(super) fn client(&self, mode: Mode) -> ClientTls {
        let tls = ClientTls::default().ca(self.file("ca.pem"));
        match mode {
            Mode::Plain => ClientTls::default(),
            Mode::Server => tls,
            Mode::Mutual => tls.identity(self.file("client.pem"), self.file("client.key")),
        }
    }

    fn identity_flags(&self, name: &str) -> [String; 4] {
        let [certificate, key] = ["pem", "key"].map(|kind| self.file(&format!("{name}.{kind}")));
        [
            "--tls-cert".to_owned(),
            certificate,
            "--tls-key".to_owned(),
            key,
        ]
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}
