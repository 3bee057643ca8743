//! Delta: subscriptions, verdicts, removals, collections, and what rest.li's client does.

use super::*;
use crate::policy::{KnownVersions, Removals};

const GLOB: &str = "xdstp:///indis.D2URI/c/*";
const HOST_A: &str = "xdstp:///indis.D2URI/c/a";
const HOST_B: &str = "xdstp:///indis.D2URI/c/b";

#[test]
fn a_new_stream_asks_for_everything_and_says_who_it_is_once() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b"]);
    client.watch(ResourceType::Cluster, &["a"]);
    assert_eq!(client.requests(), ["cds node +a", "eds +a +b"]);
    assert!(client.requests().is_empty(), "once");
    client.watch(EDS, &["a", "c", "d"]);
    assert_eq!(client.requests(), ["eds +c +d"]);
}

#[test]
fn a_response_is_confirmed_by_its_nonce_and_told() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b"]);
    client.requests();
    client.answer(EDS, "n1", &["a=1:x", "b=1:y"]);
    assert_eq!(client.requests(), ["eds ack:n1"]);
    assert_eq!(client.events(), ["answered 0", "a is x @1", "b is y @1"]);
    client.answer(EDS, "n2", &["a=1:x"]);
    assert_eq!(client.requests(), ["eds ack:n2"]);
    assert!(client.events().is_empty(), "nothing changed");
    client.answer(EDS, "n3", &[]);
    assert_eq!(
        client.requests(),
        ["eds ack:n3"],
        "an empty response is one"
    );
    assert_eq!(client.machine.counters().acks, 3);
}

#[test]
fn a_bad_resource_costs_itself_and_the_last_good_content_stays() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b", "c"]);
    client.requests();
    client.answer(EDS, "n1", &["a=1:x"]);
    client.events();
    client.requests();
    client.answer(EDS, "n2", &["a=2:bad", "b=1:y", "c=1:bad"]);
    let requests = client.requests();
    assert_eq!(requests, ["eds ack:n2 error:a: it is bad\nc: it is bad"]);
    assert_eq!(
        client.events(),
        [
            "a rejected: it is bad LastGood",
            "b is y @1",
            "c rejected: it is bad Nothing"
        ]
    );
    assert_eq!(client.mark(EDS, "a"), Some(Mark::Fresh));
    assert_eq!(client.machine.counters().nacks, 1);
    // The version that stands is the one that was accepted: the server sends again what was refused.
    client.lose();
    client.connect();
    assert_eq!(client.requests(), ["eds node +a +b +c a@1 b@1"]);
}

#[test]
fn what_no_response_may_hold_is_refused() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a"]);
    client.requests();
    client.answer(EDS, "n1", &["a=1:x", "a=2:y"]);
    let twice = "eds ack:n1 error:a is in the response twice";
    assert_eq!(client.requests(), [twice]);
    let mut response = mk_delta(EDS, "n2", &["a=2:y"]);
    response.resources[0].resource.as_mut().unwrap().type_url = "x/indis.Node".to_owned();
    client.respond(Response::Delta(response));
    assert_eq!(
        client.requests(),
        ["eds ack:n2 error:a: it is a x/indis.Node"]
    );
    let mut response = mk_delta(EDS, "n3", &["a=2:y"]);
    response.resources[0].resource = None;
    client.respond(Response::Delta(response));
    assert_eq!(client.requests(), ["eds ack:n3 error:a: it has no body"]);
}

#[test]
fn what_was_not_asked_for_is_ignored_and_rest_li_refuses_it() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a"]);
    client.requests();
    client.answer(EDS, "n1", &["z=1:x"]);
    assert_eq!(client.requests(), ["eds ack:n1"]);
    assert_eq!(client.mark(EDS, "z"), None);

    let policy = Policy::d2(KnownVersions::Omitted);
    let mut client = Client::watching(policy, ResourceType::D2Uri, &[GLOB]);
    client.requests();
    let other = "xdstp:///indis.D2URI/other/a";
    client.answer(ResourceType::D2Uri, "n1", &[&format!("{other}=1:x")]);
    let refused = format!("d2_uri node ack:n1 error:{other} was not asked for");
    assert_eq!(client.requests(), [refused]);
    client.answer(ResourceType::D2Uri, "n2", &[&format!("-{other}")]);
    let refused = format!("d2_uri node ack:n2 error:{other} was not asked for");
    assert_eq!(client.requests(), [refused], "its removal is refused too");

    let policy = Policy::d2(KnownVersions::Omitted);
    let mut client = Client::watching(policy, ResourceType::D2Node, &["/d2/clusters/c"]);
    client.requests();
    let unasked = ["/d2/clusters/d=1:x", "-/d2/clusters/e"];
    client.answer(ResourceType::D2Node, "n1", &unasked);
    assert_eq!(client.requests(), ["d2_node node ack:n1"], "of URIs only");
}

