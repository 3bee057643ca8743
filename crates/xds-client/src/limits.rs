//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How long after it was asked for a resource that nobody mentioned is taken for missing, counted
/// from the moment at which the stream was up (gRFC A57; Envoy's `initial_fetch_timeout` is the same).
pub const RESOURCE_TIMER: Duration = Duration::from_secs(15);

/// First pause after every server was tried and none answered (gRPC connection backoff).
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// By how much each pause is longer than the one before, in percent (gRPC connection backoff).
pub const BACKOFF_GROWTH_PERCENT: u32 = 160;

/// Longest pause. Shorter than gRPC's two minutes: whoever brings a fleet of Observers back wants to
/// see its clients within half a minute.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How far a pause is off its length at most, in percent either way (gRPC connection backoff).
pub const BACKOFF_JITTER_PERCENT: u32 = 20;

/// Over how long clients spread their return after a stream that had answered ended: long enough that
/// ten thousand streams of an Observer that dies do not meet in one accept queue, short enough that
/// nobody waits.
pub const RETURN_SPREAD: Duration = Duration::from_millis(500);

/// How long a server may take to accept a stream before the next one is tried.
pub const OPEN_MAX: Duration = Duration::from_secs(10);

/// How long a server may leave a delta stream with subscriptions without any response, each of which
/// must be answered, before the next one is tried. Longer than the resource timer, so that what is
/// missing is told first.
pub const MUTE_MAX: Duration = Duration::from_secs(20);

/// After how long on a stream that was told which versions are held silence confirms them. Servers
/// answer within the resource timer; this is how long a list stays marked stale that is not.
pub const CONFIRMED_AFTER: Duration = Duration::from_secs(5);

/// How often a client that is not with its first server looks whether it is back, give or take the
/// jitter of pauses.
pub const FALL_BACK_EVERY: Duration = Duration::from_secs(60);

/// Subscriptions at once. A client calls some hundreds of clusters; tools watch a fleet's.
pub const WATCHES_MAX: usize = 1_000_000;

/// Types at once. There are eight that Waypost serves and about as many more in Envoy.
pub const TYPES_MAX: usize = 32;

/// Resources held at once: a whole fleet by collections, as the largest server holds it.
pub const HELD_MAX: usize = 5_000_000;

/// Servers in one list: more than there are Observers in a fabric.
pub const SERVERS_MAX: usize = 64;

/// Names in one request that adds to a stream: what fits a message of 4 MiB with names of 400 bytes.
pub const NAMES_PER_REQUEST_MAX: usize = 10_000;

/// Refused resources that one answer names. More would not fit a log line.
pub const REJECTIONS_TOLD_MAX: usize = 10;

/// Characters of one reason for a refusal that are sent and kept.
pub const REASON_CHARS_MAX: usize = 500;

/// Largest response that is read. Servers keep below 4 MiB; one resource can be larger than that.
pub const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Largest response that a client reads which leaves gRPC's own bound as it is, as rest.li's and
/// proxyless gRPC do.
pub const GRPC_RESPONSE_BYTES_MAX: usize = 4 << 20;

/// Requests between the machine and the connection. They wait in the machine, where later ones
/// replace earlier ones, and not here.
pub const REQUESTS_QUEUED_MAX: usize = 2;

/// How long a TCP connection to a server may take.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How often an idle connection is probed, and how long the answer may take: what finds a server
/// whose machine vanished.
pub const KEEPALIVE: Duration = Duration::from_secs(15);

const _: () = assert!(BACKOFF_JITTER_PERCENT < 100 && BACKOFF_GROWTH_PERCENT > 100);
const _: () = assert!(MUTE_MAX.as_secs() > RESOURCE_TIMER.as_secs());
