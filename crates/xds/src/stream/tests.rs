//! The state machine against model clients: whatever the interleaving of subscriptions, changes,
//! verdicts and slow reads, a client that then reads everything holds the truth.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Buf as _;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse as DeltaResponse, DiscoveryResponse as SotwResponse,
};
use proptest::prelude::*;
use waypost_core::locator::{glob_covers, glob_prefix};
use waypost_core::{
    EncodedResource, Interest, ResourceLocator, ResourceName, Subscriber, SubscriptionToken,
    Timestamp,
};
use waypost_proto::encoded::encode_resource;

use super::*;
use crate::events::IgnoreEvents;
use crate::memory::MemoryLocator;
use crate::request::ErrorDetail;
use crate::settings::AdsSettings;

mod delta_model;
mod inventory;
mod sotw_model;

/// Smallest messages that are allowed, so that answers come in several.
const SMALL: usize = 1024;

/// What a test does next. Indexes are into the names of the type.
#[derive(Clone, Debug)]
enum Op {
    Subscribe(usize),
    Unsubscribe(usize),
    Set(usize, u8),
    Remove(usize),
    /// The server writes a response if it has one.
    Write,
    /// The client reads a response and confirms or rejects it.
    Read {
        nack: bool,
    },
    Wait,
}

fn any_ops(names: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0..names).prop_map(Op::Subscribe),
        2 => (0..names).prop_map(Op::Unsubscribe),
        6 => (0..names, any::<u8>()).prop_map(|(name, value)| Op::Set(name, value % 4)),
        3 => (0..names).prop_map(Op::Remove),
        6 => Just(Op::Write),
        5 => Just(Op::Read { nack: false }),
        1 => Just(Op::Read { nack: true }),
        1 => Just(Op::Wait),
    ];
    prop::collection::vec(op, 0..120)
}

/// A server with one stream, and what is on the way to the client.
struct Harness {
    locator: Arc<MemoryLocator>,
    stream: Stream,
    resource_type: ResourceType,
    on_the_way: VecDeque<bytes::Bytes>,
    written: usize,
    now: Instant,
}

impl Harness {
    fn new(transport: Transport, resource_type: ResourceType) -> Self {
        let locator = Arc::new(MemoryLocator::default());
        let port = Arc::clone(&locator) as Arc<dyn ResourceLocator>;
        Self {
            locator,
            resource_type,
            ..Self::over(port, transport)
        }
    }

    /// A server over another locator than the one that the harness changes.
    fn over(port: Arc<dyn ResourceLocator>, transport: Transport) -> Self {
        let settings = AdsSettings {
            response_bytes_max: SMALL,
            ..AdsSettings::new("o")
        };
        let engine = Engine::new(port, settings, Arc::new(IgnoreEvents));
        let outbox = Arc::default();
        Self {
            locator: Arc::default(),
            stream: Stream::new(Arc::new(engine), outbox, transport, None, 77),
            resource_type: ResourceType::D2Uri,
            on_the_way: VecDeque::new(),
            written: 0,
            now: Instant::now(),
        }
    }

    fn set(&self, name: &str, value: u8) {
        // Sizes differ, so that a resource may grow while an answer is being written.
        let bytes = vec![value; 60 + usize::from(value) * 100];
        let resource = encode_resource(self.resource_type, name, &bytes, Timestamp(0));
        self.locator.set(self.resource_type, name, resource);
    }

    fn remove(&self, name: &str) {
        self.locator.remove(self.resource_type, name);
    }

    fn truth(&self) -> BTreeMap<String, String> {
        let variant = Variant::default();
        let names = self.locator.members(self.resource_type, None, variant);
        let found = names.into_iter().filter_map(|name| {
            let resource = self.locator.find(self.resource_type, &name, variant)?;
            Some((name.to_string(), resource.version().to_string()))
        });
        found.collect()
    }

    fn request(&mut self, message: &impl prost::Message) {
        let bytes = Bytes::from(message.encode_to_vec());
        self.stream.on_message(bytes, self.now).unwrap();
    }

    fn write(&mut self) -> bool {
        let Some(mut message) = self.stream.next_response(self.now) else {
            return false;
        };
        let bytes = message.copy_to_bytes(message.remaining());
        assert_eq!(
            bytes.len(),
            5 + u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize
        );
        self.written += 1;
        self.on_the_way.push_back(bytes.slice(5..));
        true
    }

    fn wait(&mut self) {
        self.now += Duration::from_secs(1);
    }
}

fn error_detail(nack: bool) -> Option<ErrorDetail> {
    nack.then(|| ErrorDetail {
        code: 3,
        message: "no".into(),
    })
}

/// Types of all responses that wait, in the order in which they are written.
fn written_types(server: &mut Harness) -> Vec<&'static str> {
    while server.write() {}
    let types = server.on_the_way.drain(..).map(|bytes| {
        let type_url = match server.stream.transport {
            Transport::Delta => DeltaResponse::decode(bytes).map(|r| r.type_url),
            Transport::Sotw => SotwResponse::decode(bytes).map(|r| r.type_url),
        };
        ResourceType::from_type_url(&type_url.unwrap()).map_or("", ResourceType::label)
    });
    types.collect()
}

