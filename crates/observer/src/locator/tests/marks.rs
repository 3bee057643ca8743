//! Who is told of which change, under which name.

use std::sync::Arc;

use waypost_core::{
    Announcement, Health, Interest, PartitionWeights, ResourceLocator as _, ResourceType,
    StoreInput,
};

use super::{Marks, NOW, announce, define_cluster, define_service, down, mk_locator, up};
use crate::render::testing::mk_announcement;

fn sick(uri: &str) -> StoreInput {
    announce(&Announcement {
        health: Health::Unhealthy,
        ..mk_announcement("c", uri)
    })
}

const A: &str = "http://a:1";
const B: &str = "http://b:1";

/// Everything that a cluster and its service are served as.
const WHOLE: [&str; 9] = [
    "cds c",
    "d2_name /d2/clusters/c",
    "d2_name /d2/services/c",
    "d2_node /d2/clusters/c",
    "d2_node /d2/services/c",
    "d2_uri_map /d2/uris/c",
    "eds c",
    "lds c",
    "rds c",
];

#[test]
fn a_change_marks_the_resources_that_it_touches_and_no_others() {
    let (locator, mut writer) = mk_locator();
    let marks = Arc::new(Marks::default());
    for resource_type in ResourceType::ALL {
        locator.subscribe(resource_type, &Interest::Wildcard, marks.clone());
    }
    let uri = |host: &str| format!("d2_uri xdstp:///indis.D2URI/c/http%3A%2F%2F{host}%3A1");
    let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let endpoints = |hosts: &[&str]| {
        let mut expected: Vec<_> = hosts.iter().map(|host| uri(host)).collect();
        expected.extend(list(&["d2_uri_map /d2/uris/c", "eds c"]));
        expected
    };
    let mut appears = list(&WHOLE);
    appears.push(uri("a"));
    let steps = [
        ("the first instance", up("c", A), appears),
        ("a heartbeat", up("c", A), vec![]),
        ("another instance", up("c", B), endpoints(&["b"])),
        ("and a third", up("c", "http://d:1"), endpoints(&["d"])),
        ("one is hidden", sick(B), endpoints(&["b"])),
        (
            "a hidden one changes",
            announce(&Announcement {
                health: Health::Draining,
                ..mk_announcement("c", B)
            }),
            list(&["eds c"]),
        ),
        ("health is ignored now", sick(A), endpoints(&["a", "b"])),
        ("one leaves", down("c", B), endpoints(&["a", "b"])),
        (
            "a definition",
            define_cluster("c", Some("{}")),
            list(&["cds c", "d2_node /d2/clusters/c"]),
        ),
        (
            "an instance is banned",
            define_cluster("c", Some(r#"{"bannedUris":["http://d:1","http://a:1"]}"#)),
            list(&["cds c", "d2_node /d2/clusters/c", "eds c"]),
        ),
        (
            "a service",
            define_service("s", Some("c")),
            list(&[
                "cds c",
                "d2_name /d2/services/s",
                "d2_node /d2/services/s",
                "lds s",
                "rds s",
            ]),
        ),
    ];
    for (what, input, expected) in steps {
        writer.apply(NOW, [input]);
        let mut marks = marks.take();
        marks.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(marks, expected, "{what}");
    }
}

#[test]
fn a_change_of_a_partition_marks_that_partition() {
    let (locator, mut writer) = mk_locator();
    let on = |uri: &str, d2_partition: i32, weight: f64| {
        announce(&Announcement {
            weights: PartitionWeights::from([(d2_partition, weight)]),
            ..mk_announcement("c", uri)
        })
    };
    writer.apply(NOW, [on(A, 1, 1.0), on(B, 2, 1.0)]);
    let marks = Arc::new(Marks::default());
    for resource_type in [ResourceType::Cluster, ResourceType::ClusterLoadAssignment] {
        locator.subscribe(resource_type, &Interest::Wildcard, marks.clone());
    }
    writer.apply(NOW, [on(A, 1, 2.0)]);
    assert_eq!(marks.take(), ["eds c", "eds c#1"]);
    writer.apply(NOW, [on(A, 2, 2.0)]);
    assert_eq!(marks.take(), ["eds c", "eds c#1", "eds c#2"]);
    writer.apply(NOW, [on(A, 3, 2.0)]);
    let all = ["c", "c#1", "c#2", "c#3"];
    let expected: Vec<_> = ["cds", "eds"]
        .into_iter()
        .flat_map(|label| all.map(|name| format!("{label} {name}")))
        .collect();
    assert_eq!(marks.take(), expected);
}

#[test]
fn names_globs_and_other_spellings_are_told_under_the_name_that_was_asked_for() {
    let (locator, mut writer) = mk_locator();
    let d2_uri = ResourceType::D2Uri;
    let own = "xdstp:///indis.D2URI/c/http%3A%2F%2Fh%3A1%2F%7Ea";
    let other = "xdstp:///indis.D2URI/c/http%3A%2F%2Fh%3A1%2F~a";
    let interests = [
        own,
        other,
        "xdstp:///indis.D2URI/c/*",
        "xdstp:///indis.D2URI/d/*",
    ];
    let subscribed = interests.map(|name| {
        let marks = Arc::new(Marks::default());
        let interest = Interest::parse(name);
        let token = locator.subscribe(d2_uri, &interest, marks.clone());
        (interest, token, marks)
    });
    let taken = || subscribed.each_ref().map(|(_, _, marks)| marks.take());
    let told = |name: &str| vec![format!("d2_uri {name}")];
    writer.apply(NOW, [up("c", "http://h:1/~a")]);
    assert_eq!(taken(), [told(own), told(other), told(own), vec![]]);
    for (interest, token, _) in &subscribed {
        locator.unsubscribe(d2_uri, interest, *token);
    }
    writer.apply(NOW, [down("c", "http://h:1/~a")]);
    assert_eq!(taken(), [const { Vec::<String>::new() }; 4]);
    assert_eq!(locator.subscribers().count(d2_uri), 0);
}
