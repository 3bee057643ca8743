//! The shell of every Waypost process: telemetry, readiness by name, the admin port, signals, and
//! the one wall clock.
//!
//! Nothing here knows what the process does; an application registers what it waits for, passes its
//! own routes and metrics, and is told when to stop.

pub mod admin_server;
pub mod bind;
pub mod clock;
pub mod limits;
pub mod readiness;
pub mod shutdown;
pub mod telemetry;

pub use admin_server::{AdminServer, SharedRegistry};
pub use bind::{BindError, bind_tcp};
pub use clock::WallClock;
pub use readiness::{PendingTask, Readiness, ReadinessTask, Strictness};
pub use shutdown::{HangupSignals, StopSignal, StopSignals};
pub use telemetry::{LogFormat, TelemetryError};
