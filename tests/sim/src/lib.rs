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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{read_dir, read_to_string};

    /// The numbers that stand between `before` and `after`, as in `s07`.
    fn numbers(text: &str, before: &str, after: char) -> BTreeSet<u32> {
        let parts = text.split(before).skip(1);
        let numbers = parts.filter_map(|part| part.split(after).next()?.parse().ok());
        numbers.collect()
    }

    #[test]
    fn the_document_has_a_line_for_every_scenario_and_no_other() {
        let document = read_to_string(crate::root().join("docs/announcement-log.md")).unwrap();
        let folder = crate::root().join("tests/sim/tests/scenarios");
        let files = read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let tests: String = files.map(|file| read_to_string(file).unwrap()).collect();
        let expected = numbers(&tests, "\nfn s", '_');
        assert!((1..=33).all(|number| expected.contains(&number)));
        assert_eq!(numbers(&document, "\n| `s", '`'), expected);
    }
}
