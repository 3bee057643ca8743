//! `waypost.v1.Announcement` and [`Announcement`].

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use waypost_core::limits::{ANNOUNCEMENT_BYTES_MAX, D2_PARTITIONS_MAX};
use waypost_core::name::NameError;
use waypost_core::{Announcement, ClusterName, Health, InstanceUri, PartitionWeights, Timestamp};

use crate::v1 as pb;

/// Why the bytes of an announcement were not accepted. One bad value rejects itself alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    /// Not a protobuf message of this type.
    #[error("not an Announcement message: {0}")]
    Decode(String),
    /// Larger than [`ANNOUNCEMENT_BYTES_MAX`].
    #[error("{0} bytes; at most {ANNOUNCEMENT_BYTES_MAX} are allowed")]
    TooLarge(usize),
    /// The cluster or URI is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Any other field.
    #[error("{field}: {why}")]
    Field {
        /// Its name in the `.proto`.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// Decodes and checks an announcement.
///
/// # Errors
/// See [`AnnouncementError`].
pub fn decode(value: &[u8]) -> Result<Announcement, AnnouncementError> {
    if value.len() > ANNOUNCEMENT_BYTES_MAX {
        return Err(AnnouncementError::TooLarge(value.len()));
    }
    let message =
        pb::Announcement::decode(value).map_err(|e| AnnouncementError::Decode(e.to_string()))?;
    Announcement::try_from(message)
}

/// Encodes an announcement: equal announcements give equal bytes.
#[must_use]
pub fn encode(announcement: &Announcement) -> Bytes {
    pb::Announcement::from(announcement).encode_to_vec().into()
}

impl From<&Announcement> for pb::Announcement {
    fn from(a: &Announcement) -> Self {
        Self {
            cluster: a.cluster.as_str().to_owned(),
            uri: a.uri.as_str().to_owned(),
            hostname: a.hostname.clone(),
            ipv4_address: a
                .ipv4
                .map(|ip| Bytes::copy_from_slice(&ip.octets()))
                .unwrap_or_default(),
            ipv6_address: a
                .ipv6
                .map(|ip| Bytes::copy_from_slice(&ip.octets()))
                .unwrap_or_default(),
            is_ipv4_in_san: a.ipv4_in_san,
            is_ipv6_in_san: a.ipv6_in_san,
            port: 0,
            scheme: String::new(),
            partition_weights: a.weights.clone(),
            health: match a.health {
                Health::Healthy => pb::Health::Healthy,
                Health::Draining => pb::Health::Draining,
                Health::Unhealthy => pb::Health::Unhealthy,
            }
            .into(),
            metadata_json: if a.metadata == "{}" {
                String::new()
            } else {
                a.metadata.clone()
            },
            fabric: a.fabric.clone(),
            zone: a.zone.clone(),
            application: a.application.clone(),
            tracing_id: a.tracing_id.clone(),
            heartbeat_ms: to_millis(a.heartbeat),
            ttl_ms: to_millis(a.ttl),
            origin_ms: a.origin.0,
        }
    }
}

impl TryFrom<pb::Announcement> for Announcement {
    type Error = AnnouncementError;

    fn try_from(m: pb::Announcement) -> Result<Self, AnnouncementError> {
        let metadata = check_metadata(m.metadata_json)?;
        Ok(Self {
            cluster: ClusterName::parse(&m.cluster)?,
            uri: InstanceUri::parse(&m.uri)?,
            hostname: m.hostname,
            ipv4: read_ip::<4, Ipv4Addr>("ipv4_address", &m.ipv4_address)?,
            ipv6: read_ip::<16, Ipv6Addr>("ipv6_address", &m.ipv6_address)?,
            ipv4_in_san: m.is_ipv4_in_san,
            ipv6_in_san: m.is_ipv6_in_san,
            weights: check_weights(m.partition_weights)?,
            // A health that a later release adds is read as the one that takes no traffic.
            health: match pb::Health::try_from(m.health) {
                Ok(pb::Health::Healthy) => Health::Healthy,
                Ok(pb::Health::Draining) => Health::Draining,
                Ok(pb::Health::Unhealthy) | Err(_) => Health::Unhealthy,
            },
            metadata,
            fabric: m.fabric,
            zone: m.zone,
            application: m.application,
            tracing_id: m.tracing_id,
            heartbeat: Duration::from_millis(m.heartbeat_ms.into()),
            ttl: Duration::from_millis(m.ttl_ms.into()),
            origin: Timestamp(m.origin_ms),
        })
    }
}

fn to_millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn read_ip<const N: usize, T: From<[u8; N]>>(
    field: &'static str,
    bytes: &[u8],
) -> Result<Option<T>, AnnouncementError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let octets: [u8; N] = bytes.try_into().map_err(|_| AnnouncementError::Field {
        field,
        why: format!("{} bytes instead of {N}", bytes.len()),
    })?;
    Ok(Some(octets.into()))
}