#[test]
fn what_waits_together_is_written_in_make_before_break_order() {
    for transport in [Transport::Delta, Transport::Sotw] {
        let mut server = Harness::new(transport, ResourceType::Cluster);
        let types = [
            ResourceType::RouteConfiguration,
            ResourceType::Listener,
            ResourceType::ClusterLoadAssignment,
            ResourceType::Cluster,
        ];
        for resource_type in types {
            server.resource_type = resource_type;
            server.set("x", 1);
            let type_url = resource_type.type_url().to_owned();
            match transport {
                Transport::Delta => server.request(&DeltaRequest {
                    type_url,
                    resource_names_subscribe: vec!["x".into()],
                    ..DeltaRequest::default()
                }),
                Transport::Sotw => server.request(&SotwRequest {
                    type_url,
                    resource_names: vec!["x".into()],
                    ..SotwRequest::default()
                }),
            }
        }
        let order = ["cds", "eds", "lds", "rds"];
        assert_eq!(written_types(&mut server), order, "first answers");
        for resource_type in types {
            server.resource_type = resource_type;
            server.set("x", 2);
        }
        assert_eq!(written_types(&mut server), order, "changes");
    }
}

/// Whose members are gone by the time that somebody asks whether a glob is empty.
struct EmptiedMeanwhile(MemoryLocator);

impl ResourceLocator for EmptiedMeanwhile {
    fn not_loaded(&self) -> Option<String> {
        None
    }

    fn find(&self, of: ResourceType, name: &str, variant: Variant) -> Option<EncodedResource> {
        self.0.find(of, name, variant)
    }

    fn members(
        &self,
        of: ResourceType,
        prefix: Option<&str>,
        variant: Variant,
    ) -> Vec<ResourceName> {
        self.0.members(of, prefix, variant)
    }

    fn is_glob_empty(&self, _: ResourceType, _: &str, _: Variant) -> bool {
        true
    }

    fn subscribe(
        &self,
        of: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken {
        self.0.subscribe(of, interest, subscriber)
    }

    fn unsubscribe(&self, of: ResourceType, interest: &Interest, token: SubscriptionToken) {
        self.0.unsubscribe(of, interest, token);
    }
}

#[test]
fn a_glob_emptied_while_an_answer_is_decided_is_not_removed_beside_an_addition() {
    let locator = EmptiedMeanwhile(MemoryLocator::default());
    let of = ResourceType::D2Uri;
    let member = "xdstp:///indis.D2URI/c/1";
    let resource = encode_resource(of, member, b"v", Timestamp(0));
    locator.0.set(of, member, resource);
    let mut server = Harness::over(Arc::new(locator), Transport::Delta);
    server.request(&DeltaRequest {
        type_url: of.type_url().into(),
        resource_names_subscribe: vec!["xdstp:///indis.D2URI/c/*".into()],
        ..DeltaRequest::default()
    });
    assert!(server.write());
    let response = DeltaResponse::decode(server.on_the_way.remove(0).unwrap()).unwrap();
    assert_eq!(response.resources.len(), 1);
    assert!(response.removed_resources.is_empty(), "{response:?}");
}

#[test]
fn what_changes_while_an_answer_is_being_written_is_said_as_it_is_then() {
    let mut server = Harness::new(Transport::Delta, ResourceType::D2Node);
    for name in ["a", "b", "c", "d"] {
        server.set(name, 4);
    }
    let of = |subscribe: &[&str], unsubscribe: &[&str]| DeltaRequest {
        type_url: ResourceType::D2Node.type_url().into(),
        resource_names_subscribe: subscribe.iter().map(|&n| n.into()).collect(),
        resource_names_unsubscribe: unsubscribe.iter().map(|&n| n.into()).collect(),
        ..DeltaRequest::default()
    };
    server.request(&of(&["a", "b", "c", "d"], &[]));
    assert!(server.write());
    server.request(&of(&[], &["b"]));
    server.set("c", 1);
    server.remove("d");
    while server.write() {}
    let mut said = Vec::new();
    for bytes in server.on_the_way.drain(..) {
        let response = DeltaResponse::decode(bytes).unwrap();
        let resources = response.resources.into_iter();
        said.extend(resources.map(|r| (r.name, r.version)));
        let removed = response.removed_resources.into_iter();
        said.extend(removed.map(|name| (name, String::new())));
    }
    let truth = server.truth();
    let version = |name: &str| (name.to_owned(), truth[name].clone());
    assert_eq!(
        said,
        [version("a"), version("c"), ("d".to_owned(), String::new())]
    );
}

#[test]
fn state_per_stream_stays_small() {
    let sizes = [
        ("Stream", size_of::<Stream>(), 256),
        ("Substream", size_of::<Substream>(), 440),
        ("Outbox", size_of::<Outbox>(), 128),
        (
            "StreamHandle",
            size_of::<crate::registry::StreamHandle>(),
            384,
        ),
    ];
    for (what, bytes, max) in sizes {
        println!("{what}: {bytes} bytes");
        assert!(bytes <= max, "{what} is {bytes} bytes, more than {max}");
    }
}
