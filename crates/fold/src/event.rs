//! What the folds say of the records they read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use waypost_core::record::{HeaderError, KeeperId, LogIdentity};
use waypost_core::{
    ConfigKey, DefinitionKey, InstanceKey, InstanceValue, LifeId, LogTime, NameError, Offset,
    PartitionId, StoreInput, Timestamp, Topic,
};
use waypost_proto::announcement::AnnouncementError;
use waypost_proto::config::ConfigError;

use crate::config_fold::Conflict;

use crate::continuity::Discontinuity;
use crate::lane::Sameness;

/// What became of one record. Every record has exactly one outcome, so whoever wrote it can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in force and something is served differently from now on.
    Changed,
    /// It is in force and nothing is served differently: a heartbeat, a withdrawal of what has gone
    /// already, an expire of what nobody knows.
    Unchanged,
    /// An announcement or withdrawal that the order within its key refuses.
    Refused(Arc<Refusal>),
    /// An expire or tick whose claim does not hold.
    Void(VoidReason),
    /// Not a record of this log's form; skipped alone.
    Rejected(RejectReason),
    /// A tick or an identity record, taken.
    Control,
    /// A reserved or unknown key that this release has no use for.
    Ignored,
    /// Below the position: it was read before.
    AlreadyRead,
}

/// What happened, for whoever holds the served state, counts, answers or shows. Heartbeats and
/// records without effect yield none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldEvent {
    /// An instance appeared or its content changed.
    Live {
        /// Which instance.
        key: InstanceKey,
        /// The bytes of its announcement, checked: they decode.
        value: InstanceValue,
    },
    /// An instance left, by a statement of the log.
    Gone {
        /// Which instance.
        key: InstanceKey,
        /// By which statement.
        cause: GoneCause,
    },
    /// A record states that an instance left which was not there: it left before this reader began
    /// to read, or its announcements were compacted away.
    Absent {
        /// Which instance.
        key: InstanceKey,
        /// When the log took that record.
        at: Timestamp,
    },
    /// A record deletes a definition which was not there: it was deleted before this reader began to
    /// read.
    AbsentDefinition {
        /// Which definition.
        key: DefinitionKey,
        /// When the log took that record.
        at: Timestamp,
    },
    /// An announcement or withdrawal was refused because of what stands.
    Refused {
        /// Whose.
        key: InstanceKey,
        /// Which record, and why.
        refusal: Arc<Refusal>,
    },
    /// An expire or tick was void.
    Void {
        /// Where it was read.
        topic: Topic,
        /// Where it was read.
        partition: PartitionId,
        /// Where it was read.
        offset: Offset,
        /// The instance that an expire was about.
        key: Option<InstanceKey>,
        /// Why.
        reason: VoidReason,
    },
    /// A record was skipped because it is not of this log's form.
    Rejected {
        /// Where it was read.
        topic: Topic,
        /// Where it was read.
        partition: PartitionId,
        /// Where it was read.
        offset: Offset,
        /// Why.
        reason: RejectReason,
    },
    /// A key was first announced in a partition that is not its own. It is served all the same.
    WrongPartition {
        /// Which instance.
        key: InstanceKey,
        /// Where it was read.
        partition: PartitionId,
        /// Where murmur2 of its key belongs.
        expected: PartitionId,
        /// Where it was read.
        offset: Offset,
    },
    /// A tick was read: time passed in one partition.
    Ticked(Tick),
    /// An identity record was read.
    Identity {
        /// In which topic.
        topic: Topic,
        /// Which log this is from now on.
        identity: LogIdentity,
        /// The identity that it replaces, where it says so.
        follows: Option<LogIdentity>,
    },
    /// A position is not continued: the topic is read again from its beginning, and what is served
    /// stays until that is done.
    Discontinued {
        /// Which topic.
        topic: Topic,
        /// Where it was noticed.
        partition: PartitionId,
        /// Why.
        cause: Discontinuity,
    },
    /// A topic was read again. What is served differently since came as events of its own.
    Replayed {
        /// Which topic.
        topic: Topic,
        /// What was found.
        sameness: Sameness,
    },
    /// A definition or an override was written or deleted (config topic only).
    Config {
        /// Which one.
        key: ConfigKey,
        /// What the store is told.
        input: StoreInput,
        /// Where its record stands.
        partition: PartitionId,
        /// Where its record stands: the revision that a change of it must name.
        offset: Offset,
    },
    /// A record of the config topic overwrote what its writer had not seen. It stands all the same.
    Conflict(Arc<Conflict>),
}

/// A tick as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Where.
    pub topic: Topic,
    /// Where.
    pub partition: PartitionId,
    /// Where.
    pub offset: Offset,
    /// When the log took it.
    pub append_time: Timestamp,
    /// Who wrote it.
    pub keeper: KeeperId,
    /// The partition's log time after it.
    pub log_time: LogTime,
}

/// By which statement an instance left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoneCause {
    /// It said so itself.
    Withdrawn,
    /// Nobody announced it for its time-to-live.
    Expired,
    /// An operator, or a producer without order data, removed it.
    Purged,
    /// It left while this Observer did not follow the log, which keeps no trace of how.
    Missed,
}

impl GoneCause {
    /// The closed label of metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
            Self::Purged => "purged",
            Self::Missed => "missed",
        }
    }
}

/// Whether this log has said that an instance lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Confirmation {
    /// An announcement of it was read in this log.
    #[default]
    Confirmed,
    /// It is known from the log that was here before this one was made anew or cut. Any announcement
    /// confirms it; otherwise it leaves once its time-to-live has passed.
    Unconfirmed,
}

