//! What of a service's properties is in its routes.

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as route;
use prost::Message as _;
use serde_json::{Value, json};
use waypost_core::definition::DefinitionStat;
use waypost_core::{ResourceType, SourceSlot};
use waypost_store::ServiceState;

use crate::render::outbound::Routed;
use crate::render::properties::ClusterProperties;
use crate::render::testing::{mk_cluster, mk_service};
use crate::render::{checker, envoy, outbound};

fn state(path: &str, document: &Value) -> ServiceState {
    let mut definition = mk_service("s", "c", &document.to_string());
    path.clone_into(&mut definition.path);
    ServiceState::Defined {
        source: SourceSlot::Log,
        definition: Arc::new(definition),
        generation: 1,
    }
}

fn actions(config: route::RouteConfiguration) -> Vec<(bool, route::RouteAction)> {
    let routes = config
        .virtual_hosts
        .into_iter()
        .flat_map(|host| host.routes);
    let action = |route: route::Route| match route.action {
        Some(route::route::Action::Route(action)) => {
            (route.r#match.unwrap().grpc.is_some(), action)
        }
        other => panic!("{other:?}"),
    };
    routes.map(action).collect()
}

/// What an Envoy does with requests to the service, those of gRPC apart if that differs.
fn of_envoy(path: &str, document: &Value) -> Vec<(bool, route::RouteAction)> {
    let rendered = outbound::routes([Routed {
        name: "s",
        service: &state(path, document),
        mirrors: Vec::new(),
    }]);
    actions(route::RouteConfiguration::decode(&rendered.value[..]).unwrap())
}

fn of_grpc(path: &str, document: &Value) -> route::RouteAction {
    let rendered = envoy::route_configuration("s", &state(path, document)).unwrap();
    let resource_type = ResourceType::RouteConfiguration;
    assert_eq!(checker::refusal(resource_type, "s", &rendered.value), None);
    let config = route::RouteConfiguration::decode(&rendered.value[..]).unwrap();
    actions(config).remove(0).1
}

#[test]
fn a_request_may_take_as_long_as_its_service_says() {
    let cases = [
        (json!("800"), 800),
        (json!(2500), 2500),
        (json!("soon"), 0),
        (json!(-1), 0),
        (json!(1e12), 0),
    ];
    for (timeout, millis) in cases {
        let document = json!({ "transportClientProperties": { "http.requestTimeout": timeout } });
        let read = |d: envoy_types::pb::google::protobuf::Duration| {
            d.seconds * 1000 + i64::from(d.nanos) / 1_000_000
        };
        let (_, action) = of_envoy("", &document).remove(0);
        // Zero is no limit: Envoy's default would be 15 s.
        assert_eq!(read(action.timeout.unwrap()), millis, "{document}");
        let max = of_grpc("", &document).max_stream_duration;
        let max = max.and_then(|max| max.max_stream_duration).map(read);
        assert_eq!(max, (millis > 0).then_some(millis), "{document}");
    }
}

#[test]
fn a_service_that_wants_no_retries_has_none() {
    for (ratio, retried) in [(json!(0), false), (json!("0.0"), false), (json!(0.1), true)] {
        let document =
            json!({ "transportClientProperties": { "http.maxClientRequestRetryRatio": ratio } });
        let (_, action) = of_envoy("", &document).remove(0);
        assert_eq!(action.retry_policy.is_some(), retried, "{document}");
        // gRPC tries again by itself where no server has seen the call.
        assert_eq!(of_grpc("", &document).retry_policy, None);
    }
}

#[test]
fn a_services_path_is_put_before_that_of_requests_but_not_before_a_method_of_grpc() {
    for (path, rewritten) in [
        ("/profile", "/profile/"),
        ("/profile/v2/", "/profile/v2/"),
        ("profile", "/profile/"),
    ] {
        let shown: Vec<_> = of_envoy(path, &json!({}))
            .into_iter()
            .map(|(is_grpc, action)| (is_grpc, action.prefix_rewrite))
            .collect();
        assert_eq!(
            shown,
            [(true, String::new()), (false, rewritten.to_owned())]
        );
        assert_eq!(of_grpc(path, &json!({})).prefix_rewrite, "");
    }
    for path in ["", "/", "/a?b", "/a b"] {
        let [(false, action)] = &of_envoy(path, &json!({}))[..] else {
            panic!("{path}: more than one route");
        };
        assert_eq!(action.prefix_rewrite, "", "{path}");
    }
}

#[test]
fn requests_are_told_apart_by_a_header_or_a_part_of_their_path() {
    use route::route_action::hash_policy::PolicySpecifier;
    let show = |action: &route::RouteAction| {
        let policies = action.hash_policy.iter().map(|policy| {
            assert!(policy.terminal);
            let Some(PolicySpecifier::Header(header)) = &policy.policy_specifier else {
                panic!("{policy:?}");
            };
            let rewrite = header.regex_rewrite.as_ref().map_or(String::new(), |r| {
                format!(" {} {}", r.pattern.as_ref().unwrap().regex, r.substitution)
            });
            format!("{}{rewrite}", header.header_name)
        });
        policies.collect::<Vec<_>>()
    };
    let document = |regexes: Value| {
        json!({
            "hash_header": "X-Member",
            "loadBalancerStrategyProperties": {
                "http.loadBalancer.hashMethod": "uriRegex",
                "http.loadBalancer.hashConfig": { "regexes": regexes },
            },
        })
    };
    let both = document(json!([r"[?&]id=(\d+)", "/p/([^/]+)"]));
    let expected = [
        "x-member",
        r":path ^.*?(?:(?:[?&]id=(\d+))|(?:/p/([^/]+))).*$ \1\2",
    ];
    assert_eq!(show(&of_envoy("", &both)[0].1), expected);
    assert_eq!(show(&of_grpc("", &both)), ["x-member"]);
    // One expression that an Envoy cannot read would cost it all routes.
    for regex in [
        "no group",
        "two (groups) (here)",
        "unclosed (group",
        "(?i)(flags)",
        "(?<name>x)",
        "(look)(?=ahead)",
        r"(\w)\1",
        r"(\p{Alpha})",
        "(a*+)",
        "(a{2}{3})",
        "(a{4000})",
        "((?:a{40}){40})",
        "([^/]{40})",
        "([à-ü])",
        "([^/]{40})",
        "([à-ü])",
        "([a-z&&[^b]])",
        "d2://s/(.*)",
    ] {
        let shown = show(&of_envoy("", &document(json!([regex])))[0].1);
        assert_eq!(shown, ["x-member"], "{regex}");
    }
    // An Envoy bounds the size of all of them together.
    let many = document(json!(vec!["/a/path/of/some/length/(x)"; 4]));
    assert_eq!(show(&of_envoy("", &many)[0].1), ["x-member"]);
    for regex in [
        "(a??)",
        "([^/]{20})",
        "(a{2,3}?)",
        r"\?(\w+)",
        "([*+]x)",
        r"(\{id\})",
    ] {
        let shown = show(&of_envoy("", &document(json!([regex])))[0].1);
        assert_eq!(
            shown.len(),
            if regex == "([*+]x)" { 1 } else { 2 },
            "{regex}"
        );
    }
}

#[test]
fn dark_clusters_get_copies_of_what_changes_nothing_where_callers_are_to_send_them() {
    let document = json!({ "darkClusters": {
        "tenth": { "multiplier": "0.1", "mirrored_by_callers": true },
        "all": { "multiplier": 3, "mirrored_by_callers": "true",
            "darkClusterStrategyList": ["IDENTICAL_TRAFFIC"] },
        // The servers send these theirs.
        "by-servers": { "multiplier": 1.0 },
        "none": { "multiplier": 0, "mirrored_by_callers": true },
        "constant": { "multiplier": 1, "mirrored_by_callers": true,
            "darkClusterStrategyList": ["CONSTANT_QPS"] },
    } });
    let definition = mk_cluster("c", &document.to_string(), DefinitionStat::default());
    let properties = ClusterProperties::read(Some(&definition));
    let left_out: Vec<_> = properties
        .left_out
        .iter()
        .map(|l| &l.property[..])
        .collect();
    assert_eq!(left_out, ["darkClusters/constant/darkClusterStrategyList"]);
    let rendered = outbound::routes([Routed {
        name: "s",
        service: &state("/p", &json!({})),
        mirrors: properties.mirrors,
    }]);
    let config = route::RouteConfiguration::decode(&rendered.value[..]).unwrap();
    let first = &config.virtual_hosts[0].routes[0];
    assert_eq!(first.r#match.as_ref().unwrap().headers[0].name, ":method");
    let shown: Vec<_> = actions(config)
        .into_iter()
        .map(|(is_grpc, action)| {
            let copies = action.request_mirror_policies.into_iter().map(|policy| {
                let share = policy.runtime_fraction.unwrap().default_value.unwrap();
                format!("{} {}", policy.cluster, share.numerator)
            });
            (is_grpc, action.prefix_rewrite, copies.collect::<Vec<_>>())
        })
        .collect();
    let copies = vec!["all 1000000".to_owned(), "tenth 100000".to_owned()];
    let expected = [
        (false, "/p/".to_owned(), copies),
        (true, String::new(), vec![]),
        (false, "/p/".to_owned(), vec![]),
    ];
    assert_eq!(shown, expected);
}
