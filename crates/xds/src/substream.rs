//! On an aggregated stream each type is a logical stream of its own: subscriptions, versions and
//! nonces of one type never affect another (xDS protocol, "Variants of the xDS transport
//! protocol"). This is what the two variants of such a substream have in common.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::Instant;
use waypost_core::{EncodedResource, ResourceLocator, ResourceName, ResourceType, Variant};

use crate::ack::AckState;
use crate::delta::DeltaSubstream;
use crate::events::{Event, EventHandler, Transport};
use crate::outbox::{Outbox, Pending, Why};
use crate::responder::{Entry, Responder};
use crate::settings::AdsSettings;
use crate::sotw::SotwSubstream;
use crate::subscription::{Registrar, Subscriptions};

/// What all streams of a server answer from.
pub(crate) struct Engine {
    pub(crate) locator: Arc<dyn ResourceLocator>,
    pub(crate) settings: AdsSettings,
    pub(crate) events: Arc<dyn EventHandler>,
    delta: Responder,
    sotw: Responder,
}

impl Engine {
    pub(crate) fn new(
        locator: Arc<dyn ResourceLocator>,
        settings: AdsSettings,
        events: Arc<dyn EventHandler>,
    ) -> Self {
        let responder = |transport| {
            let identifier = &settings.control_plane_identifier;
            Responder::new(transport, identifier, settings.response_bytes_max)
        };
        Self {
            delta: responder(Transport::Delta),
            sotw: responder(Transport::Sotw),
            locator,
            settings,
            events,
        }
    }

    pub(crate) fn responder(&self, transport: Transport) -> &Responder {
        match transport {
            Transport::Delta => &self.delta,
            Transport::Sotw => &self.sotw,
        }
    }
}

/// One stream's view of the engine.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) engine: &'a Engine,
    /// The engine's, or what the stream's scope leaves of it.
    pub(crate) locator: &'a dyn ResourceLocator,
    pub(crate) outbox: &'a Arc<Outbox>,
    pub(crate) variant: Variant,
}

impl Scene<'_> {
    pub(crate) fn registrar(&self) -> Registrar<'_> {
        Registrar {
            locator: self.locator,
            outbox: self.outbox,
        }
    }

    /// `name`, shared with whoever else is subscribed to it.
    pub(crate) fn share_name(&self, resource_type: ResourceType, name: &str) -> ResourceName {
        self.locator.share_name(resource_type, name)
    }

    pub(crate) fn find(&self, resource_type: ResourceType, name: &str) -> Option<EncodedResource> {
        self.locator.find(resource_type, name, self.variant)
    }

    /// As `find`, for a name that is wanted as a member of a collection: one that left the stream's
    /// scope is gone for the client.
    pub(crate) fn find_member(
        &self,
        resource_type: ResourceType,
        name: &str,
    ) -> Option<EncodedResource> {
        let is_member = self.locator.is_member(resource_type, name, self.variant);
        is_member.then(|| self.find(resource_type, name)).flatten()
    }

    pub(crate) fn members(
        &self,
        resource_type: ResourceType,
        prefix: Option<&str>,
    ) -> Vec<ResourceName> {
        self.locator.members(resource_type, prefix, self.variant)
    }

    /// Whether `entry` fits into a message; one that does not is reported, and skipped by whoever
    /// asks: one resource too large must not hold up the others.
    pub(crate) fn fits(
        &self,
        transport: Transport,
        resource_type: ResourceType,
        entry: &Entry,
    ) -> bool {
        let responder = self.engine.responder(transport);
        let max = responder.entries_bytes_max(resource_type.type_url());
        let bytes = entry.len(transport);
        if bytes > max {
            self.engine.events.on_event(&Event::ResourceOverMaxSize {
                resource_type,
                name: &entry.name,
                bytes,
            });
        }
        bytes <= max
    }
}

/// Which half of make-before-break is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// What appeared or changed, and removals that nothing waits for.
    Make {
        /// Whether removals of clusters and their endpoints are kept back.
        hold: bool,
    },
    /// What was kept back.
    Break,
}

