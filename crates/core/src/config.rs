//! The config topic: definitions, and what operators state with their own hand.
//!
//! Source of every rule here: docs/announcement-log.md, "The config topic".

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::definition::{Definition, DefinitionKey, DefinitionStat};
use crate::name::{ClusterName, InstanceKey, NameError};
use crate::record::{LogIdentity, Offset};
use crate::time::Timestamp;

/// What a record of the config topic is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigKey {
    /// `cluster\0NAME`, `service\0NAME` or `callees\0NAME`: a definition.
    Definition(DefinitionKey),
    /// `override\0CLUSTER\0URI`: what stands above an instance's announcements.
    Override(InstanceKey),
    /// `eviction\0CLUSTER\0URI`: who removed an instance last, and why.
    Eviction(InstanceKey),
    /// `release\0CLUSTER` or `release\0*`: who let held expiries go, and why.
    Release(ReleaseScope),
    /// `journal\0TIME\0ID`: what was done. Each entry has a key of its own.
    Journal(JournalKey),
}

/// Whose held expiries are released.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseScope {
    /// Every cluster's, and the fleet's.
    All,
    /// Of one cluster.
    Cluster(ClusterName),
}

/// The key of a journal entry. Entries sort by it in the order in which they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalKey {
    /// When it was written, by the clock of whoever wrote it.
    pub at: Timestamp,
    /// Random, so that two entries of one moment do not meet.
    pub id: u64,
}

impl ConfigKey {
    /// The record key: the kind, one zero byte, the name.
    #[must_use]
    pub fn to_record_key(&self) -> Bytes {
        let kind = self.kind().as_bytes();
        let instance = |key: &InstanceKey| [kind, b"\0", &key.to_record_key()].concat().into();
        match self {
            Self::Definition(key) => key.to_record_key(),
            Self::Override(key) | Self::Eviction(key) => instance(key),
            Self::Release(ReleaseScope::All) => Bytes::from_static(b"release\0*"),
            Self::Release(ReleaseScope::Cluster(name)) => {
                [kind, b"\0", name.as_str().as_bytes()].concat().into()
            }
            Self::Journal(key) => format!("journal\0{:013}\0{:016x}", key.at.0, key.id).into(),
        }
    }

    /// Reads a record key of the config topic; `None` for a kind that this release does not know.
    ///
    /// # Errors
    /// Not UTF-8, no zero byte, or a name that is not valid.
    pub fn from_record_key(key: &[u8]) -> Result<Option<Self>, NameError> {
        const WHAT: &str = "config key";
        let bad = || NameError::Empty { what: WHAT };
        let text = std::str::from_utf8(key).map_err(|_| bad())?;
        let (kind, name) = text.split_once('\0').ok_or_else(bad)?;
        match kind {
            "override" => {
                InstanceKey::from_record_key(name.as_bytes()).map(|key| Some(Self::Override(key)))
            }
            "eviction" => {
                InstanceKey::from_record_key(name.as_bytes()).map(|key| Some(Self::Eviction(key)))
            }
            "release" if name == "*" => Ok(Some(Self::Release(ReleaseScope::All))),
            "release" => ClusterName::parse(name)
                .map(|name| Some(Self::Release(ReleaseScope::Cluster(name)))),
            "journal" => JournalKey::parse(name)
                .map(|key| Some(Self::Journal(key)))
                .ok_or_else(bad),
            _ => Ok(DefinitionKey::from_record_key(key)?.map(Self::Definition)),
        }
    }

    /// The closed label of metrics and JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Definition(key) => key.kind(),
            Self::Override(_) => "override",
            Self::Eviction(_) => "eviction",
            Self::Release(_) => "release",
            Self::Journal(_) => "journal",
        }
    }

    /// The name that an operator would give for it: of a definition, or of the cluster concerned.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Definition(key) => key.name(),
            Self::Release(ReleaseScope::Cluster(name)) => name.as_str(),
            Self::Override(key) | Self::Eviction(key) => key.cluster.as_str(),
            Self::Release(ReleaseScope::All) => "*",
            Self::Journal(_) => "",
        }
    }
}

impl From<DefinitionKey> for ConfigKey {
    fn from(key: DefinitionKey) -> Self {
        Self::Definition(key)
    }
}

