//! Records of the log: keys, values, and the order data that travels in headers.
//!
//! Source of every rule here: docs/announcement-log.md, "Records".

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::config::Replaces;
use crate::partition::PartitionId;
use crate::time::{LogTime, Timestamp};

/// The key of every tick. Compacted topics refuse records without a key.
pub const TICK_KEY: &[u8] = b"\0tick";

/// The key of the record that says which log this is (partition 0 of each topic).
pub const IDENTITY_KEY: &[u8] = b"\0identity";

/// A position in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Offset {
    /// Below every offset: what was never read in this log.
    pub const NONE: Self = Self(-1);

    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The topics of one fabric, without their prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// `PREFIX.announcements`: instances.
    Announcements,
    /// `PREFIX.config`: service and cluster definitions, overrides.
    Config,
    /// `PREFIX.control`: migration modes and their journal.
    Control,
}

impl Topic {
    /// All of them, in the order they are created and loaded.
    pub const ALL: [Self; 3] = [Self::Announcements, Self::Config, Self::Control];

    /// The name after the prefix.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Announcements => "announcements",
            Self::Config => "config",
            Self::Control => "control",
        }
    }
}

/// What kind of statement a record makes (`waypost-kind`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// An instance is there, or still there. The default; a null without headers is a purge.
    #[default]
    Announce,
    /// An instance says that it leaves.
    Withdraw,
    /// A keeper says that nobody announced an instance for its time-to-live.
    Expire,
    /// A keeper says that time passes.
    Tick,
    /// Says which log this is.
    Identity,
}

impl RecordKind {
    /// The header's text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Withdraw => "withdraw",
            Self::Expire => "expire",
            Self::Tick => "tick",
            Self::Identity => "identity",
        }
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                u64::from_str_radix(text, 16).map(Self)
            }
        }
    };
}

random_id!(
    /// One process's life as an announcer of one instance (`waypost-id`): 64 random bits, written
    /// as 16 hexadecimal digits.
    LifeId
);
random_id!(
    /// Which log this is: 64 random bits written when the log was created, as 16 hex digits.
    LogIdentity
);
random_id!(
    /// Which Observer wrote a tick: 64 random bits of one Observer process, as 16 hex digits.
    KeeperId
);

/// What an expire or a burial refers to (`waypost-evidence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The offset of the announcement meant.
    At(Offset),
    /// `none`: there is no announcement in this log (an unconfirmed instance).
    None,
}

/// The tick that a keeper had read last when it wrote its own (`waypost-prev`, `OFFSET:TIME`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TickRef {
    /// Where it stands.
    pub offset: Offset,
    /// Its append time.
    pub append_time: Timestamp,
}

/// Order data: the known headers of a record, parsed. Fixed size, so reading a heartbeat allocates
/// nothing. Unknown headers are ignored.
///
/// On the wire every header value is ASCII text, so that any Kafka tool can write one: identities
/// are hexadecimal, numbers decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Headers {
    /// `waypost-kind`.
    pub kind: RecordKind,
    /// `waypost-id`.
    pub id: Option<LifeId>,
    /// `waypost-birth`: milliseconds on the log's clock.
    pub birth: Option<Timestamp>,
    /// `waypost-age`: milliseconds since the life's first attempt, while its birth is unknown.
    pub age_ms: Option<i64>,
    /// `waypost-seq`: counts changes, not heartbeats.
    pub seq: Option<u64>,
    /// `waypost-evidence`.
    pub evidence: Option<Evidence>,
    /// `waypost-log`: the identity that a tick's writer knows, or that an identity record states.
    pub log: Option<LogIdentity>,
    /// `waypost-follows`: the identity that an identity record replaces.
    pub follows: Option<LogIdentity>,
    /// `waypost-prev`.
    pub prev: Option<TickRef>,
    /// `waypost-time`: the log time at which a tick's writer stood.
    pub time: Option<LogTime>,
    /// `waypost-keeper`.
    pub keeper: Option<KeeperId>,
    /// `waypost-replaces`: what a record of the config topic replaces.
    pub replaces: Option<Replaces>,
}

