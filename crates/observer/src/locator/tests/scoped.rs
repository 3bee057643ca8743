//! What an Envoy sees of the locator.

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterMessage;
use envoy_types::pb::envoy::config::core::v3::ConfigSource;
use envoy_types::pb::envoy::config::core::v3::api_config_source::ApiType;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration as RoutesMessage;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use prost::Message as _;
use waypost_core::ResourceType::{Cluster, ClusterLoadAssignment, Listener, RouteConfiguration};
use waypost_core::definition::DefinitionStat;
use waypost_core::{
    ApplicationName, CalleesDefinition, ClientKind, Delivery, Interest, ResourceLocator,
    ResourceType, Scope, ServiceName, StoreInput, Variant,
};

use super::{Locator, Marks, NOW, define_cluster, define_service, down, mk_locator, up};
use crate::render::testing::mk_service;

const A: &str = "http://10.0.0.1:1";
const OUTBOUND: &str = "waypost/outbound";

fn mk_scope(services: &[&str], outbound: Option<&str>) -> Arc<Scope> {
    Arc::new(Scope {
        services: services.iter().map(|name| Box::from(*name)).collect(),
        outbound: outbound.map(|address| address.parse().unwrap()),
        application: None,
    })
}

/// What an Envoy sees that names no services but an application.
fn view_of(locator: &Locator, application: &str) -> Arc<dyn ResourceLocator> {
    let scope = Arc::new(Scope {
        services: Vec::new(),
        application: Some(application.into()),
        outbound: Some("127.0.0.1:10000".parse().unwrap()),
    });
    locator.scoped(&scope, envoy(Delivery::Aggregated)).unwrap()
}

/// Says what an application calls; `None` that nobody says it any more.
fn define_callees(application: &str, services: Option<&[&str]>) -> StoreInput {
    let application = ApplicationName::parse(application).unwrap();
    let services = services.map(|services| services.iter().map(|s| ServiceName::parse(s).unwrap()));
    StoreInput::Callees {
        value: services.map(|services| CalleesDefinition {
            application: application.clone(),
            services: services.collect(),
            stat: DefinitionStat::default(),
            author: "".into(),
        }),
        application,
    }
}

/// Another definition that leads to the same cluster.
fn redefine_service(name: &str, cluster: &str) -> StoreInput {
    let definition = mk_service(name, cluster, r#"{"prioritizedSchemes":["https"]}"#);
    StoreInput::Service {
        name: definition.name.clone(),
        value: Some(definition),
    }
}

fn envoy(delivery: Delivery) -> Variant {
    Variant {
        client: ClientKind::Envoy,
        delivery,
        ..Variant::default()
    }
}

fn view(locator: &Locator, services: &[&str]) -> Arc<dyn ResourceLocator> {
    let scope = mk_scope(services, Some("127.0.0.1:10000"));
    locator.scoped(&scope, envoy(Delivery::Aggregated)).unwrap()
}

fn members(view: &dyn ResourceLocator, resource_type: ResourceType) -> Vec<String> {
    let names = view.members(resource_type, None, envoy(Delivery::Aggregated));
    names.iter().map(ToString::to_string).collect()
}

fn decode<M: prost::Message + Default>(
    view: &dyn ResourceLocator,
    resource_type: ResourceType,
    name: &str,
    delivery: Delivery,
) -> Option<M> {
    let encoded = view.find(resource_type, name, envoy(delivery))?;
    let mut response = DeltaDiscoveryResponse::decode(encoded.delta()).unwrap();
    let resource = response.resources.remove(0).resource.unwrap();
    Some(M::decode(&*resource.value).unwrap())
}

/// `SERVICE -> CLUSTER` of each virtual host.
fn routes(view: &dyn ResourceLocator) -> Vec<String> {
    use envoy_types::pb::envoy::config::route::v3::{
        route::Action, route_action::ClusterSpecifier,
    };
    let delivery = Delivery::Aggregated;
    let config: RoutesMessage = decode(view, RouteConfiguration, OUTBOUND, delivery).unwrap();
    let hosts = config.virtual_hosts.into_iter().map(|mut host| {
        let Some(Action::Route(action)) = host.routes.remove(0).action else {
            panic!("no route");
        };
        let Some(ClusterSpecifier::Cluster(cluster)) = action.cluster_specifier else {
            panic!("no cluster");
        };
        assert_eq!(
            host.domains,
            [host.name.clone(), format!("{}:*", host.name)]
        );
        format!("{} -> {cluster}", host.name)
    });
    hosts.collect()
}

#[test]
fn everything_is_what_it_named_and_nothing_else() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        [
            up("a", A),
            up("other", A),
            up("c", A),
            define_cluster("$cMaster", Some("/d2/clusters/c")),
            define_service("s", Some("c")),
            define_service("t", Some("c")),
            define_service("linked", Some("$cMaster")),
            define_service("early", Some("not-yet")),
        ],
    );
    let view = view(&locator, &["a", "early", "linked", "nobody", "s", "t"]);
    assert_eq!(members(&*view, Cluster), ["a", "c"]);
    assert_eq!(members(&*view, Listener), [OUTBOUND]);
    let expected = ["a -> a", "early -> not-yet", "s -> c", "t -> c"];
    assert_eq!(routes(&*view), expected);
    let variant = envoy(Delivery::Aggregated);
    assert!(view.is_member(Cluster, "c", variant));
    assert!(!view.is_member(Cluster, "other", variant));
    // By name it gets what anybody gets, but for the Listeners of gRPC.
    assert!(view.find(Cluster, "other", variant).is_some());
    assert!(view.find(ClusterLoadAssignment, "other", variant).is_some());
    assert!(view.find(RouteConfiguration, "other", variant).is_some());
    assert!(view.find(Listener, "a", variant).is_none());
    let server = "grpc/server?xds.resource.listening_address=127.0.0.1:1";
    assert!(view.find(Listener, server, variant).is_none());
}

