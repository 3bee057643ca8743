//! Which requests are xDS streams, and which of them are let in.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;
use waypost_core::{ResourceLocator, ResourceType};

use crate::body::AdsBody;
use crate::events::{EndReason, Event, EventHandler, RefusalReason, Transport};
use crate::limits::RESPONSE_BYTES_MAX_FLOOR;
use crate::outbox::Outbox;
use crate::registry::{StreamHandle, StreamId, StreamRegistry};
use crate::settings::AdsSettings;
use crate::status::{Code, Status};
use crate::stream::Stream;
use crate::substream::Engine;

/// The xDS server: both variants of ADS and the per-type services over one engine. Clones share
/// everything.
#[derive(Clone)]
pub struct AdsServer {
    core: Arc<ServerCore>,
}

/// What all streams of a server share.
pub(crate) struct ServerCore {
    pub(crate) engine: Arc<Engine>,
    streams: StreamRegistry,
    /// Streams let in and not yet closed.
    open: AtomicUsize,
    next_id: AtomicU64,
    nonce_seed: u64,
    draining: AtomicBool,
}

/// A method that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    transport: Transport,
    /// The only type of the method; `None` for the aggregated ones.
    resource_type: Option<ResourceType>,
}

impl AdsServer {
    /// A server that answers from `locator` and reports to `events`.
    #[must_use]
    pub fn new(
        locator: Arc<dyn ResourceLocator>,
        mut settings: AdsSettings,
        events: Arc<dyn EventHandler>,
    ) -> Self {
        settings.response_bytes_max = settings.response_bytes_max.max(RESPONSE_BYTES_MAX_FLOOR);
        Self {
            core: Arc::new(ServerCore {
                engine: Arc::new(Engine::new(locator, settings, events)),
                streams: StreamRegistry::default(),
                open: AtomicUsize::new(0),
                next_id: AtomicU64::new(1),
                nonce_seed: RandomState::new().hash_one(0),
                draining: AtomicBool::new(false),
            }),
        }
    }

