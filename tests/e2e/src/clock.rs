//! The wall clock, to compare with what clients in other processes wrote down.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970-01-01 UTC, as Python's `time.time()`.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the clocks of other processes"
)]
pub fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