impl fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definition(key) => key.fmt(f),
            Self::Override(key) => write!(f, "override of {} in cluster {}", key.uri, key.cluster),
            Self::Eviction(key) => write!(f, "eviction of {} in cluster {}", key.uri, key.cluster),
            Self::Release(ReleaseScope::All) => f.write_str("release of all clusters"),
            Self::Release(ReleaseScope::Cluster(name)) => write!(f, "release of cluster {name}"),
            Self::Journal(key) => write!(f, "journal entry {}-{:016x}", key.at.0, key.id),
        }
    }
}

impl JournalKey {
    fn parse(text: &str) -> Option<Self> {
        let (at, id) = text.split_once('\0')?;
        Some(Self {
            at: Timestamp(at.parse().ok()?),
            id: u64::from_str_radix(id, 16).ok()?,
        })
    }
}

/// The value of a record of the config topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigValue {
    /// A definition.
    Definition(Definition),
    /// What stands above an instance's announcements.
    Override(Override),
    /// Who removed an instance last.
    Eviction(Eviction),
    /// Who let held expiries go.
    Release(Release),
    /// What was done.
    Journal(JournalEntry),
}

impl ConfigValue {
    /// Who wrote it; empty where nobody said so.
    #[must_use]
    pub fn author(&self) -> &str {
        match self {
            Self::Definition(definition) => definition.author(),
            Self::Override(o) => &o.signed.author,
            Self::Eviction(e) => &e.signed.author,
            Self::Release(r) => &r.signed.author,
            Self::Journal(j) => &j.signed.author,
        }
    }
}

/// Who states something, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Who: `user@host` of the caller, or what they said.
    pub author: Arc<str>,
    /// Why, in one line.
    pub reason: Arc<str>,
    /// When, by the author's clock.
    pub at: Timestamp,
}

/// What an operator set for one instance. It stands above heartbeats and restarts until cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Which instance; it need not exist.
    pub instance: InstanceKey,
    /// What is served instead of what it announces.
    pub effect: OverrideEffect,
    /// Who set it last, when and why.
    pub signed: Signed,
    /// When it was first set, when its effect changed last, how often.
    pub stat: DefinitionStat,
}

/// What an override changes of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideEffect {
    /// This weight on every D2 partition that the instance announces.
    Weight(Weight),
    /// Draining, unless it announces something worse.
    Drain,
}

/// A weight that D2 accepts: finite and at least 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight(f64);

// Never NaN.
impl Eq for Weight {}

/// Not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a number of at least 0")]
pub struct BadWeight;

impl Weight {
    /// Checks a number.
    ///
    /// # Errors
    /// Negative, infinite or not a number.
    pub fn new(weight: f64) -> Result<Self, BadWeight> {
        if weight.is_finite() && weight >= 0.0 {
            Ok(Self(weight))
        } else {
            Err(BadWeight)
        }
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// An operator's removal of one instance, written before the purge itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which instance.
    pub instance: InstanceKey,
    /// Who, when and why.
    pub signed: Signed,
}

/// An operator's word that the held expiries of a cluster, or of all, are true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whose.
    pub scope: ReleaseScope,
    /// Who, when and why.
    pub signed: Signed,
}

/// What was done to one record of the config topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// To which.
    pub subject: ConfigKey,
    /// What.
    pub action: JournalAction,
    /// More of it, in one line; may be empty.
    pub detail: Arc<str>,
    /// Who, when and why.
    pub signed: Signed,
}

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JournalAction {
    /// Deleted a definition.
    Deleted,
    /// Set an override.
    Set,
    /// Cleared an override.
    Cleared,
    /// Evicted an instance.
    Evicted,
    /// Released held expiries.
    Released,
    /// Wrote an orphaned record again.
    Restored,
    /// Gave an orphaned record up.
    Forgotten,
    /// Overwrote a record that they had not seen.
    Conflict,
}

impl JournalAction {
    /// Every action.
    pub const ALL: [Self; 8] = [
        Self::Deleted,
        Self::Set,
        Self::Cleared,
        Self::Evicted,
        Self::Released,
        Self::Restored,
        Self::Forgotten,
        Self::Conflict,
    ];

    /// The word shown to people and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Set => "set",
            Self::Cleared => "cleared",
            Self::Evicted => "evicted",
            Self::Released => "released",
            Self::Restored => "restored",
            Self::Forgotten => "forgotten",
            Self::Conflict => "conflict",
        }
    }
}

/// One state of a record: where it stands, and in which log. Never a counter, so that two writers
/// who saw the same state cannot both be right (docs/announcement-log.md, "The config topic").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision {
    /// Where it stands.
    pub offset: Offset,
    /// In which log; `None` while that is not known.
    pub log: Option<LogIdentity>,
}

