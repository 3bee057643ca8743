//! The machine's clock, for stamps that another process on it reads.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "ages are measured from one process of this machine to another; nothing is ordered by it"
)]
pub(crate) fn now_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since_epoch.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
