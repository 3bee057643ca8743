//! Read-only answers about all that the Observer holds: the JSON API of `waypost-admin-api`.
//!
//! Nothing here changes anything, and nothing here is waited for by the log or a stream.

mod callees;
mod catalogue;
mod digests;
mod dump;
mod error;
mod operator;
mod page;
mod status;
mod streams;
mod uris;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use waypost_admin_api::BASE;
use waypost_core::{ResourceLocator as _, Timestamp};
use waypost_runtime::{Readiness, WallClock};
use waypost_store::Store;
use waypost_xds::StreamRegistry;

use crate::ingest::Questions;
use crate::limits::WATCHES_MAX;
use crate::load_reports::LoadReports;
use crate::locator::Locator;
use crate::settings::Settings;

use error::ApiError;

/// What the answers are made from. Clones share it.
#[derive(Clone)]
pub struct AdminState {
    /// Resources, and the store behind them.
    pub locator: Locator,
    /// Open streams.
    pub streams: StreamRegistry,
    /// What clients report of their load.
    pub load_reports: LoadReports,
    /// The way to ask the ingest task.
    pub questions: Questions,
    /// What is awaited and what is stale.
    pub readiness: Readiness,
    /// For ages.
    pub clock: WallClock,
    /// The settings in force.
    pub settings: Arc<Settings>,
    /// The Observer's name in every response.
    pub identifier: String,
    /// Where xDS is served.
    pub grpc_address: SocketAddr,
    /// Where this is served.
    pub admin_address: SocketAddr,
    /// When the process started.
    pub started: Instant,
    /// One permit for each watch that may be open.
    pub watches: Arc<Semaphore>,
}

impl AdminState {
    fn store(&self) -> &Store {
        self.locator.store()
    }

    /// The answer to a name that is not known: while not everything was read that means nothing.
    fn no_such(&self, text: String) -> ApiError {
        match self.locator.not_loaded() {
            Some(reason) => ApiError::unavailable(format!(
                "this Observer is still reading the log ({reason}); try again"
            )),
            None => ApiError::not_found(text),
        }
    }

    /// Milliseconds since `time`, by this machine's clock; never negative.
    fn age_ms(&self, time: Timestamp) -> u64 {
        u64::try_from(self.clock.now().millis_since(time)).unwrap_or(0)
    }
}

/// The permits that [`AdminState::watches`] takes.
#[must_use]
pub fn watch_permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(WATCHES_MAX))
}

/// The routes of the API.
pub fn routes(state: AdminState) -> Router {
    let api = Router::new()
        .route("/status", get(status::status))
        .route("/digests", get(digests::digests))
        .route("/digests/{partition}", get(digests::buckets))
        .route("/digests/{partition}/keys", get(digests::keys))
        .route("/clusters", get(catalogue::clusters))
        .route("/clusters/{name}", get(catalogue::cluster))
        .route("/services", get(catalogue::services))
        .route("/services/{name}", get(catalogue::service))
        .route("/callees", get(callees::all))
        .route("/callees/{name}", get(callees::one))
        .route("/uris/{cluster}", get(uris::uris))
        .route("/operator", get(operator::operator))
        .route("/streams", get(streams::streams))
        .route("/watch/{cluster}", get(watch::watch));
    Router::new()
        .nest(BASE, api)
        .route("/config_dump", get(dump::config_dump))
        .fallback(error::no_such_path)
        .with_state(state)
}

/// Whole milliseconds, saturating.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
