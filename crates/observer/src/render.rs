//! Facts to resources: pure functions. The bytes depend on the facts alone, never on the order in
//! which they came, the process or the time, since a resource's version is a digest of them
//! (docs/resources.md).

#[cfg(test)]
pub(crate) mod checker;
pub(crate) mod cluster;
pub mod d2;
pub mod endpoints;
pub mod envoy;
pub mod federated;
pub mod inspect;
mod json;
mod load_balancing;
pub mod names;
pub mod outbound;
pub(crate) mod properties;
pub mod report;
pub mod server;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod tls;

use waypost_core::{Announcement, Timestamp};
use waypost_store::ServedInstance;

/// A message's bytes, and the time of origin of the newest fact in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The encoded message.
    pub value: Vec<u8>,
    /// When the newest fact in it was made; the epoch where that is not known.
    pub origin: Timestamp,
}

impl Rendered {
    pub(crate) fn new(message: &impl prost::Message, origin: Timestamp) -> Self {
        Self {
            value: message.encode_to_vec(),
            origin,
        }
    }
}

/// Reads an instance's announcement; `None` (and a line in the log) for bytes that are not one. The
/// fold lets none of those pass, so this is a fault of ours and costs this one instance only.
#[must_use]
pub fn read_announcement(instance: &ServedInstance) -> Option<Announcement> {
    match waypost_proto::announcement::decode(&instance.value) {
        Ok(announcement) => Some(announcement),
        Err(error) => {
            tracing::error!(uri = %instance.uri, %error, "an announcement in the store cannot be read");
            None
        }
    }
}
