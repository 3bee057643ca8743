//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How long reading the config topic to its end may take before a command gives up. Definitions are
/// few; a broker that needs longer than this is not healthy, and a person is waiting.
pub const DEFINITIONS_READ_MAX: Duration = Duration::from_secs(15);

/// Definitions in one request: a whole fleet's can be applied by parts, and one request must fit
/// the 4 MiB that a gRPC server accepts in one message.
pub const DEFINITIONS_PER_REQUEST_MAX: usize = 10_000;

/// Mistakes reported for one request. More would scroll off a screen and tell nothing new.
pub const MISTAKES_REPORTED_MAX: usize = 50;