#[test]
fn without_metadata_everything_is_nothing_and_there_is_no_listener() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("a", A)]);
    let view = locator.scoped(&mk_scope(&[], None), envoy(Delivery::Aggregated));
    let view = view.unwrap();
    assert!(members(&*view, Cluster).is_empty());
    assert!(members(&*view, Listener).is_empty());
    let variant = envoy(Delivery::Aggregated);
    assert!(view.find(Listener, OUTBOUND, variant).is_none());
    assert!(view.find(RouteConfiguration, OUTBOUND, variant).is_none());
    // Whoever is no Envoy sees everything.
    assert!(
        locator
            .scoped(&mk_scope(&[], None), Variant::default())
            .is_none()
    );
}

#[test]
fn only_what_touches_its_services_is_told() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("a", A), up("c", A), up("d", A), up("other", A)]);
    let view = view(&locator, &["a", "s"]);
    let marks = Arc::new(Marks::default());
    let mut tokens = Vec::new();
    let outbound = Interest::Explicit(OUTBOUND.into());
    for (resource_type, interest) in [
        (Cluster, Interest::Wildcard),
        (Listener, Interest::Wildcard),
        (RouteConfiguration, outbound),
    ] {
        let token = view.subscribe(resource_type, &interest, marks.clone());
        tokens.push((resource_type, interest, token));
    }
    let routes = &*format!("rds {OUTBOUND}");
    let steps = [
        (define_service("s", Some("c")), vec!["cds c", routes]),
        // Whether others get copies of its requests is in the routes.
        (define_cluster("c", Some("{}")), vec!["cds c", routes]),
        (
            define_service("s", Some("d")),
            vec!["cds c", "cds d", routes],
        ),
        // What it says is told in its cluster too.
        (redefine_service("s", "d"), vec!["cds d", routes]),
        (define_cluster("c", Some("{ }")), vec![]),
        (define_cluster("d", Some("{}")), vec!["cds d", routes]),
        (up("d", "http://10.0.0.2:1"), vec![]),
        (define_cluster("other", Some("{}")), vec![]),
        (up("new", A), vec![]),
        (define_service("s", None), vec!["cds d", routes]),
        (down("a", A), vec![]),
    ];
    for (step, (input, expected)) in steps.into_iter().enumerate() {
        writer.apply(NOW, [input]);
        let mut told = marks.take();
        told.dedup();
        assert_eq!(told, expected, "step {step}");
    }
    for (resource_type, interest, token) in tokens {
        view.unsubscribe(resource_type, &interest, token);
    }
    for resource_type in ResourceType::ALL {
        assert_eq!(locator.subscribers().count(resource_type), 0);
    }
}

#[test]
fn clusters_that_get_copies_of_requests_are_the_scopes_too() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        [up("c", A), up("dark", A), define_service("s", Some("c"))],
    );
    let view = view(&locator, &["s"]);
    let marks = Arc::new(Marks::default());
    view.subscribe(Cluster, &Interest::Wildcard, marks.clone());
    let copies = || {
        let config: Option<RoutesMessage> =
            decode(&*view, RouteConfiguration, OUTBOUND, Delivery::Aggregated);
        let host = config.unwrap().virtual_hosts.remove(0);
        host.routes.len() - 1
    };
    assert_eq!(
        (members(&*view, Cluster), copies()),
        (vec!["c".to_owned()], 0)
    );
    let mirrored = r#"{"darkClusters":{"dark":{"multiplier":1,"mirrored_by_callers":true}}}"#;
    writer.apply(NOW, [define_cluster("c", Some(mirrored))]);
    assert_eq!(marks.take(), ["cds c", "cds dark"]);
    assert_eq!(members(&*view, Cluster), ["c", "dark"]);
    assert!(view.is_member(Cluster, "dark", envoy(Delivery::Aggregated)));
    assert_eq!(copies(), 1);
    writer.apply(NOW, [define_cluster("dark", Some("{}"))]);
    assert_eq!(marks.take(), ["cds dark"]);
    writer.apply(NOW, [define_cluster("c", None)]);
    assert_eq!(marks.take(), ["cds c", "cds dark"]);
    assert_eq!(
        (members(&*view, Cluster), copies()),
        (vec!["c".to_owned()], 0)
    );
}

