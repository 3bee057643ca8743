//! The rules of xDS as cases: text, one per rule, played against a server over a real socket.
//!
//! * `cases/*.case` hold the cases; [`case`] reads them and says how they are written.
//! * [`play`] plays one against a [`Target`](target::Target): the engine over a map
//!   ([`engine::EngineTarget`]), or any other server that can be told what to serve.
//! * [`rules`] says which rules the page of rules must have.
//! * `tests/cases.rs` plays all of them in both variants and counts by rule.

pub mod case;
pub mod client;
pub mod engine;
pub mod play;
pub mod rules;
pub mod target;
