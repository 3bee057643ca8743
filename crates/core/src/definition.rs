//! Service and cluster definitions: D2 properties in D2's own spelling, kept as bytes.

use std::sync::Arc;

use bytes::Bytes;

use crate::name::{ClusterName, NameError, ServiceName, is_symlink};
use crate::time::Timestamp;

/// What a record of the config topic is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinitionKey {
    /// The definition of a cluster.
    Cluster(ClusterName),
    /// The definition of a service.
    Service(ServiceName),
}

impl DefinitionKey {
    /// The record key: `cluster` or `service`, one zero byte, the name.
    #[must_use]
    pub fn to_record_key(&self) -> Bytes {
        let (kind, name) = match self {
            Self::Cluster(name) => ("cluster", name.as_str()),
            Self::Service(name) => ("service", name.as_str()),
        };
        [kind.as_bytes(), b"\0", name.as_bytes()].concat().into()
    }

    /// Reads a record key of the config topic; `None` for a kind this release does not know.
    ///
    /// # Errors
    /// Not UTF-8, no zero byte, or a name that is not valid.
    pub fn from_record_key(key: &[u8]) -> Result<Option<Self>, NameError> {
        let bad = || NameError::Empty {
            what: "definition key",
        };
        let text = std::str::from_utf8(key).map_err(|_| bad())?;
        let (kind, name) = text.split_once('\0').ok_or_else(bad)?;
        match kind {
            "cluster" => ClusterName::parse(name).map(|n| Some(Self::Cluster(n))),
            "service" => ServiceName::parse(name).map(|n| Some(Self::Service(n))),
            _ => Ok(None),
        }
    }
}

/// A definition as the config topic holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// A cluster's.
    Cluster(ClusterDefinition),
    /// A service's.
    Service(ServiceDefinition),
}

/// The definition of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDefinition {
    /// Its name.
    pub name: ClusterName,
    /// The whole D2 `ClusterProperties` JSON document, served byte for byte.
    pub document: Bytes,
    /// When it was written, how often.
    pub stat: DefinitionStat,
    /// Who wrote it last; empty where nobody said so. Not served to clients.
    pub author: Arc<str>,
}

impl ClusterDefinition {
    /// The cluster that a symlink leads to: what stands after the last slash of its document, which is all
    /// that D2 clients read of it (rest.li `XdsToD2PropertiesAdaptor`). `None` for what is no symlink.
    #[must_use]
    pub fn find_symlink_target(&self) -> Option<&str> {
        if !is_symlink(self.name.as_str()) {
            return None;
        }
        let path = std::str::from_utf8(&self.document).ok()?;
        Some(path.rsplit_once('/').map_or(path, |(_, name)| name))
    }
}

/// The definition of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceDefinition {
    /// Its name.
    pub name: ServiceName,
    /// The cluster that serves it.
    pub cluster: ClusterName,
    /// The path that D2 appends to an instance's URI.
    pub path: String,
    /// The whole D2 `ServiceProperties` JSON document, served byte for byte.
    pub document: Bytes,
    /// When it was written, how often.
    pub stat: DefinitionStat,
    /// Who wrote it last; empty where nobody said so. Not served to clients.
    pub author: Arc<str>,
}

/// The history of a definition: what a D2 `Stat` is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionStat {
    /// When the definition was first written.
    pub created: Timestamp,
    /// When it was last changed.
    pub modified: Timestamp,
    /// How many times it was changed since it was created.
    pub revision: u32,
}
