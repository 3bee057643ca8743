//! The Kafka log against one real broker that all tests here share. Tests that hurt their broker are
//! in `kafka_faults.rs`.
#![expect(
    clippy::unwrap_used,
    reason = "tests; helpers beside them are not recognised as such"
)]
#![expect(clippy::expect_used, reason = "as above")]

mod clients;
mod config;
mod partitions;
mod reading;
mod suite;
mod support;
mod topics;