/// Who an announcement or withdrawal is from, as far as order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The life's id; `None` for a producer that sends no headers.
    pub id: Option<LifeId>,
    /// When it began, on the log's clock. `None` only for a withdrawal that carries none.
    pub birth: Option<Timestamp>,
    /// Its count of changes.
    pub seq: u64,
}

/// An announcement or withdrawal that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// Where the refused record stands.
    pub partition: PartitionId,
    /// Where the refused record stands.
    pub offset: Offset,
    /// When the log took it.
    pub append_time: Timestamp,
    /// Whose it is.
    pub life: Life,
    /// What stands instead.
    pub standing: Life,
    /// The host name that the refused announcement states; empty when it states none.
    pub hostname: Arc<str>,
    /// The time-to-live of the refused announcement (zero for a withdrawal).
    pub ttl: Duration,
}

/// Why an announcement or withdrawal was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Another process, born later, serves.
    Older,
    /// The same process has made a later change.
    EarlierChange,
    /// What it announces was withdrawn by itself or by a later life.
    Withdrawn,
}

impl RefusalReason {
    /// The closed label of metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Older => "older",
            Self::EarlierChange => "earlier_change",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = Whose(self.standing.id);
        match self.reason {
            RefusalReason::Older => match (self.life.birth, self.standing.birth) {
                (None, _) => write!(f, "refused: without a birth it does not act on {standing}")?,
                (Some(birth), Some(later)) if later > birth => {
                    let millis = later.millis_since(birth);
                    let (seconds, rest) = (millis / 1000, millis % 1000);
                    write!(
                        f,
                        "refused: older than {standing}, which was born {seconds}.{rest:03} s later"
                    )?;
                }
                _ => write!(f, "refused: born together with {standing}, which stands")?,
            },
            RefusalReason::EarlierChange => write!(
                f,
                "refused: change {} of {standing}, which has made change {} since",
                self.life.seq, self.standing.seq
            )?,
            RefusalReason::Withdrawn => write!(
                f,
                "refused: {standing} was withdrawn, and this is not newer than that"
            )?,
        }
        if !self.hostname.is_empty() {
            write!(f, ", from host {}", self.hostname)?;
        }
        write!(f, " (partition {}, offset {})", self.partition, self.offset)
    }
}

struct Whose(Option<LifeId>);

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "life {id}"),
            None => f.write_str("a producer without order data"),
        }
    }
}

/// Why an expire or a tick has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum VoidReason {
    /// The instance was announced again after the evidence.
    #[error("void expire: announced again at offset {0}, after its evidence")]
    AnnouncedSince(Offset),
    /// The evidence is not below the expire itself.
    #[error("void expire: its evidence is not below its own offset")]
    ImpossibleEvidence,
    /// Less than the time-to-live lies between the last announcement and the expire.
    #[error(
        "void expire: the last announcement was only {age_ms} ms old; its time-to-live is {ttl_ms} ms"
    )]
    TooYoung {
        /// Age of the last announcement, milliseconds.
        age_ms: i64,
        /// Its time-to-live, milliseconds.
        ttl_ms: i64,
    },
    /// Evidence `none` acts on unconfirmed instances only.
    #[error("void expire: it carries no evidence and the instance is confirmed")]
    Confirmed,
    /// An unconfirmed instance leaves by evidence `none` only.
    #[error("void expire: it carries evidence and the instance is not confirmed by this log yet")]
    Unconfirmed,
    /// A burial of something that was announced again.
    #[error("void burial: announced again at offset {0}, after its evidence")]
    BuriedTooLate(Offset),
    /// A keeper wrote an announcement again that does not stand any more.
    #[error("void restatement: another announcement stands")]
    RestatesOther,
    /// A tick of another log.
    #[error("void tick: it belongs to log {0}, not to this one")]
    OtherLog(LogIdentity),
}

impl VoidReason {
    /// The closed label of metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AnnouncedSince(_) => "announced_since",
            Self::ImpossibleEvidence => "impossible_evidence",
            Self::TooYoung { .. } => "too_young",
            Self::Confirmed => "confirmed",
            Self::Unconfirmed => "unconfirmed",
            Self::BuriedTooLate(_) => "buried_too_late",
            Self::RestatesOther => "restates_other",
            Self::OtherLog(_) => "other_log",
        }
    }
}

/// Why a record was skipped. Each is one line that says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// No key.
    #[error("the record has no key; announce with the key CLUSTER, one zero byte, URI")]
    NoKey,
    /// A key that names no instance or definition.
    #[error("bad key: {0}")]
    Key(NameError),
    /// A known header of another form.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A value that is no announcement.
    #[error("bad announcement: {0}")]
    Announcement(AnnouncementError),
    /// A value of the config topic that is not what its key says.
    #[error(transparent)]
    Config(ConfigError),
    /// The value names another instance than the key.
    #[error("the value names {value}, the key {key}")]
    OtherInstance {
        /// The value's cluster and URI.
        value: String,
        /// The key's cluster and URI.
        key: String,
    },
    /// Headers, kind and value do not belong together.
    #[error("{0}")]
    Form(&'static str),
}

impl RejectReason {
    /// The closed label of metrics and JSON.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NoKey => "no_key",
            Self::Key(_) => "key",
            Self::Header(_) => "header",
            Self::Announcement(_) => "announcement",
            Self::Config(ConfigError::Definition(_)) => "definition",
            Self::Config(_) => "config",
            Self::OtherInstance { .. } => "other_instance",
            Self::Form(_) => "form",
        }
    }
}
