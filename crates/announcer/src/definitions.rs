//! Service and cluster definitions: checked, made into D2 documents, written to the config topic.
//!
//! Whoever may write definitions does it through [`apply`] and [`delete`]: the gateway for those
//! who talk to an Observer, the command line for those who talk to Kafka.

mod callees;
mod check;
mod document;
mod symlink;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_core::config::{JournalAction, Signed};
use waypost_core::definition::DefinitionStat;
use waypost_core::name::is_symlink;
use waypost_core::{
    AnnouncementLog, ApplicationName, CalleesDefinition, ClusterDefinition, ClusterName, ConfigKey,
    ConfigValue, Definition, DefinitionKey, LogError, ServiceDefinition, ServiceName, Timestamp,
};
use waypost_proto::v1 as pb;

use crate::config::{ConfigTopic, Conflicts, WriteError, find_live};
use crate::limits::{DEFINITIONS_PER_REQUEST_MAX, MISTAKES_REPORTED_MAX};

pub use document::{PRIORITIZED_SCHEMES_DEFAULT, STRATEGY_LIST_DEFAULT};

/// A definition as a person wrote it, its names already checked.
#[derive(Clone, Debug, PartialEq)]
pub enum DefinitionInput {
    /// A cluster's.
    Cluster {
        /// Its name.
        name: ClusterName,
        /// D2 cluster properties in D2's own spelling.
        properties: Map<String, Value>,
    },
    /// A service's.
    Service {
        /// Its name.
        name: ServiceName,
        /// The cluster that serves it.
        cluster: ClusterName,
        /// The path that D2 appends to an instance's URI; empty or starting with `/`.
        path: String,
        /// D2 service properties in D2's own spelling.
        properties: Map<String, Value>,
    },
    /// A symlink: a name that begins with `$` and leads to a cluster.
    Symlink {
        /// Its name.
        name: ClusterName,
        /// Where it leads.
        target: ClusterName,
    },
    /// The services that an application calls.
    Callees {
        /// The application.
        application: ApplicationName,
        /// What it calls, in the order in which its clients warm them up.
        services: Vec<ServiceName>,
    },
}

/// One mistake in a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("definition {}{}: {field}: {why}", .index + 1, named(.name))]
pub struct Mistake {
    /// Which definition of the request, from 0.
    pub index: usize,
    /// Its name as given, may be empty.
    pub name: String,
    /// Where in it: `name`, `cluster`, `path`, or a place below `properties`, for example
    /// `properties.prioritizedSchemes[1]`.
    pub field: String,
    /// What is wrong and what is expected.
    pub why: String,
}

fn named(name: &str) -> String {
    if name.is_empty() {
        String::new()
    } else {
        format!(" ({name})")
    }
}

/// What became of one definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// There was none of that name.
    Created,
    /// There was another one.
    Changed,
    /// The same one stood already; nothing was written.
    Unchanged,
    /// It stood and is gone.
    Deleted,
    /// There was none to delete; nothing was written.
    Absent,
}

/// One definition and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChange {
    /// Which definition.
    pub key: DefinitionKey,
    /// What became of it.
    pub outcome: Outcome,
    /// How many times it was changed since it was created; for a deleted one the last count.
    pub revision: u32,
}

/// Why definitions were not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionsError {
    /// The definitions themselves; none was written.
    #[error("{}", list(.0))]
    Mistakes(Vec<Mistake>),
    /// The config topic could not be read; none was written.
    #[error("cannot read the definitions: {0}")]
    Read(LogError),
    /// One could not be written; those before it in the request were.
    #[error("cannot write {what}: {source}; {written} before it were written")]
    Write {
        /// Kind and name of the definition that failed.
        what: String,
        /// How many of the request were written before it.
        written: usize,
        /// Why.
        source: WriteError,
    },
    /// All were written and could not be read back: nobody knows whether somebody else wrote too.
    #[error("written, but not read back: {0}; apply it again")]
    ReadBack(LogError),
    /// All were written, and so were another's.
    #[error("{0}")]
    Conflicts(Conflicts),
}