/// A header that cannot be read. The record that carries it is rejected alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header {name}: {value:?} is not {expected}")]
pub struct HeaderError {
    /// Which header.
    pub name: &'static str,
    /// Its value, as text.
    pub value: String,
    /// What it should be.
    pub expected: &'static str,
}

impl Headers {
    /// Reads the known headers out of a record's. The last of several with one name counts.
    ///
    /// # Errors
    /// A known header whose value is not of its form.
    pub fn read<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, HeaderError> {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.read_one(name, value)?;
        }
        Ok(headers)
    }

    fn read_one(&mut self, name: &str, value: &[u8]) -> Result<(), HeaderError> {
        const NUMBER: &str = "a decimal number of at least 0";
        const HEX: &str = "16 hexadecimal digits";
        match name {
            "waypost-kind" => self.kind = read_kind(value)?,
            "waypost-id" => {
                self.id = match read_hex(value) {
                    Some(id) => Some(LifeId(id)),
                    None => Some(parse("waypost-id", value, HEX)?),
                };
            }
            "waypost-birth" => {
                self.birth = Some(Timestamp(parse_count("waypost-birth", value, NUMBER)?));
            }
            "waypost-age" => self.age_ms = Some(parse_count("waypost-age", value, NUMBER)?),
            "waypost-seq" => {
                self.seq = match read_digits(value) {
                    Some(seq) => Some(seq.cast_unsigned()),
                    None => Some(parse("waypost-seq", value, NUMBER)?),
                };
            }
            "waypost-evidence" => self.evidence = Some(read_evidence(value)?),
            "waypost-log" => self.log = Some(parse("waypost-log", value, HEX)?),
            "waypost-follows" => self.follows = Some(parse("waypost-follows", value, HEX)?),
            "waypost-prev" => self.prev = Some(read_prev(value)?),
            "waypost-time" => {
                self.time = Some(LogTime(parse_count("waypost-time", value, NUMBER)?));
            }
            "waypost-keeper" => self.keeper = Some(parse("waypost-keeper", value, HEX)?),
            "waypost-replaces" => {
                const EXPECTED: &str = "OFFSET:LOGID, OFFSET or none";
                self.replaces = Some(parse("waypost-replaces", value, EXPECTED)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The headers to write, as name and text. That it is an announcement is left out, since that is
    /// what a record without a kind is: each header costs every reader of a heartbeat an allocation.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        let mut push = |name: &'static str, value: Option<String>| {
            pairs.extend(value.map(|value| (name, value)));
        };
        let is_said = self.kind != RecordKind::default();
        push(
            "waypost-kind",
            is_said.then(|| self.kind.as_str().to_owned()),
        );
        push("waypost-id", self.id.map(|v| v.to_string()));
        push("waypost-birth", self.birth.map(|v| v.0.to_string()));
        push("waypost-age", self.age_ms.map(|v| v.to_string()));
        push("waypost-seq", self.seq.map(|v| v.to_string()));
        push(
            "waypost-evidence",
            self.evidence.map(|v| match v {
                Evidence::At(offset) => offset.to_string(),
                Evidence::None => "none".to_owned(),
            }),
        );
        push("waypost-log", self.log.map(|v| v.to_string()));
        push("waypost-follows", self.follows.map(|v| v.to_string()));
        push(
            "waypost-prev",
            self.prev
                .map(|v| format!("{}:{}", v.offset, v.append_time.0)),
        );
        push("waypost-time", self.time.map(|v| v.0.to_string()));
        push("waypost-keeper", self.keeper.map(|v| v.to_string()));
        push("waypost-replaces", self.replaces.map(|v| v.to_string()));
        pairs
    }
}

fn text<'a>(
    name: &'static str,
    value: &'a [u8],
    expected: &'static str,
) -> Result<&'a str, HeaderError> {
    std::str::from_utf8(value).map_err(|_| HeaderError {
        name,
        value: String::from_utf8_lossy(value).into_owned(),
        expected,
    })
}

fn parse<T: FromStr>(
    name: &'static str,
    value: &[u8],
    expected: &'static str,
) -> Result<T, HeaderError> {
    let value = text(name, value, expected)?;
    value.parse().map_err(|_| HeaderError {
        name,
        value: value.to_owned(),
        expected,
    })
}

