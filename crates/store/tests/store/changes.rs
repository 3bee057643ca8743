//! What a statement changes, and that nothing else is said to have changed.

#[cfg(test)]
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{
    cluster_name, define_cluster, define_service, down, mk_store, service_name, up, uri,
};
use waypost_core::{SourceSlot, Timestamp};
use waypost_store::{ClusterChange, Inspector, ServiceState, Store};

const NOW: Timestamp = Timestamp(1_000);

#[test]
fn two_writers_of_one_source_are_impossible() {
    let (store, _) = mk_store();
    let writer = store.writer(SourceSlot::Log).unwrap();
    let error = store.writer(SourceSlot::Log).unwrap_err();
    assert!(error.to_string().contains("log"), "{error}");
    assert!(store.writer(SourceSlot::ZooKeeper).is_ok());
    drop(writer);
    assert!(store.writer(SourceSlot::Log).is_ok());
}

#[test]
fn an_equal_value_changes_nothing_and_tells_nobody() {
    let (store, recorder) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    let batch = || {
        [
            up("c", "h", "h"),
            define_cluster("c", Some("50")),
            define_service("s", Some("c")),
        ]
    };
    assert!(!log.apply(NOW, batch()).is_empty());
    let stamp = store.find_stamp("c");
    recorder.take();
    assert!(log.apply(NOW, batch()).is_empty());
    assert!(
        log.apply(NOW, [down("c", "other"), down("d", "h")])
            .is_empty()
    );
    assert_eq!(store.find_stamp("c"), stamp);
    assert_eq!(store.find_stamp("d"), None);
    assert_eq!(recorder.take(), []);
}

thread_local! {
    static INSPECTED: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn a_heartbeat_is_not_even_looked_into() {
    let inspector = Inspector {
        instance: |value| {
            INSPECTED.set(INSPECTED.get() + 1);
            (crate::common::INSPECTOR.instance)(value)
        },
        ..crate::common::INSPECTOR
    };
    let store = Store::new(inspector, Arc::new(crate::common::Recorder::default()));
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.apply(NOW, [up("c", "h", "h")]);
    assert!(INSPECTED.take() > 0);
    log.apply(NOW, [up("c", "h", "h")]);
    assert_eq!(INSPECTED.take(), 0);
}

#[test]
fn a_batch_is_told_once_and_names_each_thing_once() {
    let (store, recorder) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    let batch = ["a", "b", "a"].map(|host| up("c", host, "h"));
    let changes = log.apply(NOW, batch);
    let expected = ClusterChange {
        existence: true,
        instances: true,
        visible: BTreeSet::from([uri("a"), uri("b")]),
        ..ClusterChange::default()
    };
    assert_eq!(changes.clusters, [(cluster_name("c"), expected)].into());
    assert_eq!(changes.services, [service_name("c")].into());
    assert_eq!(recorder.take(), [changes]);
}

#[test]
fn a_source_of_lower_priority_is_seen_once_the_higher_one_is_silent() {
    let (store, recorder) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    let mut zookeeper = store.writer(SourceSlot::ZooKeeper).unwrap();
    log.set_config_loaded();
    let served = || {
        store
            .find_visible_instance("c", uri("h").as_str())
            .map(|i| i.source)
    };

    zookeeper.apply(NOW, [up("c", "h", "h1")]);
    assert_eq!(served(), Some(SourceSlot::ZooKeeper));
    log.apply(NOW, [up("c", "h", "h2")]);
    assert_eq!(served(), Some(SourceSlot::Log));
    let both = [SourceSlot::Log, SourceSlot::ZooKeeper];
    assert_eq!(store.instance_sources("c", uri("h").as_str()), both);

    recorder.take();
    assert!(zookeeper.apply(NOW, [up("c", "h", "h3")]).is_empty());
    assert_eq!(recorder.take(), []);

    let changes = log.apply(NOW, [down("c", "h")]);
    assert_eq!(
        changes.clusters[&cluster_name("c")].visible,
        [uri("h")].into()
    );
    assert_eq!(served(), Some(SourceSlot::ZooKeeper));
    assert_eq!(store.removed_instances("c"), []);

    // The same content from a higher source is no change of what is served.
    assert!(log.apply(NOW, [up("c", "h", "h3")]).is_empty());
    assert_eq!(served(), Some(SourceSlot::Log));
}

#[test]
fn health_is_ignored_while_too_few_would_be_left_and_all_that_this_moves_is_told() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    let visible = || store.visible_uris("c");
    log.apply(NOW, ["a", "b", "c", "d"].map(|host| up("c", host, "h")));

    let changes = log.apply(NOW, [up("c", "a", "u"), up("c", "b", "d")]);
    assert_eq!(visible(), [uri("c"), uri("d")]);
    assert_eq!(
        changes.clusters[&cluster_name("c")].visible,
        [uri("a"), uri("b")].into()
    );

    // Two of four were enough, one of four is not: those that were hidden are back.
    let changes = log.apply(NOW, [up("c", "c", "u")]);
    assert_eq!(visible(), ["a", "b", "c", "d"].map(uri));
    let moved = ["a", "b", "c"].map(uri);
    assert_eq!(changes.clusters[&cluster_name("c")].visible, moved.into());
    assert!(store.find_cluster("c").unwrap().fail_open);
    assert_eq!(store.counts().fail_open_clusters, 1);

    // A change of one that is hidden before and after is no change for those who do not see it.
    log.apply(NOW, [define_cluster("c", Some("25"))]);
    assert_eq!(visible(), [uri("d")]);
    let changes = log.apply(NOW, [up("c", "a", "d")]);
    let change = &changes.clusters[&cluster_name("c")];
    assert!(change.instances && change.visible.is_empty());

    // The definition alone can turn it: 0 is never.
    let changes = log.apply(NOW, [define_cluster("c", Some("0")), up("c", "d", "u")]);
    assert_eq!(
        changes.clusters[&cluster_name("c")].visible,
        [uri("d")].into()
    );
    assert_eq!(visible(), []);
    let changes = log.apply(NOW, [define_cluster("c", None)]);
    assert_eq!(visible().len(), 4);
    assert_eq!(changes.clusters[&cluster_name("c")].visible.len(), 4);
}

