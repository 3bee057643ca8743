//! Endpoints as a stream of changes.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt as _};
use tower::discover::Change;

use crate::cluster::Cluster;
use crate::endpoints::Endpoint;

/// The endpoints of a cluster as [`tower::discover::Discover`], by their address: those that calls may go to
/// ([`EndpointList::candidates`](crate::EndpointList::candidates)). What is new comes before what is gone.
/// Map each endpoint to a service of yours:
///
/// ```no_run
/// use futures::TryStreamExt as _;
/// use tower::discover::Change;
/// # async fn example(client: waypost_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let channels = client.cluster("greeter")?.changes().map_ok(|change| match change {
///     Change::Insert(address, _) => {
///         let uri = format!("http://{address}").parse().expect("an address is a URI's host");
///         Change::Insert(address, tonic::transport::Channel::builder(uri).connect_lazy())
///     }
///     Change::Remove(address) => Change::Remove(address),
/// });
/// // let balance = tower::balance::p2c::Balance::new(channels);
/// # let _ = channels; Ok(())
/// # }
/// ```
pub struct Changes(BoxStream<'static, Item>);

type Item = Result<Change<SocketAddr, Arc<Endpoint>>, Infallible>;

/// What was told so far.
struct Told {
    cluster: Cluster,
    by_address: BTreeMap<SocketAddr, Arc<Endpoint>>,
    waiting: VecDeque<Change<SocketAddr, Arc<Endpoint>>>,
    is_first: bool,
}

impl Changes {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let told = Told {
            cluster,
            by_address: BTreeMap::new(),
            waiting: VecDeque::new(),
            is_first: true,
        };
        let changes = futures::stream::unfold(told, |mut told| async {
            let change = told.next().await;
            Some((Ok(change), told))
        });
        Self(changes.boxed())
    }
}

impl Stream for Changes {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl Told {
    async fn next(&mut self) -> Change<SocketAddr, Arc<Endpoint>> {
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return change;
            }
            let list = if std::mem::take(&mut self.is_first) {
                self.cluster.ready().await
            } else {
                self.cluster.changed().await
            };
            let now = list.candidates().map(|e| (e.address(), Arc::clone(e)));
            let now: BTreeMap<_, _> = now.collect();
            for (address, endpoint) in &now {
                if self.by_address.get(address) != Some(endpoint) {
                    let change = Change::Insert(*address, Arc::clone(endpoint));
                    self.waiting.push_back(change);
                }
            }
            let gone = self.by_address.keys().filter(|a| !now.contains_key(a));
            self.waiting
                .extend(gone.map(|address| Change::Remove(*address)));
            self.by_address = now;
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}
