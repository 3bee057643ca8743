//! The looking commands: `get`, `describe`, `watch`, `status`.

mod compare;
pub(crate) mod describe;
pub(crate) mod get;
mod rows;
mod statements;
pub(crate) mod status;
pub(crate) mod watch;
