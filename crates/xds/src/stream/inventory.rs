//! What a stream was told, copied out for those who ask from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;
use waypost_core::{ResourceName, ResourceVersion};

use super::Stream;
use crate::ack::Standing;
use crate::inventory::{Known, KnownType, ResourceState, ResourceStatus};
use crate::outbox::Outbox;
use crate::subscription::ToldView;
use crate::substream::Substream;

impl Stream {
    /// A copy of what is known of at most so many resources of each type.
    pub(crate) fn inventory(&self, resources_max: usize) -> Known {
        let scoped = self.asker.as_ref().and_then(|asker| asker.scoped.as_ref());
        let substreams = self.substreams.iter().flatten();
        Known {
            locator: Arc::clone(scoped.unwrap_or(&self.engine.locator)),
            types: substreams
                .map(|substream| known_type(substream, &self.outbox, resources_max))
                .collect(),
        }
    }
}

fn known_type(substream: &Substream, outbox: &Outbox, resources_max: usize) -> KnownType {
    let common = substream.common();
    // What waits: what the stream has looked at, and what it has not, since its client does not read.
    let waiting = common.pending.names().take(resources_max).cloned();
    let marked = outbox.marked(common.resource_type, resources_max);
    let pending: HashSet<ResourceName> = waiting.chain(marked).collect();
    let standing = common.acks.standing();
    let is_delta = matches!(substream, Substream::Delta(_));
    let (set, is_whole) = match substream {
        Substream::Sotw(sotw) => sotw.told_set(),
        Substream::Delta(_) => (Vec::new(), false),
    };
    let set: BTreeMap<ResourceName, ResourceVersion> = set.into_iter().collect();
    let of_set = |name: &ResourceName| match set.get(name) {
        Some(version) => ToldView::Version(*version),
        None if standing == Standing::NothingSent || pending.contains(name) => ToldView::Nothing,
        None => ToldView::Absence,
    };
    let explicit = common.subscriptions.told().take(resources_max);
    let mut resources: Vec<_> = explicit
        .map(|(name, told)| {
            let told = match told {
                _ if is_whole => of_set(name),
                // State of the world says nothing of what is absent, but for whole sets.
                ToldView::Absence if !is_delta => ToldView::Nothing,
                told => told,
            };
            status(name, told, standing)
        })
        .collect();
    let others = set.iter();
    let others = others.filter(|(name, _)| !common.subscriptions.has_explicit(name));
    let others: Vec<_> = others.collect();
    let resources_total = common.subscriptions.explicit_len() + others.len();
    let room = resources_max.saturating_sub(resources.len());
    let others = others.into_iter().take(room);
    resources.extend(others.map(|(name, v)| status(name, ToldView::Version(*v), standing)));
    KnownType {
        acks: common.acks.view(common.resource_type),
        resources_total,
        resources,
        // State of the world keeps what it said of members.
        collections: match is_delta {
            true => common.subscriptions.collections(),
            false => Vec::new(),
        },
        pending,
    }
}

fn status(name: &ResourceName, told: ToldView, standing: Standing) -> ResourceStatus {
    let (version, state) = match told {
        ToldView::Nothing => (None, ResourceState::NotSent),
        ToldView::Absence => (None, ResourceState::Absent),
        ToldView::VersionInDoubt(version) => (Some(version), ResourceState::Doubtful),
        ToldView::Version(version) => (Some(version), ResourceState::of_sent(standing)),
    };
    ResourceStatus {
        name: name.clone(),
        version,
        state,
    }
}
