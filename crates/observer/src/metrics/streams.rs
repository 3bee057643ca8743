//! Streams and what is sent on them, from the events of the xDS engine.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use waypost_core::ResourceType;
use waypost_runtime::WallClock;
use waypost_xds::{Event, EventHandler, RequestKind, Transport};

use super::ReasonLabel;
use super::striped::{StripedCounter, StripedHistogram};
use crate::named::NamedLines;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    type_url: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransportLabel {
    transport: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    type_url: &'static str,
    kind: &'static str,
}

/// Upper ends of the buckets, seconds: fine below the second in which a change should arrive.
const DELAY_BUCKETS: [f64; 14] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
];

type Delays = StripedHistogram<{ DELAY_BUCKETS.len() }>;

/// Counters of streams; clones share them. What is counted for every response is found by type
/// without a lookup.
#[derive(Clone, Debug)]
pub struct StreamMetrics {
    streams: Family<TransportLabel, Gauge>,
    streams_ended: Family<ReasonLabel, Counter>,
    streams_refused: Family<ReasonLabel, Counter>,
    handshakes_failed: Family<ReasonLabel, Counter>,
    requests: Requests,
    pushes: PerType<StripedCounter>,
    pushed_resources: PerType<StripedCounter>,
    pushed_removals: PerType<StripedCounter>,
    pushed_bytes: StripedCounter,
    nacks: PerType<StripedCounter>,
    propagation_delay: PerType<Delays>,
    over_max_size: Family<ReasonLabel, Counter>,
    wildcards_refused: PerType<StripedCounter>,
}

/// One metric for each type, and one for types that are not served.
#[derive(Clone, Debug)]
struct PerType<M>(Arc<[M]>);

impl<M> PerType<M> {
    /// Takes every member out of a family, so that all are shown from the first scrape on.
    fn of<C>(family: &Family<TypeLabel, M, C>) -> Self
    where
        M: Clone,
        C: prometheus_client::metrics::family::MetricConstructor<M>,
    {
        let urls = ResourceType::ALL.map(ResourceType::type_url);
        let all = urls.into_iter().chain(["other"]);
        let metrics = all.map(|type_url| family.get_or_create_owned(&TypeLabel { type_url }));
        Self(metrics.collect())
    }

    fn get(&self, resource_type: Option<ResourceType>) -> &M {
        let index = resource_type.map_or(ResourceType::ALL.len(), |t| t as usize);
        &self.0[index]
    }
}

/// Requests by type and kind. A kind that a client sends for the first time is shown from then on.
#[derive(Clone, Debug)]
struct Requests {
    family: Family<RequestLabels, StripedCounter>,
    by_kind: PerType<Arc<[OnceLock<StripedCounter>; RequestKind::ALL.len()]>>,
}

impl Requests {
    fn new() -> Self {
        let types = ResourceType::ALL.len() + 1;
        Self {
            family: Family::default(),
            by_kind: PerType((0..types).map(|_| Arc::default()).collect()),
        }
    }

    fn count(&self, resource_type: Option<ResourceType>, kind: RequestKind) {
        let counter = &self.by_kind.get(resource_type)[kind as usize];
        let first = || {
            self.family.get_or_create_owned(&RequestLabels {
                type_url: resource_type.map_or("other", ResourceType::type_url),
                kind: kind.label(),
            })
        };
        counter.get_or_init(first).inc();
    }
}

impl StreamMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let counters = |registry: &mut Registry, name: &str, help: &str| {
            let family = Family::<TypeLabel, StripedCounter>::default();
            registry.register(name, help, family.clone());
            PerType::of(&family)
        };
        let delays = Family::<TypeLabel, Delays, fn() -> Delays>::new_with_constructor(|| {
            Delays::new(&DELAY_BUCKETS)
        });
        registry.register(
            "observer_propagation_delay_seconds",
            "From a change's time of origin to its write on a stream, by two machines' clocks",
            delays.clone(),
        );
        let m = Self {
            streams: Family::default(),
            streams_ended: Family::default(),
            streams_refused: Family::default(),
            handshakes_failed: register_handshakes(registry),
            requests: Requests::new(),
            pushes: counters(registry, "observer_pushes", "Responses written"),
            pushed_resources: counters(
                registry,
                "observer_pushed_resources",
                "Resources in responses written",
            ),
            pushed_removals: counters(
                registry,
                "observer_pushed_removals",
                "Removals in responses written",
            ),
            pushed_bytes: StripedCounter::default(),
            nacks: counters(
                registry,
                "observer_nacks",
                "Responses that clients rejected",
            ),
            propagation_delay: PerType::of(&delays),
            over_max_size: Family::default(),
            wildcards_refused: counters(
                registry,
                "observer_wildcards_refused",
                "Subscriptions to everything of a type that the settings refuse",
            ),
        };
        registry.register("observer_streams", "Open streams", m.streams.clone());
        registry.register(
            "observer_streams_ended",
            "Streams that ended, by why",
            m.streams_ended.clone(),
        );
        registry.register(
            "observer_streams_refused",
            "Streams and connections refused before their first response, by why",
            m.streams_refused.clone(),
        );
        let requests = m.requests.family.clone();
        registry.register("observer_requests", "Requests read", requests);
        registry.register(
            "observer_pushed_bytes",
            "Bytes of responses written, frames included",
            m.pushed_bytes.clone(),
        );
        registry.register(
            "observer_over_max_size",
            "Resources left out, sets sent whole and requests refused because of their size",
            m.over_max_size.clone(),
        );
        m
    }

    /// The handler that the xDS engine tells; `clock` gives the end of each propagation.
    #[must_use]
    pub fn to_handler(&self, clock: WallClock) -> StreamEvents {
        StreamEvents {
            metrics: self.clone(),
            clock,
            started: Instant::now(),
            named: Mutex::new(NamedLines::new(
                "responses were rejected, requests or resources too large",
            )),
            named_handshakes: Mutex::new(NamedLines::new("TLS handshakes failed")),
        }
    }
}

