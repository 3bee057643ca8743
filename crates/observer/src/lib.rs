//! The Observer: replays the announcement log into memory and pushes it over xDS.
//!
//! One arrow: readers of the log, the fold, the store, the streams. The gateway writes to the log,
//! never to the store; nothing that is served writes anything but its own stream's state.
//!
//! | module | part |
//! |---|---|
//! | [`app`] | builds the graph, binds, hands back what runs |
//! | [`ingest`] | the one task from the log to the store, the keeper's driver included |
//! | [`snapshot`] | what was served, on disk, for a start without the log |
//! | [`locator`], [`render`] | store to resources (the only place where store and xDS meet) |
//! | [`gateway`], [`progress`] | writing to the log for others, and hearing what became of it |
//! | [`csds`] | what each stream was told, for CSDS |
//! | `symlinks` | where they lead, and which lead to the same cluster |
//! | `tls` | the certificates of the gRPC port, kept up with their files |
//! | [`load_reports`] | what clients say of the load they send |
//! | [`admin`], [`metrics`], [`health`] | read-only answers about all of it |

pub mod admin;
pub mod app;
pub mod csds;
pub mod gateway;
pub mod health;
pub mod ingest;
pub mod limits;
pub mod load_reports;
pub mod locator;
pub mod metrics;
mod named;
pub mod progress;
pub mod render;
pub mod settings;
pub mod snapshot;
mod symlinks;
mod tls;

pub use app::{FatalError, Observer, RunningObserver, StartCheck, StartError};
pub use settings::{LogWrites, Settings};
pub use snapshot::SnapshotSettings;