    /// The open streams.
    #[must_use]
    pub fn streams(&self) -> &StreamRegistry {
        &self.core.streams
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &AdsSettings {
        &self.core.engine.settings
    }

    /// Whether `path` is one of the methods that [`call`](Self::call) answers.
    #[must_use]
    pub fn serves(path: &str) -> bool {
        find_route(path).is_some()
    }

    /// Answers a request for one of the methods: with a stream, or with a status before anything
    /// else. The headers are complete at once; some clients wait for them before they ask.
    #[must_use]
    pub fn call(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<AdsBody> {
        self.open(request, peer).0
    }

    /// As `call`, and the stream if one was opened.
    pub(crate) fn open(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> (Response<AdsBody>, Option<Arc<StreamHandle>>) {
        let Some(route) = find_route(request.uri().path()) else {
            let status = Status::new(Code::Unimplemented, "no such method");
            return (refusal(&status), None);
        };
        if request.method() != Method::POST {
            let status = Status::new(Code::Unimplemented, "gRPC requests use POST");
            return (refusal(&status), None);
        }
        if let Err((reason, status)) = self.core.admit() {
            self.core.engine.events.on_event(&Event::Refused { reason });
            return (refusal(&status), None);
        }
        let handle = self.core.open(route, peer);
        let body = AdsBody::open(
            Arc::clone(&self.core),
            Arc::clone(&handle),
            request.into_body(),
        );
        (response(body), Some(handle))
    }

    /// From now on new streams are refused with UNAVAILABLE.
    pub fn refuse_streams(&self) {
        self.core.draining.store(true, Ordering::Release);
    }

    /// Refuses new streams and ends the open ones one after another, evenly over `duration`, so
    /// that their clients do not all come to the other Observers at once. Clients whose stream had
    /// a response come back without delay (rest.li `XdsClientImpl`; gRFC A57).
    pub async fn drain(&self, duration: Duration) {
        self.refuse_streams();
        let handles = self.core.streams.handles();
        let start = Instant::now();
        let count = u32::try_from(handles.len()).unwrap_or(u32::MAX).max(1);
        for (index, handle) in (1_u32..).zip(&handles) {
            tokio::time::sleep_until(start + duration.mul_f64(f64::from(index) / f64::from(count)))
                .await;
            handle.end(EndReason::Draining);
        }
    }

    /// Cuts off the streams whose clients do not read; the listener calls it now and then.
    pub(crate) fn cut_off_stalled(&self) {
        let timeout = self.core.engine.settings.stall_timeout;
        self.core.streams.cut_off_stalled(timeout);
    }

    /// Ends the streams of the connection from `peer`.
    pub(crate) fn end_streams_of(&self, peer: SocketAddr, reason: EndReason) {
        self.core.streams.end_those_of(peer, reason);
    }

    pub(crate) fn events(&self) -> &dyn EventHandler {
        &*self.core.engine.events
    }
}

impl ServerCore {
    fn admit(&self) -> Result<(), (RefusalReason, Status)> {
        if self.draining.load(Ordering::Acquire) {
            let text = "this Observer is going down; connect to another one";
            let status = Status::new(Code::Unavailable, text);
            return Err((RefusalReason::Draining, status));
        }
        if let Some(why) = self.engine.locator.not_loaded() {
            let status = Status::new(Code::Unavailable, format!("not loaded yet: {why}"));
            return Err((RefusalReason::NotLoaded, status));
        }
        let max = self.engine.settings.streams_max;
        let taken = self
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
                (open < max).then_some(open + 1)
            });
        if taken.is_err() {
            let text = format!(
                "limit of {max} streams reached (setting streams_max); try another Observer"
            );
            let status = Status::new(Code::ResourceExhausted, text);
            return Err((RefusalReason::StreamLimit, status));
        }
        Ok(())
    }

    fn open(&self, route: Route, peer: SocketAddr) -> Arc<StreamHandle> {
        let id = StreamId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let outbox = Arc::new(Outbox::on_this_thread());
        let stream = Stream::new(
            Arc::clone(&self.engine),
            Arc::clone(&outbox),
            route.transport,
            route.resource_type,
            self.nonce_seed.wrapping_add(id.0 << 32),
        );
        let handle = Arc::new(StreamHandle {
            id,
            peer,
            transport: route.transport,
            opened_at: Instant::now(),
            outbox,
            stream: Mutex::new(stream),
            end: OnceLock::new(),
            is_cut_off: AtomicBool::new(false),
        });
        self.streams.insert(&handle);
        self.engine.events.on_event(&Event::StreamOpened {
            transport: route.transport,
        });
        handle
    }

    /// Forgets a stream that `open` opened.
    pub(crate) fn close(&self, handle: &StreamHandle, reason: EndReason) {
        self.streams.remove(handle);
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.engine.events.on_event(&Event::StreamEnded {
            transport: handle.transport,
            reason,
            age: handle.opened_at.elapsed(),
        });
    }
}

fn find_route(path: &str) -> Option<Route> {
    let path = path.strip_prefix("/envoy.service.")?;
    let (transport, resource_type) = match path {
        "discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources" => {
            (Transport::Sotw, None)
        }
        "discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources" => {
            (Transport::Delta, None)
        }
        "cluster.v3.ClusterDiscoveryService/StreamClusters" => {
            (Transport::Sotw, Some(ResourceType::Cluster))
        }
        "cluster.v3.ClusterDiscoveryService/DeltaClusters" => {
            (Transport::Delta, Some(ResourceType::Cluster))
        }
        "endpoint.v3.EndpointDiscoveryService/StreamEndpoints" => {
            (Transport::Sotw, Some(ResourceType::ClusterLoadAssignment))
        }
        "endpoint.v3.EndpointDiscoveryService/DeltaEndpoints" => {
            (Transport::Delta, Some(ResourceType::ClusterLoadAssignment))
        }
        "listener.v3.ListenerDiscoveryService/StreamListeners" => {
            (Transport::Sotw, Some(ResourceType::Listener))
        }
        "listener.v3.ListenerDiscoveryService/DeltaListeners" => {
            (Transport::Delta, Some(ResourceType::Listener))
        }
        "route.v3.RouteDiscoveryService/StreamRoutes" => {
            (Transport::Sotw, Some(ResourceType::RouteConfiguration))
        }
        "route.v3.RouteDiscoveryService/DeltaRoutes" => {
            (Transport::Delta, Some(ResourceType::RouteConfiguration))
        }
        _ => return None,
    };
    Some(Route {
        transport,
        resource_type,
    })
}

fn response(body: AdsBody) -> Response<AdsBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    response
}

/// A status without a stream: all of it is in the headers ("Trailers-Only").
pub(crate) fn refusal(status: &Status) -> Response<AdsBody> {
    let mut response = response(AdsBody::empty());
    status.put(response.headers_mut());
    response
}
