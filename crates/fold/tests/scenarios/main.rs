//! The scenarios of docs/announcement-log.md, each a sequence that once broke a draft of its rules.
//!
//! Observers here are the folds and the keeper alone, on a log in memory with a clock that is moved
//! by hand (`sim`). The numbers in test names are those of the scenarios.

mod expiry;
mod faults;
mod keeper;
mod order;
mod property;
#[cfg(test)]
mod sim;
