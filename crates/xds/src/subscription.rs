//! What a stream is subscribed to within one type, and what it was told about each explicit name.

use std::collections::BTreeMap;
use std::sync::Arc;

use waypost_core::locator::{glob_covers, glob_prefix};
use waypost_core::{
    Interest, ResourceLocator, ResourceName, ResourceType, ResourceVersion, Subscriber,
    SubscriptionToken,
};

use crate::name_map::NameMap;
use crate::outbox::Outbox;

/// Where subscriptions are made: the locator, on behalf of the stream's outbox.
pub(crate) struct Registrar<'a> {
    pub(crate) locator: &'a dyn ResourceLocator,
    pub(crate) outbox: &'a Arc<Outbox>,
}

impl Registrar<'_> {
    /// Reads a name of a request; an explicit one is shared with whoever else is subscribed to it.
    pub(crate) fn parse(&self, resource_type: ResourceType, name: &str) -> Interest {
        Interest::parse_shared(name, |name| self.locator.share_name(resource_type, name))
    }

    fn subscribe(&self, resource_type: ResourceType, interest: &Interest) -> SubscriptionToken {
        let subscriber = Arc::clone(self.outbox) as Arc<dyn Subscriber>;
        self.locator.subscribe(resource_type, interest, subscriber)
    }
}

/// Stands where there is no version.
const NO_VERSION: ResourceVersion = ResourceVersion(0);

/// An explicit name and what the client was last told about it.
#[derive(Debug)]
pub(crate) struct Explicit {
    token: SubscriptionToken,
    /// The version, if it was told one.
    version: ResourceVersion,
    told: Told,
}

// Of every name of every stream.
const _: () = assert!(size_of::<(ResourceName, Explicit)>() <= 40);

/// What `Explicit::version` is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing was told yet.
    Nothing,
    /// The client was told that the resource does not exist, and can be taken to know.
    Absence,
    /// The client was told this version, and can be taken to hold it.
    Version,
    /// The client was told this version, but who knows what it holds since it rejected something.
    VersionInDoubt,
}

/// What a client was told of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToldView {
    Nothing,
    Absence,
    Version(ResourceVersion),
    VersionInDoubt(ResourceVersion),
}

impl Explicit {
    /// Whether the client was given the resource and not told since that it is gone.
    pub(crate) fn may_be_held(&self) -> bool {
        matches!(self.told, Told::Version | Told::VersionInDoubt)
    }

    /// What the client was told, for those who ask from outside.
    pub(crate) fn told_so_far(&self) -> ToldView {
        match self.told {
            Told::Nothing => ToldView::Nothing,
            Told::Absence => ToldView::Absence,
            Told::Version => ToldView::Version(self.version),
            Told::VersionInDoubt => ToldView::VersionInDoubt(self.version),
        }
    }

    /// Whether the client needs not be told that `version` is the current one.
    pub(crate) fn knows(&self, version: Option<ResourceVersion>) -> bool {
        match self.told {
            Told::Nothing | Told::VersionInDoubt => false,
            Told::Absence => version.is_none(),
            Told::Version => version == Some(self.version),
        }
    }

    /// The client was told, or says that it knows.
    pub(crate) fn told(&mut self, version: Option<ResourceVersion>) {
        self.told = match version {
            Some(_) => Told::Version,
            None => Told::Absence,
        };
        self.version = version.unwrap_or(NO_VERSION);
    }

    /// The version last told.
    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        match self.told {
            Told::Nothing | Told::Absence => None,
            Told::Version | Told::VersionInDoubt => Some(self.version),
        }
    }

    fn doubt(&mut self) {
        self.told = match self.told {
            Told::Nothing | Told::Absence => Told::Nothing,
            Told::Version | Told::VersionInDoubt => Told::VersionInDoubt,
        };
    }
}

#[derive(Debug)]
struct Glob {
    url: ResourceName,
    token: SubscriptionToken,
}

/// The subscriptions of one stream to one type. [`clear`](Self::clear) must be called at the end.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    resource_type: ResourceType,
    explicit: NameMap<Explicit>,
    /// By what their members' names begin with.
    globs: BTreeMap<Box<str>, Glob>,
    wildcard: Option<SubscriptionToken>,
}

