//! The protocol as a value.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

use crate::apply::Applier;
use crate::cache::{Answer, Held, Mark, Types};
use crate::codec::{Codec, Rejection};
use crate::counters::Counters;
use crate::event::{Absence, Event, Kept, StreamEvent};
use crate::limits::{TYPES_MAX, WATCHES_MAX};
use crate::link::{Birth, Link, LinkId, Request};
use crate::name::{Subscription, TypeUrl};
use crate::policy::Policy;
use crate::route::Route;

/// Why something cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// More than [`WATCHES_MAX`] of one type.
    #[error("{WATCHES_MAX} subscriptions of this type exist already")]
    TooMany,
    /// More than [`TYPES_MAX`].
    #[error("{TYPES_MAX} types are watched already")]
    TooManyTypes,
}

/// What the driver has to do with streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a stream to a server. [`Machine::up`], [`Machine::response`] and [`Machine::ended`] are
    /// called with its id.
    Open {
        /// The stream's id.
        link: LinkId,
        /// The server, counted in the list as it was given.
        server: usize,
    },
    /// Close a stream. Nothing is heard of it afterwards.
    Close {
        /// The stream's id.
        link: LinkId,
    },
}

/// What came on a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// On a delta stream.
    Delta(DeltaDiscoveryResponse),
    /// On a stream of the state of the world.
    Sotw(DiscoveryResponse),
}

/// One client: what it watches and holds, and the streams by which it learns.
///
/// Times are monotonic and count from any moment the driver chooses; they never go back.
#[derive(Debug)]
pub struct Machine<C: Codec> {
    policy: Policy,
    node: Node,
    codec: C,
    types: Types<C::Value>,
    route: Route,
    /// The stream that is followed.
    active: Option<Link>,
    /// A stream to the preferred server beside it (gRFC A71).
    trial: Option<Link>,
    to_close: VecDeque<LinkId>,
    events: VecDeque<Event<C::Value>>,
    counters: Counters,
    links: u64,
}

impl<C: Codec> Machine<C> {
    /// A client of `servers` servers that watches nothing yet. `seed` is for jitter and the order of
    /// servers: another one for each client.
    #[must_use]
    pub fn new(policy: Policy, node: Node, codec: C, servers: usize, seed: u64) -> Self {
        let route = Route::new(servers, &policy, seed);
        Self {
            policy,
            node,
            codec,
            types: Types::new(),
            route,
            active: None,
            trial: None,
            to_close: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            links: 0,
        }
    }

