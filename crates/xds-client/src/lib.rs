//! An xDS client without policy of its own: what to ask for, what was answered, what is held, and
//! what became of the stream.
//!
//! [`Machine`] is the protocol as a value: no I/O, no clock, no task. Whoever drives it says what
//! happened (a stream is up, a response came, it is now so late) and asks what follows: a stream to
//! open, a request to send, an [`Event`] to hand on. [`Driver`] drives it over tonic. The machine
//! speaks both variants of the aggregated service, and where real clients differ it has a
//! [`Policy`], an enum for each point, so that one engine is our own client and can stand in for others.
//!
//! What is the same for all of them:
//!
//! * **Losing the stream takes nothing away.** What is held stays, marked [`Mark::Stale`], until a
//!   server says otherwise (gRFC A57).
//! * **Absence is a statement.** A resource does not exist because a server said so: its name in
//!   `removed_resources`, or a set of listeners or clusters without it. Silence is told apart from
//!   that ([`Absence::Silence`]) and clears nothing.
//! * **A bad resource costs itself.** It is refused with its reason, the rest of the response is used
//!   (gRFC A46), and the last good content stays.
//! * **Latest wins, all is bounded.** There is no queue of requests: what is sent is made from what is
//!   wanted at the moment when the transport has room.
//!
//! ```
//! use std::time::Duration;
//! use bytes::Bytes;
//! use waypost_core::ResourceType;
//! use waypost_xds_client::{Action, Machine, Policy, RawCodec, Subscription, TypeUrl};
//!
//! let mut machine = Machine::new(Policy::waypost(), Default::default(), RawCodec, 1, 7);
//! let endpoints = TypeUrl::from(ResourceType::ClusterLoadAssignment);
//! machine.watch(&endpoints, &Subscription::new("greeter"))?;
//! let now = Duration::ZERO;
//! let Some(Action::Open { link, server: 0 }) = machine.poll_action(now) else { panic!() };
//! machine.up(link, now);
//! let request = machine.poll_request(link, now).expect("it asks for greeter");
//! # drop(request);
//! # Ok::<_, waypost_xds_client::WatchError>(())
//! ```
//!
//! It must not know: what a resource means (that is its [`Codec`]'s), which endpoint is called, files,
//! and any server of ours.

mod apply;
mod cache;
mod codec;
mod counters;
mod event;

pub mod limits;
mod link;
mod machine;
mod name;
mod policy;
mod route;
mod transport;

pub use cache::{Held, Mark};
pub use codec::{Codec, RawCodec, Rejection};
pub use counters::Counters;
pub use event::{Absence, Event, Kept, StreamEvent};
pub use link::{LinkId, Request};
pub use machine::{Action, Machine, Response, WatchError};
pub use name::{Scope, Subscription, TypeUrl};
pub use policy::{
    EndOfSnapshot, FallBack, KnownVersions, Naming, NodeIn, Policy, ReconnectRequests, Removals,
    RetryAfterResponse, ServerOrder, Unsubscribing, Untracked, VersionTable, XdsVariant,
};
pub use transport::{Activity, Driver, ServerAddressError};
