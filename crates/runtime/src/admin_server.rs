//! The admin port: `/metrics`, `/ready`, `/live`, and what the application adds.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::bind::{BindError, bind_tcp};
use crate::limits::ADMIN_STOP_GRACE;
use crate::readiness::{Readiness, Strictness};

/// The metrics of the process; clones share it. The lock is held while metrics are added and while
/// they are written out, never while one is counted.
#[derive(Clone, Debug, Default)]
pub struct SharedRegistry(Arc<RwLock<Registry>>);

impl SharedRegistry {
    /// Adds metrics.
    pub fn with<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.write())
    }

    /// All metrics in the OpenMetrics text form.
    ///
    /// # Errors
    /// Never in practice: writing to a string fails only where a collector says so.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.read())?;
        Ok(text)
    }
}

/// A bound admin port that is not served yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Listens on `address`; `flag` is the command line flag for the error's text.
    ///
    /// # Errors
    /// See [`BindError`].
    pub async fn bind(address: SocketAddr, flag: &'static str) -> Result<Self, BindError> {
        let listener = bind_tcp(address, flag).await?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self { listener, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; `routes` are the application's own.
    pub async fn run(
        self,
        readiness: Readiness,
        registry: SharedRegistry,
        routes: Router,
        stop: CancellationToken,
    ) {
        let router = shell_routes(readiness, registry).merge(routes);
        let graceful = axum::serve(self.listener, router)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        let grace_over = async {
            stop.cancelled().await;
            tokio::time::sleep(ADMIN_STOP_GRACE).await;
        };
        tokio::select! {
            served = graceful => {
                if let Err(error) = served {
                    tracing::error!(%error, "the admin port stopped");
                }
            }
            () = grace_over => {}
        }
    }
}

/// `/metrics`, `/ready` and `/live` over the given state.
pub fn shell_routes(readiness: Readiness, registry: SharedRegistry) -> Router {
    Router::new()
        .route("/live", get(|| async { "live\n" }))
        .merge(
            Router::new()
                .route("/ready", get(ready))
                .with_state(readiness),
        )
        .merge(
            Router::new()
                .route("/metrics", get(metrics))
                .with_state(registry),
        )
}

async fn ready(State(readiness): State<Readiness>, RawQuery(query): RawQuery) -> Response {
    let wants_fresh = query.is_some_and(|q| q.split('&').any(|part| part.starts_with("fresh")));
    let (is_good, text) = readiness.probe(if wants_fresh {
        Strictness::FreshOnly
    } else {
        Strictness::StaleIsReady
    });
    let status = if is_good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, text).into_response()
}

async fn metrics(State(registry): State<SharedRegistry>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match registry.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics could not be written: {error}\n"),
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_answer_by_status_and_say_why() {
        let readiness = Readiness::new();
        let router = shell_routes(readiness.clone(), SharedRegistry::default());
        let task = readiness.register("announcements/3", "at 120 of 4,000");
        let (status, text) = ask(&router, "/ready").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "not ready: announcements/3: at 120 of 4,000\n");
        assert_eq!(ask(&router, "/live").await.0, StatusCode::OK);
        task.done();
        assert_eq!(ask(&router, "/ready").await.0, StatusCode::OK);
        readiness.set_stale("log", "no broker answers");
        assert_eq!(ask(&router, "/ready").await.0, StatusCode::OK);
        let (status, text) = ask(&router, "/ready?fresh").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("no broker answers"), "{text}");
    }

    #[tokio::test]
    async fn metrics_are_written_in_the_open_metrics_form() {
        let registry = SharedRegistry::default();
        let counter = Counter::<u64>::default();
        registry.with(|r| r.register("ingest_records", "Records read", counter.clone()));
        counter.inc_by(3);
        let router = shell_routes(Readiness::new(), registry);
        let (status, text) = ask(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("ingest_records_total 3\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test]
    async fn the_port_is_served_and_freed_on_stop() {
        let server = AdminServer::bind("127.0.0.1:0".parse().unwrap(), "--admin")
            .await
            .unwrap();
        let address = server.address();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(
            Readiness::new(),
            SharedRegistry::default(),
            Router::new(),
            stop.clone(),
        ));
        assert!(tokio::net::TcpStream::connect(address).await.is_ok());
        stop.cancel();
        serving.await.unwrap();
        assert!(AdminServer::bind(address, "--admin").await.is_ok());
    }
}
