//! Bounds of the Observer.

use std::time::Duration;

/// Log time under which a log counts as newborn: the longest heartbeat interval allowed (100 s, a
/// third of the longest time-to-live) and 10 s for the beat to arrive.
pub const NEWBORN_GRACE_DEFAULT: Duration = Duration::from_secs(110);

/// Over how long clients are sent away when an Observer is told to stop.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(30);
