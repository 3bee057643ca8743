//! The handle on everything, and what handles and the task share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use waypost_core::limits::NAME_BYTES_MAX;
use waypost_xds_client::{Activity, Driver};

use crate::builder::ClientBuilder;
use crate::cluster::{Cluster, Watched};
use crate::codec::ListCodec;
use crate::endpoints::EndpointList;
use crate::file::{Entries, FileError};
use crate::health::{Health, StreamFacts};
use crate::limits::{CLOSE_MAX, CLUSTERS_MAX};
use crate::metrics::{Metrics, MetricsCollector, OwnCounters};
use crate::task::{Task, find_kept_list};

/// Why a cluster cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// Empty, `*`, or longer than any name is.
    #[error("{0:?} is no name of a cluster")]
    BadName(String),
    /// More than [`CLUSTERS_MAX`].
    #[error("this client watches {CLUSTERS_MAX} clusters already")]
    TooMany,
}

/// Finds the endpoints of clusters. A handle: clones share one task and one stream, which end when the
/// last handle of the client and of its clusters is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    owner: Arc<Owner>,
}

/// Held by handles only, so that the task learns when the last one is gone.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
}

/// What handles and the task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) servers: Vec<String>,
    pub(crate) clusters_by_name: Mutex<BTreeMap<Arc<str>, Weak<Watched>>>,
    /// What the file has, or would have if there were one.
    pub(crate) kept: Mutex<Entries>,
    pub(crate) stream: Mutex<StreamFacts>,
    pub(crate) file_problem: Mutex<Option<String>>,
    pub(crate) activity_rx: watch::Receiver<Activity>,
    pub(crate) own: OwnCounters,
    /// Clusters came or went, or the last handle did.
    pub(crate) wake: Notify,
    pub(crate) is_abandoned: AtomicBool,
    pub(crate) done_tx: watch::Sender<bool>,
}

impl Client {
    /// Settings of a new client.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn spawn(
        driver: Driver<ListCodec>,
        servers: Vec<String>,
        path: Option<PathBuf>,
        kept: Option<Result<Entries, FileError>>,
    ) -> Self {
        let own = OwnCounters::default();
        let (kept, problem) = match kept.transpose() {
            Ok(kept) => (kept.unwrap_or_default(), None),
            Err(error) => {
                tracing::warn!(?path, %error, "the file of lists is not used");
                own.file_read_failures.fetch_add(1, Ordering::Relaxed);
                (Entries::new(), Some(error.to_string()))
            }
        };
        let shared = Arc::new(Shared {
            servers,
            clusters_by_name: Mutex::default(),
            kept: Mutex::new(kept),
            stream: Mutex::new(StreamFacts::new()),
            file_problem: Mutex::new(problem),
            activity_rx: driver.activity(),
            own,
            wake: Notify::new(),
            is_abandoned: AtomicBool::new(false),
            done_tx: watch::Sender::new(false),
        });
        tokio::spawn(Task::new(driver, Arc::clone(&shared), path).run());
        Self {
            owner: Arc::new(Owner { shared }),
        }
    }

    /// Watches a cluster from now on, until the last handle on it is dropped. `NAME#P` is D2 partition `P`
    /// of a partitioned cluster; the plain name is partition 0. If the file has its list, the handle
    /// has it too when this returns.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub fn cluster(&self, name: &str) -> Result<Cluster, ClusterError> {
        if name.is_empty() || name == "*" || name.len() > NAME_BYTES_MAX {
            return Err(ClusterError::BadName(name.to_owned()));
        }
        let shared = &self.owner.shared;
        let mut clusters_by_name = shared.clusters_by_name.lock();
        let watched = match clusters_by_name.get(name).and_then(Weak::upgrade) {
            Some(watched) => watched,
            None => {
                if clusters_by_name.len() >= CLUSTERS_MAX {
                    return Err(ClusterError::TooMany);
                }
                let name: Arc<str> = name.into();
                let kept = find_kept_list(&shared.kept.lock(), &name);
                let first = kept.unwrap_or_else(|| EndpointList::awaited(&name));
                let watched = Watched::new(&name, first, shared);
                clusters_by_name.insert(name, Arc::downgrade(&watched));
                shared.wake.notify_one();
                watched
            }
        };
        Ok(Cluster::new(watched, &self.owner))
    }

    /// How the client is: its stream, its lists, its file.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.owner.shared)
    }

    /// What the client has done so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.owner.shared)
    }

    /// The same for a registry of `prometheus-client`, read at each scrape:
    /// `registry.register_collector(Box::new(client.metrics_collector()))`.
    #[must_use]
    pub fn metrics_collector(&self) -> MetricsCollector {
        MetricsCollector::new(&self.owner.shared)
    }

    /// Ends the stream and writes the file if something is not in it yet. Lists stay as they are. Dropping
    /// all handles does the same without waiting, as long as the runtime lives.
    pub async fn close(self) {
        let shared = &self.owner.shared;
        shared.abandon();
        let mut done_rx = shared.done_tx.subscribe();
        let done = done_rx.wait_for(|done| *done);
        // A disk that hangs must not keep a process from ending.
        let _ = tokio::time::timeout(CLOSE_MAX, done).await;
    }
}

impl Shared {
    /// The handles of a cluster, if any is left.
    pub(crate) fn find_watched(&self, name: &str) -> Option<Arc<Watched>> {
        self.clusters_by_name
            .lock()
            .get(name)
            .and_then(Weak::upgrade)
    }

    /// All clusters of which a handle is left.
    pub(crate) fn watched(&self) -> Vec<Arc<Watched>> {
        let clusters_by_name = self.clusters_by_name.lock();
        clusters_by_name
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
