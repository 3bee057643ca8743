//! What an operator may set, and the sets of types that some of it is given for.

use std::time::Duration;

use waypost_core::ResourceType;

use crate::limits;

/// Settings of the engine. [`AdsSettings::new`] has the defaults of [`limits`](crate::limits).
#[derive(Clone, Debug)]
pub struct AdsSettings {
    /// `control_plane.identifier` of every response: which Observer answers.
    pub control_plane_identifier: String,
    /// Largest response message, bytes, with all overhead.
    pub response_bytes_max: usize,
    /// Largest request message, bytes.
    pub request_bytes_max: usize,
    /// Streams that are accepted; one more is refused before its first response.
    pub streams_max: usize,
    /// Names that one stream may subscribe to, all types together.
    pub names_per_stream_max: usize,
    /// How long a stream may wait with its first request.
    pub first_request_timeout: Duration,
    /// How long changes wait for a client that does not read before its stream is cut off.
    pub stall_timeout: Duration,
    /// How long removed clusters wait for the client to confirm the listeners and routes sent
    /// before them.
    pub removal_hold: Duration,
    /// Types for which `*` is served. For endpoints it is off unless an operator permits it: it is
    /// every address of a fleet, and no client needs it.
    pub wildcard: TypeSet,
    /// Types for which a first request without names means `*` (xDS protocol, "How the client
    /// specifies what resources to return"). A type must be in `wildcard` too.
    pub legacy_wildcard: TypeSet,
    /// Whether endpoints are sent again to a client that comes back and says it has them.
    pub endpoints_on_reconnect: EndpointsOnReconnect,
}

/// What a delta client gets for endpoints whose current version it names when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointsOnReconnect {
    /// The resource again: Envoy may have dropped it meanwhile (envoyproxy/envoy#22418).
    Resend,
    /// Nothing, as for other types.
    TrustVersions,
}

impl AdsSettings {
    /// The defaults, answering as `control_plane_identifier`.
    #[must_use]
    pub fn new(control_plane_identifier: impl Into<String>) -> Self {
        let wildcard = TypeSet::ALL.without(ResourceType::ClusterLoadAssignment);
        Self {
            control_plane_identifier: control_plane_identifier.into(),
            response_bytes_max: limits::RESPONSE_BYTES_MAX_DEFAULT,
            request_bytes_max: limits::REQUEST_BYTES_MAX_DEFAULT,
            streams_max: limits::STREAMS_MAX_DEFAULT,
            names_per_stream_max: limits::NAMES_PER_STREAM_MAX_DEFAULT,
            first_request_timeout: limits::FIRST_REQUEST_TIMEOUT_DEFAULT,
            stall_timeout: limits::STALL_TIMEOUT_DEFAULT,
            removal_hold: limits::REMOVAL_HOLD_DEFAULT,
            wildcard,
            legacy_wildcard: wildcard,
            endpoints_on_reconnect: EndpointsOnReconnect::Resend,
        }
    }
}

/// A set of resource types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeSet(u16);

impl TypeSet {
    /// No type.
    pub const NONE: Self = Self(0);
    /// Every type.
    pub const ALL: Self = Self((1 << ResourceType::ALL.len()) - 1);

    /// This set and `resource_type`.
    #[must_use]
    pub const fn with(self, resource_type: ResourceType) -> Self {
        Self(self.0 | 1 << resource_type as u16)
    }

    /// This set less `resource_type`.
    #[must_use]
    pub const fn without(self, resource_type: ResourceType) -> Self {
        Self(self.0 & !(1 << resource_type as u16))
    }

    /// Whether `resource_type` is in the set.
    #[must_use]
    pub const fn contains(self, resource_type: ResourceType) -> bool {
        self.0 & 1 << resource_type as u16 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_sets_hold_what_was_put_in() {
        for t in ResourceType::ALL {
            assert!(TypeSet::ALL.contains(t));
            assert!(!TypeSet::NONE.contains(t));
            assert!(TypeSet::NONE.with(t).contains(t));
            assert!(!TypeSet::ALL.without(t).contains(t));
        }
    }
}
