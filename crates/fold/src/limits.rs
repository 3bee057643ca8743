//! Bounds of the fold and of the keeper, each with its reason.

use std::time::Duration;

use waypost_core::limits::TTL_MAX;

use crate::key_state::KeyState;

/// How often the keeper ticks every partition of the announcements topic. Log time has this grain.
pub const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// How often the keeper ticks the config and control topics, where nothing expires: often enough to
/// show that they are written to, seldom enough to cost nothing.
pub const SLOW_TICK_INTERVAL: Duration = Duration::from_secs(60);

/// The most that one tick adds to log time: one missed tick is bridged, a longer silence is not, so
/// a log that stood still or a broker clock that jumped never ages an instance.
pub const TICK_STEP_MAX: Duration = Duration::from_secs(2);

/// A log that took no tick for longer than this stood still: whoever may expire begins anew to follow
/// it, so that every announcer has a whole time-to-live to be heard again. Longer than a takeover
/// takes, and as short as the shortest time-to-live.
pub const STANDSTILL: Duration = Duration::from_secs(10);

/// A tick that is not settled by then is taken as lost. The log gives one up after two seconds; the
/// rest is the way there and back.
pub const TICK_IN_FLIGHT_MAX: Duration = Duration::from_secs(5);

/// After this many missed ticks in partition 0 another Observer takes over (plus jitter).
pub const TAKEOVER_MISSED_TICKS: u32 = 3;

/// Upper bound of the jitter of a takeover, in ticks, derived from the Observer's id: wide enough
/// that of five Observers mostly one starts, small against the shortest time-to-live.
pub const TAKEOVER_JITTER_TICKS: u32 = 2;

/// An Observer that was not asked for this long has slept: what the log said about its ends before
/// that is no longer believed.
pub const PAUSE_NOTICED: Duration = Duration::from_secs(2);

/// The keeper expires only while the log told it the partition's end within this time.
pub const METADATA_AGE_MAX: Duration = Duration::from_secs(10);

/// Expires and burials that one Observer writes per partition each time it is asked. A mass death
/// then takes a few seconds to write, and never floods the queue in front of the log.
pub const WRITES_PER_PARTITION_MAX: usize = 1000;

/// Percent of a cluster that may expire within [`CAP_WINDOW`]: a rack or an availability zone of five
/// may die, a registry that goes mad may not empty a cluster.
pub const CAP_CLUSTER_PERCENT: u32 = 20;

/// Clusters of as many instances are not capped: a fifth of them is two, and they come and go whole.
pub const CAP_CLUSTER_LARGER_THAN: u32 = 10;

/// Percent of the fleet that may expire within [`CAP_WINDOW`]: what ends more than that at once is
/// most likely between the fleet and the log.
pub const CAP_FLEET_PERCENT: u32 = 5;

/// Fleets of as many instances are not capped: a twentieth of them is a handful.
pub const CAP_FLEET_LARGER_THAN: u32 = 200;

/// For how long an expire counts: the dead of one event fall silent within a heartbeat interval of
/// each other, which is less than this at the default time-to-live.
pub const CAP_WINDOW: Duration = Duration::from_secs(60);

/// Expires within the window that are remembered per partition, the oldest go first: more than the
/// cap of a fleet of ten million lets go in 32 partitions (about 8 MiB).
pub const EXPIRES_REMEMBERED: usize = 65_536;

/// Ticks whose log time is remembered per partition: more than an hour at one a second, three times
/// what the longest memory of the rules (four of the longest time-to-live) needs.
pub const TICK_HISTORY: usize = 4096;

/// Ticks whose digests are remembered per partition: a minute at one a second, in which Observers that
/// are compared are asked one after the other and the slowest of them lags.
pub const TICK_DIGESTS: usize = 64;

/// Parts that a partition's digest is made of, so that what differs is looked for among a few thousand
/// keys and not among all: with [`TICK_DIGESTS`] of them 32 KiB per partition. A power of two.
pub const DIGEST_BUCKETS: usize = 64;