fn list(mistakes: &[Mistake]) -> String {
    let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl DefinitionInput {
    /// The key of its record.
    #[must_use]
    pub fn key(&self) -> DefinitionKey {
        match self {
            Self::Cluster { name, .. } | Self::Symlink { name, .. } => {
                DefinitionKey::Cluster(name.clone())
            }
            Self::Service { name, .. } => DefinitionKey::Service(name.clone()),
            Self::Callees { application, .. } => DefinitionKey::Callees(application.clone()),
        }
    }

    /// The definition as the log holds it.
    fn to_definition(&self, stat: DefinitionStat, author: Arc<str>) -> Definition {
        let document = document::to_document(self);
        match self {
            Self::Cluster { name, .. } | Self::Symlink { name, .. } => {
                Definition::Cluster(ClusterDefinition {
                    name: name.clone(),
                    document,
                    stat,
                    author,
                })
            }
            Self::Service {
                name,
                cluster,
                path,
                ..
            } => Definition::Service(ServiceDefinition {
                name: name.clone(),
                cluster: cluster.clone(),
                path: path.clone(),
                document,
                stat,
                author,
            }),
            Self::Callees {
                application,
                services,
            } => Definition::Callees(CalleesDefinition {
                application: application.clone(),
                services: services.clone().into(),
                stat,
                author,
            }),
        }
    }
}

/// Reads the definitions of a request and checks them all.
///
/// # Errors
/// Every mistake found, in the order of the request (at most
/// [`MISTAKES_REPORTED_MAX`](crate::limits::MISTAKES_REPORTED_MAX)).
pub fn read_request(
    messages: &[pb::DefinitionInput],
) -> Result<Vec<DefinitionInput>, DefinitionsError> {
    let mut mistakes = Vec::new();
    if messages.len() > DEFINITIONS_PER_REQUEST_MAX {
        let why = format!(
            "{} definitions in one request; at most {DEFINITIONS_PER_REQUEST_MAX}, apply them in parts",
            messages.len()
        );
        mistakes.push(Mistake {
            index: DEFINITIONS_PER_REQUEST_MAX,
            name: String::new(),
            field: "definitions".to_owned(),
            why,
        });
        return Err(DefinitionsError::Mistakes(mistakes));
    }
    let mut inputs = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        inputs.extend(check::read_message(index, message, &mut mistakes));
    }
    check_all(&inputs, &mut mistakes);
    if mistakes.is_empty() {
        Ok(inputs.into_iter().map(|(_, input)| input).collect())
    } else {
        mistakes.sort_by_key(|m| m.index);
        mistakes.truncate(MISTAKES_REPORTED_MAX);
        Err(DefinitionsError::Mistakes(mistakes))
    }
}

/// Writes what differs from what the config topic holds. All are checked before any is written.
///
/// `signed` says who, and when: that becomes the modified time of what is written (and the created
/// time of what is new).
///
/// # Errors
/// See [`DefinitionsError`].
pub async fn apply(
    log: &dyn AnnouncementLog,
    definitions: &[DefinitionInput],
    signed: &Signed,
) -> Result<Vec<DefinitionChange>, DefinitionsError> {
    let mut mistakes = Vec::new();
    let indexed: Vec<_> = definitions.iter().cloned().enumerate().collect();
    check_all(&indexed, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(DefinitionsError::Mistakes(mistakes));
    }
    let mut topic = read(log).await?;
    symlink::check_targets(&indexed, Some(topic.fold()), &mut mistakes);
    if !mistakes.is_empty() {
        return Err(DefinitionsError::Mistakes(mistakes));
    }
    let mut changes = Vec::with_capacity(definitions.len());
    let mut written = 0;
    for definition in definitions {
        let key = definition.key();
        let (outcome, stat) = judge(definition, &topic, signed.at);
        if outcome != Outcome::Unchanged {
            let value = definition.to_definition(stat, Arc::clone(&signed.author));
            let value = ConfigValue::Definition(value);
            let done = topic.write(&key.clone().into(), Some(&value)).await;
            done.map_err(|source| mk_write_error(&key, written, source))?;
            written += 1;
        }
        changes.push(DefinitionChange {
            key,
            outcome,
            revision: stat.revision,
        });
    }
    verify(topic, signed).await?;
    Ok(changes)
}

/// Deletes one definition. What was announced under its name stays reachable, with defaults.
///
/// # Errors
/// See [`DefinitionsError`]; never `Mistakes`.
pub async fn delete(
    log: &dyn AnnouncementLog,
    key: DefinitionKey,
    signed: &Signed,
) -> Result<DefinitionChange, DefinitionsError> {
    let mut topic = read(log).await?;
    let config_key = ConfigKey::from(key.clone());
    if !topic.has_value(&config_key) {
        return Ok(DefinitionChange {
            key,
            outcome: Outcome::Absent,
            revision: 0,
        });
    }
    let revision = find_stat(&topic, &config_key).map_or(0, |stat| stat.revision);
    topic
        .delete(&config_key, JournalAction::Deleted, "", signed)
        .await
        .map_err(|source| mk_write_error(&key, 0, source))?;
    verify(topic, signed).await?;
    Ok(DefinitionChange {
        key,
        outcome: Outcome::Deleted,
        revision,
    })
}

async fn read(log: &dyn AnnouncementLog) -> Result<ConfigTopic<'_>, DefinitionsError> {
    ConfigTopic::read(log).await.map_err(DefinitionsError::Read)
}

async fn verify(topic: ConfigTopic<'_>, signed: &Signed) -> Result<(), DefinitionsError> {
    match topic.verify(signed).await {
        Ok(None) => Ok(()),
        Ok(Some(conflicts)) => Err(DefinitionsError::Conflicts(conflicts)),
        Err(error) => Err(DefinitionsError::ReadBack(error)),
    }
}

impl Outcome {
    /// The word shown to people and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Absent => "absent",
        }
    }
}

impl From<Outcome> for pb::definition_result::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Created => Self::Created,
            Outcome::Changed => Self::Changed,
            Outcome::Unchanged => Self::Unchanged,
            Outcome::Deleted => Self::Deleted,
            Outcome::Absent => Self::Absent,
        }
    }
}

