//! The one place of this crate that reads a wall clock: for the times in its file, never for order.

use std::time::SystemTime;

use waypost_core::Timestamp;
use waypost_core::time::millis;

/// The wall clock's time now.
#[expect(
    clippy::disallowed_methods,
    reason = "the file outlives the process, so its times are of the wall clock; a library that \
              strangers link does not pull in the process shell that has it for our binaries"
)]
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(since_epoch.map_or(0, millis))
}
