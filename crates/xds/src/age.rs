//! The largest age of a connection. Without one, clients stay where they are for ever, and an
//! Observer that was added gets none of those that are there already. A connection that has reached
//! it is told to go away (GOAWAY), its xDS streams end with OK, and its client comes back with what it
//! holds, wherever its name resolver or balancer sends it. (gRFC A9; istio/istio#7878)

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::time::Duration;

use crate::events::EndReason;
use crate::limits::{CONNECTION_AGE_GRACE, CONNECTION_AGE_JITTER, RETIRING_LOOK};
use crate::server::AdsServer;

/// Ready when a connection that begins now has reached its largest age; never without one.
pub(crate) async fn reached(age_max: Option<Duration>) {
    match age_max {
        Some(age_max) => {
            let random = RandomState::new().hash_one(0_u8);
            tokio::time::sleep(jittered(age_max, random)).await;
        }
        None => std::future::pending().await,
    }
}

/// Ends the streams of a connection that was told to go away, those too that its client opened before
/// it heard of that, until the connection is over. `None`: something else is still open on it after
/// the grace, and it is closed.
pub(crate) async fn retire<C: Future + Unpin>(
    connection: &mut C,
    server: &AdsServer,
    peer: SocketAddr,
) -> Option<C::Output> {
    let closed = async {
        loop {
            server.end_streams_of(peer, EndReason::ConnectionAge);
            tokio::select! {
                output = &mut *connection => return output,
                () = tokio::time::sleep(RETIRING_LOOK) => {}
            }
        }
    };
    tokio::time::timeout(CONNECTION_AGE_GRACE, closed)
        .await
        .ok()
}

/// Up to [`CONNECTION_AGE_JITTER`] more or less, so that connections that began together do not end
/// together.
fn jittered(age_max: Duration, random: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "any number from 0 to 1 will do")]
    let unit = random as f64 / u64::MAX as f64;
    age_max.mul_f64(1.0 + CONNECTION_AGE_JITTER * (2.0 * unit - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_spread_around_the_largest_one() {
        let hour = Duration::from_secs(3600);
        assert_eq!(jittered(hour, 0), hour.mul_f64(1.0 - CONNECTION_AGE_JITTER));
        assert_eq!(
            jittered(hour, u64::MAX),
            hour.mul_f64(1.0 + CONNECTION_AGE_JITTER)
        );
    }
}