impl From<pb::definition_result::Outcome> for Outcome {
    fn from(outcome: pb::definition_result::Outcome) -> Self {
        match outcome {
            pb::definition_result::Outcome::Created => Self::Created,
            pb::definition_result::Outcome::Changed => Self::Changed,
            pb::definition_result::Outcome::Unchanged => Self::Unchanged,
            pb::definition_result::Outcome::Deleted => Self::Deleted,
            pb::definition_result::Outcome::Absent => Self::Absent,
        }
    }
}

impl From<&DefinitionChange> for pb::DefinitionResult {
    fn from(change: &DefinitionChange) -> Self {
        let (kind, name) = kind_and_name(&change.key);
        Self {
            kind: kind.into(),
            name: name.to_owned(),
            outcome: pb::definition_result::Outcome::from(change.outcome).into(),
            revision: change.revision,
        }
    }
}

impl From<&DefinitionInput> for pb::DefinitionInput {
    fn from(input: &DefinitionInput) -> Self {
        let (cluster, path, properties) = match input {
            DefinitionInput::Cluster { properties, .. } => ("", "", Some(properties)),
            DefinitionInput::Service {
                cluster,
                path,
                properties,
                ..
            } => (cluster.as_str(), path.as_str(), Some(properties)),
            DefinitionInput::Symlink { target, .. } => (target.as_str(), "", None),
            DefinitionInput::Callees { .. } => ("", "", None),
        };
        let services = match input {
            DefinitionInput::Callees { services, .. } => &services[..],
            _ => &[],
        };
        let properties = properties.map(|properties| Value::Object(properties.clone()));
        let key = input.key();
        let (kind, name) = kind_and_name(&key);
        Self {
            kind: kind.into(),
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            path: path.to_owned(),
            properties_json: properties.map_or_else(String::new, |p| p.to_string()),
            services: services.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Reads the kind and name of a message.
///
/// # Errors
/// The kind is unspecified or the name is not valid.
pub fn read_key(kind: pb::definition_input::Kind, name: &str) -> Result<DefinitionKey, Mistake> {
    check::read_key(kind, name).map_err(|(field, why)| Mistake {
        index: 0,
        name: name.to_owned(),
        field,
        why,
    })
}

fn kind_and_name(key: &DefinitionKey) -> (pb::definition_input::Kind, &str) {
    match key {
        DefinitionKey::Cluster(name) if is_symlink(name.as_str()) => {
            (pb::definition_input::Kind::Symlink, name.as_str())
        }
        DefinitionKey::Cluster(name) => (pb::definition_input::Kind::Cluster, name.as_str()),
        DefinitionKey::Service(name) => (pb::definition_input::Kind::Service, name.as_str()),
        DefinitionKey::Callees(name) => (pb::definition_input::Kind::Callees, name.as_str()),
    }
}

fn mk_write_error(key: &DefinitionKey, written: usize, source: WriteError) -> DefinitionsError {
    DefinitionsError::Write {
        what: ConfigKey::from(key.clone()).to_string(),
        written,
        source,
    }
}

fn check_all(inputs: &[(usize, DefinitionInput)], mistakes: &mut Vec<Mistake>) {
    symlink::check_targets(inputs, None, mistakes);
    let mut seen = HashSet::new();
    for (index, input) in inputs {
        check::check(*index, input, mistakes);
        let key = input.key();
        let (_, name) = kind_and_name(&key);
        if !seen.insert(input.key()) {
            mistakes.push(Mistake {
                index: *index,
                name: name.to_owned(),
                field: "name".to_owned(),
                why: "is defined twice in this request; keep one of them".to_owned(),
            });
        }
    }
}

/// What becomes of a definition, and its history once written.
fn judge(
    definition: &DefinitionInput,
    topic: &ConfigTopic<'_>,
    now: Timestamp,
) -> (Outcome, DefinitionStat) {
    let fresh = DefinitionStat {
        created: now,
        modified: now,
        revision: 0,
    };
    let key = ConfigKey::from(definition.key());
    let Some(stat) = find_stat(topic, &key) else {
        // A value that nobody can read is replaced like a missing one.
        let outcome = match topic.has_value(&key) {
            true => Outcome::Changed,
            false => Outcome::Created,
        };
        return (outcome, fresh);
    };
    let standing = find_live(topic.find(&key));
    let author = standing.map(ConfigValue::author).unwrap_or_default();
    let same = definition.to_definition(stat, author.into());
    if standing == Some(&ConfigValue::Definition(same)) {
        return (Outcome::Unchanged, stat);
    }
    let changed = DefinitionStat {
        created: stat.created,
        modified: now,
        revision: stat.revision.saturating_add(1),
    };
    (Outcome::Changed, changed)
}

/// The history of the definition that stands; `None` if there is none, or none that can be read.
fn find_stat(topic: &ConfigTopic<'_>, key: &ConfigKey) -> Option<DefinitionStat> {
    match find_live(topic.find(key))? {
        ConfigValue::Definition(definition) => Some(definition.stat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
