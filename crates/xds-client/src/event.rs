//! What follows from what happened.

use std::sync::Arc;

use crate::codec::Rejection;
use crate::name::{Subscription, TypeUrl};

/// Why a resource is taken for missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// The server said so.
    Stated,
    /// No server said anything within the resource timer.
    Silence,
}

/// Whether content is still held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The last good content is.
    LastGood,
    /// Nothing is.
    Nothing,
}

/// What happened to what is watched, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<V> {
    /// A resource has content that it did not have before.
    Changed {
        /// Its type.
        type_url: TypeUrl,
        /// Its name.
        name: Arc<str>,
        /// Its version, opaque.
        version: Arc<str>,
        /// Its content.
        value: V,
    },
    /// What is held of a resource is what the server has: it was not certain any more, or it was held
    /// already when it, or a collection that it is a member of, began to be watched.
    Confirmed {
        /// Its type.
        type_url: TypeUrl,
        /// Its name.
        name: Arc<str>,
    },
    /// A resource does not exist, or nothing is known of it.
    Absent {
        /// Its type.
        type_url: TypeUrl,
        /// Its name, or that of a collection that is empty.
        name: Arc<str>,
        /// How that is known.
        why: Absence,
        /// What is still held of it.
        kept: Kept,
    },
    /// The server sent content that is not used.
    Rejected {
        /// Its type.
        type_url: TypeUrl,
        /// Its name.
        name: Arc<str>,
        /// Why.
        reason: Rejection,
        /// What is still held of it.
        kept: Kept,
    },
    /// The first answer to a collection has come whole.
    Complete {
        /// Its type.
        type_url: TypeUrl,
        /// The collection.
        subscription: Subscription,
    },
    /// The client's own stream.
    Stream(StreamEvent),
}

/// What happened to the client's own stream. `server` counts in the list as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A stream is being opened.
    Opening {
        /// To which server.
        server: usize,
    },
    /// The server has accepted it.
    Up {
        /// Which server.
        server: usize,
    },
    /// The first response of the stream has come: from here on this server is followed.
    Answered {
        /// Which server.
        server: usize,
        /// Its `control_plane.identifier`; empty where it gives none.
        control_plane: String,
    },
    /// It has ended. Everything held stays.
    Ended {
        /// Which server.
        server: usize,
        /// Why, for people.
        reason: String,
        /// Whether it had answered.
        had_answered: bool,
    },
}
