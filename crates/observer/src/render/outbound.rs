//! What an Envoy listens on for calls to the services that it named, and how it routes them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::config::route::v3::retry_policy::{
    RetryHostPredicate, retry_host_predicate,
};
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::pb::google::protobuf::UInt32Value;
use envoy_types::util::pack_any;
use waypost_core::{Delivery, Timestamp};
use waypost_store::ServiceState;

use super::Rendered;
use super::endpoints::to_address;
use super::envoy::{connection_manager, find_cluster, origin, to_wire};

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

/// The routes: a virtual host for each service that leads to a cluster, in the order given.
///
/// Authorities are compared without regard to case (RFC 3986, section 3.2.2), and Envoy refuses
/// everything if one is in two virtual hosts: of services that differ by case only the first stands. A
/// service with a `*` in its name has none, since Envoy would take it for a pattern.
#[must_use]
pub fn routes<'a>(services: impl IntoIterator<Item = (&'a str, &'a ServiceState)>) -> Rendered {
    let mut taken = BTreeSet::new();
    let mut newest = Timestamp::default();
    let mut hosts = Vec::new();
    for (name, service) in services {
        let Some(cluster) = find_cluster(service) else {
            continue;
        };
        if !name.contains('*') && taken.insert(name.to_lowercase()) {
            newest = newest.max(origin(service));
            let timeout = request_timeout(service);
            hosts.push(virtual_host(name, cluster.as_str(), timeout));
        }
    }
    let message = route::RouteConfiguration {
        name: OUTBOUND.to_owned(),
        virtual_hosts: hosts,
        ..route::RouteConfiguration::default()
    };
    Rendered::new(&message, newest)
}

/// The service's `transportClientProperties` / `http.requestTimeout`, milliseconds as a number or, as
/// D2's tools write it, a string. Without one there is no limit of the proxy's own: the caller's
/// deadline counts. (Envoy's default would end every stream after 15 s.)
fn request_timeout(service: &ServiceState) -> Duration {
    let ServiceState::Defined { definition, .. } = service else {
        return Duration::ZERO;
    };
    let document = serde_json::from_slice::<serde_json::Value>(&definition.document);
    let timeout_ms = document.ok().and_then(|document| {
        let value = document.pointer("/transportClientProperties/http.requestTimeout")?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    });
    Duration::from_millis(timeout_ms.unwrap_or(0))
}

fn virtual_host(service: &str, cluster: &str, timeout: Duration) -> route::VirtualHost {
    let action = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            cluster.to_owned(),
        )),
        timeout: Some(to_wire(timeout)),
        retry_policy: Some(retries()),
        ..route::RouteAction::default()
    };
    let everything = route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix("/".to_owned())),
        ..route::RouteMatch::default()
    };
    route::VirtualHost {
        name: service.to_owned(),
        domains: vec![service.to_owned(), format!("{service}:*")],
        routes: vec![route::Route {
            r#match: Some(everything),
            action: Some(route::route::Action::Route(action)),
            ..route::Route::default()
        }],
        ..route::VirtualHost::default()
    }
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
        let rendered = routes(states.iter().map(|(name, state)| (*name, state)));
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

    #[test]
    fn the_timeout_of_requests_is_the_services_own_or_there_is_none() {
        for (document, seconds, nanos) in [
            ("", 0, 0),
            ("{}", 0, 0),
            (
                r#"{"transportClientProperties":{"http.requestTimeout":"800"}}"#,
                0,
                800_000_000,
            ),
            (
                r#"{"transportClientProperties":{"http.requestTimeout":2500}}"#,
                2,
                500_000_000,
            ),
            (
                r#"{"transportClientProperties":{"http.requestTimeout":"soon"}}"#,
                0,
                0,
            ),
            (
                r#"{"transportClientProperties":{"http.requestTimeout":-1}}"#,
                0,
                0,
            ),
        ] {
            let mut hosts = hosts(&[("s", document)]);
            let Some(route::route::Action::Route(action)) = hosts.remove(0).routes.remove(0).action
            else {
                panic!("no route");
            };
            let timeout = action.timeout.unwrap();
            assert_eq!(
                (timeout.seconds, timeout.nanos),
                (seconds, nanos),
                "{document}"
            );
        }
    }
}