impl Subscriptions {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            resource_type,
            explicit: NameMap::default(),
            globs: BTreeMap::new(),
            wildcard: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.explicit.len() + self.globs.len() + usize::from(self.wildcard.is_some())
    }

    /// Subscribes to `name`; true if it was not subscribed before.
    pub(crate) fn add_explicit(&mut self, at: &Registrar<'_>, name: &ResourceName) -> bool {
        if self.explicit.contains(name) {
            return false;
        }
        let token = at.subscribe(self.resource_type, &Interest::Explicit(name.clone()));
        let explicit = Explicit {
            token,
            version: NO_VERSION,
            told: Told::Nothing,
        };
        self.explicit.insert_new(name.clone(), explicit);
        true
    }

    /// Makes room for so many more names.
    pub(crate) fn reserve(&mut self, names: usize) {
        self.explicit.reserve(names);
    }

    /// Ends the subscription to `name` and returns what was known of it.
    pub(crate) fn remove_explicit(&mut self, at: &Registrar<'_>, name: &str) -> Option<Explicit> {
        let (name, explicit) = self.explicit.remove(name)?;
        let interest = Interest::Explicit(name);
        at.locator
            .unsubscribe(self.resource_type, &interest, explicit.token);
        Some(explicit)
    }

    /// Subscribes to the glob `url`; true if it was not subscribed before.
    pub(crate) fn add_glob(&mut self, at: &Registrar<'_>, url: &ResourceName) -> bool {
        let Some(prefix) = glob_prefix(url) else {
            return false;
        };
        if self.globs.contains_key(prefix) {
            return false;
        }
        let token = at.subscribe(self.resource_type, &Interest::Glob(url.clone()));
        let url = url.clone();
        self.globs.insert(prefix.into(), Glob { url, token });
        true
    }

    pub(crate) fn remove_glob(&mut self, at: &Registrar<'_>, url: &str) {
        let removed = glob_prefix(url).and_then(|prefix| self.globs.remove(prefix));
        if let Some(Glob { url, token }) = removed {
            at.locator
                .unsubscribe(self.resource_type, &Interest::Glob(url), token);
        }
    }

    /// Subscribes to everything; true if it was not subscribed before.
    pub(crate) fn add_wildcard(&mut self, at: &Registrar<'_>) -> bool {
        if self.wildcard.is_some() {
            return false;
        }
        self.wildcard = Some(at.subscribe(self.resource_type, &Interest::Wildcard));
        true
    }

    pub(crate) fn remove_wildcard(&mut self, at: &Registrar<'_>) {
        if let Some(token) = self.wildcard.take() {
            at.locator
                .unsubscribe(self.resource_type, &Interest::Wildcard, token);
        }
    }

    /// Ends every subscription.
    pub(crate) fn clear(&mut self, at: &Registrar<'_>) {
        for (name, explicit) in self.explicit.take() {
            let interest = Interest::Explicit(name);
            at.locator
                .unsubscribe(self.resource_type, &interest, explicit.token);
        }
        for (_, Glob { url, token }) in std::mem::take(&mut self.globs) {
            at.locator
                .unsubscribe(self.resource_type, &Interest::Glob(url), token);
        }
        self.remove_wildcard(at);
    }

    pub(crate) fn has_wildcard(&self) -> bool {
        self.wildcard.is_some()
    }

    pub(crate) fn has_glob(&self, prefix: &str) -> bool {
        self.globs.contains_key(prefix)
    }

    pub(crate) fn explicit_names(&self) -> impl Iterator<Item = &ResourceName> {
        self.explicit.names()
    }

    /// Explicit names and what was told of each, in no order.
    pub(crate) fn told(&self) -> impl Iterator<Item = (&ResourceName, ToldView)> {
        let told = self.explicit.iter();
        told.map(|(name, explicit)| (name, explicit.told_so_far()))
    }

    /// Globs, by their URL, and the wildcard.
    pub(crate) fn collections(&self) -> Vec<Interest> {
        let wildcard = self.wildcard.map(|_| Interest::Wildcard);
        let globs = self.globs.values();
        let globs = globs.map(|glob| Interest::Glob(glob.url.clone()));
        wildcard.into_iter().chain(globs).collect()
    }

    pub(crate) fn explicit_len(&self) -> usize {
        self.explicit.len()
    }

    pub(crate) fn has_explicit(&self, name: &str) -> bool {
        self.explicit.contains(name)
    }

    pub(crate) fn find_explicit(&self, name: &str) -> Option<&Explicit> {
        self.explicit.get(name)
    }

    pub(crate) fn find_explicit_mut(&mut self, name: &str) -> Option<&mut Explicit> {
        self.explicit.get_mut(name)
    }

    /// Whether a glob or the wildcard covers `name`.
    pub(crate) fn is_member(&self, name: &str) -> bool {
        self.has_wildcard() || self.find_glob_of(name).is_some()
    }

    /// Whether anything of `name` is to be sent.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.has_explicit(name) || self.is_member(name)
    }

    /// The collection whose emptiness the client must hear of when `name` leaves it: its URL, as
    /// subscribed. Under a wildcard on `indis.D2URI` every cluster's collection counts.
    pub(crate) fn collection_of(&self, name: &str) -> Option<ResourceName> {
        if let Some(glob) = self.find_glob_of(name) {
            return Some(glob.url.clone());
        }
        let counts = self.has_wildcard() && self.resource_type == ResourceType::D2Uri;
        let prefix = counts.then(|| parent(name)).flatten()?;
        Some(format!("{prefix}*").into())
    }

    /// After a NACK nobody can say what the client holds: the next change of each name is sent
    /// even if it leads back to what was sent last.
    pub(crate) fn doubt(&mut self) {
        for explicit in self.explicit.values_mut() {
            explicit.doubt();
        }
    }

    /// All names in order, at most `max`.
    pub(crate) fn names(&self, max: usize) -> Vec<String> {
        if max == 0 {
            return Vec::new();
        }
        let wildcard = self.wildcard.map(|_| "*");
        let globs = self.globs.values().map(|glob| &*glob.url);
        let explicit = self.explicit.names().map(|name| &**name);
        let mut names: Vec<&str> = wildcard.into_iter().chain(globs).chain(explicit).collect();
        names.sort_unstable();
        names.into_iter().take(max).map(str::to_owned).collect()
    }

    fn find_glob_of(&self, name: &str) -> Option<&Glob> {
        if self.globs.is_empty() {
            return None;
        }
        self.globs.get(parent(name)?)
    }
}

/// What the glob that has `name` as a direct member begins with; `None` for what can be no member.
pub(crate) fn parent(name: &str) -> Option<&str> {
    let prefix = name.get(..=name.rfind('/')?)?;
    (name.starts_with("xdstp:") && glob_covers(prefix, name)).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_know_their_collection() {
        assert_eq!(
            parent("xdstp:///indis.D2URI/c/u"),
            Some("xdstp:///indis.D2URI/c/")
        );
        for none in [
            "c",
            "/d2/uris/c",
            "xdstp:///indis.D2URI/c/",
            "xdstp:///indis.D2URI/c/*",
        ] {
            assert_eq!(parent(none), None, "{none}");
        }
    }
}
