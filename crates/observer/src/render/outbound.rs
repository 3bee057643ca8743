//! What an Envoy listens on for calls to the services that it named, and how it routes them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::config::route::v3::retry_policy::{
    RetryHostPredicate, retry_host_predicate,
};
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatchAndSubstitute, RegexMatcher, StringMatcher, string_matcher,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent};
use envoy_types::pb::google::protobuf::UInt32Value;
use envoy_types::util::pack_any;
use waypost_core::{Delivery, Timestamp};
use waypost_store::ServiceState;

use super::Rendered;
use super::endpoints::to_address;
use super::envoy::{by_header, connection_manager, find_cluster, origin, to_wire};
use super::properties::{HashKeys, Mirror, ServiceProperties};

/// The Listener and its `RouteConfiguration`. No service can be called so: names have no slash.
pub const OUTBOUND: &str = "waypost/outbound";

/// What its statistics begin with.
const STAT_PREFIX: &str = "waypost_outbound";

/// Tries after the first where no instance can have seen the request: a connection that could not be
/// made, a stream that was refused (HTTP/2 `REFUSED_STREAM`).
const RETRY_ON: &str = "connect-failure,refused-stream";
const RETRIES_MAX: u32 = 2;

/// How often another instance is drawn for such a try if one was drawn that failed already.
const RETRY_DRAWS_MAX: i64 = 5;

/// The Listener: requests to `address` are routed by their authority. It depends on nothing else, so it
/// never changes while the client lives.
#[must_use]
pub fn listener(address: SocketAddr, delivery: Delivery) -> Rendered {
    let manager = connection_manager(STAT_PREFIX, OUTBOUND, delivery);
    let filter = listener::Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(pack_any(manager))),
    };
    let message = listener::Listener {
        name: OUTBOUND.to_owned(),
        address: Some(to_address(address)),
        filter_chains: vec![listener::FilterChain {
            filters: vec![filter],
            ..listener::FilterChain::default()
        }],
        ..listener::Listener::default()
    };
    Rendered::new(&message, Timestamp::default())
}

/// A service as routes are made of it.
#[derive(Debug)]
pub(crate) struct Routed<'a> {
    /// Its name, as the Envoy spelled it.
    pub(crate) name: &'a str,
    /// What it is.
    pub(crate) service: &'a ServiceState,
    /// Who gets copies of requests to its cluster.
    pub(crate) mirrors: Vec<Mirror>,
}

/// The routes: a virtual host for each service that leads to a cluster, in the order given.
///
/// Authorities are compared without regard to case (RFC 3986, section 3.2.2), and Envoy refuses
/// everything if one is in two virtual hosts: of services that differ by case only the first stands. A
/// service with a `*` in its name has none, since Envoy would take it for a pattern.
pub(crate) fn routes<'a>(services: impl IntoIterator<Item = Routed<'a>>) -> Rendered {
    let mut taken = BTreeSet::new();
    let mut newest = Timestamp::default();
    let mut hosts = Vec::new();
    for routed in services {
        let Routed { name, service, .. } = routed;
        let Some(cluster) = find_cluster(service) else {
            continue;
        };
        if !name.contains('*') && taken.insert(name.to_lowercase()) {
            newest = newest.max(origin(service));
            let properties = ServiceProperties::of(service);
            let mirrors = &routed.mirrors;
            hosts.push(virtual_host(name, cluster.as_str(), &properties, mirrors));
        }
    }
    let message = route::RouteConfiguration {
        name: OUTBOUND.to_owned(),
        virtual_hosts: hosts,
        ..route::RouteConfiguration::default()
    };
    Rendered::new(&message, newest)
}

fn virtual_host(
    service: &str,
    cluster: &str,
    properties: &ServiceProperties,
    mirrors: &[Mirror],
) -> route::VirtualHost {
    let action = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            cluster.to_owned(),
        )),
        // Zero is no limit of the proxy's own: the caller's deadline counts. Envoy's default would end
        // every stream after 15 s.
        timeout: Some(to_wire(properties.request_timeout.unwrap_or_default())),
        retry_policy: (properties.retry_ratio != Some(0.0)).then(retries),
        hash_policy: hash_policies(&properties.hash_keys),
        ..route::RouteAction::default()
    };
    route::VirtualHost {
        name: service.to_owned(),
        domains: vec![service.to_owned(), format!("{service}:*")],
        routes: routes_of(action, properties.path_prefix.as_deref(), mirrors),
        ..route::VirtualHost::default()
    }
}

