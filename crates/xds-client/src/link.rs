//! One stream's side of the protocol: what it was told, what is to be said next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::rpc::Status;
use waypost_core::ResourceType;

use crate::cache::{Answer, TypeState, Types};
use crate::limits::{CONFIRMED_AFTER, MUTE_MAX, NAMES_PER_REQUEST_MAX, OPEN_MAX};
use crate::name::{Scope, Subscription, TypeUrl};
use crate::policy::{
    KnownVersions, Naming, NodeIn, Policy, ReconnectRequests, Unsubscribing, XdsVariant,
};

/// `INVALID_ARGUMENT`, the code of every refusal (rest.li and gRPC send no other).
const INVALID_ARGUMENT: i32 = 3;

/// Which stream of a machine, counted from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u64);

/// What is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// On a delta stream.
    Delta(DeltaDiscoveryRequest),
    /// On a stream of the state of the world.
    Sotw(DiscoveryRequest),
}

/// What is said about a response.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) nonce: String,
    /// `SotW`: the version of the response.
    pub(crate) version_info: Option<String>,
    /// Why it is refused.
    pub(crate) error: Option<String>,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) server: usize,
    opened_at: Duration,
    pub(crate) up_at: Option<Duration>,
    pub(crate) has_answered: bool,
    node_was_sent: bool,
    birth: Birth,
    substreams: BTreeMap<TypeUrl, Substream>,
    /// Names whose resource timers run from when they were sent, oldest first.
    asked: VecDeque<(Duration, TypeUrl, Subscription)>,
}

/// What a stream comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    /// Nothing: it is the client's first.
    First,
    /// A stream that ended.
    Reconnect,
    /// It stands beside one, to see whether its server answers. It tells no versions, so that there is
    /// something to answer.
    Trial,
}

#[derive(Debug)]
struct Substream {
    opening: Opening,
    /// When everything that was watched at first had been asked for with versions told.
    told_at: Option<Duration>,
    /// Delta: to be subscribed, in the order in which it was watched.
    subscribe: VecDeque<Subscription>,
    unsubscribe: BTreeSet<Subscription>,
    verdict: Option<Verdict>,
    /// Whether a request of this type went out. A first one without names would ask for everything.
    has_spoken: bool,
    /// `SotW`: the nonce of the last response, and what the last request named.
    nonce: String,
    named: BTreeSet<Subscription>,
    is_dirty: bool,
}

/// How much of the first request of a type is still to be sent (delta).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Whole,
    Collections,
    Singles,
    Done,
}

impl Link {
    pub(crate) fn new<V>(
        id: LinkId,
        server: usize,
        birth: Birth,
        types: &Types<V>,
        policy: &Policy,
        now: Duration,
    ) -> Self {
        let mut link = Self {
            id,
            server,
            opened_at: now,
            up_at: None,
            has_answered: false,
            node_was_sent: false,
            birth,
            substreams: BTreeMap::new(),
            asked: VecDeque::new(),
        };
        for (type_url, state) in types {
            for subscription in state.watches.keys() {
                link.watch(type_url, subscription, policy);
            }
        }
        link
    }

    /// A new subscription.
    pub(crate) fn watch(
        &mut self,
        type_url: &TypeUrl,
        subscription: &Subscription,
        policy: &Policy,
    ) {
        let in_bulk = self.birth != Birth::First || policy.naming == Naming::Together;
        let fresh = || Substream::new(type_url, in_bulk, policy);
        let substream = self
            .substreams
            .entry(type_url.clone())
            .or_insert_with(fresh);
        substream.is_dirty = true;
        substream.unsubscribe.remove(subscription);
        if substream.opening.is_past(subscription) && policy.variant == XdsVariant::Delta {
            substream.subscribe.push_back(subscription.clone());
        }
    }

    /// A subscription that nobody wants any more; `left` are those of the type that stay.
    pub(crate) fn unwatch(
        &mut self,
        type_url: &TypeUrl,
        subscription: &Subscription,
        left: usize,
        policy: &Policy,
    ) {
        let Some(substream) = self.substreams.get_mut(type_url) else {
            return;
        };
        if left == 0 && !substream.has_spoken {
            self.substreams.remove(type_url);
            return;
        }
        substream.is_dirty = true;
        let waiting = substream.subscribe.iter().position(|s| s == subscription);
        if let Some(place) = waiting {
            substream.subscribe.remove(place);
        } else if substream.opening.is_past(subscription) && policy.variant == XdsVariant::Delta {
            substream.unsubscribe.insert(subscription.clone());
        }
    }