    /// Watches a resource or a collection from now on. Nothing happens if it is watched already.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn watch(
        &mut self,
        type_url: &TypeUrl,
        subscription: &Subscription,
    ) -> Result<(), WatchError> {
        if !self.types.contains_key(type_url) && self.types.len() >= TYPES_MAX {
            return Err(WatchError::TooManyTypes);
        }
        let state = self.types.entry(type_url.clone()).or_default();
        if state.watches.len() >= WATCHES_MAX {
            return Err(WatchError::TooMany);
        }
        if state.watch(subscription) {
            for link in [&mut self.active, &mut self.trial].into_iter().flatten() {
                link.watch(type_url, subscription, &self.policy);
            }
        }
        Ok(())
    }

    /// Watches it no longer, and forgets what nothing else covers.
    pub fn unwatch(&mut self, type_url: &TypeUrl, subscription: &Subscription) {
        let Some(state) = self.types.get_mut(type_url) else {
            return;
        };
        if state.unwatch(subscription) {
            let left = state.watches.len();
            for link in [&mut self.active, &mut self.trial].into_iter().flatten() {
                link.unwatch(type_url, subscription, left, &self.policy);
            }
        }
    }

    /// Takes what was known of a watched resource in an earlier life, marked [`Mark::Stale`]. Ignored if
    /// anything newer is held or nothing watched covers it.
    ///
    /// # Errors
    /// The codec refuses it; nothing changes.
    pub fn restore(
        &mut self,
        type_url: &TypeUrl,
        name: &str,
        version: &str,
        body: Bytes,
    ) -> Result<(), Rejection> {
        let Some(state) = self.types.get_mut(type_url) else {
            return Ok(());
        };
        if !state.covers(name) || state.held.contains_key(name) {
            return Ok(());
        }
        let value = self.codec.decode(type_url, name, &body)?;
        let (name, version): (Arc<str>, Arc<str>) = (name.into(), version.into());
        let held = Held {
            version: Arc::clone(&version),
            body,
            value: value.clone(),
            mark: Mark::Stale,
        };
        state.held.insert(Arc::clone(&name), held);
        self.events.push_back(Event::Changed {
            type_url: type_url.clone(),
            name,
            version,
            value,
        });
        Ok(())
    }

    /// What the driver has to do now, if anything.
    pub fn poll_action(&mut self, now: Duration) -> Option<Action> {
        if let Some(link) = self.to_close.pop_front() {
            return Some(Action::Close { link });
        }
        if self.active.is_none() {
            if !self.wants_stream() {
                return None;
            }
            let server = self.route.poll_open(now)?;
            let opening = StreamEvent::Opening { server };
            self.events.push_back(Event::Stream(opening));
            let birth = if self.links == 0 {
                Birth::First
            } else {
                Birth::Reconnect
            };
            let link = self.open(server, birth, now);
            return Some(Action::Open {
                link: self.active.insert(link).id,
                server,
            });
        }
        if self.trial.is_some() {
            return None;
        }
        let server = self.route.poll_fall_back(now)?;
        let link = self.open(server, Birth::Trial, now);
        Some(Action::Open {
            link: self.trial.insert(link).id,
            server,
        })
    }

    /// A stream is up: the server has accepted it.
    pub fn up(&mut self, link: LinkId, now: Duration) {
        if let Some(active) = self.active.as_mut().filter(|active| active.id == link) {
            active.up_at = Some(now);
            let server = active.server;
            self.events
                .push_back(Event::Stream(StreamEvent::Up { server }));
        } else if let Some(trial) = self.trial.as_mut().filter(|trial| trial.id == link) {
            trial.up_at = Some(now);
        }
    }

    /// Whether a stream has something to send. Until it is sent no further response should be handed
    /// in: the verdict on the last one is a part of it.
    #[must_use]
    pub fn has_request(&self, link: LinkId) -> bool {
        let links = [&self.active, &self.trial].into_iter().flatten();
        links
            .filter(|l| l.id == link)
            .any(|l| l.has_request(&self.policy))
    }

    /// What a stream is to send next: made now, so that it says the latest.
    pub fn poll_request(&mut self, link: LinkId, now: Duration) -> Option<Request> {
        let links = [&mut self.active, &mut self.trial].into_iter().flatten();
        let link = links.into_iter().find(|l| l.id == link)?;
        let request = link.poll_request(&mut self.types, &self.policy, &self.node, now)?;
        self.counters.requests += 1;
        Some(request)
    }

    /// A response came. One of a type that was never watched, or of the other variant, is ignored.
    pub fn response(&mut self, link: LinkId, response: Response, now: Duration) {
        if self.trial.as_ref().is_some_and(|trial| trial.id == link) {
            self.promote();
        }
        let Some(active) = self.active.as_mut().filter(|active| active.id == link) else {
            return;
        };
        let type_url = TypeUrl::new(match &response {
            Response::Delta(response) => &response.type_url,
            Response::Sotw(response) => &response.type_url,
        });
        let Some(state) = self.types.get_mut(&type_url) else {
            return;
        };
        self.counters.responses += 1;
        if !std::mem::replace(&mut active.has_answered, true) {
            active.up_at.get_or_insert(now);
            self.route.answered(active.server, &self.policy, now);
            self.events.push_back(Event::Stream(StreamEvent::Answered {
                server: active.server,
                control_plane: control_plane(&response),
            }));
        }
        let applier = Applier {
            policy: &self.policy,
            codec: &self.codec,
            type_url: &type_url,
            state,
            events: &mut self.events,
            counters: &mut self.counters,
            errors: Vec::new(),
        };
        let verdict = match response {
            Response::Delta(response) => applier.delta(response),
            Response::Sotw(response) => applier.sotw(response),
        };
        match verdict.error {
            None => self.counters.acks += 1,
            Some(_) => self.counters.nacks += 1,
        }
        active.judge(&type_url, verdict);
    }

    /// A stream has ended, or could not be opened, for this reason.
    pub fn ended(&mut self, link: LinkId, reason: &str, now: Duration) {
        if self.trial.take_if(|trial| trial.id == link).is_some() {
            self.route.plan_fall_back(&self.policy, now);
            return;
        }
        let Some(ended) = self.active.take_if(|active| active.id == link) else {
            return;
        };
        self.types
            .values_mut()
            .for_each(|state| state.lose_stream());
        if ended.has_answered {
            self.counters.streams_lost += 1;
            self.route.lost(&self.policy, now);
        } else {
            self.counters.streams_failed += 1;
            self.route.failed(now);
        }
        self.to_close
            .extend(self.trial.take().map(|trial| trial.id));
        self.events.push_back(Event::Stream(StreamEvent::Ended {
            server: ended.server,
            reason: reason.to_owned(),
            had_answered: ended.has_answered,
        }));
    }

    /// Time has passed: timers that are due run out.
    pub fn tick(&mut self, now: Duration) {
        if let Some((id, fault)) = self.find_fault(now) {
            self.to_close.push_back(id);
            return self.ended(id, &fault, now);
        }
        let Some(active) = &mut self.active else {
            return;
        };
        while let Some((type_url, subscription)) = active.pop_overdue(&self.policy, now) {
            let watches = self
                .types
                .get_mut(&type_url)
                .map(|state| &mut state.watches);
            let watch = watches.and_then(|watches| watches.get_mut(&subscription));
            if let Some(watch) = watch.filter(|watch| watch.answer == Answer::Awaited) {
                watch.answer = Answer::Silent;
                self.counters.resources_silent += 1;
                self.events.push_back(Event::Absent {
                    type_url,
                    name: subscription.as_str().into(),
                    why: Absence::Silence,
                    kept: Kept::Nothing,
                });
            }
        }
        while let Some(type_url) = active.pop_confirmed(now) {
            let Some(state) = self.types.get_mut(&type_url) else {
                continue;
            };
            for (name, held) in &mut state.held {
                if held.mark == Mark::Stale {
                    held.mark = Mark::Fresh;
                    let (type_url, name) = (type_url.clone(), Arc::clone(name));
                    self.events.push_back(Event::Confirmed { type_url, name });
                }
            }
        }
    }

    /// By when [`Machine::tick`] and [`Machine::poll_action`] are to be called, if nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let open = self
            .route
            .open_at()
            .filter(|_| self.active.is_none() && self.wants_stream());
        let fall_back = self.route.fall_back_at().filter(|_| self.active.is_some());
        let links = [&self.active, &self.trial].into_iter().flatten();
        let links = links.filter_map(|link| link.deadline(&self.policy)).min();
        [open, fall_back, links].into_iter().flatten().min()
    }

    /// What happened to what is watched, oldest first.
    pub fn poll_event(&mut self) -> Option<Event<C::Value>> {
        self.events.pop_front()
    }

    /// What is held of a resource.
    #[must_use]
    pub fn find_held(&self, type_url: &TypeUrl, name: &str) -> Option<&Held<C::Value>> {
        self.types.get(type_url)?.held.get(name)
    }

    /// Everything held of a type, by name.
    pub fn held(&self, type_url: &TypeUrl) -> impl Iterator<Item = (&Arc<str>, &Held<C::Value>)> {
        self.types
            .get(type_url)
            .into_iter()
            .flat_map(|state| &state.held)
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How it behaves.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    fn wants_stream(&self) -> bool {
        self.types.values().any(|state| !state.watches.is_empty())
    }

    fn find_fault(&self, now: Duration) -> Option<(LinkId, String)> {
        let mut links = [&self.active, &self.trial].into_iter().flatten();
        links.find_map(|link| Some((link.id, link.find_fault(&self.policy, now)?)))
    }

    fn open(&mut self, server: usize, birth: Birth, now: Duration) -> Link {
        self.links += 1;
        self.counters.streams_opened += 1;
        Link::new(
            LinkId(self.links),
            server,
            birth,
            &self.types,
            &self.policy,
            now,
        )
    }

    /// The preferred server has answered: its stream is followed from now on.
    fn promote(&mut self) {
        let Some(trial) = self.trial.take() else {
            return;
        };
        let Some(old) = self.active.replace(trial) else {
            return;
        };
        self.to_close.push_back(old.id);
        self.types
            .values_mut()
            .for_each(|state| state.lose_stream());
        self.events.push_back(Event::Stream(StreamEvent::Ended {
            server: old.server,
            reason: "the preferred server is back".to_owned(),
            had_answered: old.has_answered,
        }));
    }
}

fn control_plane(response: &Response) -> String {
    let control_plane = match response {
        Response::Delta(response) => &response.control_plane,
        Response::Sotw(response) => &response.control_plane,
    };
    control_plane
        .as_ref()
        .map(|c| c.identifier.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
