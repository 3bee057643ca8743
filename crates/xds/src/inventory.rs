//! What each stream was told of each resource: read from outside, for people and their tools. Nothing of it
//! is kept for that; it is what the rules of the two variants need, looked at.
//!
//! A rejection names a response and not what is wrong in it, so after one every resource of the type is
//! doubtful until it is sent again. Of the members of a delta collection nothing is kept: they are taken to have
//! been sent as they are now unless they wait.

use std::sync::Arc;

use hashbrown::HashSet;

use waypost_core::locator::glob_prefix;
use waypost_core::{
    EncodedResource, Interest, ResourceLocator, ResourceName, ResourceType, ResourceVersion,
    Variant,
};

use crate::ack::{AckView, Standing};
use crate::registry::StreamView;

/// How it stands with one resource on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceState {
    /// It is subscribed, and nothing was sent.
    NotSent,
    /// The client was told that it does not exist.
    Absent,
    /// It was sent, and the newest response of its type is not answered.
    Sent,
    /// It was sent, and the client confirmed the newest response of its type.
    Acked,
    /// It was sent, and the client has rejected a response of its type since.
    Doubtful,
}

impl ResourceState {
    /// Of a resource that was sent.
    pub(crate) fn of_sent(standing: Standing) -> Self {
        match standing {
            Standing::NothingSent => Self::NotSent,
            Standing::Awaited => Self::Sent,
            Standing::Acked => Self::Acked,
            Standing::Rejected => Self::Doubtful,
        }
    }
}

/// One resource on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceStatus {
    /// Its name, as the client spells it.
    pub name: ResourceName,
    /// The version last sent.
    pub version: Option<ResourceVersion>,
    /// How it stands.
    pub state: ResourceState,
}

/// What one stream was told of one type.
#[derive(Clone, Debug)]
pub struct TypeInventory {
    /// Its responses.
    pub acks: AckView,
    /// Its resources in name order, at most as many as were asked for.
    pub resources: Vec<ResourceStatus>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// What one stream was told.
pub struct Inventory {
    /// The stream.
    pub stream: StreamView,
    /// Each type that it ever asked for.
    pub types: Vec<TypeInventory>,
    locator: Arc<dyn ResourceLocator>,
}

/// As it is copied from a stream.
pub(crate) struct Known {
    pub(crate) locator: Arc<dyn ResourceLocator>,
    pub(crate) types: Vec<KnownType>,
}

pub(crate) struct KnownType {
    pub(crate) acks: AckView,
    pub(crate) resources: Vec<ResourceStatus>,
    /// How many there are.
    pub(crate) resources_total: usize,
    /// Of whose members nothing is kept.
    pub(crate) collections: Vec<Interest>,
    /// What waits to be sent.
    pub(crate) pending: HashSet<ResourceName>,
}

impl Inventory {
    pub(crate) fn new(stream: StreamView, known: Known, resources_max: usize) -> Self {
        let locator = known.locator;
        let types = known.types.into_iter();
        let types = types.map(|known| complete(&*locator, stream.variant, known, resources_max));
        Self {
            types: types.collect(),
            stream,
            locator,
        }
    }

    /// The bytes of a resource as they are now, for as long as they are those that were sent.
    #[must_use]
    pub fn find_sent(
        &self,
        resource_type: ResourceType,
        status: &ResourceStatus,
    ) -> Option<EncodedResource> {
        let version = status.version?;
        let found = self
            .locator
            .find(resource_type, &status.name, self.stream.variant)?;
        (found.version() == version).then_some(found)
    }

    /// Whether a resource that was not sent exists.
    #[must_use]
    pub fn exists(&self, resource_type: ResourceType, name: &str) -> bool {
        let variant = self.stream.variant;
        self.locator.find(resource_type, name, variant).is_some()
    }
}

/// Adds the members of collections.
fn complete(
    locator: &dyn ResourceLocator,
    variant: Variant,
    known: KnownType,
    resources_max: usize,
) -> TypeInventory {
    let KnownType {
        acks,
        mut resources,
        mut resources_total,
        collections,
        pending,
    } = known;
    resources.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut members = Vec::new();
    for collection in &collections {
        let prefix = match collection {
            Interest::Glob(url) => glob_prefix(url),
            Interest::Wildcard | Interest::Explicit(_) => None,
        };
        members.extend(locator.members(acks.resource_type, prefix, variant));
    }
    members.sort_unstable();
    members.dedup();
    let has_explicit = |name: &ResourceName| {
        let place = resources.binary_search_by(|status| status.name.cmp(name));
        place.is_ok()
    };
    members.retain(|name| !has_explicit(name));
    resources_total += members.len();
    let room = resources_max.saturating_sub(resources.len());
    let members = members.into_iter().take(room).map(|name| {
        let waits = pending.contains(&name) || acks.standing == Standing::NothingSent;
        let found = locator.find(acks.resource_type, &name, variant);
        let version = found.filter(|_| !waits).map(|found| found.version());
        let state = match version {
            Some(_) => ResourceState::of_sent(acks.standing),
            None => ResourceState::NotSent,
        };
        ResourceStatus {
            name,
            version,
            state,
        }
    });
    let members: Vec<_> = members.collect();
    resources.extend(members);
    resources.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    TypeInventory {
        is_cut: resources_total > resources.len(),
        acks,
        resources,
    }
}
