//! Clusters and services without a definition, and the memory of what left.

#[cfg(test)]
use crate::common::{
    cluster_name, define_cluster, define_service, down, mk_store, service_name, up, uri,
};
use waypost_core::{DefinitionKey, InstanceKey, SourceSlot, Timestamp};
use waypost_store::ServiceState;
use waypost_store::limits::{REMEMBER, REMOVED_PER_CLUSTER_MAX};

const START: Timestamp = Timestamp(1_000_000);

fn after(duration: std::time::Duration, more_ms: i64) -> Timestamp {
    Timestamp(START.0 + waypost_core::time::millis(duration) + more_ms)
}

#[test]
fn an_announced_cluster_is_served_only_once_definitions_are_all_there() {
    let (store, recorder) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.apply(
        START,
        [
            up("c", "h", "h"),
            up("d", "h", "h"),
            define_cluster("d", Some("50")),
        ],
    );
    assert!(store.find_cluster("c").is_none());
    assert!(
        store
            .find_visible_instance("c", uri("h").as_str())
            .is_none()
    );
    assert!(store.find_service("c").is_none());
    assert_eq!(store.cluster_names(), [cluster_name("d")]);
    assert_eq!(store.service_names(), []);

    recorder.take();
    let changes = log.set_config_loaded();
    assert!(store.find_cluster("c").unwrap().definition.is_none());
    assert_eq!(store.cluster_names(), ["c", "d"].map(cluster_name));
    let implicit = |name| ServiceState::Implicit {
        cluster: cluster_name(name),
    };
    assert_eq!(store.find_service("c"), Some(implicit("c")));
    assert_eq!(store.service_names(), ["c", "d"].map(service_name));
    assert_eq!(changes.services, ["c", "d"].map(service_name).into());
    assert!(changes.clusters[&cluster_name("c")].existence);
    assert_eq!(changes.clusters.len(), 1);
    assert_eq!(recorder.take(), [changes]);
    assert!(log.set_config_loaded().is_empty());
}

#[test]
fn a_definition_replaces_the_implicit_form_and_gives_it_back_without_a_gap() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(START, [up("c", "h", "h")]);
    log.apply(
        START,
        [
            define_cluster("c", Some("50")),
            define_service("c", Some("other")),
        ],
    );
    assert!(store.find_cluster("c").unwrap().definition.is_some());
    assert_eq!(store.leads_to("c"), Some(cluster_name("other")));
    log.apply(START, [define_service("c", None)]);
    assert_eq!(store.leads_to("c"), Some(cluster_name("c")));
    assert_eq!(store.removed_services(), []);
    log.apply(START, [define_cluster("c", None)]);
    assert!(store.find_cluster("c").unwrap().definition.is_none());
    assert_eq!(store.visible_count("c"), 1);
    assert_eq!(store.removed_clusters(), []);
}

#[test]
fn an_implicit_cluster_outlives_its_last_instance_for_a_while() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(START, [up("c", "h", "h")]);
    let changes = log.apply(START, [down("c", "h")]);
    assert!(!changes.clusters[&cluster_name("c")].existence);
    assert!(store.find_cluster("c").unwrap().instances.is_empty());
    assert!(store.find_service("c").is_some());

    assert!(log.forget(after(REMEMBER, -1)).is_empty());
    assert_eq!(store.removed_instances("c"), [uri("h")]);
    // A clock that goes back hastens nothing.
    assert!(log.forget(Timestamp(0)).is_empty());

    let changes = log.forget(after(REMEMBER, 0));
    assert!(changes.clusters[&cluster_name("c")].existence);
    assert_eq!(changes.services, [service_name("c")].into());
    assert!(store.find_cluster("c").is_none() && store.find_service("c").is_none());
    assert_eq!(store.removed_instances("c"), []);
    assert_eq!(store.counts(), waypost_store::StoreCounts::default());
    assert_eq!(store.removed_clusters(), [cluster_name("c")]);
    assert_eq!(store.removed_services(), [service_name("c")]);
    assert!(store.is_removed_cluster("c"));

    let changes = log.forget(after(REMEMBER * 2, 0));
    assert!(changes.clusters[&cluster_name("c")].existence);
    assert_eq!(store.removed_clusters(), []);
    assert_eq!(store.removed_services(), []);
}

