//! State of the world: whole sets, versions and nonces.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;

use super::*;

const CDS: ResourceType = ResourceType::Cluster;

/// A response with these clusters; the version is in the body, so that content differs.
fn clusters(version: &str, nonce: &str, names: &[&str]) -> Response {
    let resources = names.iter().map(|name| {
        let cluster = Cluster {
            name: (*name).to_owned(),
            alt_stat_name: version.to_owned(),
            ..Cluster::default()
        };
        any(CDS, &cluster)
    });
    mk(CDS, version, nonce, resources.collect())
}

fn any(resource_type: ResourceType, message: &impl prost::Message) -> Any {
    Any {
        type_url: resource_type.type_url().to_owned(),
        value: message.encode_to_vec(),
    }
}

fn mk(resource_type: ResourceType, version: &str, nonce: &str, resources: Vec<Any>) -> Response {
    Response::Sotw(DiscoveryResponse {
        version_info: version.to_owned(),
        type_url: resource_type.type_url().to_owned(),
        nonce: nonce.to_owned(),
        resources,
        ..DiscoveryResponse::default()
    })
}

fn respond(client: &mut Client, response: Response) -> DiscoveryRequest {
    client.respond(response);
    client.sotw().expect("a verdict")
}

fn said(request: &DiscoveryRequest) -> (&str, &str) {
    (&request.version_info, &request.response_nonce)
}

fn names(events: &[String]) -> Vec<&str> {
    let words = events.iter().map(|event| event.split(' ').next());
    words.flatten().collect()
}

#[test]
fn every_request_names_everything_with_version_and_nonce() {
    let mut client = Client::watching(Policy::grpc(), CDS, &["a", "b"]);
    let first = client.sotw().unwrap();
    assert_eq!(first.resource_names, ["a", "b"]);
    assert_eq!(said(&first), ("", ""));
    assert_eq!(first.node.unwrap().id, "n");

    let ack = respond(&mut client, clusters("v1", "n1", &["a", "b"]));
    assert_eq!(said(&ack), ("v1", "n1"));
    assert!(ack.error_detail.is_none() && ack.node.is_none());
    client.watch(CDS, &["c"]);
    let more = client.sotw().unwrap();
    assert_eq!(more.resource_names, ["a", "b", "c"]);
    assert_eq!(said(&more), ("v1", "n1"));
    assert!(client.sotw().is_none());

    // A new stream knows no nonce, and still says what was accepted (xDS protocol, versions).
    client.lose();
    client.connect();
    assert_eq!(said(&client.sotw().unwrap()), ("v1", ""));
}

#[test]
fn a_refusal_keeps_the_accepted_version_and_uses_what_is_good() {
    let mut client = Client::watching(Policy::grpc(), CDS, &["a", "b"]);
    client.sotw();
    respond(&mut client, clusters("v1", "n1", &["a", "b"]));
    client.events();
    let nack = respond(&mut client, clusters("v2", "n2", &["a", "a", "b"]));
    assert_eq!(said(&nack), ("v1", "n2"));
    let error = nack.error_detail.unwrap();
    assert_eq!(error.code, 3);
    assert_eq!(error.message, "a is in the response twice");
    assert_eq!(names(&client.events()), ["a", "b"]);
}

#[test]
fn what_a_whole_set_misses_does_not_exist() {
    for (policy, held) in [
        (Policy::grpc(), None),
        (Policy::waypost(), Some(Mark::Gone)),
    ] {
        let policy = Policy {
            variant: crate::XdsVariant::Sotw,
            ..policy
        };
        let mut client = Client::watching(policy, CDS, &["a", "b"]);
        client.sotw();
        respond(&mut client, clusters("v1", "n1", &["a"]));
        let told = client.events();
        let missing = "b absent Stated Nothing".to_owned();
        assert!(told.contains(&missing), "{told:?}");
        respond(&mut client, clusters("v2", "n2", &[]));
        assert_eq!(client.mark(CDS, "a"), held);
        assert_eq!(names(&client.events()), ["a"], "b is not told again");
        respond(&mut client, clusters("v3", "n3", &[]));
        assert!(client.events().is_empty());
        respond(&mut client, clusters("v4", "n4", &["b"]));
        assert_eq!(client.mark(CDS, "b"), Some(Mark::Fresh));
    }
}

#[test]
fn what_a_part_misses_stays() {
    let mut client = Client::watching(Policy::grpc(), EDS, &["a", "b"]);
    client.sotw();
    let load = |name: &str| {
        let message = ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..ClusterLoadAssignment::default()
        };
        any(EDS, &message)
    };
    respond(&mut client, mk(EDS, "v1", "n1", vec![load("a"), load("b")]));
    respond(&mut client, mk(EDS, "v2", "n2", vec![load("a")]));
    respond(&mut client, mk(EDS, "v3", "n3", Vec::new()));
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Fresh));
    assert_eq!(client.mark(EDS, "b"), Some(Mark::Fresh));
    assert_eq!(client.machine.counters().resources_absent, 0);
}

#[test]
fn a_wrapped_resource_brings_its_name_and_version() {
    use ResourceType::D2Node;
    let mut client = Client::watching(Policy::grpc(), D2Node, &["/d2/clusters/c"]);
    client.sotw();
    let wrapped = Resource {
        name: "/d2/clusters/c".to_owned(),
        version: "7".to_owned(),
        resource: Some(Any {
            type_url: D2Node.type_url().to_owned(),
            value: b"x".to_vec(),
        }),
        ..Resource::default()
    };
    let wrapped = Any {
        type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".to_owned(),
        value: wrapped.encode_to_vec(),
    };
    let ack = respond(&mut client, mk(D2Node, "v", "n", vec![wrapped]));
    assert!(ack.error_detail.is_none());
    assert_eq!(client.events()[1..], ["/d2/clusters/c is x @7"]);
}

#[test]
fn the_wildcard_holds_what_the_server_gives_and_drops_what_it_no_longer_does() {
    let mut client = Client::watching(Policy::grpc(), CDS, &["*"]);
    assert_eq!(client.sotw().unwrap().resource_names, ["*"]);
    respond(&mut client, clusters("v1", "n1", &["a", "b"]));
    assert_eq!(names(&client.events()), ["answered", "a", "b", "*"]);
    respond(&mut client, clusters("v1", "n2", &["b"]));
    assert_eq!(client.events(), ["a absent Stated Nothing"]);
    client.unwatch(CDS, "*");
    let nothing = client.sotw().unwrap();
    assert!(
        nothing.resource_names.is_empty(),
        "nothing, since there were names before"
    );
    assert_eq!(client.mark(CDS, "b"), None);
}