fn check_weights(weights: PartitionWeights) -> Result<PartitionWeights, AnnouncementError> {
    let field = "partition_weights";
    if weights.is_empty() {
        return Ok(PartitionWeights::from([(0, 1.0)]));
    }
    if weights.len() > D2_PARTITIONS_MAX {
        let why = format!("{} partitions; at most {D2_PARTITIONS_MAX}", weights.len());
        return Err(AnnouncementError::Field { field, why });
    }
    match weights
        .iter()
        .find(|(p, w)| **p < 0 || !w.is_finite() || **w < 0.0)
    {
        Some((partition, weight)) => Err(AnnouncementError::Field {
            field,
            why: format!(
                "partition {partition} has weight {weight}; both must be at least 0 and finite"
            ),
        }),
        None => Ok(weights),
    }
}

fn check_metadata(text: String) -> Result<String, AnnouncementError> {
    if text.is_empty() {
        return Ok("{}".to_owned());
    }
    let field = "metadata_json";
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(serde_json::Value::Object(_)) => Ok(text),
        Ok(_) => Err(AnnouncementError::Field {
            field,
            why: "not a JSON object".to_owned(),
        }),
        Err(e) => Err(AnnouncementError::Field {
            field,
            why: e.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_announcement() -> Announcement {
        let mut a = Announcement::new(
            ClusterName::parse("greeter").unwrap(),
            InstanceUri::parse("grpc://[::1]:50051").unwrap(),
            Timestamp(1_700_000_000_123),
        );
        a.ipv4 = Some(Ipv4Addr::LOCALHOST);
        a.ipv6 = Some(Ipv6Addr::LOCALHOST);
        a.weights = PartitionWeights::from([(3, 0.5), (0, 1.0)]);
        a.metadata = r#"{"n":9007199254740993,"f":1.0}"#.to_owned();
        a
    }

    #[test]
    fn announcements_round_trip_and_equal_ones_are_equal_bytes() {
        let a = mk_announcement();
        let bytes = encode(&a);
        assert_eq!(decode(&bytes), Ok(a.clone()));
        assert_eq!(encode(&decode(&bytes).unwrap()), bytes);
    }

    #[test]
    fn an_empty_message_gets_its_defaults_once_it_has_a_name() {
        let message = pb::Announcement {
            cluster: "c".to_owned(),
            uri: "http://h:1".to_owned(),
            ..pb::Announcement::default()
        };
        let a = Announcement::try_from(message).unwrap();
        assert_eq!(a.weights, PartitionWeights::from([(0, 1.0)]));
        assert_eq!(a.metadata, "{}");
    }

    #[test]
    fn bad_fields_are_refused_by_name() {
        type Spoil = fn(&mut pb::Announcement);
        let cases: [(&str, Spoil); 5] = [
            ("ipv4_address", |m| {
                m.ipv4_address = Bytes::from_static(b"123")
            }),
            ("partition_weights", |m| {
                m.partition_weights.extend([(0, f64::NAN)])
            }),
            ("partition_weights", |m| {
                m.partition_weights.extend([(-1, 1.0)])
            }),
            ("metadata_json", |m| m.metadata_json = "[1]".to_owned()),
            ("URI", |m| m.uri = "nope".to_owned()),
        ];
        for (field, spoil) in cases {
            let mut message = pb::Announcement::from(&mk_announcement());
            spoil(&mut message);
            let error = Announcement::try_from(message).expect_err(field);
            assert!(error.to_string().contains(field), "{field}: {error}");
        }
        assert!(matches!(
            decode(b"\xff\xff"),
            Err(AnnouncementError::Decode(_))
        ));
        let huge = vec![0; ANNOUNCEMENT_BYTES_MAX + 1];
        assert_eq!(decode(&huge), Err(AnnouncementError::TooLarge(huge.len())));
    }
}