    /// Notes what is to be said about a response.
    pub(crate) fn judge(&mut self, type_url: &TypeUrl, verdict: Verdict) {
        if let Some(substream) = self.substreams.get_mut(type_url) {
            substream.nonce.clone_from(&verdict.nonce);
            substream.verdict = Some(verdict);
        }
    }

    /// Whether there is a request to send.
    pub(crate) fn has_request(&self, policy: &Policy) -> bool {
        self.substreams.values().any(|s| s.has_request(policy))
    }

    /// The next request.
    pub(crate) fn poll_request<V>(
        &mut self,
        types: &mut Types<V>,
        policy: &Policy,
        node: &Node,
        now: Duration,
    ) -> Option<Request> {
        let ready = self.substreams.iter_mut();
        let (type_url, substream) = ready.into_iter().find(|(_, s)| s.has_request(policy))?;
        let state = types.entry(type_url.clone()).or_default();
        let node =
            (!self.node_was_sent || policy.node_in == NodeIn::EveryRequest).then(|| node.clone());
        self.node_was_sent = true;
        substream.has_spoken = true;
        let tells = self.birth != Birth::Trial && policy.known_versions == KnownVersions::Told;
        let (request, names) = match policy.variant {
            XdsVariant::Sotw => substream.sotw(type_url, state, node),
            XdsVariant::Delta => substream.delta(type_url, state, node, policy, tells, now),
        };
        let is_awaited = |name: &Subscription| {
            let watch = state.watches.get(name);
            watch.is_some_and(|watch| watch.answer == Answer::Awaited)
        };
        for name in names.into_iter().filter(is_awaited) {
            self.asked.push_back((now, type_url.clone(), name));
        }
        Some(request)
    }

    /// When this stream needs to be looked at, if nothing happens.
    pub(crate) fn deadline(&self, policy: &Policy) -> Option<Duration> {
        let Some(up_at) = self.up_at else {
            return Some(self.opened_at + OPEN_MAX);
        };
        let mute = (!self.has_answered).then_some(up_at + MUTE_MAX);
        let mute = mute.filter(|_| policy.variant == XdsVariant::Delta);
        let asked = self.asked.front();
        let timer = asked.map(|(at, ..)| (*at).max(up_at) + policy.resource_timer);
        let told = self.substreams.values().filter_map(|s| s.told_at).min();
        let confirmed = told.map(|at| at.max(up_at) + CONFIRMED_AFTER);
        [mute, timer, confirmed].into_iter().flatten().min()
    }

    /// Why this stream is given up, if it is.
    pub(crate) fn find_fault(&self, policy: &Policy, now: Duration) -> Option<String> {
        let seconds = |bound: Duration| bound.as_secs();
        match self.up_at {
            None if now >= self.opened_at + OPEN_MAX => Some(format!(
                "the server did not accept the stream within {} s",
                seconds(OPEN_MAX)
            )),
            Some(up_at)
                if policy.variant == XdsVariant::Delta
                    && !self.has_answered
                    && now >= up_at + MUTE_MAX =>
            {
                Some(format!(
                    "the server answered nothing within {} s",
                    seconds(MUTE_MAX)
                ))
            }
            _ => None,
        }
    }

    /// The next name whose resource timer has run out.
    pub(crate) fn pop_overdue(
        &mut self,
        policy: &Policy,
        now: Duration,
    ) -> Option<(TypeUrl, Subscription)> {
        let up_at = self.up_at?;
        let (at, ..) = self.asked.front()?;
        if now < (*at).max(up_at) + policy.resource_timer {
            return None;
        }
        let (_, type_url, subscription) = self.asked.pop_front()?;
        Some((type_url, subscription))
    }

    /// The next type of which silence has confirmed everything that the server was told.
    pub(crate) fn pop_confirmed(&mut self, now: Duration) -> Option<TypeUrl> {
        let up_at = self.up_at?;
        let is_due = |s: &Substream| {
            s.told_at
                .is_some_and(|at| now >= at.max(up_at) + CONFIRMED_AFTER)
        };
        let (type_url, substream) = self.substreams.iter_mut().find(|(_, s)| is_due(s))?;
        substream.told_at = None;
        Some(type_url.clone())
    }
}

impl Opening {
    /// Whether the request that would have named this has gone out already.
    fn is_past(self, subscription: &Subscription) -> bool {
        match self {
            Self::Whole | Self::Collections => false,
            Self::Singles => subscription.scope() != Scope::Name,
            Self::Done => true,
        }
    }
}