/// Counts the engine's events.
#[derive(Debug)]
pub struct StreamEvents {
    metrics: StreamMetrics,
    clock: WallClock,
    started: Instant,
    /// One bad resource is rejected by every client that has it.
    named: Mutex<NamedLines>,
    /// A client that cannot connect tries again and again.
    named_handshakes: Mutex<NamedLines>,
}

impl EventHandler for StreamEvents {
    fn on_event(&self, event: &Event<'_>) {
        let m = &self.metrics;
        match *event {
            Event::StreamOpened { transport } => {
                m.open(transport).inc();
            }
            Event::StreamEnded {
                transport, reason, ..
            } => {
                m.open(transport).dec();
                count(&m.streams_ended, reason.label());
            }
            Event::Refused { reason } => count(&m.streams_refused, reason.label()),
            Event::HandshakeFailed {
                peer,
                reason,
                detail,
            } => {
                count(&m.handshakes_failed, reason.label());
                if self
                    .named_handshakes
                    .lock()
                    .may_name(self.started.elapsed())
                {
                    tracing::warn!(%peer, detail, "a client could not connect by TLS");
                }
            }
            Event::RequestReceived {
                resource_type,
                kind,
                ..
            } => m.requests.count(resource_type, kind),
            Event::Rejected {
                resource_type,
                node_id,
                message,
            } => self.on_nack(resource_type, node_id, message),
            Event::ResponseSent {
                resource_type,
                resources,
                removed,
                bytes,
                ..
            } => {
                m.pushes.get(resource_type).inc();
                let sent = m.pushed_resources.get(resource_type);
                sent.inc_by(resources as u64);
                let removals = m.pushed_removals.get(resource_type);
                removals.inc_by(removed as u64);
                m.pushed_bytes.inc_by(bytes as u64);
            }
            Event::ChangeSent {
                resource_type,
                origin,
            } => {
                let delay_ms = self.clock.now().millis_since(origin).max(0);
                let delay = Duration::from_millis(delay_ms.unsigned_abs());
                let delays = m.propagation_delay.get(Some(resource_type));
                delays.observe(delay);
            }
            Event::RequestOverMaxSize { .. }
            | Event::ResourceOverMaxSize { .. }
            | Event::SetOverMaxSize { .. } => self.on_over_max_size(event),
            Event::WildcardRefused { resource_type } => {
                m.wildcards_refused.get(Some(resource_type)).inc();
            }
        }
    }
}

impl StreamEvents {
    fn on_nack(&self, resource_type: ResourceType, node_id: &str, message: &str) {
        self.metrics.nacks.get(Some(resource_type)).inc();
        if self.may_name() {
            let type_url = resource_type.type_url();
            tracing::warn!(type_url, node_id, message, "a client rejected a response");
        }
    }

    fn on_over_max_size(&self, event: &Event<'_>) {
        let counts = &self.metrics.over_max_size;
        match *event {
            Event::RequestOverMaxSize { peer, bytes } => {
                count(counts, "request");
                if self.may_name() {
                    tracing::warn!(%peer, bytes, "a request over the size limit ended its stream");
                }
            }
            Event::ResourceOverMaxSize {
                resource_type,
                name,
                bytes,
            } => {
                count(counts, "resource");
                if self.may_name() {
                    let type_url = resource_type.type_url();
                    tracing::warn!(
                        type_url,
                        name,
                        bytes,
                        "a resource too large to send was left out"
                    );
                }
            }
            _ => count(counts, "set"),
        }
    }

    fn may_name(&self) -> bool {
        self.named.lock().may_name(self.started.elapsed())
    }
}

impl StreamMetrics {
    fn open(&self, transport: Transport) -> Gauge {
        let transport = transport.label();
        let streams = &self.streams;
        streams.get_or_create_owned(&TransportLabel { transport })
    }
}

fn register_handshakes(registry: &mut Registry) -> Family<ReasonLabel, Counter> {
    let failed = Family::default();
    registry.register(
        "observer_tls_handshakes_failed",
        "TLS handshakes that no connection came of, by why",
        failed.clone(),
    );
    failed
}

fn count(family: &Family<ReasonLabel, Counter>, reason: &'static str) {
    family.get_or_create(&ReasonLabel { reason }).inc();
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::limits::NAMED_LINES_MAX;

    /// Counts the lines that would be written.
    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_response_that_every_client_rejects_is_counted_whole_and_named_in_part() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        let metrics = StreamMetrics::register(&mut Registry::default());
        let events = metrics.to_handler(WallClock::default());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..20_000 {
                events.on_event(&Event::Rejected {
                    resource_type: ResourceType::Cluster,
                    node_id: "n",
                    message: "bad",
                });
            }
        });
        let nacks = metrics.nacks.get(Some(ResourceType::Cluster)).get();
        assert_eq!(nacks, 20_000);
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let named = text.matches("rejected a response").count();
        assert_eq!(named, NAMED_LINES_MAX as usize);
    }
}
