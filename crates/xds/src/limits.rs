//! Every bound of the engine: its name, its unit and why it has this value. What an operator may
//! want to change has a field in [`AdsSettings`](crate::AdsSettings) and its default here.

use std::time::Duration;

/// Largest response message, bytes, the five bytes of the gRPC frame included. gRPC clients refuse
/// more than 4 MiB; the rest is room for clients that count differently.
pub const RESPONSE_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024 - 64 * 1024;

/// Smallest value that `response_bytes_max` may be set to: the private part of a response, one
/// short name and one small resource fit.
pub const RESPONSE_BYTES_MAX_FLOOR: usize = 1024;

/// Largest request message, bytes. A client that comes back names all it holds with their versions
/// (150,000 names are about 16 MiB); twice that.
pub const REQUEST_BYTES_MAX_DEFAULT: usize = 32 * 1024 * 1024;

/// Streams that one server accepts. At about 10 KiB each they fit half a GiB.
pub const STREAMS_MAX_DEFAULT: usize = 50_000;

/// Names that one stream may be subscribed to, all types together. D2 clients hold hundreds.
pub const NAMES_PER_STREAM_MAX_DEFAULT: usize = 1_000_000;

/// How long a stream may wait with its first request.
pub const FIRST_REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// How long changes may wait for a client that does not read before its stream is cut off. Longer
/// than a long pause of a garbage collector, shorter than anyone wants stale routing.
pub const STALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

/// Names that wait in one outbox before the stream is cut off: only a client that does not read
/// while names come and go without end gets there.
pub const OUTBOX_NAMES_MAX: usize = 4_000_000;

/// How long the removal of a cluster waits for the client to confirm the listeners and routes that
/// no longer name it (make before break).
pub const REMOVAL_HOLD_DEFAULT: Duration = Duration::from_secs(3);

/// How long the names of a stale `SotW` request wait for a moment that is not stale
/// (envoyproxy/envoy#10363).
pub const STALE_NAMES_DELAY: Duration = Duration::from_millis(500);

/// Requests of one stream that are read before other streams of the thread get their turn.
pub const REQUESTS_PER_POLL_MAX: usize = 64;

/// Rounds over the parts of a connection in one turn: requests are read, what they wake answers, the
/// answers are written; twice that, for those that come in more pieces.
pub const ROUNDS_PER_TURN_MAX: usize = 6;

/// Types that are not served and wait for an answer, per stream; more go unanswered.
pub const UNKNOWN_TYPES_MAX: usize = 16;

/// Longest text of a client's error that is kept, bytes.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;

/// Longest node field that is kept for people to look at, bytes.
pub const NODE_TEXT_BYTES_MAX: usize = 512;

/// Services that a proxy may name as those that it calls: each is looked up for every change of its
/// routes. Real proxies call tens.
pub const SCOPE_SERVICES_MAX: usize = 1_000;

/// HTTP/2 streams that one connection may have open. Some clients (Envoy, test drivers) put many
/// streams on one connection; what is over the limit waits at the client, in silence.
pub const STREAMS_PER_CONNECTION_MAX_DEFAULT: u32 = 10_000;

/// Connections of one listener. An idle one costs about 20 KiB.
pub const CONNECTIONS_MAX_DEFAULT: usize = 65_536;

/// How often an HTTP/2 ping asks whether a peer still lives.
pub const KEEPALIVE_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);

/// How long the answer to such a ping may take.
pub const KEEPALIVE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// Age at which a connection is sent away, so that clients spread over the Observers that there are:
/// after an Observer was added, two hours later at most. 40,000 clients are then some eleven a second.
pub const CONNECTION_AGE_MAX_DEFAULT: Duration = Duration::from_secs(60 * 60);

/// Part of that age by which it is more or less: what began together must not end together.
pub const CONNECTION_AGE_JITTER: f64 = 0.1;

/// How long other calls of such a connection may go on.
pub const CONNECTION_AGE_GRACE: Duration = Duration::from_secs(30);

/// How often such a connection is looked at for streams that its client opened meanwhile.
pub const RETIRING_LOOK: Duration = Duration::from_millis(500);

/// How long a connection may stay open without sending its whole HTTP/2 preface.
pub const PREFACE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a connection that has sent a part of its preface is looked at.
pub const PREFACE_POLL: Duration = Duration::from_millis(50);

/// How long a TLS handshake may take, from the connection's first byte to its last message. A client far away
/// and under load needs a second.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// TLS handshakes that a listener carries out at once; the next one waits, within its own time. Each has buffers
/// of some tens of KiB, and all of them together are answered in less than a second.
pub const HANDSHAKES_MAX: usize = 1_024;

/// How long a client that speaks without TLS where TLS is spoken is told so.
pub const TELL_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls of such a client that are answered at a time.
pub const TOLD_CALLS_MAX: u32 = 16;

/// Pause of the accept loop after an error such as "too many open files".
pub const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Bytes of one stream that may wait inside the HTTP/2 layer. What waits there is decided already,
/// so it is kept small: about one frame of updates.
pub const SEND_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Bytes that a connection collects for one write: a few frames of many streams, or a resource of a
/// thousand endpoints for two; more goes in a further write.
pub const WRITE_BYTES_MAX: usize = 64 * 1024;

/// HTTP/2 header block of a request, bytes.
pub const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;

/// Time that connections get to close by themselves once a drain has ended their streams.
pub const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Shortest pause between two looks for streams that stall.
pub const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(50);

const _: () = assert!(RESPONSE_BYTES_MAX_DEFAULT < 4 * 1024 * 1024);
const _: () = assert!(RESPONSE_BYTES_MAX_FLOOR < RESPONSE_BYTES_MAX_DEFAULT);
const _: () = assert!(STALE_NAMES_DELAY.as_millis() <= 1000);
