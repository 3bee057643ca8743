//! One stream as a state machine without I/O: requests in, responses out. What is said is decided
//! when a response is taken out, from the locator and the subscriptions of that moment.

use std::num::NonZero;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;
use waypost_core::{Delivery, ResourceLocator, ResourceType, Variant};

use crate::ack::{NonceSource, Verdict};
use crate::buf::MessageBuf;
use crate::events::{Event, RequestKind, Transport};
use crate::glance::Glance;
use crate::node::{NodeInfo, read_node};
use crate::outbox::{Outbox, Why};
use crate::registry::TypeView;
use crate::request::{DeltaRequest, Request, SotwRequest};
use crate::responder::{Answer, AnswerType, Content, Entry};
use crate::status::{Code, Status};
use crate::substream::{Draft, Engine, Phase, Scene, Substream};
use crate::unknown::UnknownTypes;

mod inventory;

const TYPES: usize = ResourceType::ALL.len();

/// One stream.
pub(crate) struct Stream {
    engine: Arc<Engine>,
    outbox: Arc<Outbox>,
    transport: Transport,
    /// The only type of a per-type service.
    only_type: Option<ResourceType>,
    asker: Option<Box<Asker>>,
    variant: Variant,
    substreams: [Option<Box<Substream>>; TYPES],
    unknown: Option<Box<UnknownTypes>>,
    nonces: NonceSource,
    /// An answer of which some messages are still to be sent.
    unfinished: Option<Box<Answer>>,
    /// Since when removals have been kept back.
    holding_since: Option<Instant>,
}

/// Who asks.
struct Asker {
    node: NodeInfo,
    /// What its scope leaves of the engine's locator.
    scoped: Option<Arc<dyn ResourceLocator>>,
}

// Of every open stream, as the sizes asserted in `outbox`, `substream` and `subscription` are.
const _: () = assert!(size_of::<Stream>() <= 144);

impl Stream {
    pub(crate) fn new(
        engine: Arc<Engine>,
        outbox: Arc<Outbox>,
        transport: Transport,
        only_type: Option<ResourceType>,
        nonce_seed: u64,
    ) -> Self {
        Self {
            engine,
            outbox,
            transport,
            only_type,
            asker: None,
            variant: Variant {
                delivery: match (only_type, transport) {
                    (None, _) => Delivery::Aggregated,
                    (Some(_), Transport::Sotw) => Delivery::PerTypeSotw,
                    (Some(_), Transport::Delta) => Delivery::PerTypeDelta,
                },
                ..Variant::default()
            },
            substreams: [const { None }; TYPES],
            unknown: None,
            nonces: NonceSource::new(nonce_seed),
            unfinished: None,
            holding_since: None,
        }
    }

    /// Applies the bytes of one request. An error ends the stream.
    pub(crate) fn on_message(&mut self, message: Bytes, now: Instant) -> Result<(), Status> {
        let bytes = message.len();
        let glance = Glance::at(self.transport, &message);
        if let Some(resource_type) = glance.and_then(|glance| self.find_ack(&glance)) {
            self.report_request(Some(resource_type), RequestKind::Ack, bytes);
            return Ok(());
        }
        let names_digest = glance.map(|glance| glance.names_digest());
        let malformed = |error: prost::DecodeError| {
            Status::new(Code::InvalidArgument, format!("malformed request: {error}"))
        };
        let mut request = match self.transport {
            Transport::Delta => DeltaRequest::decode(message).map(Request::Delta),
            Transport::Sotw => SotwRequest::decode(message).map(Request::Sotw),
        }
        .map_err(malformed)?;
        if let Some(node) = request.take_node()
            && self.asker.is_none()
        {
            self.introduce(&node)?;
        }
        self.on_request(request, names_digest, bytes, now)
    }

    /// Keeps who asks, and what follows from it for the whole stream.
    fn introduce(&mut self, node: &[u8]) -> Result<(), Status> {
        let node = read_node(node)?;
        self.variant.addresses = node.addresses;
        self.variant.client = node.client;
        self.variant.upstream_tls = node.upstream_tls;
        // Subscriptions that were made before stay where they were made.
        let is_first = self.substreams.iter().all(Option::is_none);
        let scope = node.info.scope.as_ref().filter(|_| is_first);
        let locator = &self.engine.locator;
        self.variant.fabric = locator.fabric_id(&node.region);
        let scoped = scope.and_then(|scope| locator.scoped(scope, self.variant));
        self.asker = Some(Box::new(Asker {
            node: node.info,
            scoped,
        }));
        Ok(())
    }

