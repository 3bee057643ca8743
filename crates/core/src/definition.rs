//! Service and cluster definitions: D2 properties in D2's own spelling, kept as bytes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::name::{ApplicationName, ClusterName, NameError, ServiceName, is_symlink};
use crate::time::Timestamp;

/// What a record of the config topic is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinitionKey {
    /// The definition of a cluster.
    Cluster(ClusterName),
    /// The definition of a service.
    Service(ServiceName),
    /// The services that an application calls.
    Callees(ApplicationName),
}

impl DefinitionKey {
    /// The record key: `cluster`, `service` or `callees`, one zero byte, the name.
    #[must_use]
    pub fn to_record_key(&self) -> Bytes {
        [self.kind().as_bytes(), b"\0", self.name().as_bytes()]
            .concat()
            .into()
    }

    /// The word before the name in a record key, which is the closed label of metrics and JSON too.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "cluster",
            Self::Service(_) => "service",
            Self::Callees(_) => "callees",
        }
    }

    /// The name of what is defined; of callees, that of the application.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Cluster(name) => name.as_str(),
            Self::Service(name) => name.as_str(),
            Self::Callees(name) => name.as_str(),
        }
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
            "callees" => ApplicationName::parse(name).map(|n| Some(Self::Callees(n))),
            _ => Ok(None),
        }
    }
}

impl fmt::Display for DefinitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) if is_symlink(name.as_str()) => write!(f, "symlink {name}"),
            Self::Cluster(name) => write!(f, "cluster {name}"),
            Self::Service(name) => write!(f, "service {name}"),
            Self::Callees(name) => write!(f, "callees of {name}"),
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
    /// An application's.
    Callees(CalleesDefinition),
}

impl Definition {
    /// When it was written, how often.
    #[must_use]
    pub fn stat(&self) -> DefinitionStat {
        match self {
            Self::Cluster(c) => c.stat,
            Self::Service(s) => s.stat,
            Self::Callees(c) => c.stat,
        }
    }

    /// Who wrote it last; empty where nobody said so.
    #[must_use]
    pub fn author(&self) -> &str {
        match self {
            Self::Cluster(c) => &c.author,
            Self::Service(s) => &s.author,
            Self::Callees(c) => &c.author,
        }
    }
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

/// The services that an application calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalleesDefinition {
    /// The application.
    pub application: ApplicationName,
    /// What it calls, each once; none where it calls nobody.
    pub services: Arc<[ServiceName]>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_kind_round_trip() {
        let name = ClusterName::parse("$a").unwrap();
        let keys = [
            (DefinitionKey::Cluster(name), "cluster\0$a", "symlink $a"),
            (
                DefinitionKey::Service(ServiceName::parse("s").unwrap()),
                "service\0s",
                "service s",
            ),
            (
                DefinitionKey::Callees(ApplicationName::parse("app").unwrap()),
                "callees\0app",
                "callees of app",
            ),
        ];
        for (key, record_key, shown) in keys {
            assert_eq!(key.to_record_key(), record_key);
            assert_eq!(key.to_string(), shown);
            let read = DefinitionKey::from_record_key(record_key.as_bytes());
            assert_eq!(read, Ok(Some(key)));
        }
        assert_eq!(DefinitionKey::from_record_key(b"later\0x"), Ok(None));
        assert!(DefinitionKey::from_record_key(b"callees\0a/b").is_err());
    }

    #[test]
    fn a_symlink_leads_to_what_stands_after_the_last_slash() {
        for (name, document, target) in [
            ("$a", "/d2/clusters/a-east", Some("a-east")),
            ("$a", "a-east", Some("a-east")),
            ("a", "/d2/clusters/a-east", None),
            ("a$b", "/d2/clusters/a-east", None),
        ] {
            let definition = ClusterDefinition {
                name: ClusterName::parse(name).unwrap(),
                document: document.into(),
                stat: DefinitionStat::default(),
                author: "".into(),
            };
            assert_eq!(definition.find_symlink_target(), target, "{name}");
        }
    }
}