/// Ticks of a partition that are remembered one by one, to be compared with what later ticks name as
/// their predecessor: a minute at one a second, longer than any keeper's tick is on its way.
pub const TICKS_REMEMBERED: usize = 64;

/// How long the log keeps tombstones: `delete.retention.ms` of the topics.
pub const TOMBSTONES_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Withdrawn keys that one partition remembers. They are forgotten after four of the longest
/// time-to-live; this bounds the memory if a fleet leaves at once (about 10 MiB).
pub const GONE_KEYS_MAX: usize = 65_536;

/// Withdrawn keys are remembered for this many of the longest time-to-live, of log time.
pub const GONE_KEPT_TTLS: u32 = 4;

/// A late announcement of what was withdrawn is refused for this many of its own time-to-live.
pub const WITHDRAWAL_BARS_TTLS: u32 = 2;

/// An instance that is overdue by more than this many of its time-to-live, and not held, is not about
/// to leave: its standing announcement is written again where compaction would keep another record.
/// Twice the longest time-to-live are ten minutes, within the fifteen that compaction waits.
pub const RESTATED_AFTER_TTLS: i64 = 2;

/// A partition whose log time is behind another's by more than this was added later: partitions are
/// ticked together, and a few missed ticks are no reason to stop expiring.
pub const NEW_PARTITION_LAG: Duration = Duration::from_secs(10);

/// An Observer that is not the keeper writes an expire itself once an instance is overdue by this
/// many of its time-to-live (plus jitter).
pub const SAFETY_NET_TTLS: u32 = 2;

/// How far a birth may lie ahead of the append time of the record that states it: what the clocks of
/// two brokers differ by when a partition's leader changes. One further ahead counts as no birth.
pub const BIRTH_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Key states that are allocated at once: two huge pages of 2 MiB. Of a partition's last piece only the
/// pages in use are resident, so it wastes one at most.
pub(crate) const STATES_PER_PIECE: usize = (4 << 20) / size_of::<Option<KeyState>>();

/// Records whose keys are looked up together before they are applied one by one: more than a processor
/// waits for at once, few enough to stay in its first cache until they are applied.
pub(crate) const RECORDS_FORESEEN: usize = 32;

/// Seconds of log time that the expiry wheel spans. Longer times-to-live go round more than once.
pub const WHEEL_SECONDS: usize = 512;

/// A position that stands still below the end for this long while loading is moved by one tick.
pub const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Log time that a log must have before what it lacks means anything: the longest heartbeat interval
/// allowed, a third of the longest time-to-live, and ten seconds to arrive.
pub const NEWBORN_GRACE: Duration = Duration::from_secs(TTL_MAX.as_secs() / 3 + 10);

/// Overrides that stand. Whoever writes one refuses far earlier
/// (`waypost_announcer::limits::OVERRIDES_MAX`); this bounds the memory against one who does not.
pub const OVERRIDES_HELD_MAX: usize = 100_000;

/// Evictions and releases that are remembered for showing; those written longest ago go first.
pub const STATEMENTS_HELD_MAX: usize = 10_000;

/// Journal entries that are remembered for showing; the oldest go first.
pub const JOURNAL_HELD_MAX: usize = 1_000;

/// Records that overwrote what their writers had not seen, the last few, for showing.
pub const CONFLICTS_HELD_MAX: usize = 100;

/// Deleted definitions and overrides whose last offset is remembered for compare-and-set; the oldest
/// go first.
pub const DELETED_DEFINITIONS_MAX: usize = 10_000;

const _: () = assert!(DIGEST_BUCKETS.is_power_of_two());
const _: () = assert!(WHEEL_SECONDS as u64 > TTL_MAX.as_secs());
const _: () = assert!(TICK_HISTORY as u64 > 2 * (GONE_KEPT_TTLS as u64) * TTL_MAX.as_secs());
