//! The port between the xDS engine and whatever holds the resources. The engine knows these traits,
//! never a store; the store's side knows them, never a stream.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::resource::{FabricId, ResourceName, ResourceType, ResourceVersion, Variant};
use crate::time::Timestamp;

/// A resource encoded once per version and variant; clones share the bytes.
///
/// The bytes are field 2 of a `DeltaDiscoveryResponse` (tag, length, `Resource` with name, version
/// and, last, its `Any`). Field 2 of a `DiscoveryResponse` is that `Any` under the same tag, so the
/// `SotW` form is the tail of the delta form and costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedResource {
    version: ResourceVersion,
    delta: Bytes,
    sotw_start: u32,
    origin: Timestamp,
}

impl EncodedResource {
    /// Takes bytes made by `waypost_proto::encoded`. `sotw_start` is where the tag of the `Any`
    /// stands in `delta`; `origin` is the time of origin of the newest fact in the resource, for
    /// measuring propagation.
    #[must_use]
    pub fn new(version: ResourceVersion, delta: Bytes, sotw_start: u32, origin: Timestamp) -> Self {
        Self {
            version,
            delta,
            sotw_start,
            origin,
        }
    }

    /// The digest of the content.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    /// One entry of `DeltaDiscoveryResponse.resources`, tag included.
    #[must_use]
    pub fn delta(&self) -> Bytes {
        self.delta.clone()
    }

    /// One entry of `DiscoveryResponse.resources`, tag included.
    #[must_use]
    pub fn sotw(&self) -> Bytes {
        self.delta.slice(self.sotw_start as usize..)
    }

    /// The same in bytes of its own: clones of the one and of the other share nothing.
    #[must_use]
    pub fn to_own_bytes(&self) -> Self {
        Self {
            delta: Bytes::copy_from_slice(&self.delta),
            ..*self
        }
    }

    /// Size of the larger of the two forms, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.delta.len()
    }

    /// Whether there are no bytes (never the case for a real resource).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.delta.is_empty()
    }

    /// Time of origin of the newest fact in it; the epoch where that is not known or nothing in it
    /// is news (something left), so that there is no propagation to measure.
    #[must_use]
    pub fn origin(&self) -> Timestamp {
        self.origin
    }
}

/// What a stream is interested in, within one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// One resource by its name, exactly as the client spelled it.
    Explicit(ResourceName),
    /// A glob collection by its URL, for example `xdstp:///indis.D2URI/greeter/*` (cncf/xds TP1).
    Glob(ResourceName),
    /// Everything of the type (`*`, or the legacy empty list).
    Wildcard,
}

impl Interest {
    /// Reads a name of a request: `*`, a glob URL, or an explicit name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        Self::parse_shared(name, |name| name.into())
    }

    /// As `parse`, with an explicit name made by `share`.
    #[must_use]
    pub fn parse_shared(name: &str, share: impl FnOnce(&str) -> ResourceName) -> Self {
        if name == "*" {
            Self::Wildcard
        } else if glob_prefix(name).is_some() {
            Self::Glob(name.into())
        } else {
            Self::Explicit(share(name))
        }
    }
}

/// The part of a glob URL before its `*` (with the slash), or `None` if `name` is no glob: an
/// `xdstp:` URL whose last path segment is exactly `*` (TP1, "glob collections").
#[must_use]
pub fn glob_prefix(name: &str) -> Option<&str> {
    let prefix = name.strip_suffix('*')?;
    (name.starts_with("xdstp:") && prefix.ends_with('/')).then_some(prefix)
}

/// Whether `name` is a direct member of the glob with this prefix (globs are not recursive).
#[must_use]
pub fn glob_covers(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|id| !id.is_empty() && id != "*" && !id.contains('/'))
}

/// What a proxy says of itself that decides what its wildcards stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The services that it calls, as it spells them, in order, each once.
    pub services: Vec<Box<str>>,
    /// Of one that names no services, the application that it belongs to: it calls what that is said to
    /// call.
    pub application: Option<Box<str>>,
    /// Where it wants to listen for calls to them; `None` for nowhere.
    pub outbound: Option<SocketAddr>,
}

/// Who wants to know of changes: one stream's outbox. Called from the ingest path, once per changed
/// name and interest, so it must only mark and wake: no I/O, no waiting, no call back.
pub trait Subscriber: Send + Sync {
    /// The resource `name` appeared, changed or vanished. `name` is the resource's (a member's for
    /// globs and wildcards); for an explicit interest it is the interest's own spelling.
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName);
}

