//! Writers of the config topic against logs that compare and set and against one that cannot.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up fails")]

mod common;
mod conflicts;
mod definitions;
mod operator;
