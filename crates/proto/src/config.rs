//! Values of the config topic and [`ConfigValue`].

use bytes::Bytes;
use prost::Message;
use waypost_core::config::{
    ConfigKey, ConfigValue, Eviction, JournalAction, JournalEntry, Override, OverrideEffect,
    Release, ReleaseScope, Signed, Weight,
};
use waypost_core::definition::DefinitionStat;
use waypost_core::limits::{AUTHOR_BYTES_MAX, CONFIG_BYTES_MAX, REASON_BYTES_MAX};
use waypost_core::{InstanceKey, Timestamp};

use crate::definition::{self, DefinitionError};
use crate::v1 as pb;
use crate::v1::journal_entry::Action;

/// Why the value of a config record was not accepted. One bad value rejects itself alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A definition's own reason.
    #[error("bad definition: {0}")]
    Definition(#[from] DefinitionError),
    /// Not a protobuf message of the type that the key says.
    #[error("bad {kind}: not such a message: {why}")]
    Decode {
        /// Which kind of record.
        kind: &'static str,
        /// The decoder's words.
        why: String,
    },
    /// Larger than [`CONFIG_BYTES_MAX`].
    #[error("bad {kind}: {bytes} bytes; at most {CONFIG_BYTES_MAX} are allowed")]
    TooLarge {
        /// Which kind of record.
        kind: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// The value is about something else than the key.
    #[error("bad {kind}: the value names {value:?}, the key does not")]
    OtherName {
        /// Which kind of record.
        kind: &'static str,
        /// What the value names.
        value: String,
    },
    /// Any other field.
    #[error("bad {kind}: {field}: {why}")]
    Field {
        /// Which kind of record.
        kind: &'static str,
        /// The field's name in the `.proto`.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// Decodes the value of a config record whose key is `key`, and checks its fields.
///
/// # Errors
/// See [`ConfigError`].
pub fn decode(key: &ConfigKey, value: &[u8]) -> Result<ConfigValue, ConfigError> {
    let reader = Reader { kind: key.kind() };
    match key {
        ConfigKey::Definition(key) => Ok(ConfigValue::Definition(definition::decode(key, value)?)),
        ConfigKey::Override(instance) => {
            let m: pb::Override = reader.message(value)?;
            reader.check_instance(instance, &m.cluster, &m.uri)?;
            Ok(ConfigValue::Override(Override {
                instance: instance.clone(),
                effect: reader.effect(m.weight, m.drain)?,
                signed: reader.signed(m.author, m.reason, m.at_ms)?,
                stat: DefinitionStat {
                    created: Timestamp(m.created_ms),
                    modified: Timestamp(m.modified_ms),
                    revision: m.revision,
                },
            }))
        }
        ConfigKey::Eviction(instance) => {
            let m: pb::Eviction = reader.message(value)?;
            reader.check_instance(instance, &m.cluster, &m.uri)?;
            Ok(ConfigValue::Eviction(Eviction {
                instance: instance.clone(),
                signed: reader.signed(m.author, m.reason, m.at_ms)?,
            }))
        }
        ConfigKey::Release(scope) => {
            let m: pb::Release = reader.message(value)?;
            if m.cluster != release_cluster(scope) {
                return Err(reader.other_name(m.cluster));
            }
            Ok(ConfigValue::Release(Release {
                scope: scope.clone(),
                signed: reader.signed(m.author, m.reason, m.at_ms)?,
            }))
        }
        ConfigKey::Journal(_) => reader.journal_entry(value),
    }
}

/// Encodes the value of a config record: equal values give equal bytes.
#[must_use]
pub fn encode(value: &ConfigValue) -> Bytes {
    let bytes = match value {
        ConfigValue::Definition(definition) => return definition::encode(definition),
        ConfigValue::Override(o) => override_message(o).encode_to_vec(),
        ConfigValue::Eviction(e) => pb::Eviction {
            cluster: e.instance.cluster.to_string(),
            uri: e.instance.uri.to_string(),
            reason: e.signed.reason.to_string(),
            author: e.signed.author.to_string(),
            at_ms: e.signed.at.0,
        }
        .encode_to_vec(),
        ConfigValue::Release(r) => pb::Release {
            cluster: release_cluster(&r.scope).to_owned(),
            reason: r.signed.reason.to_string(),
            author: r.signed.author.to_string(),
            at_ms: r.signed.at.0,
        }
        .encode_to_vec(),
        ConfigValue::Journal(j) => pb::JournalEntry {
            subject: j.subject.to_record_key(),
            action: action_message(j.action).into(),
            detail: j.detail.to_string(),
            reason: j.signed.reason.to_string(),
            author: j.signed.author.to_string(),
            at_ms: j.signed.at.0,
        }
        .encode_to_vec(),
    };
    bytes.into()
}

/// What is wrong with a reason; `None` if nothing is.
#[must_use]
pub fn mistake_of_reason(reason: &str) -> Option<String> {
    mistake_of_line(reason, REASON_BYTES_MAX)
}

/// What is wrong with an author; `None` if nothing is.
#[must_use]
pub fn mistake_of_author(author: &str) -> Option<String> {
    mistake_of_line(author, AUTHOR_BYTES_MAX)
}

fn mistake_of_line(text: &str, bytes_max: usize) -> Option<String> {
    if text.trim().is_empty() {
        Some("is empty".to_owned())
    } else if text.len() > bytes_max {
        Some(format!(
            "is {} bytes long; at most {bytes_max} are allowed",
            text.len()
        ))
    } else if text.chars().any(char::is_control) {
        Some("must be one line without control characters".to_owned())
    } else {
        None
    }
}

fn release_cluster(scope: &ReleaseScope) -> &str {
    match scope {
        ReleaseScope::All => "",
        ReleaseScope::Cluster(name) => name.as_str(),
    }
}

fn override_message(o: &Override) -> pb::Override {
    let (weight, drain) = match o.effect {
        OverrideEffect::Weight(weight) => (Some(weight.get()), false),
        OverrideEffect::Drain => (None, true),
    };
    pb::Override {
        cluster: o.instance.cluster.to_string(),
        uri: o.instance.uri.to_string(),
        weight,
        drain,
        reason: o.signed.reason.to_string(),
        author: o.signed.author.to_string(),
        created_ms: o.stat.created.0,
        modified_ms: o.stat.modified.0,
        revision: o.stat.revision,
        at_ms: o.signed.at.0,
    }
}

fn action_message(action: JournalAction) -> Action {
    match action {
        JournalAction::Deleted => Action::Deleted,
        JournalAction::Set => Action::Set,
        JournalAction::Cleared => Action::Cleared,
        JournalAction::Evicted => Action::Evicted,
        JournalAction::Released => Action::Released,
        JournalAction::Restored => Action::Restored,
        JournalAction::Forgotten => Action::Forgotten,
        JournalAction::Conflict => Action::Conflict,
    }
}

/// Reads the fields of one kind of record.
#[derive(Clone, Copy)]
struct Reader {
    kind: &'static str,
}

impl Reader {
    fn message<M: Message + Default>(self, value: &[u8]) -> Result<M, ConfigError> {
        let Self { kind } = self;
        let bytes = value.len();
        if bytes > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge { kind, bytes });
        }
        M::decode(value).map_err(|e| ConfigError::Decode {
            kind,
            why: e.to_string(),
        })
    }

    fn field(self, field: &'static str, why: impl Into<String>) -> ConfigError {
        ConfigError::Field {
            kind: self.kind,
            field,
            why: why.into(),
        }
    }

    fn other_name(self, value: String) -> ConfigError {
        ConfigError::OtherName {
            kind: self.kind,
            value,
        }
    }

    fn check_instance(
        self,
        key: &InstanceKey,
        cluster: &str,
        uri: &str,
    ) -> Result<(), ConfigError> {
        if key.cluster.as_str() == cluster && key.uri.as_str() == uri {
            Ok(())
        } else {
            Err(self.other_name(format!("{cluster} {uri}")))
        }
    }

    fn effect(self, weight: Option<f64>, drain: bool) -> Result<OverrideEffect, ConfigError> {
        match (weight, drain) {
            (Some(weight), false) => Weight::new(weight)
                .map(OverrideEffect::Weight)
                .map_err(|e| self.field("weight", format!("{weight} {e}"))),
            (None, true) => Ok(OverrideEffect::Drain),
            (Some(_), true) => Err(self.field("drain", "is set beside weight; one of them")),
            (None, false) => Err(self.field("weight", "neither weight nor drain is set")),
        }
    }

    fn signed(self, author: String, reason: String, at_ms: i64) -> Result<Signed, ConfigError> {
        if let Some(why) = mistake_of_author(&author) {
            return Err(self.field("author", why));
        }
        if let Some(why) = mistake_of_reason(&reason) {
            return Err(self.field("reason", why));
        }
        Ok(Signed {
            author: author.into(),
            reason: reason.into(),
            at: Timestamp(at_ms),
        })
    }

    fn journal_entry(self, value: &[u8]) -> Result<ConfigValue, ConfigError> {
        let m: pb::JournalEntry = self.message(value)?;
        let action = JournalAction::ALL
            .into_iter()
            .find(|action| action_message(*action) == m.action())
            .ok_or_else(|| self.field("action", "is none that this release knows"))?;
        let subject = ConfigKey::from_record_key(&m.subject)
            .map_err(|e| self.field("subject", e.to_string()))?
            .ok_or_else(|| self.field("subject", "is of a kind that this release does not know"))?;
        Ok(ConfigValue::Journal(JournalEntry {
            subject,
            action,
            detail: m.detail.into(),
            signed: self.signed(m.author, m.reason, m.at_ms)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use waypost_core::config::JournalKey;
    use waypost_core::{ClusterName, InstanceUri};

    use super::*;

    fn instance() -> InstanceKey {
        InstanceKey {
            cluster: ClusterName::parse("greeter").unwrap(),
            uri: InstanceUri::parse("grpc://10.0.0.7:8080").unwrap(),
        }
    }

    fn signed() -> Signed {
        Signed {
            author: "ann@ops1".into(),
            reason: "INC-7: slow disk".into(),
            at: Timestamp(6),
        }
    }

    fn mk_override(effect: OverrideEffect) -> ConfigValue {
        ConfigValue::Override(Override {
            instance: instance(),
            effect,
            signed: signed(),
            stat: DefinitionStat {
                created: Timestamp(3),
                modified: Timestamp(5),
                revision: 2,
            },
        })
    }

    #[test]
    fn every_kind_of_value_round_trips() {
        let (o, e) = (
            ConfigKey::Override(instance()),
            ConfigKey::Eviction(instance()),
        );
        let mut cases = vec![
            (
                o.clone(),
                mk_override(OverrideEffect::Weight(Weight::new(0.0).unwrap())),
            ),
            (o.clone(), mk_override(OverrideEffect::Drain)),
            (
                e,
                ConfigValue::Eviction(Eviction {
                    instance: instance(),
                    signed: signed(),
                }),
            ),
        ];
        for scope in [ReleaseScope::All, ReleaseScope::Cluster(instance().cluster)] {
            let value = Release {
                scope: scope.clone(),
                signed: signed(),
            };
            cases.push((ConfigKey::Release(scope), ConfigValue::Release(value)));
        }
        for action in JournalAction::ALL {
            let key = JournalKey {
                at: Timestamp(5),
                id: 1,
            };
            let value = ConfigValue::Journal(JournalEntry {
                subject: o.clone(),
                action,
                detail: "weight 0".into(),
                signed: signed(),
            });
            cases.push((ConfigKey::Journal(key), value));
        }
        for (key, value) in cases {
            assert_eq!(decode(&key, &encode(&value)), Ok(value), "{key}");
        }
    }

    #[test]
    fn a_bad_field_is_named() {
        let good = override_message(&match mk_override(OverrideEffect::Drain) {
            ConfigValue::Override(o) => o,
            other => panic!("{other:?}"),
        });
        type Spoil = fn(&mut pb::Override);
        let cases: [(Spoil, &str); 8] = [
            (|m| m.weight = Some(1.0), "drain: is set beside weight"),
            (|m| m.drain = false, "weight: neither"),
            (
                |m| (m.drain, m.weight) = (false, Some(-1.0)),
                "weight: -1 is not a number of at least 0",
            ),
            (|m| m.reason = " ".into(), "reason: is empty"),
            (|m| m.reason = "a\nb".into(), "reason: must be one line"),
            (|m| m.reason = "x".repeat(5000), "reason: is 5000 bytes"),
            (|m| m.author.clear(), "author: is empty"),
            (|m| m.uri = "grpc://h:1".into(), "the value names"),
        ];
        let key = ConfigKey::Override(instance());
        for (spoil, expected) in cases {
            let mut message = good.clone();
            spoil(&mut message);
            let error = decode(&key, &message.encode_to_vec()).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(text.starts_with("bad override: "), "{text}");
        }
        assert!(matches!(
            decode(&key, b"\xff"),
            Err(ConfigError::Decode { .. })
        ));
        let large = vec![0; CONFIG_BYTES_MAX + 1];
        assert!(matches!(
            decode(&key, &large),
            Err(ConfigError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_journal_entry_of_a_later_release_is_named() {
        let key = ConfigKey::Journal(JournalKey {
            at: Timestamp(1),
            id: 1,
        });
        for (subject, action, expected) in [
            (&b"override\0x"[..], 1, "subject"),
            (b"mode\0x", 1, "subject"),
            (b"release\0*", 0, "action"),
            (b"release\0*", 99, "action"),
        ] {
            let message = pb::JournalEntry {
                subject: Bytes::copy_from_slice(subject),
                action,
                reason: "r".to_owned(),
                author: "a".to_owned(),
                ..pb::JournalEntry::default()
            };
            let error = decode(&key, &message.encode_to_vec()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