#[test]
fn rest_li_tells_the_versions_of_what_came_last_also_if_it_was_of_no_use() {
    let policy = Policy::d2(KnownVersions::Told);
    let mut client = Client::watching(policy, ResourceType::D2Uri, &[GLOB]);
    let other = "xdstp:///indis.D2URI/other/a";
    let (good, bad) = (format!("{HOST_A}=1:x"), format!("{HOST_A}=2:bad"));
    let (worse, unasked) = (format!("{HOST_B}=1:bad"), format!("{other}=7:x"));
    client.answer(ResourceType::D2Uri, "n1", &[&good]);
    client.answer(ResourceType::D2Uri, "n2", &[&bad, &worse, &unasked]);
    client.lose();
    client.connect();
    let table = format!("d2_uri node +{GLOB} {HOST_A}@2 {HOST_B}@1 {other}@7");
    assert_eq!(client.requests(), [table]);

    let better = format!("{HOST_B}=2:y");
    let gone = [format!("-{HOST_A}"), format!("-{other}")];
    client.answer(ResourceType::D2Uri, "n3", &[&better, &gone[0], &gone[1]]);
    client.lose();
    client.connect();
    assert_eq!(
        client.requests(),
        [format!("d2_uri node +{GLOB} {HOST_B}@2")]
    );
}

#[test]
fn a_removal_is_told_and_by_policy_clears_or_marks() {
    for (removals, kept, mark) in [
        (Removals::Keep, "LastGood", Some(Mark::Gone)),
        (Removals::Clear, "Nothing", None),
    ] {
        let policy = Policy {
            removals,
            ..Policy::waypost()
        };
        let mut client = Client::watching(policy, EDS, &["a", "b"]);
        client.answer(EDS, "n1", &["a=1:x", "-b"]);
        client.events();
        client.answer(EDS, "n2", &["-a"]);
        assert_eq!(client.events(), [format!("a absent Stated {kept}")]);
        assert_eq!(client.mark(EDS, "a"), mark);
        // It never ends the subscription.
        client.answer(EDS, "n3", &["a=1:x", "b=1:y"]);
        assert_eq!(client.mark(EDS, "a"), Some(Mark::Fresh));
        assert_eq!(client.events().len(), 2);
    }
}

#[test]
fn what_is_watched_no_longer_is_said_so_and_forgotten() {
    let mut client = Client::watching(Policy::waypost(), EDS, &["a", "b", "c"]);
    client.requests();
    client.answer(EDS, "n1", &["a=1:x", "b=1:y"]);
    client.requests();
    client.unwatch(EDS, "a");
    assert_eq!(client.mark(EDS, "a"), None);
    client.watch(EDS, &["d"]);
    client.unwatch(EDS, "d");
    assert_eq!(client.requests(), ["eds -a"], "d was never asked for");
    // Wanted again before the server heard of it: it is asked for anew.
    client.unwatch(EDS, "b");
    client.watch(EDS, &["b"]);
    assert_eq!(client.requests(), ["eds +b"]);
}

#[test]
fn a_type_of_which_nothing_is_left_is_not_asked_for_as_a_whole() {
    for policy in [Policy::waypost(), Policy::grpc()] {
        let mut client = Client::watching(policy, EDS, &["a"]);
        client.watch(ResourceType::Cluster, &["a"]);
        client.unwatch(ResourceType::Cluster, "a");
        let request = client.machine.poll_request(client.link, client.now);
        let type_url = match request.unwrap() {
            Request::Delta(request) => request.type_url,
            Request::Sotw(request) => request.type_url,
        };
        assert_eq!(type_url, EDS.type_url());
        assert!(!client.machine.has_request(client.link));
    }
}

