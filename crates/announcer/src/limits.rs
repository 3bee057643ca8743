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

/// Shortest heartbeat interval. Below it a fleet costs its log more than it tells it.
pub const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Share of the heartbeat interval by which a heartbeat may come late, in percent. Enough to pull
/// processes apart whose phases happen to meet, too little to cost the log anything.
pub const HEARTBEAT_JITTER_PERCENT: u32 = 10;

/// First pause after a failed write.
pub const RETRY_FIRST: Duration = Duration::from_millis(200);

/// Longest pause after failed writes, where the heartbeat interval is not shorter. A log that comes back
/// has everybody again within an interval, and ten thousand instances of one process return over
/// seconds, not at once.
pub const RETRY_MAX: Duration = Duration::from_secs(10);

/// How long one write may take before it counts as failed. A log that is healthy answers within
/// milliseconds; a time-to-live is at least 10 s by default three times that.
pub const APPEND_MAX: Duration = Duration::from_secs(30);

/// Writes in flight at once from one pool: enough for ten thousand changes a second at a round trip
/// of 50 ms, few enough to hold in memory twice.
pub const IN_FLIGHT_MAX: usize = 512;

/// Instances in one pool. A process announces a handful; load generators announce ten thousand.
pub const INSTANCES_MAX: usize = 100_000;

/// How long the answer "served" or "refused" is waited for after the log has a record. Then the next
/// heartbeat asks again.
pub const VERDICT_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(RETRY_FIRST.as_millis() < RETRY_MAX.as_millis());
const _: () = assert!(HEARTBEAT_JITTER_PERCENT < 50);

/// How long a gateway may take to accept a connection before the next one is tried.
pub const GATEWAY_CONNECT_MAX: Duration = Duration::from_secs(2);

/// How long a gateway may take until it says that the log has a record. Half of the shortest
/// time-to-live, so that a gateway that hangs is left before an instance can expire.
pub const GATEWAY_ANSWER_MAX: Duration = Duration::from_secs(5);

/// How often an idle connection to a gateway is probed, and how long the answer may take: what
/// finds a gateway whose machine vanished.
pub const GATEWAY_KEEPALIVE: Duration = Duration::from_secs(5);

/// For how long after its own record a command reads on: who read the topic at the same time has
/// written by then, since between reading and writing lies one round trip.
pub const READ_BACK_BEYOND: Duration = Duration::from_secs(1);

/// Conflicts that one command names. More would not fit a line, and the journal has them all.
pub const CONFLICTS_TOLD_MAX: usize = 10;

/// Overrides that may stand at once: what people can look after is far less.
pub const OVERRIDES_MAX: usize = 10_000;

/// How long a journal entry is kept: long enough to answer who did what last quarter.
pub const JOURNAL_KEPT: Duration = Duration::from_hours(24 * 90);

/// Journal entries that are kept, whatever their age. Every command reads all of the topic.
pub const JOURNAL_MAX: usize = 1_000;

/// How long an eviction is remembered beside the instance: it explains an absence of today, not of
/// last quarter, and addresses of instances are seldom used twice.
pub const EVICTIONS_KEPT: Duration = Duration::from_hours(24 * 30);

/// Old records that one command deletes on its way. Two would do to keep the number bounded.
pub const PRUNED_AT_ONCE_MAX: usize = 16;
