//! Bounds of the scripted client. Those of rest.li are taken over.

use std::time::Duration;

/// How long a call waits for a property that it needs (rest.li `lbWaitTimeout`).
pub const PROPERTY_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a reader of the directory waits for the end of the snapshot (rest.li `XdsDirectory`).
pub const DIRECTORY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long connection and health check of the start may take (rest.li `xdsStreamReadyTimeout`).
pub const PRE_CHECK_MAX: Duration = Duration::from_secs(2);

/// How long a request to a host may take before it counts as failed: far longer than any answer of
/// a test's server, on any machine.
pub const REQUEST_MAX: Duration = Duration::from_secs(20);

/// Wishes that wait for the client's task; whoever has more waits.
pub const WANTS_QUEUED_MAX: usize = 64;
