//! The fold of the announcement log: records in, state and events out.
//!
//! Everything here is pure: no I/O, no clock, no randomness, no async. The same records give the
//! same state in every Observer. The rules are those of `docs/announcement-log.md`; each module
//! names the section it keeps.
//!
//! * [`Replica`] is one Observer's copy of a log: everything below behind one state machine, and what
//!   happens when the log is not the one that was read before.
//! * [`Fold`] is the announcements topic, [`ConfigFold`] and [`ControlFold`] are the other two.
//! * [`Loading`] says when a start is over.
//! * [`Keeper`] decides what this Observer writes: ticks, expires, burials, restatements, the log's
//!   identity.
//! * [`Snapshot`] is what is served, in a form that can be kept between two lives.
//!
//! # How a driver uses it
//!
//! One task owns the [`Replica`] and feeds it from a `LogReader` per topic, each opened at its
//! beginning, with `now` being any monotonic time (for example since the process started):
//!
//! ```text
//! once, if there is a snapshot     replica.restore(&snapshot, &mut events)
//! on every ReadEvent               replica.on_event(topic, &event, now, &mut events, &mut |record, outcome| …)
//!                                    - tell whoever waits for (partition, offset) the outcome
//!                                    - drain events: Live/Gone/Config to the store, the rest to
//!                                      metrics and logs
//!                                    - do what replica.take_requests() says, before the next event
//! several times a second           do what replica.due(now) says
//! Request::Append(record)          append it in the background, then replica.on_settled(&record),
//!                                  whether it was taken or not
//! Request::ReadAgain(topic)        drop the topic's reader, open another at its beginning
//! Request::ReadAt{..}              log.read_at(..), then replica.on_read_at(..)
//! replica.loading().is_loaded()    from then on the store may be served
//! ```

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
