//! A tower service over the endpoints of a cluster.

mod connection;
mod pool;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{BoxError, Service, ServiceExt as _};

use crate::cluster::Cluster;
use crate::limits::{ATTEMPTS_MAX, CALL_WAIT_MAX};

use pool::Pool;

/// Sends each request to an endpoint of a cluster, chosen anew each time: see
/// [`EndpointList::pick`](crate::EndpointList::pick). Clients that tonic generates take it in place of a
/// `tonic::transport::Channel`. Clones share connections, of which there is one for each endpoint that was
/// called.
///
/// * An endpoint that cannot be connected to is passed over, and the request goes to another: nothing of it
///   was sent. One whose connection broke is connected to before it gets another request.
/// * A request that was sent is not sent again: whether that is safe only its caller knows
///   (`tower::retry`). So an instance that dies without being withdrawn costs what was in flight on it.
/// * Requests in flight on an endpoint that left the list end as they would have. So a server that is
///   withdrawn, waits and then stops fails none.
/// * HTTP/2 without TLS.
#[derive(Clone)]
pub struct ClusterChannel {
    cluster: Cluster,
    pool: Arc<Pool>,
}

impl ClusterChannel {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            pool: Arc::default(),
        }
    }

    async fn send(self, request: http::Request<Body>) -> Result<http::Response<Body>, BoxError> {
        let channel = match timeout(CALL_WAIT_MAX, self.connect()).await {
            Ok(channel) => channel?,
            Err(_) => {
                let waited = CALL_WAIT_MAX.as_secs();
                return Err(self.mk_unavailable(&format!("nothing within {waited} s")));
            }
        };
        let mut channel = channel;
        Ok(channel.ready().await?.call(request).await?)
    }

    /// A connection to an endpoint of the list.
    async fn connect(&self) -> Result<Channel, BoxError> {
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            let list = self.cluster.ready().await;
            self.pool.forget_all_but(&list);
            let chosen = list.pick_usable(|endpoint| self.pool.is_usable(endpoint));
            let endpoint = self.cluster.count_choice(&list, chosen);
            let endpoint = endpoint.map_err(|error| self.mk_unavailable(&error.to_string()))?;
            match self
                .pool
                .connect(&endpoint, &self.cluster.shared().own)
                .await
            {
                Ok(channel) => return Ok(channel),
                Err(error) => last = Some((endpoint.address(), error)),
            }
        }
        Err(self.mk_unavailable(&match last {
            Some((address, error)) => format!("cannot connect, last to {address}: {error}"),
            None => "cannot connect".to_owned(),
        }))
    }

    fn mk_unavailable(&self, why: &str) -> BoxError {
        let name = self.cluster.name();
        Box::new(Status::unavailable(format!("cluster {name}: {why}")))
    }
}

impl Service<http::Request<Body>> for ClusterChannel {
    type Response = http::Response<Body>;
    /// A `tonic::Status` of UNAVAILABLE if no endpoint could be connected to, else what became of the
    /// connection.
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Each request waits for an endpoint of its own.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

impl fmt::Debug for ClusterChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.cluster.name();
        f.debug_struct("ClusterChannel")
            .field("cluster", &name)
            .finish_non_exhaustive()
    }
}