#[test]
fn what_left_before_anybody_looked_is_remembered_and_its_cluster_is_empty_and_not_unknown() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    let key = |cluster, host| InstanceKey {
        cluster: cluster_name(cluster),
        uri: uri(host),
    };
    log.apply(START, [up("full", "there", "h")]);
    let long_ago = START.minus(REMEMBER);
    log.remember_absent([
        (START, key("c", "h")),
        // Read from another partition, hence not in order.
        (long_ago, key("c", "i")),
        (long_ago, key("old", "h")),
        (START, key("full", "h")),
        (START, key("full", "there")),
    ]);
    log.forget(START);
    log.set_config_loaded();
    assert_eq!(store.removed_instances("full"), [uri("h")]);
    assert_eq!(store.visible_uris("full"), [uri("there")]);
    assert!(store.find_cluster("c").unwrap().instances.is_empty());
    assert!(store.find_service("c").is_some());
    assert!(store.removed_instances("c").contains(&uri("h")));
    assert!(store.find_cluster("old").is_none(), "too long ago");
    assert_eq!(store.counts().removed_instances, 3);

    // Said again, it is no news; what comes back is there.
    assert!(log.remember_absent([(START, key("c", "h"))]).is_empty());
    log.apply(START, [up("c", "h", "h")]);
    assert!(!store.removed_instances("c").contains(&uri("h")));
    assert_eq!(store.visible_uris("c"), [uri("h")]);

    log.apply(START, [down("c", "h")]);
    let changes = log.forget(after(REMEMBER, 0));
    assert!(changes.clusters[&cluster_name("c")].existence);
    assert!(store.find_cluster("c").is_none());
}

#[test]
fn a_definition_that_was_deleted_before_anybody_looked_is_remembered_unless_it_is_there() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.apply(
        START,
        [
            up("announced", "h", "h"),
            define_service("there", Some("c")),
        ],
    );
    for name in ["gone", "announced"] {
        log.remember_absent_definition(START, DefinitionKey::Cluster(cluster_name(name)));
    }
    for name in ["gone", "announced", "there"] {
        log.remember_absent_definition(START, DefinitionKey::Service(service_name(name)));
    }
    assert_eq!(store.removed_clusters(), [cluster_name("gone")]);
    assert_eq!(store.removed_services(), [service_name("gone")]);
    log.apply(START, [up("gone", "h", "h")]);
    assert_eq!(store.removed_clusters(), []);
    assert_eq!(store.removed_services(), []);
}

#[test]
fn a_deleted_definition_without_instances_leaves_at_once_and_is_remembered() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(START, [define_cluster("c", Some("50"))]);
    assert!(store.find_service("c").is_none());
    let changes = log.apply(START, [define_cluster("c", None)]);
    assert!(changes.clusters[&cluster_name("c")].existence);
    assert!(store.find_cluster("c").is_none());
    assert!(store.is_removed_cluster("c"));
    log.apply(START, [up("c", "h", "h")]);
    assert!(!store.is_removed_cluster("c"));
}

#[test]
fn instances_that_left_are_remembered_until_they_are_back() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    log.apply(START, ["a", "b", "c"].map(|host| up("c", host, "h")));
    log.apply(START, [down("c", "b"), down("c", "a")]);
    assert_eq!(store.removed_instances("c"), [uri("a"), uri("b")]);
    assert_eq!(store.counts().removed_instances, 2);
    log.apply(START, [up("c", "a", "h")]);
    assert_eq!(store.removed_instances("c"), [uri("b")]);
    // One that is hidden left as well, for those who do not see it.
    log.apply(START, [up("c", "a", "u")]);
    assert_eq!(store.removed_instances("c"), [uri("a"), uri("b")]);
    assert_eq!(store.clusters_with_removed_instances(), [cluster_name("c")]);
    assert_eq!(store.counts().removed_instances, 1);
    log.forget(after(REMEMBER, 0));
    assert_eq!(store.removed_instances("c"), [uri("a")]);
    assert_eq!(store.counts().removed_instances, 0);
}

#[test]
fn a_cluster_remembers_so_many_and_the_oldest_go_first() {
    let (store, _) = mk_store();
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    let hosts: Vec<_> = (0..=REMOVED_PER_CLUSTER_MAX)
        .map(|n| format!("h{n:05}"))
        .collect();
    log.apply(START, hosts.iter().map(|host| up("c", host, "h")));
    log.apply(START, hosts.iter().map(|host| down("c", host)));
    let removed = store.removed_instances("c");
    assert_eq!(removed.len(), REMOVED_PER_CLUSTER_MAX);
    assert_eq!(removed.first(), Some(&uri("h00001")));
    assert_eq!(store.counts().removed_instances, REMOVED_PER_CLUSTER_MAX);
}

#[test]
fn all_clusters_together_remember_so_many_and_who_forgets_is_who_lost_last() {
    let recorder = std::sync::Arc::new(crate::common::Recorder::default());
    let store = waypost_store::Store::with_memory(crate::common::INSPECTOR, recorder, 3);
    let mut log = store.writer(SourceSlot::Log).unwrap();
    log.set_config_loaded();
    for cluster in ["a", "b"] {
        log.apply(START, ["1", "2", "3"].map(|host| up(cluster, host, "h")));
    }
    log.apply(START, ["1", "2"].map(|host| down("a", host)));
    log.apply(START, ["1", "2", "3"].map(|host| down("b", host)));
    assert_eq!(store.removed_instances("a"), ["1", "2"].map(uri));
    assert_eq!(store.removed_instances("b"), ["3"].map(uri));
    assert_eq!(store.counts().removed_instances, 3);
    log.apply(START, [up("b", "3", "h"), down("a", "3")]);
    assert_eq!(store.removed_instances("a"), ["1", "2", "3"].map(uri));
    log.forget(after(REMEMBER, 0));
    assert_eq!(store.counts().removed_instances, 0);
}
