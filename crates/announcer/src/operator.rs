//! What operators state with their own hand: overrides, evictions, releases, and what becomes of
//! records that a log lost. Each says who and why, and is kept in the config topic.
//!
//! As with definitions, the gateway calls this for those who talk to an Observer, and the command
//! line for those who talk to Kafka.

use std::sync::Arc;

use waypost_core::config::{
    Eviction, JournalAction, OverrideEffect, Release, ReleaseScope, Signed,
};
use waypost_core::definition::DefinitionStat;
use waypost_core::partition::partition_for_key;
use waypost_core::record::{Appended, Delivery};
use waypost_core::{
    AnnouncementLog, ConfigKey, ConfigValue, Headers, InstanceKey, LogError, NewRecord, Override,
    PartitionId, Timestamp, Topic,
};
use waypost_proto::config::{mistake_of_author, mistake_of_reason};

use crate::config::{ConfigTopic, Conflicts, WriteError, find_live};
use crate::limits::{EVICTIONS_KEPT, OVERRIDES_MAX, PRUNED_AT_ONCE_MAX};

/// Why a statement was not made, or not as it was meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The author or the reason; nothing was written.
    #[error("{field}: {why}")]
    Mistake {
        /// Which of the two.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Too much of it stands already; nothing was written.
    #[error("{OVERRIDES_MAX} overrides stand already; clear some of them first")]
    TooManyOverrides,
    /// The config topic could not be read; nothing was written.
    #[error("cannot read the config topic: {0}")]
    Read(LogError),
    /// A record could not be written.
    #[error("cannot write {what}: {source}")]
    Write {
        /// Which record.
        what: String,
        /// Why.
        source: WriteError,
    },
    /// It was written and could not be read back: nobody knows whether somebody else wrote too.
    #[error("written, but not read back: {0}; look at it again")]
    ReadBack(LogError),
    /// It was written, and so was another's.
    #[error("{0}")]
    Conflicts(Conflicts),
}

/// What became of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetOutcome {
    /// There was none.
    Set,
    /// Another one stood, or another reason.
    Changed,
    /// The same one stood already; nothing was written.
    Unchanged,
    /// It stood and is gone.
    Cleared,
    /// There was none to clear; nothing was written.
    Absent,
}

impl SetOutcome {
    /// The word shown to people and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Cleared => "cleared",
            Self::Absent => "absent",
        }
    }
}

/// Checks who and why; `now` is when.
///
/// # Errors
/// Either is empty, too long or not one line.
pub fn sign(author: &str, reason: &str, now: Timestamp) -> Result<Signed, OperatorError> {
    let author_mistake = mistake_of_author(author).map(|why| ("author", why));
    let mistake = author_mistake.or_else(|| mistake_of_reason(reason).map(|why| ("reason", why)));
    match mistake {
        Some((field, why)) => Err(OperatorError::Mistake { field, why }),
        None => Ok(Signed {
            author: Arc::from(author),
            reason: Arc::from(reason),
            at: now,
        }),
    }
}

/// Sets what stands above an instance's announcements; `None` clears it. The instance need not exist.
///
/// # Errors
/// See [`OperatorError`].
pub async fn set_override(
    log: &dyn AnnouncementLog,
    instance: &InstanceKey,
    effect: Option<OverrideEffect>,
    signed: &Signed,
) -> Result<SetOutcome, OperatorError> {
    let mut topic = read(log).await?;
    let key = ConfigKey::Override(instance.clone());
    let standing = match find_live(topic.find(&key)) {
        Some(ConfigValue::Override(standing)) => Some(standing.clone()),
        _ => None,
    };
    let outcome = match (effect, standing) {
        (None, None) => return Ok(SetOutcome::Absent),
        (None, Some(standing)) => {
            let detail = show_effect(standing.effect);
            topic
                .delete(&key, JournalAction::Cleared, &detail, signed)
                .await
                .map_err(|e| mk_write_error(&key, e))?;
            SetOutcome::Cleared
        }
        (Some(effect), Some(standing))
            if standing.effect == effect && standing.signed.reason == signed.reason =>
        {
            return Ok(SetOutcome::Unchanged);
        }
        (Some(effect), standing) => {
            if standing.is_none() && topic.fold().overrides().count() >= OVERRIDES_MAX {
                return Err(OperatorError::TooManyOverrides);
            }
            let value = ConfigValue::Override(Override {
                instance: instance.clone(),
                effect,
                signed: signed.clone(),
                stat: next_stat(standing.as_ref(), effect, signed.at),
            });
            put(&mut topic, &key, &value).await?;
            let detail = show_effect(effect);
            note(&mut topic, &key, JournalAction::Set, &detail, signed).await?;
            match standing {
                Some(_) => SetOutcome::Changed,
                None => SetOutcome::Set,
            }
        }
    };
    verify(topic, signed).await?;
    Ok(outcome)
}