/// What is to be said about a type.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) entries: Vec<Entry>,
    /// `SotW` only.
    pub(crate) version: u64,
    /// The set must go in one message (`SotW` LDS and CDS).
    pub(crate) is_whole: bool,
    /// Resources that are new or changed for this client.
    pub(crate) renewed: Vec<ResourceName>,
}

/// What both variants keep for a type.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) resource_type: ResourceType,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) pending: Pending,
    pub(crate) acks: AckState,
}

impl Common {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            resource_type,
            subscriptions: Subscriptions::new(resource_type),
            pending: Pending::default(),
            acks: AckState::default(),
        }
    }

    /// Subscribes to everything if the settings permit. True if a first answer is due.
    pub(crate) fn add_wildcard(&mut self, scene: &Scene<'_>) -> bool {
        let resource_type = self.resource_type;
        if scene.engine.settings.wildcard.contains(resource_type) {
            return self.subscriptions.add_wildcard(&scene.registrar());
        }
        self.report_refused_wildcard(scene);
        true
    }

    pub(crate) fn report_refused_wildcard(&self, scene: &Scene<'_>) {
        let resource_type = self.resource_type;
        let event = Event::WildcardRefused { resource_type };
        scene.engine.events.on_event(&event);
    }
}

/// One type on one stream.
#[derive(Debug)]
pub(crate) enum Substream {
    Delta(DeltaSubstream),
    Sotw(SotwSubstream),
}

const _: () = assert!(size_of::<Substream>() <= 256);

impl Substream {
    pub(crate) fn new(transport: Transport, resource_type: ResourceType) -> Self {
        match transport {
            Transport::Delta => Self::Delta(DeltaSubstream::new(resource_type)),
            Transport::Sotw => Self::Sotw(SotwSubstream::new(resource_type)),
        }
    }

    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Delta(delta) => &delta.common,
            Self::Sotw(sotw) => &sotw.common,
        }
    }

    pub(crate) fn common_mut(&mut self) -> &mut Common {
        match self {
            Self::Delta(delta) => &mut delta.common,
            Self::Sotw(sotw) => &mut sotw.common,
        }
    }

    /// A resource changed.
    pub(crate) fn mark(&mut self, name: ResourceName, why: Why) {
        let common = self.common_mut();
        if common.subscriptions.wants(&name) {
            common.pending.add(name, why);
        }
    }

    /// The endpoints of these clusters are to be sent again, where the client was sent any.
    pub(crate) fn send_again(&mut self, scene: &Scene<'_>, clusters: &[ResourceName]) {
        let common = self.common_mut();
        for cluster in clusters {
            let name = scene.locator.endpoints_name(cluster);
            let explicit = common.subscriptions.find_explicit(&name);
            if explicit.is_some_and(|explicit| explicit.version().is_some()) {
                let name = match name {
                    Cow::Borrowed(_) => cluster.clone(),
                    Cow::Owned(name) => scene.share_name(common.resource_type, &name),
                };
                common.pending.add(name, Why::Asked);
            }
        }
    }

    /// Decides what is to be said now; `None` for nothing.
    pub(crate) fn gather(&mut self, scene: &Scene<'_>, phase: Phase) -> Option<Draft> {
        match self {
            Self::Delta(delta) => delta.gather(scene, phase),
            Self::Sotw(sotw) => sotw.gather(scene, phase),
        }
    }

    /// Whether something waits to be looked at.
    pub(crate) fn has_pending(&self) -> bool {
        !self.common().pending.is_empty()
            || match self {
                Self::Delta(delta) => delta.has_fresh(),
                Self::Sotw(sotw) => sotw.has_fresh(),
            }
    }

    /// Whether removals are kept back.
    pub(crate) fn holds_removals(&self) -> bool {
        match self {
            Self::Delta(delta) => delta.holds_removals(),
            Self::Sotw(sotw) => sotw.holds_removals(),
        }
    }

    /// When the substream needs to be looked at although nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Delta(_) => None,
            Self::Sotw(sotw) => sotw.stale_names_due(),
        }
    }

    /// The client rejected a response.
    pub(crate) fn on_nack(&mut self) {
        match self {
            Self::Delta(delta) => delta.common.subscriptions.doubt(),
            Self::Sotw(sotw) => sotw.on_nack(),
        }
    }
}
