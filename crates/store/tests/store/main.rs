//! Tests of the store through its public surface, over made-up announcements.

mod changes;
#[cfg(test)]
mod common;
mod implicit;
mod model;
mod overrides;
mod subscribers;
