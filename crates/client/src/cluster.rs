//! The handle on one cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use crate::channel::ClusterChannel;
use crate::client::{Owner, Shared};
use crate::discover::Changes;
use crate::endpoints::{Endpoint, EndpointList, Standing};

/// Why no endpoint can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// Nobody has said anything about the cluster yet; wait for [`Cluster::ready`].
    #[error("nothing is known of cluster {0} yet")]
    Awaited(String),
    /// There is no such cluster.
    #[error("there is no cluster {0}")]
    Missing(String),
    /// An Observer says that it has no endpoints.
    #[error("cluster {0} has no endpoints")]
    Empty(String),
}

/// A cluster and its endpoints, always the latest. A handle: clones share the list, and each has its own
/// idea of what it has [seen](Self::changed).
#[derive(Clone, Debug)]
pub struct Cluster {
    watched: Arc<Watched>,
    list_rx: watch::Receiver<EndpointList>,
    owner: Arc<Owner>,
}

/// What handles on one cluster share.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) name: Arc<str>,
    list_tx: watch::Sender<EndpointList>,
    shared: Arc<Shared>,
}

impl Cluster {
    pub(crate) fn new(watched: Arc<Watched>, owner: &Arc<Owner>) -> Self {
        Self {
            list_rx: watched.list_tx.subscribe(),
            watched,
            owner: Arc::clone(owner),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.watched.name
    }

    /// Its endpoints as they are known now.
    #[must_use]
    pub fn endpoints(&self) -> EndpointList {
        self.list_rx.borrow().clone()
    }

    /// Waits until something is known: a list, from an Observer or from the file, or that there is no such
    /// cluster (said by an Observer, or by nobody within 15 s of being connected). Returns at once
    /// afterwards, and for ever if no Observer is there and the file has nothing.
    pub async fn ready(&self) -> EndpointList {
        let mut list_rx = self.list_rx.clone();
        let is_known = |list: &EndpointList| list.standing() != Standing::Awaited;
        match list_rx.wait_for(is_known).await {
            Ok(list) => list.clone(),
            // Not while this handle lives.
            Err(_) => self.endpoints(),
        }
    }

    /// Waits until the endpoints are others than when this handle last looked here, or the cluster came or
    /// went. A list that only became stale or fresh is no change. Whoever is slow misses steps, never the
    /// latest.
    pub async fn changed(&mut self) -> EndpointList {
        // The sender lives as long as this handle.
        let _ = self.list_rx.changed().await;
        self.list_rx.borrow_and_update().clone()
    }

    /// Chooses an endpoint: see [`EndpointList::pick`].
    ///
    /// # Errors
    /// There is none; says why.
    pub fn pick(&self) -> Result<Arc<Endpoint>, PickError> {
        let list = self.list_rx.borrow();
        self.count_choice(&list, list.pick())
    }

    /// A tower service that sends each request to an endpoint of this cluster, for clients that tonic
    /// generates.
    #[must_use]
    pub fn channel(&self) -> ClusterChannel {
        ClusterChannel::new(self.clone())
    }

    /// Endpoints as they come and go, for tower's balancers.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(self.clone())
    }

    /// Counts a choice and says why there is none.
    pub(crate) fn count_choice(
        &self,
        list: &EndpointList,
        choice: Option<&Arc<Endpoint>>,
    ) -> Result<Arc<Endpoint>, PickError> {
        let own = &self.shared().own;
        own.picks.fetch_add(1, Ordering::Relaxed);
        if let Some(endpoint) = choice {
            return Ok(Arc::clone(endpoint));
        }
        own.pick_failures.fetch_add(1, Ordering::Relaxed);
        let name = self.name().to_owned();
        Err(match list.standing() {
            Standing::Awaited => PickError::Awaited(name),
            Standing::Missing => PickError::Missing(name),
            Standing::Fresh | Standing::Stale(_) => PickError::Empty(name),
        })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.shared
    }
}

impl Watched {
    pub(crate) fn new(name: &Arc<str>, first: EndpointList, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            name: Arc::clone(name),
            list_tx: watch::Sender::new(first),
            shared: Arc::clone(shared),
        })
    }

    pub(crate) fn list(&self) -> EndpointList {
        self.list_tx.borrow().clone()
    }

    /// Shows a list; wakes those who wait for other endpoints if it has others.
    pub(crate) fn show(&self, list: EndpointList) {
        self.list_tx.send_if_modified(|shown| {
            let differs = list.differs_in_content(shown);
            *shown = list;
            differs
        });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shared.wake.notify_one();
    }
}
