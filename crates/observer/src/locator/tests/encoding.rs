//! Encoded once per version and variant, and not more often.

use std::collections::HashSet;
use std::sync::{Arc, Barrier};

use parking_lot::Mutex;
use waypost_core::ResourceType::{
    Cluster, ClusterLoadAssignment, D2Uri, D2UriMap, Listener, RouteConfiguration,
};
use waypost_core::{
    AddressFamily, Announcement, ClientKind, Health, Interest, ResourceLocator as _, ResourceName,
    ResourceType, ResourceVersion, StoreInput, Subscriber, Timestamp, Variant,
};

use super::super::Locator;
use super::super::cache::{Cache, Source};
use super::{NOW, announce, define_cluster, define_service, down, mk_locator, up};
use crate::render::Rendered;
use crate::render::testing::{mk_announcement, mk_service};

#[test]
fn a_resource_is_encoded_once_however_many_ask() {
    let (locator, mut writer) = mk_locator();
    let inputs = (0..1000_u32).map(|n| up("c", &format!("http://10.0.{}.{}:1", n / 256, n % 256)));
    writer.apply(NOW, inputs);
    let ask = |resource_type, name: &str| {
        locator
            .find(resource_type, name, Variant::default())
            .unwrap()
            .version()
    };
    let encodes = |work: &dyn Fn()| {
        let before = locator.encodes();
        work();
        locator.encodes() - before
    };
    let everybody = || {
        for _ in 0..100 {
            ask(D2UriMap, "/d2/uris/c");
            ask(ClusterLoadAssignment, "c");
        }
    };
    assert_eq!(encodes(&everybody), 2);
    assert_eq!(encodes(&everybody), 0);
    let members = locator.members(D2Uri, None, Variant::default());
    let ask_members = || {
        for name in &members {
            ask(D2Uri, name);
        }
    };
    assert_eq!(encodes(&ask_members), 1000);

    let changed = Announcement {
        origin: Timestamp(1_800_000_000_000),
        ..mk_announcement("c", "http://10.0.0.7:1")
    };
    let before = (ask(D2UriMap, "/d2/uris/c"), ask(ClusterLoadAssignment, "c"));
    writer.apply(NOW, [announce(&changed), up("other", "http://10.0.0.7:1")]);
    assert_eq!(encodes(&everybody), 2);
    assert_eq!(encodes(&ask_members), 1);
    assert_ne!(ask(D2UriMap, "/d2/uris/c"), before.0);
    // Where nothing that is served is different, the version is the same.
    assert_eq!(ask(ClusterLoadAssignment, "c"), before.1);

    // A heartbeat.
    writer.apply(NOW, [announce(&changed)]);
    assert_eq!(encodes(&everybody) + encodes(&ask_members), 0);
}

#[test]
fn of_many_who_ask_at_once_one_encodes() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        (0..200).map(|n| up("c", &format!("http://10.0.0.{n}:1"))),
    );
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                locator.find(D2UriMap, "/d2/uris/c", Variant::default())
            });
        }
    });
    assert_eq!(locator.encodes(), 1);
}

#[test]
fn variants_share_an_encoding_where_they_do_not_differ() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", "http://10.0.0.1:1")]);
    let families = [AddressFamily::V4, AddressFamily::V6, AddressFamily::Both];
    let clients = [ClientKind::Grpc, ClientKind::Envoy, ClientKind::D2];
    let cases = [
        (Listener, "c", 1),
        (RouteConfiguration, "c", 1),
        // gRPC and D2 share, Envoy has its own.
        (Cluster, "c", 2),
        (D2UriMap, "/d2/uris/c", 1),
        // The same, and three families each.
        (ClusterLoadAssignment, "c", 6),
    ];
    for (resource_type, name, expected) in cases {
        let before = locator.encodes();
        for addresses in families {
            for client in clients {
                let variant = Variant {
                    addresses,
                    client,
                    ..Variant::default()
                };
                locator.find(resource_type, name, variant).unwrap();
            }
        }
        assert_eq!(locator.encodes() - before, expected, "{resource_type:?}");
    }
}

#[test]
fn changes_of_endpoints_never_change_what_routes_are_made_of() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        [define_service("s", Some("c")), up("c", "http://10.0.0.1:1")],
    );
    let versions = || {
        [
            (Listener, "s"),
            (RouteConfiguration, "s"),
            (Cluster, "c"),
            (Listener, "c"),
        ]
        .map(|(resource_type, name)| {
            let found = locator.find(resource_type, name, Variant::default());
            found.unwrap().version()
        })
    };
    let first = versions();
    for n in 2..200 {
        let health = [Health::Healthy, Health::Unhealthy][n % 2];
        let announcement = Announcement {
            health,
            ..mk_announcement("c", &format!("http://10.0.0.{n}:1"))
        };
        writer.apply(NOW, [announce(&announcement)]);
        writer.apply(NOW, [down("c", &format!("http://10.0.0.{}:1", n - 1))]);
        assert_eq!(versions(), first);
    }
    // Nor does a definition that says nothing to them.
    writer.apply(NOW, [define_cluster("c", Some("{}"))]);
    assert_eq!(versions(), first);
}

