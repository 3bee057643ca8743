//! What people are shown.

use waypost_core::{Announcement, Health, SourceSlot};

use super::{NOW, announce, define_cluster, define_service, mk_locator, up};
use crate::render::report;
use crate::render::testing::mk_announcement;

#[test]
fn a_cluster_is_reported_with_where_its_facts_come_from_and_what_is_wrong_with_it() {
    let (locator, mut log) = mk_locator();
    let store = locator.store();
    let mut zookeeper = store.writer(SourceSlot::ZooKeeper).unwrap();
    zookeeper.apply(
        NOW,
        [up("c", "http://10.0.0.1:1"), up("c", "http://host:1")],
    );
    let sick = |uri: &str| {
        announce(&Announcement {
            health: Health::Unhealthy,
            ..mk_announcement("c", uri)
        })
    };
    log.apply(
        NOW,
        [up("c", "http://10.0.0.1:1"), sick("http://10.0.0.3:1")],
    );

    let found = report::find_cluster(store, "c").unwrap();
    assert!(found.is_implicit() && !found.is_fail_open);
    assert_eq!(found.sources, []);
    assert_eq!(
        found
            .services
            .iter()
            .map(|s| s.as_str())
            .collect::<Vec<_>>(),
        ["c"]
    );
    assert_eq!((found.health.healthy, found.health.unhealthy), (2, 1));
    let both = vec![SourceSlot::Log, SourceSlot::ZooKeeper];
    let rows: Vec<_> = found
        .instances
        .iter()
        .map(|i| (i.announcement.uri.as_str(), i.sources.clone(), i.is_visible))
        .collect();
    let expected = [
        ("http://10.0.0.1:1", both, true),
        ("http://10.0.0.3:1", vec![SourceSlot::Log], false),
        ("http://host:1", vec![SourceSlot::ZooKeeper], true),
    ];
    assert_eq!(rows, expected);
    let unresolved: Vec<_> = found
        .unresolved()
        .map(|i| i.announcement.uri.as_str())
        .collect();
    assert_eq!(unresolved, ["http://host:1"]);

    log.apply(
        NOW,
        [define_cluster("c", Some(r#"{"min_healthy_percent":90}"#))],
    );
    let found = report::find_cluster(store, "c").unwrap();
    assert!(found.is_fail_open && !found.is_implicit());
    assert_eq!(
        (found.min_healthy_percent, found.sources),
        (90, vec![SourceSlot::Log])
    );
    assert!(report::find_cluster(store, "d").is_none());
}

#[test]
fn a_service_is_reported_with_the_cluster_that_it_leads_to() {
    let (locator, mut log) = mk_locator();
    let store = locator.store();
    log.apply(
        NOW,
        [define_service("s", Some("c")), up("c", "http://10.0.0.1:1")],
    );
    let names = store.service_names();
    let rows: Vec<_> = names
        .iter()
        .map(|name| report::find_service(store, name).unwrap())
        .map(|r| {
            (
                r.name.to_string(),
                r.cluster.to_string(),
                r.definition.is_some(),
                r.sources,
            )
        })
        .collect();
    let row =
        |name: &str, is_defined, sources| (name.to_owned(), "c".to_owned(), is_defined, sources);
    assert_eq!(
        rows,
        [
            row("c", false, vec![]),
            row("s", true, vec![SourceSlot::Log])
        ]
    );
    assert_eq!(store.services_leading_to("c"), names);
}