/// Removes whatever is announced, after writing why. Nothing is barred: a living announcer is back
/// with its next beat.
///
/// # Errors
/// See [`OperatorError`].
pub async fn evict(
    log: &dyn AnnouncementLog,
    instance: &InstanceKey,
    signed: &Signed,
) -> Result<Appended, OperatorError> {
    let mut topic = read(log).await?;
    let key = ConfigKey::Eviction(instance.clone());
    let value = ConfigValue::Eviction(Eviction {
        instance: instance.clone(),
        signed: signed.clone(),
    });
    put(&mut topic, &key, &value).await?;
    note(&mut topic, &key, JournalAction::Evicted, "", signed).await?;
    prune_evictions(&mut topic, signed.at).await?;
    purge(log, instance)
        .await
        .map_err(|source| OperatorError::Write {
            what: format!("the purge of {}", instance.uri),
            source: source.into(),
        })
}

/// Purges the key in every partition, its own last: after partitions were added, or by another
/// partitioner, it may stand in any.
async fn purge(log: &dyn AnnouncementLog, instance: &InstanceKey) -> Result<Appended, LogError> {
    let key = instance.to_record_key();
    let count = log.partition_count(Topic::Announcements).await?;
    let own = partition_for_key(&key, count);
    let mk_purge = |partition| NewRecord {
        topic: Topic::Announcements,
        partition: Some(partition),
        key: key.clone(),
        value: None,
        headers: Headers::default(),
        delivery: Delivery::Change,
    };
    let others = (0..count).map(PartitionId).filter(|other| *other != own);
    let others = others.map(|partition| log.append(mk_purge(partition)));
    futures::future::try_join_all(others).await?;
    log.append(mk_purge(own)).await
}

/// Says that the expiries held now are true. It acts by the time at which the log takes it.
///
/// # Errors
/// See [`OperatorError`].
pub async fn release(
    log: &dyn AnnouncementLog,
    scope: &ReleaseScope,
    signed: &Signed,
) -> Result<(), OperatorError> {
    let mut topic = read(log).await?;
    let key = ConfigKey::Release(scope.clone());
    let value = ConfigValue::Release(Release {
        scope: scope.clone(),
        signed: signed.clone(),
    });
    put(&mut topic, &key, &value).await?;
    note(&mut topic, &key, JournalAction::Released, "", signed).await?;
    verify(topic, signed).await
}

/// Writes records again that a log lost and an Observer kept, except those that it has again.
/// Returns what was written.
///
/// # Errors
/// See [`OperatorError`].
pub async fn restore(
    log: &dyn AnnouncementLog,
    orphans: &[(ConfigKey, ConfigValue)],
    signed: &Signed,
) -> Result<Vec<ConfigKey>, OperatorError> {
    let mut topic = read(log).await?;
    let mut written = Vec::new();
    for (key, value) in orphans {
        if !topic.is_known(key) {
            put(&mut topic, key, value).await?;
            written.push(key.clone());
        }
    }
    note_all(&mut topic, &written, JournalAction::Restored, signed).await?;
    verify(topic, signed).await?;
    Ok(written)
}