#[test]
fn clients_of_one_scope_share_what_is_encoded_and_it_changes_when_a_service_leads_elsewhere() {
    let (locator, mut writer) = mk_locator();
    writer.apply(
        NOW,
        [up("c", A), up("d", A), define_service("s", Some("c"))],
    );
    let (one, other) = (view(&locator, &["s"]), view(&locator, &["s"]));
    let before = locator.encodes();
    for view in [&one, &other] {
        for (resource_type, name) in [(Listener, OUTBOUND), (RouteConfiguration, OUTBOUND)] {
            let found = view.find(resource_type, name, envoy(Delivery::Aggregated));
            assert!(found.is_some());
        }
    }
    assert_eq!(locator.encodes() - before, 2);
    writer.apply(NOW, [define_service("s", Some("d"))]);
    assert_eq!(routes(&*one), ["s -> d"]);
    assert_eq!(members(&*other, Cluster), ["d"]);
}

#[test]
fn what_a_resource_refers_to_comes_over_streams_of_the_same_kind() {
    let (locator, mut writer) = mk_locator();
    writer.apply(NOW, [up("a", A)]);
    let source = |config: Option<ConfigSource>| match config.unwrap().config_source_specifier {
        Some(ConfigSourceSpecifier::Ads(_)) => None,
        Some(ConfigSourceSpecifier::ApiConfigSource(api)) => Some(api.api_type()),
        other => panic!("{other:?}"),
    };
    for (delivery, expected) in [
        (Delivery::Aggregated, None),
        (Delivery::PerTypeSotw, Some(ApiType::Grpc)),
        (Delivery::PerTypeDelta, Some(ApiType::DeltaGrpc)),
    ] {
        let scope = mk_scope(&["a"], Some("127.0.0.1:10000"));
        let view = locator.scoped(&scope, envoy(delivery)).unwrap();
        let cluster: ClusterMessage = decode(&*view, Cluster, "a", delivery).unwrap();
        let eds = cluster.eds_cluster_config.unwrap().eds_config;
        assert_eq!(source(eds), expected);
    }
    // gRPC takes nothing but its own stream, whatever stream it came on.
    let grpc = Variant {
        delivery: Delivery::PerTypeSotw,
        ..Variant::default()
    };
    let version = |variant| locator.find(Cluster, "a", variant).unwrap().version();
    assert_eq!(version(grpc), version(Variant::default()));
}

#[test]
fn who_names_an_application_sees_what_that_calls_and_hears_when_it_calls_others() {
    let (locator, mut writer) = mk_locator();
    let view = view_of(&locator, "app");
    let marks = Arc::new(Marks::default());
    for resource_type in [Cluster, RouteConfiguration] {
        view.subscribe(resource_type, &Interest::Wildcard, marks.clone());
    }
    let routes_only = vec!["rds waypost/outbound"];
    let with = |clusters: &[&'static str]| [clusters, &["rds waypost/outbound"]].concat();
    let callees = |services: &[&str]| define_callees("app", Some(services));
    type Step<'a> = (&'a str, StoreInput, Vec<&'a str>, &'a [&'a str]);
    let steps: [Step<'_>; 9] = [
        ("somebody else's service", up("a", A), vec![], &[]),
        (
            "the first callees",
            callees(&["a", "b"]),
            with(&["cds a"]),
            &["a"],
        ),
        (
            "another's",
            define_callees("other", Some(&["z"])),
            vec![],
            &["a"],
        ),
        (
            "a callee appears",
            up("b", A),
            with(&["cds b"]),
            &["a", "b"],
        ),
        ("no callee appears", up("c", A), vec![], &["a", "b"]),
        (
            "one for another",
            callees(&["c", "b"]),
            with(&["cds a", "cds c"]),
            &["b", "c"],
        ),
        (
            "in another order",
            callees(&["b", "c"]),
            routes_only.clone(),
            &["b", "c"],
        ),
        (
            "a callee leads elsewhere",
            define_service("b", Some("a")),
            with(&["cds a", "cds b"]),
            &["a", "c"],
        ),
        (
            "nobody says it any more",
            define_callees("app", None),
            with(&["cds a", "cds c"]),
            &[],
        ),
    ];
    for (what, input, mut told, clusters) in steps {
        writer.apply(NOW, [input]);
        let mut heard = marks.take();
        heard.sort_unstable();
        heard.dedup();
        told.sort_unstable();
        assert_eq!(heard, told, "{what}");
        assert_eq!(members(&*view, Cluster), clusters, "{what}");
        let cluster_of = |route: &String| route.rsplit(' ').next().unwrap().to_owned();
        let mut routed: Vec<_> = routes(&*view).iter().map(cluster_of).collect();
        routed.sort_unstable();
        assert_eq!(routed, clusters, "{what}");
    }
    assert!(!view.is_member(Cluster, "a", envoy(Delivery::Aggregated)));
}
