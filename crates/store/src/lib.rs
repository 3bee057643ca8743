//! The Observer's state in memory: the latest fact of every source about every name, and who wants
//! to know of changes.
//!
//! * [`Store`] is the clonable handle that readers hold; a [`Writer`] is the right of one source to
//!   write, and there is one of each at most.
//! * Every fact stands in a *source slot*; the filled slot of the highest priority is served, and
//!   clearing it exposes the next.
//! * What an operator set for an instance (an *override*) stands above every source's word, also
//!   before anybody announces the instance, until it is cleared.
//! * An equal value changes nothing and notifies nobody. A change is visible to readers before the
//!   [`ChangeListener`] hears of it, and no lock is held while it does.
//! * [`Subscribers`] holds who wants what. It knows names of resources, not how they are made.
//!
//! Announcements are opaque bytes here, shared with whoever read them from the log; the little that
//! the store must know of them (health, partitions) it asks an [`Inspector`].

mod callees;
mod change;
mod cluster;
mod inspect;
mod led;
pub mod limits;
mod memory;
mod shards;
mod slots;
mod snapshot;
mod store;
mod subscriber_set;
mod subscribers;
mod writer;

pub use callees::CalleesState;
pub use change::{ChangeListener, ChangeSet, ClusterChange};
pub use inspect::{ClusterFacts, Inspector, InstanceFacts};
pub use slots::Slots;
pub use snapshot::{ClusterOutline, ClusterSnapshot, ServedInstance, Stamp};
pub use store::{ServiceState, Store, StoreCounts};
pub use subscribers::Subscribers;
pub use writer::{Writer, WriterTaken};
