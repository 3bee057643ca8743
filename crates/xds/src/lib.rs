//! The xDS server engine: both variants of the aggregated discovery service, and the per-type
//! services, over one state machine.
//!
//! * [`AdsServer`] answers the xDS methods from a [`ResourceLocator`](waypost_core::ResourceLocator)
//!   and knows no store. [`AdsSettings`] are its settings, [`StreamRegistry`] shows its streams,
//!   [`EventHandler`] is told what happens.
//! * [`Listener`] serves it, beside any other gRPC service, on one HTTP/2 port.
//!
//! How a stream works, from the outside in: `listener` accepts, `secure` shakes hands where TLS is spoken, `drive` polls a connection and its
//! streams in one task and `socket` writes once for all of them, `connection` tells xDS streams from
//! other calls, `server` admits, `body` reads requests and writes responses when the connection asks
//! for a frame, `glance` knows an acknowledgement without decoding it, `stream` is the state machine
//! of one stream (no I/O), `subscription`, `delta` and `sotw` hold the rules of the two variants,
//! `outbox` keeps what waits and `mailbox` wakes who writes it, `responder` cuts answers into
//! messages, `ack` keeps nonces. A stream has no task and no queue of its own: what it sends is
//! decided when it is written.
//!
//! The rules are those of the public documents; docs/xds-rules.md lists them with their sources and
//! where each is checked.

mod ack;
mod age;
mod body;
mod buf;
mod connection;
mod delta;
mod drive;
mod events;
mod framing;
mod glance;
mod inventory;
pub mod limits;
mod listener;
mod mailbox;
pub mod memory;
mod name_map;
mod node;
mod outbox;
mod registry;
mod request;
mod responder;
mod scope;
mod secure;
mod server;
mod settings;
mod socket;
mod sotw;
mod status;
mod stream;
mod subscription;
mod substream;
#[cfg(test)]
mod testing;
mod turn;
mod unknown;

pub use ack::{AckView, Standing};
pub use body::AdsBody;
pub use buf::MessageBuf;
pub use events::{
    EndReason, Event, EventHandler, HandshakeFailure, IgnoreEvents, RefusalReason, RequestKind,
    Transport,
};
pub use inventory::{Inventory, ResourceState, ResourceStatus, TypeInventory};
pub use listener::{ListenError, ListenSettings, Listener, PeerAddress, Serving};
pub use node::{ADDRESS_FAMILIES_KEY, NodeInfo};
pub use registry::{StreamId, StreamRegistry, StreamView, TypeView};
pub use scope::{
    APPLICATION_KEY, OUTBOUND_ADDRESS_KEY, OUTBOUND_PORT_KEY, SERVICES_KEY, UPSTREAM_TLS_KEY,
};
pub use server::AdsServer;
pub use settings::{AdsSettings, EndpointsOnReconnect, TypeSet};
pub use status::{Code, Status};
