//! A client of the incremental variant.

use prost::Message as _;

use super::*;

const NAMES: [&str; 8] = [
    "*",
    "xdstp:///indis.D2URI/a/*",
    "xdstp:///indis.D2URI/b/*",
    "xdstp:///indis.D2URI/a/1",
    "xdstp:///indis.D2URI/a/2",
    "xdstp:///indis.D2URI/b/1",
    "plain-1",
    "plain-2",
];

struct Client {
    subscribed: BTreeSet<String>,
    held: BTreeMap<String, String>,
    nonces: BTreeSet<String>,
    type_url: &'static str,
}

impl Client {
    fn wants(&self, name: &str) -> bool {
        self.subscribed
            .iter()
            .any(|s| s == "*" || s == name || glob_prefix(s).is_some_and(|p| glob_covers(p, name)))
    }

    fn subscribe(&mut self, server: &mut Harness, name: &str) {
        self.subscribed.insert(name.to_owned());
        server.request(&DeltaRequest {
            type_url: self.type_url.into(),
            resource_names_subscribe: vec![name.into()],
            ..DeltaRequest::default()
        });
    }

    fn unsubscribe(&mut self, server: &mut Harness, name: &str) {
        if !self.subscribed.remove(name) {
            // A first request without subscriptions would mean everything.
            return;
        }
        self.held.remove(name);
        let held = std::mem::take(&mut self.held);
        self.held = held.into_iter().filter(|(n, _)| self.wants(n)).collect();
        server.request(&DeltaRequest {
            type_url: self.type_url.into(),
            resource_names_unsubscribe: vec![name.into()],
            ..DeltaRequest::default()
        });
    }

    fn read(&mut self, server: &mut Harness, nack: bool) -> bool {
        let Some(bytes) = server.on_the_way.pop_front() else {
            return false;
        };
        let response = DeltaResponse::decode(bytes).unwrap();
        assert!(self.nonces.insert(response.nonce.clone()), "nonce again");
        let mut added = BTreeSet::new();
        for resource in response.resources {
            assert!(
                added.insert(resource.name.clone()),
                "{} twice",
                resource.name
            );
            assert!(!resource.version.is_empty());
            if self.wants(&resource.name) {
                self.held.insert(resource.name, resource.version);
            }
        }
        for name in response.removed_resources {
            assert!(!added.contains(&name), "{name} added and removed");
            if let Some(prefix) = glob_prefix(&name) {
                let beside = added.iter().any(|n| glob_covers(prefix, n));
                assert!(!beside, "{name} removed beside an addition to it");
            }
            self.held.remove(&name);
        }
        server.request(&DeltaRequest {
            type_url: self.type_url.into(),
            response_nonce: response.nonce,
            error_detail: error_detail(nack),
            ..DeltaRequest::default()
        });
        true
    }
}

fn run(ops: Vec<Op>, resource_type: ResourceType) {
    let mut server = Harness::new(Transport::Delta, resource_type);
    let mut client = Client {
        subscribed: BTreeSet::new(),
        held: BTreeMap::new(),
        nonces: BTreeSet::new(),
        type_url: resource_type.type_url(),
    };
    let count = ops.len();
    for op in ops {
        match op {
            Op::Subscribe(name) => client.subscribe(&mut server, NAMES[name]),
            Op::Unsubscribe(name) => client.unsubscribe(&mut server, NAMES[name]),
            Op::Set(name, value) if !NAMES[name].ends_with('*') => server.set(NAMES[name], value),
            Op::Remove(name) if !NAMES[name].ends_with('*') => server.remove(NAMES[name]),
            Op::Set(..) | Op::Remove(_) => {}
            Op::Write => {
                server.write();
            }
            Op::Read { nack } => {
                client.read(&mut server, nack);
            }
            Op::Wait => server.wait(),
        }
    }
    while server.write() || client.read(&mut server, false) {
        assert!(server.written <= 8 * (count + 1), "no end of responses");
    }
    server.wait();
    assert!(!server.write(), "a settled stream is quiet");
    let mut truth = server.truth();
    truth.retain(|name, _| client.wants(name));
    assert_eq!(client.held, truth);
    server.stream.close();
    assert_eq!(server.locator.subscriptions(), 0);
}

proptest! {
    #[test]
    fn a_delta_client_ends_with_the_truth(ops in any_ops(NAMES.len())) {
        run(ops, ResourceType::D2Uri);
    }

    #[test]
    fn a_delta_client_of_clusters_ends_with_the_truth(ops in any_ops(NAMES.len())) {
        run(ops, ResourceType::Cluster);
    }
}
