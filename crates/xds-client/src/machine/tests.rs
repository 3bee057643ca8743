//! The machine against a server that is played by hand, in both variants.

mod delta;
mod sotw;
mod streams;

use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use waypost_core::ResourceType;

use super::*;

/// The type of most tests.
const EDS: ResourceType = ResourceType::ClusterLoadAssignment;

/// Refuses what starts with `bad`, takes all else as text.
#[derive(Clone, Copy, Debug)]
struct TextCodec;

impl Codec for TextCodec {
    type Value = String;

    fn decode(&self, _: &TypeUrl, _: &str, body: &Bytes) -> Result<String, Rejection> {
        let text = String::from_utf8_lossy(body).into_owned();
        if text.starts_with("bad") {
            return Err(Rejection::new("it is bad"));
        }
        Ok(text)
    }
}

/// A machine, its clock, and the stream it follows.
struct Client {
    machine: Machine<TextCodec>,
    now: Duration,
    link: LinkId,
}

impl Client {
    /// A client of one server that is connected and watches `names`.
    fn watching(policy: Policy, resource_type: ResourceType, names: &[&str]) -> Self {
        let mut client = Self::disconnected(policy, 1);
        client.watch(resource_type, names);
        client.connect();
        client
    }

    fn disconnected(policy: Policy, servers: usize) -> Self {
        let node = Node {
            id: "n".to_owned(),
            ..Node::default()
        };
        Self {
            machine: Machine::new(policy, node, TextCodec, servers, 3),
            now: Duration::ZERO,
            link: LinkId(0),
        }
    }

    fn watch(&mut self, resource_type: ResourceType, names: &[&str]) {
        for name in names {
            let name = Subscription::new(name);
            self.machine.watch(&resource_type.into(), &name).unwrap();
        }
    }

    fn unwatch(&mut self, resource_type: ResourceType, name: &str) {
        let name = Subscription::new(name);
        self.machine.unwatch(&resource_type.into(), &name);
    }

    /// Lets time pass until the machine opens a stream; gives its server.
    fn open(&mut self) -> usize {
        for _ in 0..10 {
            match self.machine.poll_action(self.now) {
                Some(Action::Open { link, server }) => {
                    self.link = link;
                    return server;
                }
                Some(Action::Close { .. }) => {}
                None => self.now = self.machine.deadline().expect("it opens one day"),
            }
        }
        panic!("no stream is opened");
    }

    fn connect(&mut self) {
        self.open();
        self.machine.up(self.link, self.now);
        self.events();
    }

    fn lose(&mut self) {
        self.machine.ended(self.link, "broken", self.now);
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.machine.tick(self.now);
    }

    fn delta(&mut self) -> Option<DeltaDiscoveryRequest> {
        match self.machine.poll_request(self.link, self.now)? {
            Request::Delta(request) => Some(request),
            Request::Sotw(request) => panic!("{request:?}"),
        }
    }

    fn sotw(&mut self) -> Option<DiscoveryRequest> {
        match self.machine.poll_request(self.link, self.now)? {
            Request::Sotw(request) => Some(request),
            Request::Delta(request) => panic!("{request:?}"),
        }
    }

    /// All delta requests that wait, each as `type subscribe -unsubscribe versions nonce error`.
    fn requests(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.delta())
            .map(|r| show(&r))
            .collect()
    }

    /// A delta response: `name=version:body` brings a resource, `-name` removes one.
    fn answer(&mut self, resource_type: ResourceType, nonce: &str, items: &[&str]) {
        let response = mk_delta(resource_type, nonce, items);
        self.respond(Response::Delta(response));
    }

    fn respond(&mut self, response: Response) {
        self.machine.response(self.link, response, self.now);
    }

    /// All events that wait, each in a few words.
    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.machine.poll_event())
            .map(|e| tell(&e))
            .collect()
    }

    fn mark(&self, resource_type: ResourceType, name: &str) -> Option<Mark> {
        let held = self.machine.find_held(&resource_type.into(), name);
        held.map(|held| held.mark)
    }
}

fn mk_delta(resource_type: ResourceType, nonce: &str, items: &[&str]) -> DeltaDiscoveryResponse {
    let mut response = DeltaDiscoveryResponse {
        type_url: resource_type.type_url().to_owned(),
        nonce: nonce.to_owned(),
        ..DeltaDiscoveryResponse::default()
    };
    for item in items {
        if let Some(name) = item.strip_prefix('-') {
            response.removed_resources.push(name.to_owned());
            continue;
        }
        let (name, rest) = item.split_once('=').unwrap();
        let (version, body) = rest.split_once(':').unwrap();
        response.resources.push(Resource {
            name: name.to_owned(),
            version: version.to_owned(),
            resource: Some(Any {
                type_url: resource_type.type_url().to_owned(),
                value: body.as_bytes().to_vec(),
            }),
            ..Resource::default()
        });
    }
    response
}

fn show(request: &DeltaDiscoveryRequest) -> String {
    let resource_type = ResourceType::from_type_url(&request.type_url).unwrap();
    let mut words = vec![resource_type.label().to_owned()];
    words.extend(request.node.is_some().then(|| "node".to_owned()));
    words.extend(
        request
            .resource_names_subscribe
            .iter()
            .map(|n| format!("+{n}")),
    );
    words.extend(
        request
            .resource_names_unsubscribe
            .iter()
            .map(|n| format!("-{n}")),
    );
    let mut versions: Vec<_> = request.initial_resource_versions.iter().collect();
    versions.sort();
    words.extend(
        versions
            .into_iter()
            .map(|(name, version)| format!("{name}@{version}")),
    );
    if !request.response_nonce.is_empty() {
        words.push(format!("ack:{}", request.response_nonce));
    }
    words.extend(
        request
            .error_detail
            .as_ref()
            .map(|e| format!("error:{}", e.message)),
    );
    words.join(" ")
}

fn tell(event: &Event<String>) -> String {
    match event {
        Event::Changed {
            name,
            version,
            value,
            ..
        } => format!("{name} is {value} @{version}"),
        Event::Confirmed { name, .. } => format!("{name} confirmed"),
        Event::Absent {
            name, why, kept, ..
        } => format!("{name} absent {why:?} {kept:?}"),
        Event::Rejected {
            name, reason, kept, ..
        } => format!("{name} rejected: {reason} {kept:?}"),
        Event::Complete { subscription, .. } => format!("{subscription} complete"),
        Event::Stream(StreamEvent::Opening { server }) => format!("opening {server}"),
        Event::Stream(StreamEvent::Up { server }) => format!("up {server}"),
        Event::Stream(StreamEvent::Answered { server, .. }) => format!("answered {server}"),
        Event::Stream(StreamEvent::Ended { server, reason, .. }) => {
            format!("ended {server}: {reason}")
        }
    }
}