fn parse_count(
    name: &'static str,
    value: &[u8],
    expected: &'static str,
) -> Result<i64, HeaderError> {
    if let Some(number) = read_digits(value) {
        return Ok(number);
    }
    let number: i64 = parse(name, value, expected)?;
    if number < 0 {
        return Err(HeaderError {
            name,
            value: number.to_string(),
            expected,
        });
    }
    Ok(number)
}

/// The usual form of a number, which every heartbeat has two of: digits only, too few to overflow.
/// `None` for every other, which may still be a number.
fn read_digits(value: &[u8]) -> Option<i64> {
    if value.is_empty() || value.len() > 18 {
        return None;
    }
    value.iter().try_fold(0_i64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + i64::from(digit))
    })
}

/// The usual form of an identity. `None` for every other, which may still be one.
fn read_hex(value: &[u8]) -> Option<u64> {
    let digits: &[u8; 16] = value.try_into().ok()?;
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some((number << 4) | u64::from(digit))
    })
}

fn read_kind(value: &[u8]) -> Result<RecordKind, HeaderError> {
    const EXPECTED: &str = "one of announce, withdraw, expire, tick, identity";
    if value == b"announce" {
        return Ok(RecordKind::Announce);
    }
    match text("waypost-kind", value, EXPECTED)? {
        "announce" => Ok(RecordKind::Announce),
        "withdraw" => Ok(RecordKind::Withdraw),
        "expire" => Ok(RecordKind::Expire),
        "tick" => Ok(RecordKind::Tick),
        "identity" => Ok(RecordKind::Identity),
        other => Err(HeaderError {
            name: "waypost-kind",
            value: other.to_owned(),
            expected: EXPECTED,
        }),
    }
}

fn read_evidence(value: &[u8]) -> Result<Evidence, HeaderError> {
    if value == b"none" {
        return Ok(Evidence::None);
    }
    parse_count("waypost-evidence", value, "an offset or none").map(|o| Evidence::At(Offset(o)))
}

fn read_prev(value: &[u8]) -> Result<TickRef, HeaderError> {
    const EXPECTED: &str = "OFFSET:TIME";
    let whole = text("waypost-prev", value, EXPECTED)?;
    let bad = || HeaderError {
        name: "waypost-prev",
        value: whole.to_owned(),
        expected: EXPECTED,
    };
    let (offset, time) = whole.split_once(':').ok_or_else(bad)?;
    Ok(TickRef {
        offset: Offset(offset.parse().map_err(|_| bad())?),
        append_time: Timestamp(time.parse().map_err(|_| bad())?),
    })
}

/// A record as read from the log. Its bytes may share an allocation with those of other records: who
/// keeps them beyond the batch copies them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The partition that it stands in.
    pub partition: PartitionId,
    /// Where it stands in it.
    pub offset: Offset,
    /// When the log took it, by the log's clock (`LogAppendTime`).
    pub append_time: Timestamp,
    /// Its key; a record without one is rejected by the fold.
    pub key: Option<Bytes>,
    /// Its content, or null.
    pub value: Option<Bytes>,
    /// Its order data, or why that could not be read.
    pub headers: Result<Headers, HeaderError>,
}

/// How a record to be written is treated on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// A change: acknowledged only once it is durable.
    Change,
    /// A heartbeat: may be acknowledged before it is durable, and is worth nothing once the next
    /// one is due.
    Heartbeat,
    /// A tick: given up after two seconds and never retried later.
    Tick,
}

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Where to.
    pub topic: Topic,
    /// An explicit partition, or `None`: the key decides (murmur2).
    pub partition: Option<PartitionId>,
    /// Never empty.
    pub key: Bytes,
    /// Content, or null.
    pub value: Option<Bytes>,
    /// Order data.
    pub headers: Headers,
    /// How it is treated on its way.
    pub delivery: Delivery,
}

/// What the log says of a record that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The partition that it went to.
    pub partition: PartitionId,
    /// Where it stands.
    pub offset: Offset,
    /// When the log took it; `None` where the log did not say (a duplicate's acknowledgement).
    pub append_time: Option<Timestamp>,
}

#[cfg(test)]
mod tests;
