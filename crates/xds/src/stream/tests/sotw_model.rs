//! A client of the state-of-the-world variant.

use prost::Message as _;

use super::*;

const NAMES: [&str; 6] = ["*", "a", "b", "c", "d", "e"];

struct Client {
    subscribed: BTreeSet<String>,
    was_named: bool,
    held: BTreeMap<String, String>,
    nonce: String,
    version: String,
    resource_type: ResourceType,
    /// Name and version by payload: a `SotW` resource says neither, so the payloads differ.
    by_value: BTreeMap<Vec<u8>, (String, String)>,
}

impl Client {
    fn wants(&self, name: &str) -> bool {
        self.subscribed.contains("*") || self.subscribed.contains(name)
    }

    fn request(&mut self, server: &mut Harness, nack: bool) {
        self.was_named |= !self.subscribed.is_empty();
        if !self.was_named {
            // No names at first would mean everything.
            return;
        }
        server.request(&SotwRequest {
            version_info: self.version.clone(),
            resource_names: self.subscribed.iter().cloned().collect(),
            type_url: self.resource_type.type_url().into(),
            response_nonce: self.nonce.clone(),
            error_detail: error_detail(nack),
            node: None,
        });
    }

    fn change(&mut self, server: &mut Harness, name: &str, subscribe: bool) {
        if subscribe {
            self.subscribed.insert(name.to_owned());
        } else {
            self.subscribed.remove(name);
            let held = std::mem::take(&mut self.held);
            self.held = held.into_iter().filter(|(n, _)| self.wants(n)).collect();
        }
        self.request(server, false);
    }

    fn read(&mut self, server: &mut Harness, nack: bool) -> bool {
        let Some(bytes) = server.on_the_way.pop_front() else {
            return false;
        };
        let response = SotwResponse::decode(bytes).unwrap();
        assert!(!response.version_info.is_empty());
        assert_ne!(response.nonce, self.nonce);
        let mut received = BTreeMap::new();
        for resource in response.resources {
            let (name, version) = self.by_value[&resource.value].clone();
            assert!(!received.contains_key(&name), "{name} twice");
            received.insert(name, version);
        }
        if self.resource_type.is_complete_in_sotw() {
            self.held.clear();
        }
        for (name, version) in received {
            if self.wants(&name) {
                self.held.insert(name, version);
            }
        }
        self.nonce = response.nonce;
        self.version = response.version_info;
        self.request(server, nack);
        true
    }
}

fn run(ops: Vec<Op>, resource_type: ResourceType) {
    let mut server = Harness::new(Transport::Sotw, resource_type);
    let mut client = Client {
        subscribed: BTreeSet::new(),
        was_named: false,
        held: BTreeMap::new(),
        nonce: String::new(),
        version: String::new(),
        resource_type,
        by_value: BTreeMap::new(),
    };
    let count = ops.len();
    for op in ops {
        match op {
            Op::Subscribe(name) => client.change(&mut server, NAMES[name], true),
            Op::Unsubscribe(name) => client.change(&mut server, NAMES[name], false),
            Op::Set(name, value) if NAMES[name] != "*" => {
                let bytes = [NAMES[name].as_bytes(), &[value; 200]].concat();
                let resource = encode_resource(resource_type, NAMES[name], &bytes, Timestamp(0));
                let told = (NAMES[name].to_owned(), resource.version().to_string());
                client.by_value.insert(bytes, told);
                server.locator.set(resource_type, NAMES[name], resource);
            }
            Op::Remove(name) if NAMES[name] != "*" => server.remove(NAMES[name]),
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
    settle(&mut server, &mut client, 8 * (count + 1));
    let mut truth = server.truth();
    truth.retain(|name, _| client.wants(name));
    if !resource_type.is_complete_in_sotw() {
        // What vanished is not said in this variant; a client learns it from the parent.
        client.held.retain(|name, _| truth.contains_key(name));
    }
    assert_eq!(client.held, truth);
    server.stream.close();
    assert_eq!(server.locator.subscriptions(), 0);
}

fn settle(server: &mut Harness, client: &mut Client, written_max: usize) {
    for _ in 0..2 {
        while server.write() || client.read(server, false) {
            assert!(server.written <= written_max, "no end of responses");
        }
        // Names of stale requests are served after a while.
        server.wait();
    }
    assert!(!server.write(), "a settled stream is quiet");
}

proptest! {
    #[test]
    fn a_sotw_client_of_whole_sets_ends_with_the_truth(ops in any_ops(NAMES.len())) {
        run(ops, ResourceType::Listener);
    }

    #[test]
    fn a_sotw_client_of_clusters_ends_with_the_truth(ops in any_ops(NAMES.len())) {
        run(ops, ResourceType::Cluster);
    }

    #[test]
    fn a_sotw_client_of_parts_ends_with_the_truth(ops in any_ops(NAMES.len())) {
        run(ops, ResourceType::RouteConfiguration);
    }
}
