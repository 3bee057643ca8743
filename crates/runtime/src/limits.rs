//! Bounds of the process shell.

use std::time::Duration;

/// How long the admin server lets requests that are under way go on once it was told to stop. They
/// are small or endless (`watch`), so waiting longer would help nobody.
pub const ADMIN_STOP_GRACE: Duration = Duration::from_secs(1);

/// Names that readiness lists in one answer. A log of thousands of partitions would otherwise make
/// an answer that no probe shows; the count of the rest is said.
pub const PENDING_LISTED_MAX: usize = 100;