#[test]
fn a_cluster_is_made_anew_when_a_service_that_leads_to_it_changes_and_nothing_else_is() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        ["c", "d"].map(|cluster| up(cluster, "http://10.0.0.1:1")),
    );
    let find = |resource_type, name: &str| {
        let found = locator.find(resource_type, name, Variant::default());
        found.unwrap().version()
    };
    let versions = || ["c", "d"].map(|name| find(Cluster, name));
    let others = || {
        find(ClusterLoadAssignment, "c");
        find(D2UriMap, "/d2/uris/c");
        find(ResourceType::D2Node, "/d2/clusters/c");
    };
    let plain = versions();
    others();
    let define = |writer: &mut waypost_store::Writer, cluster: Option<&str>| {
        let mut definition = mk_service("s", cluster.unwrap_or("c"), BOUNDED);
        definition.stat.modified = NOW;
        let value = cluster.map(|_| definition);
        let name = waypost_core::ServiceName::parse("s").unwrap();
        writer.apply(NOW, [StoreInput::Service { name, value }]);
    };
    define(&mut writer, Some("c"));
    let [bounded, d] = versions();
    assert_ne!(bounded, plain[0]);
    assert_eq!(d, plain[1]);
    define(&mut writer, Some("d"));
    let [c, bounded] = versions();
    assert_eq!(c, plain[0]);
    assert_ne!(bounded, plain[1]);
    define(&mut writer, None);
    assert_eq!(versions(), plain);
    let encodes = locator.encodes();
    others();
    assert_eq!(locator.encodes(), encodes);
}

/// A service that bounds requests to its cluster.
const BOUNDED: &str = r#"{"transportClientProperties":{"http.maxConcurrentConnections":7}}"#;

#[test]
fn the_time_of_origin_is_that_of_the_news_and_none_where_something_left() {
    let (locator, mut writer) = mk_locator();
    let at = |uri: &str, origin| {
        announce(&Announcement {
            origin: Timestamp(origin),
            ..mk_announcement("c", uri)
        })
    };
    let origin = || {
        locator
            .find(D2UriMap, "/d2/uris/c", Variant::default())
            .unwrap()
            .origin()
    };
    writer.apply(
        NOW,
        [at("http://10.0.0.1:1", 100), at("http://10.0.0.2:1", 200)],
    );
    assert_eq!(origin(), Timestamp(200));
    writer.apply(NOW, [at("http://10.0.0.3:1", 300)]);
    assert_eq!(origin(), Timestamp(300));
    writer.apply(NOW, [down("c", "http://10.0.0.1:1")]);
    assert_eq!(origin(), Timestamp::default());
}

#[test]
fn what_is_kept_is_bounded_and_what_is_in_use_stays() {
    const BYTES_MAX: usize = 4 * 1024 * 1024;
    let cache = Cache::with_bytes_max(BYTES_MAX);
    let ask = |name: &str| {
        let render = || {
            let rendered = Rendered {
                value: vec![7; 1000],
                origin: NOW,
            };
            Some((rendered, Source::Number(1)))
        };
        let key = (ResourceType::D2Uri, name, Variant::default());
        cache
            .get_or_encode(key, || Some(Source::Number(1)), render)
            .unwrap();
    };
    for n in 0..20_000 {
        ask("hot");
        ask(&format!("cold {n}"));
        assert!(
            cache.len_bytes() <= BYTES_MAX + 2_000,
            "{}",
            cache.len_bytes()
        );
    }
    assert_eq!(cache.encodes(), 20_001);
    assert!(cache.len_bytes() > BYTES_MAX / 4);
}

#[test]
fn what_does_not_exist_is_not_kept() {
    let (locator, _writer) = mk_locator();
    for n in 0..100 {
        let name = format!("c{n}");
        assert!(locator.find(Cluster, &name, Variant::default()).is_none());
    }
    assert_eq!((locator.encodes(), locator.cache_bytes()), (0, 0));
}

#[test]
fn whoever_is_told_of_a_change_finds_it_whatever_its_thread_found_before() {
    /// Looks a resource up when it is told of it.
    struct Asks(Locator, Mutex<Vec<ResourceVersion>>);
    impl Subscriber for Asks {
        fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
            let found = self.0.find(resource_type, name, Variant::default());
            self.1.lock().push(found.unwrap().version());
        }
    }
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("c", "http://10.0.0.1:1")]);
    let asks = Arc::new(Asks(locator.clone(), Mutex::default()));
    let uri = locator.members(D2Uri, None, Variant::default()).remove(0);
    for (resource_type, name) in [
        (D2UriMap, "/d2/uris/c"),
        (ClusterLoadAssignment, "c"),
        (D2Uri, &*uri),
    ] {
        locator
            .find(resource_type, name, Variant::default())
            .unwrap();
        let interest = Interest::parse(name);
        locator.subscribe(resource_type, &interest, asks.clone());
    }
    let mut versions = HashSet::new();
    for port in 2..5_u16 {
        let changed = Announcement {
            weights: [(0, f64::from(port))].into(),
            ..mk_announcement("c", "http://10.0.0.1:1")
        };
        writer.apply(NOW, [announce(&changed)]);
        versions.extend(asks.1.lock().drain(..));
    }
    assert_eq!(versions.len(), 9, "{versions:?}");
}
