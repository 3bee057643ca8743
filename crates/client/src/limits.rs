//! Every bound of this crate, with its reason. Those of the stream itself are in
//! [`waypost_xds_client::limits`].

use std::time::Duration;

/// Clusters that one client watches. A process calls some hundreds.
pub const CLUSTERS_MAX: usize = 10_000;

/// Endpoints of one cluster: above the largest that one message of a server can carry.
pub const ENDPOINTS_MAX: usize = 500_000;

/// Shortest time between two writes of the file: a burst of changes costs one.
pub const FILE_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a write that failed. A full disk does not get better by being asked every second.
pub const FILE_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Largest file that is read: a thousand clusters of a thousand endpoints, twice.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// How long a file that is being written stays if its process has died. A write takes seconds at most.
pub const LEFTOVER_KEPT: Duration = Duration::from_hours(1);

/// Entries of its folder that are looked at for such files. A folder for one file has few.
pub const FOLDER_ENTRIES_MAX: usize = 10_000;

/// How long the file keeps what is not watched in this life, since it was last confirmed. A process
/// that calls a cluster once a week still finds it.
pub const FILE_ENTRY_KEPT: Duration = Duration::from_hours(24 * 14);

/// How long [`close`](crate::Client::close) waits for the last write.
pub const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How long a call waits for the first list of its cluster, and for a connection, all attempts
/// together. A caller that wants less sets a timeout of its own.
pub const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long one connection to an endpoint may take. Within one data centre it takes milliseconds; what
/// takes longer is not there.
pub const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Endpoints that one call tries to connect to. Each is another one, and nothing was sent to any of
/// those that failed.
pub const ATTEMPTS_MAX: usize = 5;

/// For how long an endpoint is passed over at first that could not be connected to; twice as long after each
/// further failure.
pub const PASSED_OVER_FIRST: Duration = Duration::from_secs(1);

/// Longest time for which it is.
pub const PASSED_OVER_MAX: Duration = Duration::from_secs(30);

/// How often an idle connection to an endpoint is probed, and how long the answer may take. Servers of
/// gRPC permit a probe every five minutes without asking, and close connections that send more.
pub const KEEPALIVE: Duration = Duration::from_secs(300);

/// How long the answer to a probe may take.
pub const KEEPALIVE_ANSWER_MAX: Duration = Duration::from_secs(20);

/// Random choices among usable endpoints before all of them are looked at one by one.
pub const CHOICES_MAX: usize = 4;

const _: () = assert!(PASSED_OVER_FIRST.as_millis() < PASSED_OVER_MAX.as_millis());
