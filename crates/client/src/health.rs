//! How a client is.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::Shared;
use crate::endpoints::Standing;

/// What the client's own stream is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// Nothing is watched yet.
    Idle,
    /// No Observer has answered on the present attempt.
    Connecting,
    /// An Observer has answered: what it says is followed.
    Connected,
}

/// The client's own state, for a health page or an alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What the stream is doing.
    pub stream: StreamState,
    /// For how long it has been doing that.
    pub since: Duration,
    /// The Observer that is connected or tried, as it was given to the builder.
    pub server: Option<String>,
    /// How the Observer that answered last calls itself.
    pub control_plane: Option<String>,
    /// How long ago the last response came.
    pub last_response: Option<Duration>,
    /// Why the last stream ended.
    pub last_error: Option<String>,
    /// Why the file is not used or could not be written, the last time it was tried.
    pub file_problem: Option<String>,
    /// Clusters by what their lists rest on.
    pub clusters: ClusterCounts,
}

/// Watched clusters by [`Standing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// An Observer stands for the list.
    pub fresh: usize,
    /// There is a list and a reason to doubt it.
    pub stale: usize,
    /// There is no such cluster.
    pub missing: usize,
    /// Nothing is known yet.
    pub awaited: usize,
}

impl Health {
    /// Whether an Observer is connected and stands for every list.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.stream == StreamState::Connected && self.clusters.stale + self.clusters.awaited == 0
    }

    pub(crate) fn of(shared: &Shared) -> Self {
        let stream = shared.stream.lock().clone();
        let last_response = shared.activity_rx.borrow().last_response;
        Self {
            stream: stream.state,
            since: stream.since.elapsed(),
            server: stream
                .server
                .and_then(|place| shared.servers.get(place).cloned()),
            control_plane: stream.control_plane,
            last_response: last_response.map(|at| at.elapsed()),
            last_error: stream.last_error,
            file_problem: shared.file_problem.lock().clone(),
            clusters: ClusterCounts::of(shared),
        }
    }
}

impl ClusterCounts {
    pub(crate) fn of(shared: &Shared) -> Self {
        let mut counts = Self::default();
        for watched in shared.watched() {
            *match watched.list().standing() {
                Standing::Fresh => &mut counts.fresh,
                Standing::Stale(_) => &mut counts.stale,
                Standing::Missing => &mut counts.missing,
                Standing::Awaited => &mut counts.awaited,
            } += 1;
        }
        counts
    }
}

/// What the task notes of the stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamFacts {
    pub(crate) state: StreamState,
    pub(crate) since: Instant,
    pub(crate) server: Option<usize>,
    pub(crate) control_plane: Option<String>,
    pub(crate) last_error: Option<String>,
}

impl StreamFacts {
    pub(crate) fn new() -> Self {
        Self {
            state: StreamState::Idle,
            since: Instant::now(),
            server: None,
            control_plane: None,
            last_error: None,
        }
    }

    pub(crate) fn enter(&mut self, state: StreamState) {
        if self.state != state {
            self.state = state;
            self.since = Instant::now();
        }
    }
}
