//! What is said of a stream from outside is what its client was told, also while it does not read.

use std::net::Ipv4Addr;

use super::*;
use crate::inventory::{Inventory, ResourceState, TypeInventory};
use crate::registry::{StreamId, StreamView};

const MEMBERS: &str = "xdstp:///indis.D2URI/c/*";

fn mk_server() -> Harness {
    Harness::new(Transport::Delta, ResourceType::D2Uri)
}

fn subscribe(server: &mut Harness, names: &[&str]) {
    server.request(&DeltaRequest {
        type_url: server.resource_type.type_url().into(),
        resource_names_subscribe: names.iter().map(|&name| name.into()).collect(),
        ..DeltaRequest::default()
    });
}

/// The client answers the oldest response that it has not read.
fn answer(server: &mut Harness, nack: bool) {
    let bytes = server.on_the_way.pop_front().unwrap();
    let response = DeltaResponse::decode(bytes).unwrap();
    server.request(&DeltaRequest {
        type_url: response.type_url,
        response_nonce: response.nonce,
        error_detail: error_detail(nack),
        ..DeltaRequest::default()
    });
}

fn look(server: &Harness, resources_max: usize) -> Inventory {
    let view = StreamView {
        id: StreamId(1),
        peer: (Ipv4Addr::LOCALHOST, 1).into(),
        transport: server.stream.transport,
        node: None,
        variant: Variant::default(),
        age: Duration::ZERO,
        backlog_age: None,
        types: Vec::new(),
    };
    Inventory::new(view, server.stream.inventory(resources_max), resources_max)
}

/// Each resource, how it stands, and whether the bytes that were sent are to be had.
fn show(inventory: &Inventory) -> Vec<(String, ResourceState, bool)> {
    let [
        TypeInventory {
            acks, resources, ..
        },
    ] = &inventory.types[..]
    else {
        panic!("one type is asked for")
    };
    let shown = resources.iter().map(|status| {
        let sent = inventory.find_sent(acks.resource_type, status);
        (status.name.to_string(), status.state, sent.is_some())
    });
    shown.collect()
}

#[test]
fn a_name_stands_as_its_client_was_told_and_has_contents_while_they_are_those_that_were_sent() {
    let mut server = mk_server();
    server.set("a", 1);
    subscribe(&mut server, &["a", "b"]);
    let both = |a: (ResourceState, bool), b: (ResourceState, bool)| {
        [("a".to_owned(), a.0, a.1), ("b".to_owned(), b.0, b.1)]
    };
    let not_sent = (ResourceState::NotSent, false);
    let absent = (ResourceState::Absent, false);
    assert_eq!(show(&look(&server, 9)), both(not_sent, not_sent));
    assert!(server.write());
    let sent = (ResourceState::Sent, true);
    assert_eq!(show(&look(&server, 9)), both(sent, absent));
    answer(&mut server, false);
    let acked = (ResourceState::Acked, true);
    assert_eq!(show(&look(&server, 9)), both(acked, absent));

    server.set("a", 2);
    let outdated = (ResourceState::Acked, false);
    assert_eq!(show(&look(&server, 9)), both(outdated, absent));
    assert!(server.write());
    answer(&mut server, true);
    let doubtful = (ResourceState::Doubtful, true);
    // What it made of an absence nobody knows.
    assert_eq!(show(&look(&server, 9)), both(doubtful, not_sent));
}

#[test]
fn a_member_that_waits_is_not_said_to_have_been_sent() {
    let mut server = mk_server();
    let [one, two] = ["xdstp:///indis.D2URI/c/1", "xdstp:///indis.D2URI/c/2"];
    server.set(one, 1);
    subscribe(&mut server, &[MEMBERS]);
    assert!(server.write());
    answer(&mut server, false);
    // Its client does not read: nothing more is decided.
    server.set(two, 1);
    let acked = (one.to_owned(), ResourceState::Acked, true);
    let waits = (two.to_owned(), ResourceState::NotSent, false);
    assert_eq!(show(&look(&server, 9)), [acked.clone(), waits]);
    assert!(look(&server, 1).types[0].is_cut);

    assert!(server.write());
    answer(&mut server, false);
    let both_acked = [acked, (two.to_owned(), ResourceState::Acked, true)];
    assert_eq!(show(&look(&server, 9)), both_acked);
    assert!(!look(&server, 2).types[0].is_cut);
}
