//! The bounds of a load, each with its reason.

use std::time::Duration;

/// What one read takes from a socket: several bursts of a connection of eight streams, in one call.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// Events taken from the kernel at once.
pub(super) const EVENTS_MAX: usize = 1024;

/// Commands that wait to be looked at: the runner sends the next when it has the answer to the last.
pub(super) const COMMANDS_MAX: usize = 4;

/// How often deadlines are looked after.
pub(super) const TICK: Duration = Duration::from_millis(20);
