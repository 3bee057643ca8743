//! The scenarios of docs/announcement-log.md, each a sequence that once broke a draft of its rules.
//!
//! The numbers in test names are those of the scenarios. What they are played with is `waypost_sim`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, helpers too")]

mod config;
mod expiry;
mod faults;
mod holding;
mod keeper;
mod order;
mod partitions;
mod property;
mod replay;
mod snapshots;
