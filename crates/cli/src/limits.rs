//! Every bound of the command line, with its reason.

use std::time::Duration;

/// How long `apply` and `delete` wait for a gateway: the definitions are read to their end and each
/// one is made durable.
pub(crate) const APPLY_MAX: Duration = Duration::from_secs(30);

/// How long an admin port may take to accept a connection.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How long an admin port may take to answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Largest answer that is read, bytes: a page of ten thousand rows with metadata, ten times over.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Longest line of a watch, bytes: one instance, its metadata escaped.
pub(crate) const WATCH_LINE_BYTES_MAX: usize = 1024 * 1024;

/// Silence after which a watch is taken for dead: several of the server's idle lines.
pub(crate) const WATCH_SILENCE_MAX: Duration = Duration::from_secs(60);

/// Pause before a watch that broke is begun again.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// Pages of one list: as many rows as one Observer is built to hold.
pub(crate) const PAGES_MAX: usize = 1000;

/// How long one health check may take, whatever the interval.
pub(crate) const HEALTH_CHECK_MAX: Duration = Duration::from_secs(2);

/// Longest `--topic-prefix`, bytes: Kafka's names of topics hold 249, of which `.announcements` is 14.
pub(crate) const TOPIC_PREFIX_BYTES_MAX: usize = 200;

/// Shortest pause between health checks.
pub(crate) const HEALTH_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How long a command is silent about what it waits for: longer than a Kafka needs that is well.
pub(crate) const WAITING_FIRST_REPORT: Duration = Duration::from_secs(2);

/// How often waiting is mentioned.
pub(crate) const WAITING_REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// How long a withdrawal may take before the agent goes on without the log's acknowledgement: a
/// server that is asked to stop must stop, and its ttl removes it in the end.
pub(crate) const WITHDRAW_MAX: Duration = Duration::from_secs(5);

/// How long the name lookup at mark-up may take. It is not worth delaying the announcement for more:
/// Observers resolve what is announced without an address.
pub(crate) const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// Largest file of definitions, bytes.
pub(crate) const DEFINITION_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Nesting of a definition: JSON readers stop at 128, too.
pub(crate) const DEFINITION_DEPTH_MAX: usize = 100;

/// Times that two Observers are compared whose digests differ without a key that shows it. Each time
/// is at a newer tick; what an announcement has mended is equal then.
pub(crate) const COMPARE_ROUNDS_MAX: usize = 3;

/// Times that the keys of a bucket are read, from both sides in turn, until one is proven to differ.
/// Two are enough unless the key was just announced; a few more bridge that.
pub(crate) const COMPARE_LOOKS_MAX: usize = 6;