    /// The type whose newest responses a request acknowledges and of which it says nothing new.
    fn find_ack(&mut self, glance: &Glance<'_>) -> Option<ResourceType> {
        if glance.has_node && self.asker.is_none() {
            return None;
        }
        let resource_type = match self.only_type {
            Some(only) if glance.type_url.is_empty() => only,
            Some(only) => (glance.type_url == only.type_url().as_bytes()).then_some(only)?,
            None => ResourceType::from_type_url(str::from_utf8(glance.type_url).ok()?)?,
        };
        let substream = self.substreams[resource_type as usize].as_deref_mut()?;
        if let Substream::Sotw(sotw) = substream
            && !sotw.has_names_of(glance.names_digest())
        {
            return None;
        }
        let nonce = str::from_utf8(glance.response_nonce).ok()?;
        let verdict = substream
            .common_mut()
            .acks
            .judge(self.transport, nonce, None);
        (verdict == Verdict::Ack).then_some(resource_type)
    }

    fn on_request(
        &mut self,
        request: Request,
        names_digest: Option<NonZero<u64>>,
        bytes: usize,
        now: Instant,
    ) -> Result<(), Status> {
        let Some(resource_type) = self.type_of(&request)? else {
            self.report_request(None, RequestKind::Subscribe, bytes);
            self.unknown.get_or_insert_default().on_request(request);
            return Ok(());
        };
        let verdict = self.judge(resource_type, &request);
        let kind = match verdict {
            Verdict::None => RequestKind::Subscribe,
            Verdict::Ack => RequestKind::Ack,
            Verdict::Nack => RequestKind::Nack,
            Verdict::Stale if request.response_nonce().is_empty() => RequestKind::Subscribe,
            Verdict::Stale => RequestKind::Stale,
        };
        self.report_request(Some(resource_type), kind, bytes);
        let transport = self.transport;
        let (scene, substreams) = self.parts();
        let substream = substreams[resource_type as usize]
            .get_or_insert_with(|| Box::new(Substream::new(transport, resource_type)));
        match (&mut **substream, request) {
            (Substream::Delta(delta), Request::Delta(request)) => delta.on_request(&scene, request),
            (Substream::Sotw(sotw), Request::Sotw(request)) if verdict == Verdict::Stale => {
                sotw.on_stale_names(request.resource_names, now);
            }
            (Substream::Sotw(sotw), Request::Sotw(request)) => {
                sotw.on_names(&scene, request.resource_names, names_digest);
            }
            (Substream::Delta(_), Request::Sotw(_)) | (Substream::Sotw(_), Request::Delta(_)) => {}
        }
        self.check_names()
    }

    /// The next response; `None` if there is nothing to say.
    pub(crate) fn next_response(&mut self, now: Instant) -> Option<MessageBuf> {
        self.take_marks(now);
        if let Some(mut answer) = self.unfinished.take() {
            if let Some(resource_type) = answer.of.resource_type() {
                answer.next = self.refresh(resource_type, std::mem::take(&mut answer.next));
            }
            return Some(self.send_next(*answer));
        }
        let responder = self.engine.responder(self.transport);
        let unknown = self.unknown.as_mut();
        let answer = match unknown.and_then(|unknown| unknown.next(responder)) {
            Some(answer) => answer,
            None => self.next_answer(now)?,
        };
        Some(self.send_next(answer))
    }

