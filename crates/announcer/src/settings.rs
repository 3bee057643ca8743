//! What an announcement may say before it is ever sent.

use std::time::Duration;

use waypost_core::limits::{HEARTBEATS_PER_TTL_MIN, TTL_MAX, TTL_MIN};
use waypost_core::{Announcement, InstanceUri};
use waypost_proto::announcement::AnnouncementError;

use crate::limits::HEARTBEAT_MIN;

/// Why an announcement cannot be made. Each says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// One lost heartbeat would be an outage.
    #[error(
        "ttl {} is shorter than two heartbeats of {}: one lost heartbeat would remove the instance; \
         use a ttl of at least {} or a heartbeat of at most {}",
        show(*.ttl), show(*.heartbeat), show(*.heartbeat * HEARTBEATS_PER_TTL_MIN), show(*.ttl / HEARTBEATS_PER_TTL_MIN)
    )]
    TtlBelowTwoHeartbeats {
        /// The time-to-live as given.
        ttl: Duration,
        /// The heartbeat interval as given.
        heartbeat: Duration,
    },
    /// The log's rules want three heartbeats in a time-to-live.
    #[error(
        "heartbeat {} is more than a third of ttl {}; use a ttl of at least {} or a heartbeat of at most {}",
        show(*.heartbeat), show(*.ttl), show(*.heartbeat * HEARTBEATS_PER_TTL_MIN), show(*.ttl / HEARTBEATS_PER_TTL_MIN)
    )]
    HeartbeatAboveAThird {
        /// The time-to-live as given.
        ttl: Duration,
        /// The heartbeat interval as given.
        heartbeat: Duration,
    },
    /// Outside what the log's rules allow; Observers would clamp it in silence.
    #[error("ttl {} is outside {} to {}", show(*.0), show(TTL_MIN), show(TTL_MAX))]
    Ttl(Duration),
    /// Too often.
    #[error("heartbeat {} is shorter than {}", show(*.0), show(HEARTBEAT_MIN))]
    Heartbeat(Duration),
    /// Nobody can call it.
    #[error("{0} has port 0, which nobody can call; announce the port that the server listens on")]
    PortZero(InstanceUri),
    /// Anything that no Observer would accept.
    #[error(transparent)]
    Content(#[from] AnnouncementError),
}

/// Checks an announcement by every rule that an Observer applies, and by those that only an
/// announcer can keep.
///
/// # Errors
/// See [`SettingsError`].
pub fn check(announcement: &Announcement) -> Result<(), SettingsError> {
    let Announcement { ttl, heartbeat, .. } = *announcement;
    if heartbeat < HEARTBEAT_MIN {
        return Err(SettingsError::Heartbeat(heartbeat));
    }
    if ttl < heartbeat.saturating_mul(2) {
        return Err(SettingsError::TtlBelowTwoHeartbeats { ttl, heartbeat });
    }
    if ttl < heartbeat.saturating_mul(HEARTBEATS_PER_TTL_MIN) {
        return Err(SettingsError::HeartbeatAboveAThird { ttl, heartbeat });
    }
    if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Err(SettingsError::Ttl(ttl));
    }
    if announcement.uri.parts().port == Some(0) {
        return Err(SettingsError::PortZero(announcement.uri.clone()));
    }
    waypost_proto::announcement::decode(&waypost_proto::announcement::encode(announcement))?;
    Ok(())
}

/// Seconds where they are whole, else milliseconds.
fn show(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use waypost_core::{ClusterName, InstanceUri, Timestamp};

    use super::*;

    #[test]
    fn times_that_would_lose_an_instance_are_refused_with_what_to_do() {
        let cases = [
            (10_000, 30_000, ""),
            (5_000, 15_000, ""),
            (
                10_000,
                10_000,
                "ttl 10s is shorter than two heartbeats of 10s: one lost heartbeat would remove the \
                 instance; use a ttl of at least 30s or a heartbeat of at most 3333ms",
            ),
            (
                10_000,
                25_000,
                "heartbeat 10s is more than a third of ttl 25s; use a ttl of at least 30s or a \
                 heartbeat of at most 8333ms",
            ),
            (1_000, 9_000, "ttl 9s is outside 10s to 300s"),
            (10_000, 301_000, "ttl 301s is outside 10s to 300s"),
            (99, 10_000, "heartbeat 99ms is shorter than 100ms"),
        ];
        for (heartbeat, ttl, expected) in cases {
            let mut announcement = Announcement::new(
                ClusterName::parse("c").unwrap(),
                InstanceUri::parse("grpc://h:1").unwrap(),
                Timestamp(0),
            );
            announcement.heartbeat = Duration::from_millis(heartbeat);
            announcement.ttl = Duration::from_millis(ttl);
            let found = check(&announcement).err().map(|e| e.to_string());
            assert_eq!(found.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn a_port_that_nobody_can_call_is_refused() {
        let announcement = Announcement::new(
            ClusterName::parse("c").unwrap(),
            InstanceUri::parse("grpc://h:0").unwrap(),
            Timestamp(0),
        );
        let error = check(&announcement).unwrap_err();
        assert!(error.to_string().contains("port 0"), "{error}");
    }
}
