//! A D2 client in Rust that does on the wire what rest.li's Java client does, so that every test run
//! has one: it looks services up, follows symlinks, chooses hosts and makes real HTTP requests.
//!
//! It is the engine of our own client (`waypost-xds-client`) under [`Policy::d2`], and above it what
//! rest.li's `XdsToD2PropertiesAdaptor` and `SimpleLoadBalancer` do:
//!
//! * **Start**: a TCP connection and a health check, then the cluster that never exists, by which rest.li
//!   learns of its connection, then names one by one as calls need them.
//! * **Calls**: service document, cluster document, instances; partition by the request's URI, the first
//!   scheme that has hosts, a host by weight.
//! * **What is gone**: the removal of a document or of a map releases whoever waits and clears nothing; an
//!   empty map does, and so does the removal of an instance. Nothing is ever unsubscribed.
//! * **Modes**: maps, globs, globs with known versions ([`Mode`]).
//!
//! Left out, since no server sees it: the files that rest.li falls back to, its load balancing
//! strategies (a host is chosen by its weight alone), and its hash functions for partitions.
//!
//! [`Policy::d2`]: waypost_xds_client::Policy::d2

mod book;
mod client;
mod codec;
mod documents;
pub mod limits;
mod names;
mod partition;
mod pre_check;
mod view;

pub use client::{Answer, D2Client, D2Error, Mode};
pub use view::{Directory, Report};