/// What a record of the config topic replaces (`waypost-replaces`): `OFFSET:LOGID`, `OFFSET` alone
/// where the log has no identity yet, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replaces {
    /// Its writer saw no record of this key, or its deletion.
    Nothing,
    /// Its writer saw this one.
    Revision(Revision),
}

/// Not of the form `OFFSET:LOGID`, `OFFSET` or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadReplaces;

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.log {
            Some(log) => write!(f, "{}:{log}", self.offset),
            None => self.offset.fmt(f),
        }
    }
}

impl fmt::Display for Replaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Revision(revision) => revision.fmt(f),
        }
    }
}

impl FromStr for Replaces {
    type Err = BadReplaces;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::Nothing);
        }
        let (offset, log) = match text.split_once(':') {
            Some((offset, log)) => (offset, Some(log.parse().map_err(|_| BadReplaces)?)),
            None => (text, None),
        };
        match offset.parse() {
            Ok(offset) if offset >= 0 => Ok(Self::Revision(Revision {
                offset: Offset(offset),
                log,
            })),
            _ => Err(BadReplaces),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{InstanceUri, ServiceName};

    fn cluster() -> ClusterName {
        ClusterName::parse("greeter").unwrap()
    }

    fn instance() -> InstanceKey {
        InstanceKey {
            cluster: cluster(),
            uri: InstanceUri::parse("grpc://10.0.0.7:8080").unwrap(),
        }
    }

    #[test]
    fn keys_round_trip_and_their_bytes_are_the_contract() {
        let journal = JournalKey {
            at: Timestamp(1_700_000_000_000),
            id: 0xab,
        };
        let cases = [
            (
                ConfigKey::Definition(DefinitionKey::Cluster(cluster())),
                "cluster\0greeter",
            ),
            (
                DefinitionKey::Service(ServiceName::parse("hello").unwrap()).into(),
                "service\0hello",
            ),
            (
                ConfigKey::Override(instance()),
                "override\0greeter\0grpc://10.0.0.7:8080",
            ),
            (
                ConfigKey::Eviction(instance()),
                "eviction\0greeter\0grpc://10.0.0.7:8080",
            ),
            (ConfigKey::Release(ReleaseScope::All), "release\0*"),
            (
                ConfigKey::Release(ReleaseScope::Cluster(cluster())),
                "release\0greeter",
            ),
            (
                ConfigKey::Journal(journal),
                "journal\x001700000000000\x0000000000000000ab",
            ),
        ];
        for (key, text) in cases {
            assert_eq!(key.to_record_key(), text.as_bytes(), "{key}");
            assert_eq!(ConfigKey::from_record_key(text.as_bytes()), Ok(Some(key)));
        }
    }

    #[test]
    fn keys_of_another_form_are_refused_and_of_another_kind_left_alone() {
        for bad in [
            "override\0greeter",
            "eviction\0a b\0grpc://h:1",
            "release\0",
            "journal\0x\x001",
            "journal\x001",
            "nothing",
        ] {
            assert!(
                ConfigKey::from_record_key(bad.as_bytes()).is_err(),
                "{bad:?}"
            );
        }
        assert_eq!(ConfigKey::from_record_key(b"\xff\0x").ok(), None);
        assert_eq!(ConfigKey::from_record_key(b"mode\0x"), Ok(None));
    }

    #[test]
    fn what_a_record_replaces_round_trips() {
        let revision = |log| {
            let offset = Offset(7);
            Replaces::Revision(Revision { offset, log })
        };
        let cases = [
            (Replaces::Nothing, "none"),
            (revision(None), "7"),
            (revision(Some(LogIdentity(10))), "7:000000000000000a"),
        ];
        for (replaces, text) in cases {
            assert_eq!(replaces.to_string(), text);
            assert_eq!(text.parse(), Ok(replaces));
        }
        for bad in ["", "-1", "-1:00", "7:", "7:xyz", "None"] {
            assert_eq!(bad.parse::<Replaces>(), Err(BadReplaces), "{bad}");
        }
    }

    #[test]
    fn a_weight_is_finite_and_at_least_zero() {
        for good in [0.0, 0.5, 1e9] {
            assert_eq!(Weight::new(good).map(Weight::get), Ok(good));
        }
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Weight::new(bad), Err(BadWeight));
        }
    }
}