impl Substream {
    fn new(type_url: &TypeUrl, in_bulk: bool, policy: &Policy) -> Self {
        let is_uris = type_url.resource_type() == Some(ResourceType::D2Uri);
        let opening = match policy.reconnect_requests {
            _ if !in_bulk || policy.variant == XdsVariant::Sotw => Opening::Done,
            ReconnectRequests::UriCollectionsApart if is_uris => Opening::Collections,
            ReconnectRequests::OnePerType | ReconnectRequests::UriCollectionsApart => {
                Opening::Whole
            }
        };
        Self {
            opening,
            told_at: None,
            subscribe: VecDeque::new(),
            unsubscribe: BTreeSet::new(),
            verdict: None,
            has_spoken: false,
            nonce: String::new(),
            named: BTreeSet::new(),
            is_dirty: false,
        }
    }

    fn has_request(&self, policy: &Policy) -> bool {
        let has_news = match policy.variant {
            XdsVariant::Sotw => self.is_dirty,
            XdsVariant::Delta => {
                self.opening != Opening::Done
                    || !self.subscribe.is_empty()
                    || self.tells_unsubscriptions(policy)
            }
        };
        has_news || self.verdict.is_some()
    }

    fn tells_unsubscriptions(&self, policy: &Policy) -> bool {
        policy.unsubscribing == Unsubscribing::Sent && !self.unsubscribe.is_empty()
    }

    /// A request of the state of the world names everything, whatever else it does.
    fn sotw<V>(
        &mut self,
        type_url: &TypeUrl,
        state: &mut TypeState<V>,
        node: Option<Node>,
    ) -> (Request, Vec<Subscription>) {
        self.is_dirty = false;
        let verdict = self.verdict.take();
        let error = verdict.as_ref().and_then(|verdict| verdict.error.clone());
        if let Some(accepted) = verdict.filter(|verdict| verdict.error.is_none()) {
            state.version_info = accepted.version_info.unwrap_or_default();
        }
        let wanted: BTreeSet<_> = state.watches.keys().cloned().collect();
        let new = wanted.difference(&self.named).cloned().collect();
        self.named = wanted;
        let request = DiscoveryRequest {
            node,
            type_url: type_url.as_str().to_owned(),
            resource_names: state.names(),
            version_info: state.version_info.clone(),
            response_nonce: self.nonce.clone(),
            error_detail: error.map(to_status),
            ..DiscoveryRequest::default()
        };
        (Request::Sotw(request), new)
    }

    /// A delta request does one thing at a time: a verdict, everything for a new stream, or news.
    fn delta<V>(
        &mut self,
        type_url: &TypeUrl,
        state: &TypeState<V>,
        node: Option<Node>,
        policy: &Policy,
        tells_versions: bool,
        now: Duration,
    ) -> (Request, Vec<Subscription>) {
        let mut request = DeltaDiscoveryRequest {
            node,
            type_url: type_url.as_str().to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        let mut names = Vec::new();
        if let Some(verdict) = self.verdict.take() {
            request.response_nonce = verdict.nonce;
            request.error_detail = verdict.error.map(to_status);
        } else if self.opening != Opening::Done {
            names = self.open(state);
            if tells_versions {
                self.told_at = Some(now);
                let versions = state.version_table();
                request.initial_resource_versions = versions
                    .map(|(name, version)| (name.to_string(), version.to_string()))
                    .collect();
            }
        } else {
            let most = match policy.naming {
                Naming::Together => NAMES_PER_REQUEST_MAX,
                Naming::OneNameARequest => 1,
            };
            names.extend(self.subscribe.drain(..most.min(self.subscribe.len())));
            if self.tells_unsubscriptions(policy) {
                let gone = std::mem::take(&mut self.unsubscribe).into_iter();
                request.resource_names_unsubscribe = gone.map(|s| s.to_string()).collect();
            }
        }
        request.resource_names_subscribe = names.iter().map(ToString::to_string).collect();
        (Request::Delta(request), names)
    }

    /// The names of the first request, or of one of the two.
    fn open<V>(&mut self, state: &TypeState<V>) -> Vec<Subscription> {
        let is_single = |name: &&Subscription| name.scope() == Scope::Name;
        let all = state.watches.keys();
        let (collections, singles): (Vec<_>, Vec<_>) = all.partition(|name| !is_single(name));
        let (names, next) = match self.opening {
            Opening::Collections if collections.is_empty() => (singles, Opening::Done),
            Opening::Collections if singles.is_empty() => (collections, Opening::Done),
            Opening::Collections => (collections, Opening::Singles),
            Opening::Singles => (singles, Opening::Done),
            Opening::Whole | Opening::Done => ([collections, singles].concat(), Opening::Done),
        };
        self.opening = next;
        names.into_iter().cloned().collect()
    }
}

fn to_status(message: String) -> Status {
    Status {
        code: INVALID_ARGUMENT,
        message,
        details: Vec::new(),
    }
}