#[test]
fn members_of_collections_come_and_go_and_the_end_of_the_first_answer_is_told() {
    let mut client = Client::watching(Policy::waypost(), ResourceType::D2Uri, &[GLOB, "*"]);
    client.requests();
    let more = "000000000000000000000001";
    client.answer(ResourceType::D2Uri, more, &[&format!("{HOST_A}=1:x")]);
    assert_eq!(client.events()[1..], [format!("{HOST_A} is x @1")]);
    let last = "000000000000000200000000";
    client.answer(ResourceType::D2Uri, last, &[&format!("{HOST_B}=1:y")]);
    let whole = [
        format!("{HOST_B} is y @1"),
        "* complete".to_owned(),
        format!("{GLOB} complete"),
    ];
    assert_eq!(client.events(), whole);

    let gone = [
        format!("-{HOST_A}"),
        format!("-{HOST_B}"),
        format!("-{GLOB}"),
    ];
    let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
    client.answer(ResourceType::D2Uri, "n3", &gone);
    let told = [
        format!("{HOST_A} absent Stated Nothing"),
        format!("{HOST_B} absent Stated Nothing"),
        format!("{GLOB} absent Stated Nothing"),
    ];
    assert_eq!(client.events(), told);
}

#[test]
fn whoever_watches_what_is_held_already_is_told_once_it_is_answered() {
    for [first, second] in [[GLOB, HOST_A], [HOST_A, GLOB], [HOST_A, "*"], ["*", GLOB]] {
        let mut client = Client::watching(Policy::waypost(), ResourceType::D2Uri, &[first]);
        client.answer(ResourceType::D2Uri, "n1", &[&format!("{HOST_A}=1:x")]);
        client.events();
        client.watch(ResourceType::D2Uri, &[second]);
        client.answer(ResourceType::D2Uri, "n2", &[&format!("{HOST_A}=1:x")]);
        let told = client.events();
        assert_eq!(told[0], format!("{HOST_A} confirmed"), "{first} {second}");
        client.answer(ResourceType::D2Uri, "n3", &[&format!("{HOST_A}=1:x")]);
        assert!(client.events().is_empty(), "once");
    }
}

#[test]
fn the_removal_of_a_collection_alone_clears_no_member() {
    let policy = Policy::d2(KnownVersions::Omitted);
    let mut client = Client::watching(policy, ResourceType::D2Uri, &[GLOB]);
    client.answer(ResourceType::D2Uri, "n1", &[&format!("{HOST_A}=1:x")]);
    client.events();
    client.answer(ResourceType::D2Uri, "n2", &[&format!("-{GLOB}")]);
    assert_eq!(client.events(), [format!("{GLOB} absent Stated LastGood")]);
    assert_eq!(client.mark(ResourceType::D2Uri, HOST_A), Some(Mark::Fresh));
}

#[test]
fn an_empty_collection_is_whole_with_its_removal() {
    let mut client = Client::watching(Policy::waypost(), ResourceType::D2Uri, &[GLOB]);
    client.answer(ResourceType::D2Uri, "n1", &[&format!("-{GLOB}")]);
    let told = [
        "answered 0".to_owned(),
        format!("{GLOB} absent Stated Nothing"),
        format!("{GLOB} complete"),
    ];
    assert_eq!(client.events(), told);
}

#[test]
fn rest_li_asks_for_one_name_at_a_time_and_after_a_reconnect_twice_with_its_whole_table() {
    use ResourceType::{D2Node, D2Uri};
    let policy = Policy::d2(KnownVersions::Told);
    let mut client = Client::watching(policy, D2Node, &["/d2/services/s"]);
    client.watch(D2Uri, &[GLOB, HOST_B]);
    client.watch(D2Node, &["/d2/clusters/c"]);
    assert_eq!(
        client.requests(),
        [
            "d2_node node +/d2/services/s".to_owned(),
            "d2_node node +/d2/clusters/c".to_owned(),
            format!("d2_uri node +{GLOB}"),
            format!("d2_uri node +{HOST_B}"),
        ]
    );
    let hosts = [format!("{HOST_A}=1:x"), format!("{HOST_B}=2:y")];
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    client.answer(D2Uri, "n1", &hosts);
    assert_eq!(client.requests(), ["d2_uri node ack:n1"]);

    let lost_at = client.now;
    client.lose();
    client.connect();
    assert_eq!(client.now, lost_at, "without a pause: there was a response");
    let versions = format!("{HOST_A}@1 {HOST_B}@2");
    assert_eq!(
        client.requests(),
        [
            "d2_node node +/d2/clusters/c +/d2/services/s".to_owned(),
            format!("d2_uri node +{GLOB} {versions}"),
            format!("d2_uri node +{HOST_B} {versions}"),
        ]
    );
    client.unwatch(D2Node, "/d2/services/s");
    assert!(client.requests().is_empty(), "it never unsubscribes");

    // Two requests for URIs only: names and the wildcard of another type go together.
    client.watch(D2Node, &["*"]);
    client.lose();
    client.connect();
    let nodes = "d2_node node +* +/d2/clusters/c";
    assert_eq!(client.requests()[0], nodes);
}
