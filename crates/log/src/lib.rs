//! The announcement log: three implementations of one port, and the suite that all of them answer to.
//!
//! | module | log | for |
//! |---|---|---|
//! | [`kafka`] | topics of an Apache Kafka cluster | a fabric |
//! | [`embedded`] | a durable store in a directory | one machine, `waypost dev` |
//! | [`memory`] | a value in this process, with faults on demand | tests |
//!
//! What a log must do is said by [`waypost_core::port::AnnouncementLog`] and
//! `docs/announcement-log.md`; module `suite` (feature `suite`) says it as tests.

mod admission;
pub mod clock;
#[cfg(any(feature = "embedded", feature = "kafka"))]
mod copies;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod limits;
pub mod memory;
#[cfg(feature = "suite")]
pub mod suite;

pub use clock::{Clock, ManualClock, WallClock};
#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedLog, EmbeddedSettings};
pub use memory::MemoryLog;
