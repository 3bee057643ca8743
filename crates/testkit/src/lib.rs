//! What tests share: real programs, started, watched and stopped.
//!
//! Nothing here links what it tests. An end-to-end test starts the `waypost` binary, real servers and
//! unmodified clients, and looks at them from outside.

pub mod caller;
pub mod certificates;
pub mod d2_caller;
mod descendants;
pub mod dns;
pub mod envoy;
pub mod grpc;
pub mod http;
pub mod https;
pub mod kafka;
pub mod limits;
pub mod memory;
pub mod parts;
pub mod ports;
pub mod probe;
pub mod process;
pub mod tonic_greeter;
pub mod wait;
pub mod waypost;
