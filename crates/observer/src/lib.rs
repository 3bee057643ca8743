//! The Observer: replays the announcement log into memory and pushes it over xDS.
//!
//! One arrow: readers of the log, the fold, the store, the streams. The gateway writes to the log,
//! never to the store; nothing that is served writes anything but its own stream's state.

pub mod app;
pub mod limits;
pub mod locator;
pub mod render;
pub mod settings;

pub use app::{Observer, RunningObserver, StartError};
pub use settings::{LogWrites, Settings};
