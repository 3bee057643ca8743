//! Types by URL, and what a subscription covers.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use waypost_core::ResourceType;

/// A type of resources by its URL, also one that Waypost does not know. Ordered as a client asks on a
/// new stream: clusters, endpoints, listeners, routes, the D2 types, then all others by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeUrl(Arc<str>);

impl TypeUrl {
    /// The type with this URL, for example `type.googleapis.com/indis.D2URIMap`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self(url.into())
    }

    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The type, where it is one that Waypost knows.
    #[must_use]
    pub fn resource_type(&self) -> Option<ResourceType> {
        ResourceType::from_type_url(&self.0)
    }

    fn order(&self) -> (usize, &str) {
        let known = ResourceType::ALL
            .iter()
            .position(|t| t.type_url() == &*self.0);
        (known.unwrap_or(usize::MAX), &self.0)
    }
}

impl From<ResourceType> for TypeUrl {
    fn from(resource_type: ResourceType) -> Self {
        Self::new(resource_type.type_url())
    }
}

impl PartialOrd for TypeUrl {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TypeUrl {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl fmt::Display for TypeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a subscription covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The resource of that name.
    Name,
    /// All resources directly below an `xdstp:` path, not recursively (xDS proposal TP1).
    Glob,
    /// Whatever the server gives to this node (xDS protocol, wildcard).
    Wildcard,
}

/// A subscription as it is spelled on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subscription(Arc<str>);

impl Subscription {
    /// A resource's name; `*` for the wildcard; `xdstp:…/*` for a glob collection.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The wildcard.
    #[must_use]
    pub fn wildcard() -> Self {
        Self::new("*")
    }

    /// As spelled.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it covers.
    #[must_use]
    pub fn scope(&self) -> Scope {
        if &*self.0 == "*" {
            Scope::Wildcard
        } else if self.0.starts_with("xdstp:") && self.0.ends_with("/*") {
            Scope::Glob
        } else {
            Scope::Name
        }
    }

    /// The glob that would cover a name: everything beside it.
    pub(crate) fn glob_over(name: &str) -> Option<Self> {
        let (path, _) = name.rsplit_once('/')?;
        let glob = path.starts_with("xdstp:").then(|| format!("{path}/*"));
        glob.map(|glob| Self(glob.into()))
    }
}

impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for Subscription {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_star_alone_and_an_xdstp_star_cover_more_than_themselves() {
        for (name, scope) in [
            ("*", Scope::Wildcard),
            ("xdstp:///indis.D2URI/c/*", Scope::Glob),
            ("xdstp:///indis.D2URI/c/h", Scope::Name),
            ("/d2/uris/*", Scope::Name),
            ("greeter", Scope::Name),
        ] {
            assert_eq!(Subscription::new(name).scope(), scope, "{name}");
        }
        let glob = Subscription::glob_over("xdstp:///indis.D2URI/c/h");
        assert_eq!(glob, Some(Subscription::new("xdstp:///indis.D2URI/c/*")));
        assert_eq!(Subscription::glob_over("/d2/uris/c"), None);
    }

    #[test]
    fn types_are_asked_for_in_make_before_break_order() {
        let mut types = [
            TypeUrl::new("type.googleapis.com/indis.SomethingNew"),
            ResourceType::D2Node.into(),
            ResourceType::Listener.into(),
            ResourceType::Cluster.into(),
        ];
        types.sort();
        let known: Vec<_> = types.iter().map(TypeUrl::resource_type).collect();
        use ResourceType::{Cluster, D2Node, Listener};
        assert_eq!(known, [Some(Cluster), Some(Listener), Some(D2Node), None]);
    }
}