/// Writes that records which a log lost and an Observer kept are deleted, except those that it has
/// again. Returns what was written.
///
/// # Errors
/// See [`OperatorError`].
pub async fn forget(
    log: &dyn AnnouncementLog,
    orphans: &[ConfigKey],
    signed: &Signed,
) -> Result<Vec<ConfigKey>, OperatorError> {
    let mut topic = read(log).await?;
    let lost = orphans.iter().filter(|key| !topic.is_known(key));
    let lost: Vec<_> = lost.cloned().collect();
    note_all(&mut topic, &lost, JournalAction::Forgotten, signed).await?;
    for key in &lost {
        let done = topic.write(key, None).await;
        done.map_err(|e| mk_write_error(key, e))?;
    }
    verify(topic, signed).await?;
    Ok(lost)
}

async fn read(log: &dyn AnnouncementLog) -> Result<ConfigTopic<'_>, OperatorError> {
    ConfigTopic::read(log).await.map_err(OperatorError::Read)
}

async fn put(
    topic: &mut ConfigTopic<'_>,
    key: &ConfigKey,
    value: &ConfigValue,
) -> Result<(), OperatorError> {
    let done = topic.write(key, Some(value)).await;
    done.map(|_| ()).map_err(|e| mk_write_error(key, e))
}

async fn note(
    topic: &mut ConfigTopic<'_>,
    subject: &ConfigKey,
    action: JournalAction,
    detail: &str,
    signed: &Signed,
) -> Result<(), OperatorError> {
    let done = topic.journal(subject, action, detail, signed).await;
    done.map(|_| ()).map_err(|source| OperatorError::Write {
        what: "the journal".to_owned(),
        source: source.into(),
    })
}

/// One entry for what one command did to several records.
async fn note_all(
    topic: &mut ConfigTopic<'_>,
    keys: &[ConfigKey],
    action: JournalAction,
    signed: &Signed,
) -> Result<(), OperatorError> {
    let Some((first, rest)) = keys.split_first() else {
        return Ok(());
    };
    let detail = match rest.len() {
        0 => String::new(),
        1 => "and one more".to_owned(),
        count => format!("and {count} more"),
    };
    note(topic, first, action, &detail, signed).await
}

async fn verify(topic: ConfigTopic<'_>, signed: &Signed) -> Result<(), OperatorError> {
    match topic.verify(signed).await {
        Ok(None) => Ok(()),
        Ok(Some(conflicts)) => Err(OperatorError::Conflicts(conflicts)),
        Err(error) => Err(OperatorError::ReadBack(error)),
    }
}

async fn prune_evictions(topic: &mut ConfigTopic<'_>, now: Timestamp) -> Result<(), OperatorError> {
    let too_old = now.minus(EVICTIONS_KEPT);
    let evictions = topic.fold().evictions();
    let old = evictions.filter(|eviction| eviction.signed.at <= too_old);
    let old: Vec<_> = old
        .take(PRUNED_AT_ONCE_MAX)
        .map(|eviction| ConfigKey::Eviction(eviction.instance.clone()))
        .collect();
    for key in old {
        let removed = topic.remove(&key).await;
        removed.map_err(|e| mk_write_error(&key, e.into()))?;
    }
    Ok(())
}

/// The history of an override after `effect` is set. A new reason for the same effect is no change
/// of what is served.
fn next_stat(
    standing: Option<&Override>,
    effect: OverrideEffect,
    now: Timestamp,
) -> DefinitionStat {
    match standing {
        None => DefinitionStat {
            created: now,
            modified: now,
            revision: 0,
        },
        Some(standing) if standing.effect == effect => standing.stat,
        Some(standing) => DefinitionStat {
            created: standing.stat.created,
            modified: now,
            revision: standing.stat.revision.saturating_add(1),
        },
    }
}

fn show_effect(effect: OverrideEffect) -> String {
    match effect {
        OverrideEffect::Weight(weight) => format!("weight {}", weight.get()),
        OverrideEffect::Drain => "drain".to_owned(),
    }
}

fn mk_write_error(key: &ConfigKey, source: WriteError) -> OperatorError {
    OperatorError::Write {
        what: key.to_string(),
        source,
    }
}
