//! The endpoints of a cluster as they are known now.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use rand::Rng;

use crate::limits::CHOICES_MAX;

/// Where an endpoint is. Waypost's Observers give the fabric as region and the zone as zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality {
    /// The region; the fabric, where Waypost serves.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The part of the zone.
    pub sub_zone: String,
}

/// What the control plane says of an endpoint's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointHealth {
    /// It is healthy, or nothing is said.
    Healthy,
    /// It works badly: used when no healthy one is left in its priority.
    Degraded,
    /// It is about to go: no new call.
    Draining,
    /// It does not work.
    Unhealthy,
}

/// One server of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) health: EndpointHealth,
    pub(crate) weight: u32,
    pub(crate) priority: u32,
    pub(crate) locality: Arc<Locality>,
}

impl Endpoint {
    /// The address to call.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        // The codec lets no endpoint without one in.
        self.addresses[0]
    }

    /// All addresses, the preferred one first: a dual-stack server has one of each family.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> EndpointHealth {
        self.health
    }

    /// Its share of the traffic of its locality, relative to the others there. Waypost gives 100 for a
    /// D2 weight of 1.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// 0 is used first; the others when nothing in those before can be used.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// Where it is.
    #[must_use]
    pub fn locality(&self) -> &Locality {
        &self.locality
    }
}

/// What a list rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nobody has said anything yet.
    Awaited,
    /// An Observer said that there is no such cluster, or none said anything in time, and nothing was
    /// known of it before. It is told as soon as there is one.
    Missing,
    /// The Observer that is connected says so.
    Fresh,
    /// It was so, and there is a reason to doubt it.
    Stale(Stale),
}

/// Why a list may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// It is from the file, or from when the cluster was last watched, and no Observer has answered yet.
    FromFile,
    /// The stream is lost, and no Observer has confirmed it since.
    Disconnected,
    /// The Observer says that there is no such cluster any more; the last good list is kept.
    Removed,
}

/// Content of a list: what a server sent, ready to choose from.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// Running sums of the weights of those endpoints that are chosen from, with their places.
    choice: Vec<(f64, usize)>,
}

impl Assignment {
    /// `shares` are the parts of the whole traffic of their priority, endpoint by endpoint.
    ///
    /// Chosen from are the healthy endpoints of the first priority that has some; else the degraded
    /// ones likewise; else all of priority 0, whatever their health: health never makes a list empty.
    pub(crate) fn new(endpoints: Vec<Arc<Endpoint>>, shares: &[f64]) -> Self {
        let first_with = |health: EndpointHealth| {
            let usable = endpoints.iter().filter(|e| e.health == health);
            usable
                .map(|e| (Some(health), e.priority))
                .min_by_key(|(_, priority)| *priority)
        };
        let chosen = first_with(EndpointHealth::Healthy)
            .or_else(|| first_with(EndpointHealth::Degraded))
            .or_else(|| Some((None, endpoints.iter().map(|e| e.priority).min()?)));
        let mut sum = 0.0;
        let mut choice = Vec::new();
        for (place, (endpoint, share)) in endpoints.iter().zip(shares).enumerate() {
            let is_chosen = chosen.is_some_and(|(health, priority)| {
                endpoint.priority == priority && health.is_none_or(|h| h == endpoint.health)
            });
            if is_chosen && *share > 0.0 {
                sum += share;
                choice.push((sum, place));
            }
        }
        Self { endpoints, choice }
    }

    fn choose(&self, rng: &mut impl Rng) -> Option<&Arc<Endpoint>> {
        let (whole, _) = self.choice.last()?;
        let point = rng.random_range(0.0..*whole);
        let found = self.choice.partition_point(|(sum, _)| *sum <= point);
        let (_, place) = self.choice.get(found.min(self.choice.len() - 1))?;
        self.endpoints.get(*place)
    }

    /// Chooses by weight among those that are `usable`; the best of the others if none is.
    fn choose_usable(
        &self,
        rng: &mut impl Rng,
        usable: impl Fn(&Endpoint) -> bool,
    ) -> Option<&Arc<Endpoint>> {
        let first = self.choose(rng)?;
        if usable(first) {
            return Some(first);
        }
        for _ in 1..CHOICES_MAX {
            if let Some(endpoint) = self.choose(rng).filter(|endpoint| usable(endpoint)) {
                return Some(endpoint);
            }
        }
        let chosen = self.choice.iter().map(|(_, place)| &self.endpoints[*place]);
        let others = self.endpoints.iter();
        let mut all = chosen.chain(others);
        Some(all.find(|endpoint| usable(endpoint)).unwrap_or(first))
    }
}

/// The endpoints of a cluster at one moment. Never changes; [`Cluster::endpoints`](crate::Cluster::endpoints)
/// gives the latest.
#[derive(Clone)]
pub struct EndpointList {
    pub(crate) cluster: Arc<str>,
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) version: Arc<str>,
    pub(crate) standing: Standing,
}

impl EndpointList {
    pub(crate) fn awaited(cluster: &Arc<str>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            assignment: Arc::default(),
            version: "".into(),
            standing: Standing::Awaited,
        }
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// All endpoints, whatever their health, in the order of the control plane.
    #[must_use]
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.assignment.endpoints
    }

    /// Those that [`Self::pick`] chooses from: the best that there are, by priority and health.
    pub fn candidates(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let places = self.assignment.choice.iter();
        places.filter_map(|(_, place)| self.assignment.endpoints.get(*place))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.assignment.endpoints.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.assignment.endpoints.is_empty()
    }

    /// The version of the list, opaque: equal on all Observers for equal content, empty while nothing is
    /// known.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it rests on.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Chooses an endpoint by priority, health, locality and weight; `None` if there is none.
    ///
    /// Healthy endpoints of the lowest priority that has some are chosen from, a locality by its weight and
    /// an endpoint by its weight within it. If no endpoint is healthy, degraded ones are taken, and if there
    /// is none of these either, any of the first priority.
    #[must_use]
    pub fn pick(&self) -> Option<&Arc<Endpoint>> {
        self.pick_with(&mut rand::rng())
    }

    /// The same with randomness of the caller's.
    #[must_use]
    pub fn pick_with(&self, rng: &mut impl Rng) -> Option<&Arc<Endpoint>> {
        self.assignment.choose(rng)
    }

    /// The same among those that the caller can use. If it can use none, one that it cannot.
    #[must_use]
    pub fn pick_usable(&self, usable: impl Fn(&Endpoint) -> bool) -> Option<&Arc<Endpoint>> {
        self.assignment.choose_usable(&mut rand::rng(), usable)
    }

    /// Whether whoever waits for changes of endpoints is to be told.
    pub(crate) fn differs_in_content(&self, other: &Self) -> bool {
        let knows = |list: &Self| !matches!(list.standing, Standing::Awaited | Standing::Missing);
        knows(self) != knows(other)
            || (self.standing == Standing::Missing) != (other.standing == Standing::Missing)
            || !Arc::ptr_eq(&self.assignment, &other.assignment)
                && self.assignment.endpoints != other.assignment.endpoints
    }
}

impl fmt::Debug for EndpointList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointList")
            .field("cluster", &self.cluster)
            .field("endpoints", &self.len())
            .field("version", &self.version)
            .field("standing", &self.standing)
            .finish()
    }
}

#[cfg(test)]
mod tests;
