//! A small world in which the promises of the log are tried: the log in memory with all its faults,
//! Observers that are a fold and a keeper and nothing else, announcers, and one clock that is moved
//! by hand. Deterministic; nothing sleeps.
//!
//! `tests/scenarios` holds the numbered sequences of docs/announcement-log.md.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this package is test code: what must not happen panics"
)]

mod announcer;
mod client;
pub mod copy;
pub mod mutants;
mod observer;
pub mod property;
mod records;
mod world;

pub use announcer::Announcer;
pub use client::{Answer, Client};
pub use observer::{History, Observer, Settings};
pub use records::*;
pub use world::{Sim, count, kind_of};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time-to-live of what is announced here, seconds.
pub const TTL_S: u64 = 30;

/// How often an announcer beats.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// The root of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}
