//! Following a cluster as a client sees it: subscribed to the same marks, with the same rule that
//! the latest wins.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use waypost_admin_api::{UriView, WatchEvent, WatchEventKind};
use waypost_core::{
    Interest, ResourceLocator as _, ResourceName, ResourceType, Subscriber, SubscriptionToken,
};

use super::error::ApiError;
use super::{AdminState, uris};
use crate::limits::{WATCH_IDLE_INTERVAL, WATCHES_MAX};
use crate::render::report;

pub(super) async fn watch(
    State(state): State<AdminState>,
    Path(cluster): Path<String>,
) -> Result<Response, ApiError> {
    if let Some(why) = state.locator.not_loaded() {
        return Err(ApiError::unavailable(format!("not loaded yet: {why}")));
    }
    let permit = Arc::clone(&state.watches).try_acquire_owned();
    let permit = permit.map_err(|_| {
        ApiError::unavailable(format!(
            "{WATCHES_MAX} watches are open already; end one, or use xDS for programs"
        ))
    })?;
    let watcher = Watcher::new(state, cluster, permit);
    let lines = stream::unfold(watcher, |mut watcher| async {
        let line = watcher.next_line().await?;
        Some((line, watcher))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Wakes the watch when anything about the cluster's instances changes.
#[derive(Debug, Default)]
struct Mark(Notify);

impl Subscriber for Mark {
    fn mark_changed(&self, _resource_type: ResourceType, _name: &ResourceName) {
        self.0.notify_one();
    }
}

struct Watcher {
    state: AdminState,
    cluster: String,
    interest: Interest,
    token: SubscriptionToken,
    mark: Arc<Mark>,
    /// The instances as they were last shown.
    shown: BTreeMap<String, UriView>,
    lines: VecDeque<WatchEvent>,
    is_synced: bool,
    _permit: OwnedSemaphorePermit,
}

/// The endpoints of a cluster are marked for every change that any kind of client sees.
const WATCHED_TYPE: ResourceType = ResourceType::ClusterLoadAssignment;

impl Watcher {
    fn new(state: AdminState, cluster: String, permit: OwnedSemaphorePermit) -> Self {
        let mark = Arc::new(Mark::default());
        let interest = Interest::Explicit(cluster.as_str().into());
        let subscriber: Arc<dyn Subscriber> = Arc::clone(&mark) as _;
        let token = state.locator.subscribe(WATCHED_TYPE, &interest, subscriber);
        Self {
            state,
            cluster,
            interest,
            token,
            mark,
            shown: BTreeMap::new(),
            lines: VecDeque::new(),
            is_synced: false,
            _permit: permit,
        }
    }

    /// Waits for the next line; an error ends the stream.
    async fn next_line(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        if !self.is_synced && self.lines.is_empty() {
            self.look().await;
            self.is_synced = true;
            self.push(WatchEventKind::Synced, None);
        }
        while self.lines.is_empty() {
            let marked = self.mark.0.notified();
            match tokio::time::timeout(WATCH_IDLE_INTERVAL, marked).await {
                Ok(()) => self.look().await,
                Err(_) => self.push(WatchEventKind::Idle, None),
            }
        }
        let event = self.lines.pop_front()?;
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        Some(Ok(line.into()))
    }

    /// Compares the cluster with what was shown, and queues a line for each difference.
    async fn look(&mut self) {
        let found = report::find_cluster(self.state.store(), &self.cluster);
        let reports = found.map_or_else(Vec::new, |found| found.instances);
        let Ok(views) = uris::views(&self.state, reports).await else {
            return;
        };
        let mut shown = std::mem::take(&mut self.shown);
        let mut news = Vec::new();
        for view in views {
            let event = match shown.remove(&view.uri) {
                None if self.is_synced => Some(WatchEventKind::Up),
                None => Some(WatchEventKind::Present),
                Some(before) => (!is_same(&before, &view)).then_some(WatchEventKind::Changed),
            };
            news.extend(event.map(|event| (event, view.clone())));
            self.shown.insert(view.uri.clone(), view);
        }
        let gone = shown.into_values();
        news.extend(gone.map(|view| (WatchEventKind::Down, view)));
        for (event, view) in news {
            self.push(event, Some(view));
        }
    }

    fn push(&mut self, event: WatchEventKind, instance: Option<UriView>) {
        let is_news = matches!(event, WatchEventKind::Up | WatchEventKind::Changed);
        let origin = instance.as_ref().map(|i| i.origin_at_ms);
        let now_ms = self.state.clock.now().0;
        self.lines.push_back(WatchEvent {
            event,
            uri: instance.as_ref().map(|i| i.uri.clone()),
            propagation_ms: origin.filter(|_| is_news).map(|ms| now_ms - ms),
            instance: instance.map(Box::new),
            instances: self.shown.len() as u64,
        });
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let locator = &self.state.locator;
        locator.unsubscribe(WATCHED_TYPE, &self.interest, self.token);
    }
}

/// Whether two views differ in nothing that is announced: heartbeats are no changes.
fn is_same(before: &UriView, after: &UriView) -> bool {
    let content = |view: &UriView| UriView {
        sources: Vec::new(),
        refused: Vec::new(),
        ..view.clone()
    };
    content(before) == content(after)
}
