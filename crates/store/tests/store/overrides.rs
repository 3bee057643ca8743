//! What operators set stands above what instances announce.

use std::collections::BTreeSet;

use waypost_core::{Health, SourceSlot, Timestamp};
use waypost_store::ClusterChange;

use crate::common::{cluster_name, define_cluster, down, drain, mk_store, set, up, uri, weigh};

const NOW: Timestamp = Timestamp(0);

#[test]
fn an_override_stands_above_heartbeats_and_changes_until_it_is_cleared() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(NOW, ["a", "b", "c"].map(|host| up("c", host, "h")));
    let served = || {
        let cluster = store.find_cluster("c").unwrap();
        let instance = cluster.instances.into_iter().next().unwrap();
        (instance.health, instance.overridden.is_some())
    };
    log.apply(NOW, [set("c", "a", Some(drain()))]);
    assert_eq!(served(), (Health::Draining, true));
    assert_eq!(store.visible_uris("c"), [uri("b"), uri("c")]);
    assert_eq!(store.removed_instances("c"), [uri("a")]);
    log.apply(NOW, [up("c", "a", "h")]);
    log.apply(NOW, [up("c", "a", "h0")]);
    assert_eq!(served(), (Health::Draining, true));
    let announced = store.find_announced("c", uri("a").as_str());
    assert_eq!(announced.as_deref(), Some(&b"h0"[..]));
    log.apply(NOW, [down("c", "a")]);
    log.apply(NOW, [up("c", "a", "h")]);
    assert_eq!(
        served(),
        (Health::Draining, true),
        "a restart does not clear it"
    );
    log.apply(NOW, [set("c", "a", None)]);
    assert_eq!(served(), (Health::Healthy, false));
    assert_eq!(store.visible_count("c"), 3);
}

#[test]
fn setting_one_tells_of_that_instance_alone_and_setting_it_again_of_nothing() {
    let (store, recorder) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(NOW, ["a", "b"].map(|host| up("c", host, "h")));
    recorder.take();
    let stamp = store.find_stamp("c").unwrap();
    let changes = log.apply(NOW, [set("c", "a", Some(weigh()))]);
    let expected = ClusterChange {
        instances: true,
        visible: BTreeSet::from([uri("a")]),
        ..ClusterChange::default()
    };
    assert_eq!(changes.clusters, [(cluster_name("c"), expected)].into());
    assert_eq!(changes.services, BTreeSet::new());
    assert_ne!(store.find_stamp("c"), Some(stamp));
    assert!(log.apply(NOW, [set("c", "a", Some(weigh()))]).is_empty());
    assert!(
        log.apply(NOW, [up("c", "a", "h")]).is_empty(),
        "a heartbeat"
    );
    assert!(log.apply(NOW, [set("c", "z", Some(weigh()))]).is_empty());
    assert_eq!(recorder.take(), [changes]);
}

#[test]
fn one_for_an_instance_that_does_not_exist_waits_for_it_and_makes_nothing_exist() {
    let (store, recorder) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(NOW, [set("c", "a", Some(drain()))]);
    assert_eq!(recorder.take(), []);
    assert!(store.find_cluster("c").is_none());
    assert_eq!(store.cluster_names(), []);
    assert!(store.find_service("c").is_none());
    assert_eq!(store.overrides("c").len(), 1);
    assert_eq!(store.counts().overrides, 1);
    log.apply(NOW, [up("c", "a", "h"), up("c", "b", "h")]);
    assert_eq!(store.visible_uris("c"), [uri("b")]);
    log.apply(NOW, [set("c", "a", None)]);
    assert_eq!(store.visible_count("c"), 2);
    assert_eq!(store.counts().overrides, 0);
}

#[test]
fn one_outlives_its_cluster_and_names_that_left_are_still_counted() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(NOW, [define_cluster("c", Some("0")), up("c", "a", "h")]);
    log.apply(NOW, [set("c", "a", Some(drain())), down("c", "a")]);
    assert_eq!(store.counts().removed_instances, 1);
    let later = Timestamp(13 * 3600 * 1000);
    log.forget(later);
    log.apply(later, [define_cluster("c", None)]);
    assert!(store.find_cluster("c").is_none());
    assert_eq!(store.removed_clusters(), [cluster_name("c")]);
    assert_eq!(store.counts().removed_instances, 0);
    assert!(store.find_override("c", uri("a").as_str()).is_some());
    log.apply(later, [set("c", "a", None)]);
    assert_eq!(store.overrides("c"), []);
}

#[test]
fn draining_most_of_a_cluster_ignores_health_as_ever() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(NOW, ["a", "b"].map(|host| up("c", host, "h")));
    log.apply(NOW, [set("c", "a", Some(drain()))]);
    assert_eq!(store.visible_count("c"), 1);
    let changes = log.apply(NOW, [set("c", "b", Some(drain()))]);
    assert_eq!(store.visible_count("c"), 2, "fewer than half would be left");
    let change = &changes.clusters[&cluster_name("c")];
    assert_eq!(change.visible, BTreeSet::from([uri("a"), uri("b")]));
}
