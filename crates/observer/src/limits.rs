//! Bounds of the Observer.

use std::time::Duration;

/// Log time under which a log counts as newborn (docs/announcement-log.md, "Loading").
pub const NEWBORN_GRACE_DEFAULT: Duration = waypost_fold::limits::NEWBORN_GRACE;

/// Over how long clients are sent away when an Observer is told to stop.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(30);

/// Writers that may wait at once until their record is served. Each costs a few hundred bytes and an
/// open stream; a fleet that announces at once through one gateway waits milliseconds.
pub const WAITS_MAX: usize = 20_000;

/// Verdicts that one such wait remembers before it knows its own offset: as many records of one
/// instance as can be read within one acknowledgement.
pub const VERDICTS_PER_WAIT_MAX: usize = 64;

/// Verdicts that are kept back while the Observer loads or replays; the oldest go first, and their
/// writers hear nothing until they ask again.
pub const VERDICTS_HELD_MAX: usize = 100_000;

/// First pause before a topic is opened again after an error; doubled each time.
pub const REOPEN_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Longest pause before a topic is opened again: short against a heartbeat interval, long enough
/// that a fleet of Observers does not press a log that is coming back.
pub const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often the keeper is asked what is to be written, staleness is judged and readiness renewed.
/// Log time has a grain of one second; a quarter of it keeps ticks on time.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(250);

/// A partition that has not reached an end which it was told of this long ago is stale. Longer than
/// a broker's election, shorter than the shortest time-to-live.
pub const STALE_AFTER: Duration = Duration::from_secs(8);

/// A log of which nothing was heard for this long, not even where it ends, is stale: readers report
/// ends every few seconds.
pub const LOG_SILENCE_MAX: Duration = Duration::from_secs(15);

/// How often a log that is away is named in the process's log.
pub const AWAY_REMINDER_INTERVAL: Duration = Duration::from_secs(5);

/// The most by which one reading of log time moves the clock on which names that left are counted: a
/// pause of this process is caught up with in a few steps, another log is one step.
pub const LOG_CLOCK_STEP_MAX: Duration = Duration::from_secs(60);

/// How often the store forgets names that left long ago.
pub const FORGET_INTERVAL: Duration = Duration::from_secs(60);

/// Records of the keeper (ticks, expires, burials) that may be on their way to the log at once. More
/// are not asked for until some are settled.
pub const LOG_WORK_IN_FLIGHT_MAX: usize = 4_000;

/// Questions of the admin port that may wait for the ingest task. Each is answered between two
/// batches of records.
pub const QUESTIONS_QUEUED_MAX: usize = 64;

/// Records that are skipped or refused, and likewise responses that clients reject, that are named in
/// the process's log per [`NAMED_LINES_WINDOW`]. The rest is counted: a broken producer, or one bad
/// resource that twenty thousand clients reject, must not fill the disk.
pub const NAMED_LINES_MAX: u32 = 20;

/// See [`NAMED_LINES_MAX`].
pub const NAMED_LINES_WINDOW: Duration = Duration::from_secs(10);

/// Orphaned records of the config topic that `status` names one by one.
pub const ORPHANS_LISTED_MAX: usize = 1_000;

/// How often what an operator should look at is looked for: nothing of it needs a quick answer.
pub const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// Statements of operators of each kind that one answer shows.
pub const STATEMENTS_SHOWN_MAX: usize = 1_000;

/// Refused definitions that `status` remembers.
pub const REFUSED_DEFINITIONS_MAX: usize = 20;

/// How long the admin port waits for the ingest task before it answers that it is busy.
pub const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// A watcher hears at least this often, so that a dead connection is noticed.
pub const WATCH_IDLE_INTERVAL: Duration = Duration::from_secs(10);

/// Watches of the admin port that may be open at once. They are for people; programs use xDS.
pub const WATCHES_MAX: usize = 256;

/// Names and globs of one type of one stream that `/api/v1/streams` lists.
pub const STREAM_NAMES_LISTED_MAX: usize = 20;

/// How often clients report their load: as gRPC's and Envoy's documents suggest; a client's own minimum
/// is a second (gRFC A27).
pub const LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Clusters whose load is kept: more than a fleet has (30,000), a few hundred bytes each. Names are the
/// clients' own.
pub const LOAD_CLUSTERS_MAX: usize = 50_000;

/// Localities of a cluster that one client may name: fabrics times zones.
pub const LOAD_LOCALITIES_MAX: usize = 64;

/// Resources in one answer about the state of clients: hundreds of clients, or one that holds a fleet.
pub const CSDS_RESOURCES_MAX: usize = 50_000;

/// Size of such an answer, bytes: gRPC clients refuse messages over 4 MiB.
pub const CSDS_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024;

/// Such answers that are made at a time; who asks beside them waits. Each is held in memory whole.
pub const CSDS_QUESTIONS_MAX: usize = 4;

/// Matchers of one question, each tried for every client.
pub const CSDS_MATCHERS_MAX: usize = 100;

const _: () = assert!(STALE_AFTER.as_secs() < waypost_core::limits::TTL_MIN.as_secs());
const _: () = assert!(REOPEN_PAUSE_MIN.as_millis() < REOPEN_PAUSE_MAX.as_millis());

/// Stripes of a counter that is added to for every response: as many threads count without getting
/// in each other's way. Of 128 bytes each.
pub(crate) const METRIC_STRIPES: usize = 8;