/// Everything goes to the same cluster. The service's path is put before that of a request, as D2 does,
/// but not before the name of a gRPC method. Copies are made of what changes nothing.
fn routes_of(
    action: route::RouteAction,
    path_prefix: Option<&str>,
    mirrors: &[Mirror],
) -> Vec<route::Route> {
    let everything = route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix("/".to_owned())),
        ..route::RouteMatch::default()
    };
    let route = |matches, action| route::Route {
        r#match: Some(matches),
        action: Some(route::route::Action::Route(action)),
        ..route::Route::default()
    };
    let prefixed = route::RouteAction {
        prefix_rewrite: path_prefix.unwrap_or_default().to_owned(),
        ..action.clone()
    };
    let mut routes = Vec::with_capacity(3);
    if !mirrors.is_empty() {
        let reading = route::RouteMatch {
            headers: vec![is_reading()],
            ..everything.clone()
        };
        let mirrored = route::RouteAction {
            request_mirror_policies: mirrors.iter().map(copy_to).collect(),
            ..prefixed.clone()
        };
        routes.push(route(reading, mirrored));
    }
    if path_prefix.is_some() {
        let of_grpc = route::RouteMatch {
            grpc: Some(route::route_match::GrpcRouteMatchOptions::default()),
            ..everything.clone()
        };
        routes.push(route(of_grpc, action));
    }
    routes.push(route(everything, prefixed));
    routes
}

/// Requests that change nothing (RFC 9110, section 9.2.1); those of gRPC are none.
fn is_reading() -> route::HeaderMatcher {
    use route::header_matcher::HeaderMatchSpecifier;
    let regex = RegexMatcher {
        regex: "GET|HEAD|OPTIONS".to_owned(),
        ..RegexMatcher::default()
    };
    route::HeaderMatcher {
        name: ":method".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(string_matcher::MatchPattern::SafeRegex(regex)),
            ..StringMatcher::default()
        })),
        ..route::HeaderMatcher::default()
    }
}

fn copy_to(mirror: &Mirror) -> route::route_action::RequestMirrorPolicy {
    const MILLION: f64 = 1_000_000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share is 0 to 1"
    )]
    let numerator = (mirror.share * MILLION).round() as u32;
    route::route_action::RequestMirrorPolicy {
        cluster: mirror.cluster.to_string(),
        runtime_fraction: Some(RuntimeFractionalPercent {
            default_value: Some(FractionalPercent {
                numerator,
                denominator: fractional_percent::DenominatorType::Million.into(),
            }),
            ..RuntimeFractionalPercent::default()
        }),
        // The copy is for whom the request is for.
        disable_shadow_host_suffix_append: true,
        ..route::route_action::RequestMirrorPolicy::default()
    }
}

/// What decides which instance a request goes to, where the cluster has a ring.
fn hash_policies(keys: &HashKeys) -> Vec<route::route_action::HashPolicy> {
    use route::route_action::hash_policy::{Header, PolicySpecifier};
    let header = keys.header.iter().map(|h| by_header(h));
    let path = keys.path.iter().map(|key| route::route_action::HashPolicy {
        terminal: true,
        policy_specifier: Some(PolicySpecifier::Header(Header {
            header_name: ":path".to_owned(),
            regex_rewrite: Some(RegexMatchAndSubstitute {
                pattern: Some(RegexMatcher {
                    regex: key.regex.clone(),
                    ..RegexMatcher::default()
                }),
                substitution: key.substitution.clone(),
            }),
        })),
    });
    header.chain(path).collect()
}

fn retries() -> route::RetryPolicy {
    let previous = pack_any(PreviousHostsPredicate {});
    route::RetryPolicy {
        retry_on: RETRY_ON.to_owned(),
        num_retries: Some(UInt32Value { value: RETRIES_MAX }),
        retry_host_predicate: vec![RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            config_type: Some(retry_host_predicate::ConfigType::TypedConfig(previous)),
        }],
        host_selection_retry_max_attempts: RETRY_DRAWS_MAX,
        ..route::RetryPolicy::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message as _;
    use waypost_core::SourceSlot;

    use super::*;
    use crate::render::testing::mk_service;

    fn mk_state(name: &str, document: &str) -> ServiceState {
        let mut definition = mk_service(name, "c", document);
        definition.stat.modified = Timestamp(7);
        ServiceState::Defined {
            source: SourceSlot::Log,
            definition: Arc::new(definition),
            generation: 1,
        }
    }

    fn hosts(services: &[(&str, &str)]) -> Vec<route::VirtualHost> {
        let states: Vec<_> = services
            .iter()
            .map(|(name, document)| (*name, mk_state(name, document)))
            .collect();
        let routed = states.iter().map(|(name, service)| Routed {
            name,
            service,
            mirrors: Vec::new(),
        });
        let rendered = routes(routed);
        assert_eq!(rendered.origin, Timestamp(7));
        let config = route::RouteConfiguration::decode(&*rendered.value).unwrap();
        config.virtual_hosts
    }

    #[test]
    fn an_authority_is_in_one_virtual_host_or_envoy_refuses_all() {
        let services = ["Greeter", "greeter", "pay*", "profile"];
        let hosts = hosts(&services.map(|name| (name, "{}")));
        let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["Greeter", "profile"]);
    }
}