/// What `subscribe` returns and `unsubscribe` takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubscriptionToken(pub u64);

/// Names and variants to bytes, and who is told of changes. Every method is cheap, synchronous and
/// called on the fan-out path.
///
/// Order that callers rely on: a change is visible to `find` and `members` before `mark_changed` is
/// called for it, and a subscriber that subscribes before it looks misses nothing.
pub trait ResourceLocator: Send + Sync + 'static {
    /// Why nothing may be answered yet, or `None` once loaded (DESIGN invariant 9). Once `None`,
    /// always `None`: stale is not unloaded.
    fn not_loaded(&self) -> Option<String>;

    /// The current encoding of a resource, or `None` if it does not exist. Where a type has a form
    /// for "exists and is empty" (an empty `D2URIMap` or `ClusterLoadAssignment`) that is returned.
    fn find(
        &self,
        resource_type: ResourceType,
        name: &str,
        variant: Variant,
    ) -> Option<EncodedResource>;

    /// The number of an asker's fabric. One for each fabric, as long as there are few of them; whoever is
    /// not told apart is treated as one that named none.
    fn fabric_id(&self, _fabric: &str) -> FabricId {
        FabricId::default()
    }

    /// What a client of this scope sees in place of everything; `None` if that makes no difference.
    fn scoped(&self, _scope: &Arc<Scope>, _variant: Variant) -> Option<Arc<dyn ResourceLocator>> {
        None
    }

    /// The names of all resources of the type (`prefix` `None`), or of the direct members of a
    /// glob's prefix, those of one cluster next to each other, in name order.
    fn members(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
        variant: Variant,
    ) -> Vec<ResourceName>;

    /// The name under which a client asks for the endpoints of a cluster: `eds_cluster_config.service_name`
    /// of the Cluster, its own name where that is empty (data-plane-api `cluster.proto`).
    fn endpoints_name<'a>(&self, cluster: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(cluster)
    }

    /// Whether a resource that exists is among those that `*` stands for: scopes leave some out.
    fn is_member(&self, _resource_type: ResourceType, _name: &str, _variant: Variant) -> bool {
        true
    }

    /// Whether a glob has no member now.
    fn is_glob_empty(&self, resource_type: ResourceType, prefix: &str, variant: Variant) -> bool {
        self.members(resource_type, Some(prefix), variant)
            .is_empty()
    }

    /// Names that left a collection within the time that is remembered and are not back: a client
    /// that comes back after an outage may still hold them. `prefix` as in `members`.
    fn recently_removed(
        &self,
        _resource_type: ResourceType,
        _prefix: Option<&str>,
    ) -> Vec<ResourceName> {
        Vec::new()
    }

    /// An explicit name in the copy that those who are subscribed to it share, so that a name costs
    /// its bytes once and is told apart by its address; a copy of the caller's own does as well.
    fn share_name(&self, _resource_type: ResourceType, name: &str) -> ResourceName {
        name.into()
    }

    /// From now on `subscriber` is told of changes.
    fn subscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken;

    /// Ends what `subscribe` began; takes the same type and interest.
    fn unsubscribe(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
        token: SubscriptionToken,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_requests_are_read_as_what_they_mean() {
        assert_eq!(Interest::parse("*"), Interest::Wildcard);
        let glob = "xdstp:///indis.D2URI/greeter/*";
        assert_eq!(Interest::parse(glob), Interest::Glob(glob.into()));
        for explicit in [
            "greeter",
            "/d2/uris/greeter",
            "xdstp:///indis.D2URI/greeter/http%3A*",
            "a/*",
        ] {
            assert_eq!(
                Interest::parse(explicit),
                Interest::Explicit(explicit.into())
            );
        }
    }

    #[test]
    fn globs_cover_direct_members_only() {
        let prefix = glob_prefix("xdstp:///indis.D2URI/c/*").unwrap();
        assert!(glob_covers(prefix, "xdstp:///indis.D2URI/c/http%3A%2F%2Fh"));
        for other in [
            "xdstp:///indis.D2URI/c/",
            "xdstp:///indis.D2URI/c/a/b",
            "xdstp:///indis.D2URI/d/a",
            "xdstp:///indis.D2URI/c/*",
        ] {
            assert!(!glob_covers(prefix, other), "{other}");
        }
    }
}