#[test]
fn partitions_come_with_weights_or_the_definition_and_stay_while_the_cluster_does() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    let partitions = || store.d2_partitions("c");

    log.apply(NOW, [up("c", "a", "h")]);
    assert_eq!(partitions(), []);
    let changes = log.apply(NOW, [up("c", "b", "h3")]);
    let change = &changes.clusters[&cluster_name("c")];
    assert!(change.existence);
    assert_eq!(change.d2_partitions, [0, 3].into());
    assert_eq!(partitions(), [0, 3]);

    let changes = log.apply(NOW, [up("c", "b", "d3")]);
    assert_eq!(
        changes.clusters[&cluster_name("c")].d2_partitions,
        [3].into()
    );

    log.apply(NOW, [down("c", "b")]);
    assert_eq!(partitions(), [0, 3]);
    assert!(store.has_d2_partition("c", 3) && !store.has_d2_partition("c", 1));

    let changes = log.apply(NOW, [define_cluster("c", Some("50 2"))]);
    assert!(changes.clusters[&cluster_name("c")].existence);
    assert_eq!(partitions(), [0, 1, 3]);
    assert_eq!(store.d2_partitions("unknown"), []);
}

#[test]
fn services_lead_where_their_definition_says() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.apply(NOW, [define_service("s", Some("c"))]);
    assert_eq!(store.leads_to("s"), Some(cluster_name("c")));
    let Some(ServiceState::Defined { generation, .. }) = store.find_service("s") else {
        panic!("defined")
    };
    let changes = log.apply(NOW, [define_service("s", Some("d"))]);
    assert_eq!(changes.services, [service_name("s")].into());
    assert!(matches!(
        store.find_service("s"),
        Some(ServiceState::Defined { generation: later, .. }) if later > generation
    ));
    log.apply(NOW, [define_service("s", None)]);
    assert_eq!(store.find_service("s"), None);
    assert_eq!(store.service_names(), []);
    assert_eq!(store.removed_services(), [service_name("s")]);
}

#[test]
fn a_cluster_is_told_of_the_services_that_lead_to_it() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    let led_by = |cluster: &str| {
        let names = store.services_leading_to(cluster);
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let touched = |changes: &waypost_store::ChangeSet| {
        let touched = changes
            .clusters
            .iter()
            .filter(|(_, change)| change.services);
        touched
            .map(|(name, _)| name.to_string())
            .collect::<Vec<_>>()
    };
    // Before anything else is known of the cluster.
    let changes = log.apply(NOW, [define_service("t", Some("c"))]);
    assert_eq!(changes.clusters, [].into());
    assert_eq!(store.find_stamp("c"), None);
    log.apply(NOW, [up("c", "h", "h"), up("d", "h", "h")]);
    assert_eq!(led_by("c"), ["c", "t"]);

    let stamps = || ["c", "d"].map(|cluster| store.find_stamp(cluster).unwrap().services);
    let mut before = stamps();
    for (cluster, expected) in [
        (Some("c"), ["c"].as_slice()),
        (Some("d"), &["c", "d"]),
        (Some("d"), &[]),
        (None, &["d"]),
    ] {
        let changes = log.apply(NOW, [define_service("s", cluster)]);
        assert_eq!(touched(&changes), expected, "{cluster:?}");
        let after = stamps();
        let moved = ["c", "d"].into_iter().zip(before.iter().zip(after));
        let moved = moved.filter(|(_, (before, after))| *before != after);
        let moved: Vec<_> = moved.map(|(name, _)| name).collect();
        assert_eq!(moved, expected, "{cluster:?}");
        before = after;
    }
    log.apply(NOW, [define_service("c", Some("d"))]);
    assert_eq!(led_by("c"), ["t"]);
    assert_eq!(led_by("d"), ["c", "d"]);
}

#[test]
fn a_ban_changes_the_instances_for_those_who_do_not_see_to_it_themselves() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(NOW, [up("c", "h", "h"), define_cluster("c", Some("50 0"))]);
    for (document, instances) in [
        (Some("50 0 http://h:1"), true),
        (Some("60 0 http://h:1"), false),
        (Some("60 0 http://i:1"), true),
        (None, true),
    ] {
        let before = store.find_stamp("c").unwrap().instances;
        let changes = log.apply(NOW, [define_cluster("c", document)]);
        let change = &changes.clusters[&cluster_name("c")];
        assert_eq!(change.instances, instances, "{document:?}");
        // D2 clients are told the same instances.
        assert_eq!(change.visible, BTreeSet::new());
        let after = store.find_stamp("c").unwrap().instances;
        assert_eq!(before != after, instances, "{document:?}");
        let facts = store.find_cluster("c").unwrap().facts;
        let is_banned = document.is_some_and(|text| text.ends_with("h:1"));
        assert_eq!(facts.is_banned("http://h:1"), is_banned);
    }
}
