//! `waypost.v1.Definition` and [`Definition`].

use bytes::Bytes;
use prost::Message as _;
use waypost_core::definition::{
    ClusterDefinition, Definition, DefinitionKey, DefinitionStat, ServiceDefinition,
};
use waypost_core::limits::DEFINITION_BYTES_MAX;
use waypost_core::name::NameError;
use waypost_core::{ClusterName, Timestamp};

use crate::v1 as pb;

/// Why the bytes of a definition were not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// Not a protobuf message of this type.
    #[error("not a Definition message: {0}")]
    Decode(String),
    /// Larger than [`DEFINITION_BYTES_MAX`].
    #[error("{0} bytes; at most {DEFINITION_BYTES_MAX} are allowed")]
    TooLarge(usize),
    /// The service's cluster is not a valid name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name in the value is not the key's.
    #[error("the value names {0:?}, the key does not")]
    OtherName(String),
}

/// Decodes the value of a config record whose key is `key`.
///
/// # Errors
/// See [`DefinitionError`].
pub fn decode(key: &DefinitionKey, value: &[u8]) -> Result<Definition, DefinitionError> {
    if value.len() > DEFINITION_BYTES_MAX {
        return Err(DefinitionError::TooLarge(value.len()));
    }
    let m = pb::Definition::decode(value).map_err(|e| DefinitionError::Decode(e.to_string()))?;
    let stat = DefinitionStat {
        created: Timestamp(m.created_ms),
        modified: Timestamp(m.modified_ms),
        revision: m.revision,
    };
    match key {
        DefinitionKey::Cluster(name) if name.as_str() == m.name => {
            Ok(Definition::Cluster(ClusterDefinition {
                name: name.clone(),
                document: m.document,
                stat,
                author: m.author.into(),
            }))
        }
        DefinitionKey::Service(name) if name.as_str() == m.name => {
            Ok(Definition::Service(ServiceDefinition {
                name: name.clone(),
                cluster: ClusterName::parse(&m.cluster)?,
                path: m.path,
                document: m.document,
                stat,
                author: m.author.into(),
            }))
        }
        _ => Err(DefinitionError::OtherName(m.name)),
    }
}

/// Encodes the value of a config record.
#[must_use]
pub fn encode(definition: &Definition) -> Bytes {
    let message = match definition {
        Definition::Cluster(c) => pb::Definition {
            name: c.name.to_string(),
            author: c.author.to_string(),
            ..mk_message(&c.document, c.stat)
        },
        Definition::Service(s) => pb::Definition {
            name: s.name.to_string(),
            cluster: s.cluster.to_string(),
            path: s.path.clone(),
            author: s.author.to_string(),
            ..mk_message(&s.document, s.stat)
        },
    };
    message.encode_to_vec().into()
}

fn mk_message(document: &Bytes, stat: DefinitionStat) -> pb::Definition {
    pb::Definition {
        document: document.clone(),
        created_ms: stat.created.0,
        modified_ms: stat.modified.0,
        revision: stat.revision,
        ..pb::Definition::default()
    }
}
