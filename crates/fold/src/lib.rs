//! The fold of the announcement log: records in, state and events out.
//!
//! Everything here is pure: no I/O, no clock, no randomness, no async. The same records give the
//! same state in every Observer. The rules are those of `docs/announcement-log.md`; each module
//! names the section it keeps.
//!
//! * [`Fold`] is the announcements topic, [`ConfigFold`] and [`ControlFold`] are the other two.
//! * [`Loading`] says when a start is over.
//! * [`Keeper`] decides what this Observer writes: ticks, expires, burials, restatements, the log's
//!   identity.
//!
//! # How a driver uses it
//!
//! One task owns all of them and feeds them from a `LogReader` per topic, with `now` being any
//! monotonic time (for example since the process started):
//!
//! ```text
//! on ReadEvent::Partitions(n)      fold.set_partitions(n); loading.on_partitions(topic, n)
//! on ReadEvent::Records(records)   for each: outcome = fold.apply(&record, &mut events)
//!                                    - tell whoever waits for (partition, offset) the outcome
//!                                    - drain events: Live/Gone/Definition to the store, Ticked to
//!                                      keeper.on_tick(&tick, now), the rest to metrics and logs
//!                                  then loading.on_position(topic, partition, position, now) and
//!                                  loading.on_log_time(fold.clock().log_time_min())
//! on ReadEvent::Bounds{p, end, ..} loading.on_end(topic, p, end)
//!                                  keeper.on_end(topic, p, end, &logs, now)
//! on ReadEvent::CaughtUp{p, pos}   fold.advance_to(p, pos); loading.on_position(..); and, as pos was
//!                                  the end, keeper.on_end(topic, p, pos, &logs, now)
//! several times a second           for record in keeper.due(now, &logs): append it in the background,
//!                                  then keeper.on_settled(&record), whether it was taken or not
//!                                  for place in loading.stuck(now): append keeper.nudge(place, &logs)
//! on ReadEvent::OutOfRange         start again: new folds, and a new keeper of the same id
//! ```
//!
//! where `logs` is a [`Logs`] that borrows the three folds.

mod cap;
mod census;
pub mod clock;
mod config_fold;
mod continuity;
mod copies;
mod digest;
mod event;
mod fold;
mod keeper;
mod key_state;
mod key_table;
mod lane;
pub mod limits;
mod loading;
mod merge;
mod order;
mod partition_fold;
pub mod records;
mod replica;
mod rules;
mod snapshot;
mod topic_clock;
mod view;
mod wheel;

pub use cap::{CapSettings, CapShare, Census, Expiry, Holding};
pub use config_fold::{ConfigFold, Conflict, ControlFold, Held, Origin, Overwritten};
pub use continuity::Discontinuity;
pub use digest::{BucketDigests, BucketPage, DigestedKey, PartitionDigests, bucket_of};
pub use event::{
    Confirmation, FoldEvent, GoneCause, Life, Outcome, Refusal, RefusalReason, RejectReason, Tick,
    VoidReason,
};
pub use fold::{Fold, FoldSettings, HoldingView};
pub use keeper::{Access, Keeper, KeeperSettings, Logs, Role};
pub use lane::Sameness;
pub use loading::{Loading, Missing};
pub use partition_fold::{BurialDue, Overdue, RestatementDue};
pub use replica::{Replica, ReplicaSettings, Request};
pub use snapshot::{ConfigSnapshot, InstanceSnapshot, Snapshot, TopicSnapshot};
pub use topic_clock::TopicClock;
pub use view::{Counters, InstanceView, PartitionView};