    /// When `next_response` should be asked again although nothing happened.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let held = self
            .holding_since
            .map(|since| since + self.engine.settings.removal_hold);
        let stale = self
            .substreams
            .iter()
            .flatten()
            .filter_map(|s| s.deadline());
        stale.chain(held).min()
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&mut self) {
        let (scene, substreams) = self.parts();
        for substream in substreams.iter_mut().flatten() {
            let subscriptions = &mut substream.common_mut().subscriptions;
            subscriptions.clear(&scene.registrar());
        }
        self.unfinished = None;
    }

    pub(crate) fn node(&self) -> Option<&NodeInfo> {
        self.asker.as_ref().map(|asker| &asker.node)
    }

    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    pub(crate) fn view(&self, names_max: usize) -> Vec<TypeView> {
        let substreams = self.substreams.iter().flatten();
        substreams
            .map(|substream| {
                let common = substream.common();
                TypeView {
                    acks: common.acks.view(common.resource_type),
                    subscriptions: common.subscriptions.len(),
                    names: common.subscriptions.names(names_max),
                }
            })
            .collect()
    }

    /// The parts that rules work with, borrowed apart.
    fn parts(&mut self) -> (Scene<'_>, &mut [Option<Box<Substream>>; TYPES]) {
        let scoped = self.asker.as_ref().and_then(|a| a.scoped.as_deref());
        let scene = Scene {
            engine: &self.engine,
            locator: scoped.unwrap_or(&*self.engine.locator),
            outbox: &self.outbox,
            variant: self.variant,
        };
        (scene, &mut self.substreams)
    }

    fn type_of(&self, request: &Request) -> Result<Option<ResourceType>, Status> {
        let type_url = request.type_url();
        let invalid = |text: String| Err(Status::new(Code::InvalidArgument, text));
        match self.only_type {
            Some(only) if type_url.is_empty() || type_url == only.type_url() => Ok(Some(only)),
            Some(only) => invalid(format!(
                "type_url {type_url:?} on a stream of {:?}",
                only.type_url()
            )),
            None if type_url.is_empty() => {
                invalid("type_url is missing; it is required on an aggregated stream".to_owned())
            }
            None => Ok(ResourceType::from_type_url(type_url)),
        }
    }

    fn judge(&mut self, resource_type: ResourceType, request: &Request) -> Verdict {
        let Some(substream) = self.substreams[resource_type as usize].as_deref_mut() else {
            return Verdict::None;
        };
        let acks = &mut substream.common_mut().acks;
        let nonce = request.response_nonce();
        let verdict = acks.judge(self.transport, nonce, request.error_detail());
        if verdict == Verdict::Nack {
            self.engine.events.on_event(&Event::Rejected {
                resource_type,
                node_id: self.asker.as_ref().map_or("", |asker| &asker.node.id),
                message: acks.last_error().unwrap_or_default(),
            });
            substream.on_nack();
        }
        verdict
    }

    fn check_names(&self) -> Result<(), Status> {
        let substreams = self.substreams.iter().flatten();
        let names: usize = substreams.map(|s| s.common().subscriptions.len()).sum();
        let max = self.engine.settings.names_per_stream_max;
        if names <= max {
            return Ok(());
        }
        let text = format!(
            "{names} names on one stream are over the limit of {max} (setting names_per_stream_max)"
        );
        Err(Status::new(Code::ResourceExhausted, text))
    }

    fn report_request(&self, resource_type: Option<ResourceType>, kind: RequestKind, bytes: usize) {
        self.engine.events.on_event(&Event::RequestReceived {
            transport: self.transport,
            resource_type,
            kind,
            bytes,
        });
    }

    /// Sorts what changed into the substreams that want it.
    fn take_marks(&mut self, now: Instant) {
        let marks = self.outbox.take();
        let (scene, substreams) = self.parts();
        for (name, types) in marks {
            for substream in substreams.iter_mut().flatten() {
                if types.contains(substream.common().resource_type) {
                    substream.mark(name.clone(), Why::Changed);
                }
            }
        }
        for substream in substreams.iter_mut().flatten() {
            if let Substream::Sotw(sotw) = &mut **substream {
                sotw.apply_stale_names(&scene, now);
            }
        }
    }

    /// The answer that is due first: types in make-before-break order (xDS protocol, "Eventual
    /// consistency considerations"), then the removals that waited for them.
    fn next_answer(&mut self, now: Instant) -> Option<Answer> {
        let hold = self.must_hold(now);
        for resource_type in ResourceType::ALL {
            if let Some(answer) = self.answer(resource_type, Phase::Make { hold }) {
                self.note_held(now);
                return Some(answer);
            }
        }
        self.note_held(now);
        if self.holding_since.is_none() || self.must_hold(now) {
            return None;
        }
        for resource_type in ResourceType::ALL {
            let substream = self.substreams[resource_type as usize].as_deref();
            if !substream.is_some_and(Substream::holds_removals) {
                continue;
            }
            if let Some(answer) = self.answer(resource_type, Phase::Break) {
                self.note_held(now);
                return Some(answer);
            }
        }
        self.note_held(now);
        None
    }

    /// Whether removals of clusters have to wait: listeners or routes without them are still to be
    /// sent, or have not been confirmed, and the time for that is not over.
    fn must_hold(&self, now: Instant) -> bool {
        let referrers = [ResourceType::Listener, ResourceType::RouteConfiguration];
        let is_busy = |resource_type: ResourceType| {
            let substream = self.substreams[resource_type as usize].as_deref();
            substream.is_some_and(|s| s.has_pending() || s.common().acks.is_awaited())
        };
        let hold = self.engine.settings.removal_hold;
        let in_time = self.holding_since.is_none_or(|since| now < since + hold);
        in_time && referrers.into_iter().any(is_busy)
    }

    fn note_held(&mut self, now: Instant) {
        let holds = self.substreams.iter().flatten().any(|s| s.holds_removals());
        self.holding_since = holds.then(|| self.holding_since.unwrap_or(now));
    }

    fn answer(&mut self, resource_type: ResourceType, phase: Phase) -> Option<Answer> {
        let (scene, substreams) = self.parts();
        let substream = substreams[resource_type as usize].as_deref_mut()?;
        let draft = substream.gather(&scene, phase)?;
        self.rewarm(resource_type, &draft);
        let of = AnswerType::Known(resource_type);
        let responder = self.engine.responder(self.transport);
        let (next, rest) = if draft.is_whole {
            (draft.entries, Vec::new())
        } else {
            responder.pack(of.type_url(), draft.entries)
        };
        Some(Answer {
            of,
            version: draft.version,
            next,
            rest: rest.into_iter(),
        })
    }

    /// A cluster that is new or changed at the client is of no use to it until the endpoints that it
    /// has come again, even if they are the same (xDS protocol, "Resource warming").
    fn rewarm(&mut self, resource_type: ResourceType, draft: &Draft) {
        if resource_type != ResourceType::Cluster {
            return;
        }
        let (scene, substreams) = self.parts();
        if let Some(endpoints) = &mut substreams[ResourceType::ClusterLoadAssignment as usize] {
            endpoints.send_again(&scene, &draft.renewed);
        }
    }

    /// Encodes the next message of an answer and keeps what is left of it.
    fn send_next(&mut self, mut answer: Answer) -> MessageBuf {
        let resource_type = answer.of.resource_type();
        let remaining = u32::try_from(answer.rest.len()).unwrap_or(u32::MAX);
        let nonce = self.nonces.next(remaining);
        if let Some(resource_type) = resource_type
            && let Some(substream) = &mut self.substreams[resource_type as usize]
        {
            substream.common_mut().acks.sent(nonce);
        }
        let responder = self.engine.responder(self.transport);
        let (message, bytes) = responder.encode(&answer.of, answer.version, nonce, &answer.next);
        self.report_response(resource_type, &answer.next, bytes);
        if let Some(next) = answer.rest.next() {
            answer.next = next;
            self.unfinished = Some(Box::new(answer));
        }
        message
    }

    /// Looks again at the entries of a message that had to wait for others.
    fn refresh(&mut self, resource_type: ResourceType, entries: Vec<Entry>) -> Vec<Entry> {
        let (scene, substreams) = self.parts();
        let Some(substream) = substreams[resource_type as usize].as_deref_mut() else {
            return entries;
        };
        let looked_at = entries.into_iter().filter_map(|entry| match substream {
            Substream::Delta(delta) => delta.refresh(&scene, entry),
            Substream::Sotw(sotw) => sotw.refresh(&scene, entry),
        });
        looked_at.collect()
    }

    fn report_response(
        &self,
        resource_type: Option<ResourceType>,
        entries: &[Entry],
        bytes: usize,
    ) {
        let events = &self.engine.events;
        let mut resources = 0;
        for entry in entries {
            let Content::Resource(resource) = &entry.content else {
                continue;
            };
            resources += 1;
            if let (true, Some(resource_type)) = (entry.is_change, resource_type) {
                events.on_event(&Event::ChangeSent {
                    resource_type,
                    origin: resource.origin(),
                });
            }
        }
        events.on_event(&Event::ResponseSent {
            transport: self.transport,
            resource_type,
            resources,
            removed: entries.len() - resources,
            bytes,
        });
        if let Some(resource_type) = resource_type
            && bytes > self.engine.settings.response_bytes_max
        {
            events.on_event(&Event::SetOverMaxSize {
                resource_type,
                bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests;
