//! `waypost.v1.Definition` and [`Definition`].

use bytes::Bytes;
use prost::Message as _;
use waypost_core::definition::{
    CalleesDefinition, ClusterDefinition, Definition, DefinitionKey, DefinitionStat,
    ServiceDefinition,
};
use waypost_core::limits::{CALLEES_MAX, DEFINITION_BYTES_MAX};
use waypost_core::name::NameError;
use waypost_core::{ClusterName, ServiceName, Timestamp};

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
    /// The service's cluster, or a service that is called, is not a valid name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// More callees than [`CALLEES_MAX`].
    #[error("{0} services; at most {CALLEES_MAX} are allowed")]
    TooManyCallees(usize),
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
        DefinitionKey::Callees(application) if application.as_str() == m.name => {
            if m.services.len() > CALLEES_MAX {
                return Err(DefinitionError::TooManyCallees(m.services.len()));
            }
            let services = m.services.iter().map(|name| ServiceName::parse(name));
            Ok(Definition::Callees(CalleesDefinition {
                application: application.clone(),
                services: services.collect::<Result<_, _>>()?,
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
        Definition::Callees(c) => pb::Definition {
            name: c.application.to_string(),
            services: c.services.iter().map(ToString::to_string).collect(),
            author: c.author.to_string(),
            ..mk_message(&Bytes::new(), c.stat)
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

#[cfg(test)]
mod tests {
    use waypost_core::ApplicationName;

    use super::*;

    #[test]
    fn callees_round_trip_and_bad_ones_say_what_is_wrong() {
        let application = ApplicationName::parse("app").unwrap();
        let key = DefinitionKey::Callees(application.clone());
        let callees = Definition::Callees(CalleesDefinition {
            application,
            services: ["b", "a"].map(|s| ServiceName::parse(s).unwrap()).into(),
            stat: DefinitionStat {
                created: Timestamp(1),
                modified: Timestamp(2),
                revision: 3,
            },
            author: "ann@ops1".into(),
        });
        assert_eq!(decode(&key, &encode(&callees)), Ok(callees));
        let many = vec!["s".to_owned(); CALLEES_MAX + 1];
        for (name, services, expected) in [
            ("other", vec![], "the value names"),
            ("app", vec!["a/b".to_owned()], "service name"),
            ("app", many, "1001 services"),
        ] {
            let message = pb::Definition {
                name: name.to_owned(),
                services,
                ..pb::Definition::default()
            };
            let error = decode(&key, &message.encode_to_vec()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
