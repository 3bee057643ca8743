//! A server's certificates, kept up with their files.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::sync::watch;
use waypost_core::Timestamp;

use crate::error::TlsError;
use crate::files::show_time;
use crate::server::{ServerConfigs, ServerFiles, ServerIdentity};

/// What is in force, and the files that it came from. Who holds it looks now and then.
#[derive(Debug)]
pub struct ServerCertificates {
    files: ServerFiles,
    config_tx: watch::Sender<Arc<ServerConfig>>,
    subject: String,
    not_after: Timestamp,
    /// Of what is in force.
    digest: u128,
    refused: Option<Refused>,
}

/// What was wrong with the files when they were last looked at.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    /// Of what they had, if they could be read.
    digest: Option<u128>,
    why: String,
}

/// What a look at the files showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// They are as they were, good or bad.
    Unchanged,
    /// They are in force from now on, for connections made from now on.
    Renewed,
    /// They cannot be used, for this reason; what was in force stays.
    Refused(String),
}

impl ServerCertificates {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// They cannot be used; a certificate that has expired, or is not good yet, is as bad as none.
    pub async fn open(files: ServerFiles, now: Timestamp) -> Result<Self, TlsError> {
        let (read, digest) = read(files.clone(), now).await?;
        let identity = read?;
        Ok(Self {
            files,
            config_tx: watch::Sender::new(identity.config),
            subject: identity.subject,
            not_after: identity.not_after,
            digest,
            refused: None,
        })
    }

    /// The configuration in force, always the newest.
    #[must_use]
    pub fn configs(&self) -> ServerConfigs {
        self.config_tx.subscribe()
    }

    /// Whose certificate is in force.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// When the certificate in force ends, or the first of those that lead from it to a CA.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// The same for people: UTC, to the second.
    #[must_use]
    pub fn not_after_text(&self) -> String {
        show_time(self.not_after)
    }

    /// What is wrong with the files, as long as it is: what is in force is older than they are.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.refused.as_ref().map(|refused| &*refused.why)
    }

    /// Looks at the files, and takes over what they have if it is new and can be used.
    pub async fn look(&mut self, now: Timestamp) -> Look {
        let (read, digest) = match read(self.files.clone(), now).await {
            Ok((read, digest)) => (read, Some(digest)),
            Err(error) => (Err(error), None),
        };
        match read {
            Ok(_) if digest == Some(self.digest) && self.refused.is_none() => Look::Unchanged,
            Ok(identity) => {
                self.refused = None;
                self.digest = digest.unwrap_or(self.digest);
                self.subject = identity.subject;
                self.not_after = identity.not_after;
                self.config_tx.send_replace(identity.config);
                Look::Renewed
            }
            // What is in force has run out meanwhile: nothing is wrong with the files that was not
            // known, and nothing else to be had.
            Err(TlsError::Expired { .. }) if digest == Some(self.digest) => Look::Unchanged,
            Err(error) => {
                let why = error.to_string();
                let refused = Some(Refused { digest, why });
                if self.refused == refused {
                    return Look::Unchanged;
                }
                self.refused = refused;
                Look::Refused(error.to_string())
            }
        }
    }
}

/// What the files are good for, and the digest of what they have.
///
/// # Errors
/// One of them cannot be read.
async fn read(
    files: ServerFiles,
    now: Timestamp,
) -> Result<(Result<ServerIdentity, TlsError>, u128), TlsError> {
    let read = move || {
        let contents = files.read()?;
        Ok((contents.to_identity(now), contents.digest()))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(done) => done,
        Err(died) => Err(TlsError::Setup(rustls::Error::General(died.to_string()))),
    }
}
