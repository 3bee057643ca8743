//! The one place of this crate that reads a wall clock: for times of origin, never for order.

use std::time::SystemTime;

use waypost_core::Timestamp;
use waypost_core::time::millis;

/// The wall clock's time now.
#[expect(
    clippy::disallowed_methods,
    reason = "times of origin are the announcer's wall clock by definition, and a library that \
              strangers link does not pull in the process shell that has this for our binaries"
)]
pub(crate) fn now() -> Timestamp {
    // A clock before 1970 gives the epoch: an origin is for measuring only.
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(since_epoch.map_or(0, millis))
}
