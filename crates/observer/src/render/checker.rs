//! What proxyless gRPC accepts, as a check of rendered resources: a client that refuses one keeps
//! what it had and says so, and no user of Waypost should ever see that.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::{
    RingHash, ring_hash,
};
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::google::protobuf;
use prost::{Message, Name};
use waypost_core::ResourceType;

/// Why gRPC would refuse it, or nothing.
pub(crate) fn refusal(resource_type: ResourceType, name: &str, value: &[u8]) -> Option<String> {
    match resource_type {
        ResourceType::Listener => check_listener(name, &decode(value)),
        ResourceType::RouteConfiguration => check_route(name, &decode(value)),
        ResourceType::Cluster => check_cluster(name, &decode(value)),
        ResourceType::ClusterLoadAssignment => check_endpoints(name, &decode(value)),
        _ => Ok(()),
    }
    .err()
}

fn decode<T: Message + Default>(value: &[u8]) -> T {
    T::decode(value).unwrap()
}

fn ensure(holds: bool, rule: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}

/// Of a client (it has an API listener) or of a server (it has an address).
fn check_listener(name: &str, listener: &listener::Listener) -> Result<(), String> {
    ensure(listener.name == name, "a Listener has the name asked for")?;
    match &listener.api_listener {
        Some(api) => check_api_listener(api),
        None => check_server_listener(name, listener),
    }
}

/// gRFC A27: the API listener's connection manager gets its routes over ADS.
fn check_api_listener(api: &listener::ApiListener) -> Result<(), String> {
    let any = api.api_listener.as_ref();
    let manager = check_manager(any.ok_or("an api_listener is a message")?)?;
    let Some(hcm::http_connection_manager::RouteSpecifier::Rds(rds)) = &manager.route_specifier
    else {
        return Err("routes come over RDS".to_owned());
    };
    ensure(!rds.route_config_name.is_empty(), "RDS names its resource")?;
    check_ads(rds.config_source.as_ref())
}

/// gRFC A36: at the address that its name ends with (compared as text, the strictest of the clients), no
/// listener filters, connection managers as the only filter of its chains, and routes that do not forward;
/// gRFC A41: no trust in what a client says of its address.
fn check_server_listener(name: &str, listener: &listener::Listener) -> Result<(), String> {
    let address = listener.address.as_ref().and_then(|a| a.address.as_ref());
    let Some(core::address::Address::SocketAddress(socket)) = address else {
        return Err("a Listener of a server has a socket address".to_owned());
    };
    let Some(core::socket_address::PortSpecifier::PortValue(port)) = socket.port_specifier else {
        return Err("an address has a port".to_owned());
    };
    let own = if socket.address.contains(':') {
        format!("=[{}]:{port}", socket.address)
    } else {
        format!("={}:{port}", socket.address)
    };
    ensure(name.ends_with(&own), "the address is the one in the name")?;
    ensure(socket.protocol == 0, "the protocol is TCP")?;
    let is_plain = listener.listener_filters.is_empty() && listener.use_original_dst.is_none();
    ensure(is_plain, "no listener filters, no original destination")?;
    ensure(!listener.filter_chains.is_empty(), "there is a chain")?;
    for chain in &listener.filter_chains {
        let [filter] = &chain.filters[..] else {
            return Err("a chain has one filter".to_owned());
        };
        let Some(listener::filter::ConfigType::TypedConfig(any)) = &filter.config_type else {
            return Err("a filter has its configuration".to_owned());
        };
        let manager = check_manager(any)?;
        let trusts = manager.xff_num_trusted_hops != 0
            || !manager.original_ip_detection_extensions.is_empty();
        ensure(!trusts, "addresses are not taken from headers")?;
        let Some(hcm::http_connection_manager::RouteSpecifier::RouteConfig(config)) =
            &manager.route_specifier
        else {
            return Err("routes are inlined".to_owned());
        };
        let routes = config.virtual_hosts.iter().flat_map(|host| &host.routes);
        let actions: Vec<_> = routes.map(|route| &route.action).collect();
        let stays = |action: &&Option<route::route::Action>| {
            matches!(action, Some(route::route::Action::NonForwardingAction(_)))
        };
        ensure(!actions.is_empty(), "there is a route")?;
        ensure(
            actions.iter().all(stays),
            "a server's routes do not forward",
        )?;
    }
    Ok(())
}

/// gRFC A39: at least one filter, names unique, the last one and no other terminal.
fn check_manager(any: &protobuf::Any) -> Result<hcm::HttpConnectionManager, String> {
    ensure(
        any.type_url == hcm::HttpConnectionManager::type_url(),
        "the filter is an HttpConnectionManager",
    )?;
    let manager: hcm::HttpConnectionManager = decode(&any.value);
    let filters: Vec<_> = manager
        .http_filters
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    let unique: BTreeSet<_> = filters.iter().collect();
    ensure(unique.len() == filters.len(), "filter names are unique")?;
    let types = manager.http_filters.iter().map(|f| match &f.config_type {
        Some(hcm::http_filter::ConfigType::TypedConfig(any)) => any.type_url.as_str(),
        _ => "",
    });
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let terminal: Vec<_> = types.map(|t| t == router).collect();
    ensure(
        terminal.last() == Some(&true) && terminal.iter().filter(|t| **t).count() == 1,
        "the last filter and no other is terminal",
    )?;
    Ok(manager)
}

/// gRFC A27: a virtual host that matches the target, each route with a path specifier and a cluster.
fn check_route(name: &str, config: &route::RouteConfiguration) -> Result<(), String> {
    ensure(
        config.name == name,
        "a RouteConfiguration has the name asked for",
    )?;
    let matches_any = |host: &&route::VirtualHost| host.domains.iter().any(|d| d == "*");
    let host = config.virtual_hosts.iter().find(matches_any);
    let host = host.ok_or("a virtual host matches every target")?;
    ensure(!host.routes.is_empty(), "a virtual host has routes")?;
    for route in &host.routes {
        let matches = route.r#match.as_ref().ok_or("a route has a match")?;
        ensure(
            matches.path_specifier.is_some(),
            "a match has a path specifier",
        )?;
        let Some(route::route::Action::Route(action)) = &route.action else {
            return Err("the action is to route".to_owned());
        };
        let Some(route::route_action::ClusterSpecifier::Cluster(cluster)) =
            &action.cluster_specifier
        else {
            return Err("a route names its cluster".to_owned());
        };
        ensure(!cluster.is_empty(), "a route names its cluster")?;
        let max = action.max_stream_duration.as_ref();
        let max = max.and_then(|max| max.max_stream_duration);
        ensure(
            max.is_none_or(|max| max.seconds >= 0 && (0..1_000_000_000).contains(&max.nanos)),
            "durations are within their range",
        )?;
    }
    let last = host.routes.last().and_then(|r| r.r#match.as_ref());
    let default = route::route_match::PathSpecifier::Prefix(String::new());
    ensure(
        last.and_then(|m| m.path_specifier.as_ref()) == Some(&default),
        "the last route takes everything",
    )
}

/// gRFC A27: of type EDS with ADS as the source, a policy that gRPC knows; gRFC A75: durations within
/// their range.
fn check_cluster(name: &str, cluster: &cluster::Cluster) -> Result<(), String> {
    ensure(cluster.name == name, "a Cluster has the name asked for")?;
    let eds: i32 = cluster::cluster::DiscoveryType::Eds.into();
    ensure(
        matches!(cluster.cluster_discovery_type,
            Some(cluster::cluster::ClusterDiscoveryType::Type(t)) if t == eds),
        "a Cluster is of type EDS",
    )?;
    let config = cluster
        .eds_cluster_config
        .as_ref()
        .ok_or("EDS has a configuration")?;
    check_ads(config.eds_config.as_ref())?;
    ensure(
        config.service_name.is_empty() && cluster.lb_policy == 0,
        "endpoints carry the cluster's name and are taken in turn",
    )?;
    ensure(
        is_self(cluster.lrs_server.as_ref()),
        "load reports, if any, go to the same server",
    )?;
    ensure(
        cluster.transport_socket.is_none(),
        "no transport socket that gRPC does not know",
    )?;
    check_policies(cluster.load_balancing_policy.as_ref())?;
    check_breakers(cluster.circuit_breakers.as_ref())?;
    check_outliers(cluster.outlier_detection.as_ref())?;
    let timeout = cluster
        .connect_timeout
        .ok_or("there is a connect timeout")?;
    ensure(
        timeout.seconds >= 0 && (0..1_000_000_000).contains(&timeout.nanos),
        "durations are within their range",
    )
}

/// gRFC A52: one of the entries is a policy that every gRPC knows, with what gRFC A42 and A48 say of
/// their fields.
fn check_policies(list: Option<&cluster::LoadBalancingPolicy>) -> Result<(), String> {
    let Some(list) = list else {
        return Ok(());
    };
    let mut known_to_all = false;
    for policy in &list.policies {
        let config = policy.typed_extension_config.as_ref();
        let config = config.and_then(|c| c.typed_config.as_ref());
        let config = config.ok_or("a policy has a configuration")?;
        if config.type_url == WrrLocality::type_url() {
            let inner: WrrLocality = decode(&config.value);
            ensure(
                inner.endpoint_picking_policy.is_some(),
                "a policy over localities has one within them",
            )?;
            check_policies(inner.endpoint_picking_policy.as_ref())?;
            known_to_all = true;
        } else if config.type_url == RoundRobin::type_url() {
            known_to_all = true;
        } else if config.type_url == RingHash::type_url() {
            check_ring(&decode(&config.value))?;
        } else if config.type_url == LeastRequest::type_url() {
            let least: LeastRequest = decode(&config.value);
            let choices = least.choice_count.is_none_or(|count| count.value >= 2);
            ensure(choices, "at least two instances are drawn")?;
        }
    }
    ensure(known_to_all, "a list has a policy that every gRPC knows")
}

fn check_ring(ring: &RingHash) -> Result<(), String> {
    let xx_hash: i32 = ring_hash::HashFunction::XxHash.into();
    ensure(ring.hash_function == xx_hash, "a ring is of XX_HASH")?;
    let size = |value: Option<protobuf::UInt64Value>, default| value.map_or(default, |v| v.value);
    let max = size(ring.maximum_ring_size, 8_388_608);
    ensure(
        max <= 8_388_608 && size(ring.minimum_ring_size, 1_024.min(max)) <= max,
        "a ring has up to 8M entries, at least no more than at most",
    )
}

/// gRFC A32: gRPC reads `max_requests` alone, and takes 1,024 for none.
fn check_breakers(breakers: Option<&cluster::CircuitBreakers>) -> Result<(), String> {
    let thresholds = breakers.map(|breakers| &breakers.thresholds[..]);
    let [threshold] = thresholds.ok_or("requests are bounded by what we say")? else {
        return Err("there is one threshold, of the default priority".to_owned());
    };
    ensure(
        threshold.priority == 0 && threshold.max_requests.is_some(),
        "requests are bounded by what we say",
    )
}

/// gRFC A50: percentages up to 100, times that are none below zero.
fn check_outliers(detection: Option<&cluster::OutlierDetection>) -> Result<(), String> {
    let Some(detection) = detection else {
        return Ok(());
    };
    let percentages = [
        detection.max_ejection_percent,
        detection.enforcing_success_rate,
        detection.failure_percentage_threshold,
        detection.enforcing_failure_percentage,
    ];
    let within = percentages.iter().flatten().all(|p| p.value <= 100);
    ensure(within, "percentages are up to 100")?;
    let times = [
        detection.interval,
        detection.base_ejection_time,
        detection.max_ejection_time,
    ];
    let positive = times
        .iter()
        .flatten()
        .all(|t| t.seconds >= 0 && t.nanos >= 0);
    ensure(positive, "durations are within their range")
}

/// gRFC A27: gRPC takes no other server for load reports.
fn is_self(lrs_server: Option<&core::ConfigSource>) -> bool {
    lrs_server.is_none_or(|source| {
        let specifier = source.config_source_specifier.as_ref();
        matches!(specifier, Some(ConfigSourceSpecifier::Self_(_)))
    })
}

/// gRFC A27 and A61: priorities without gaps, a locality once per priority and with a weight, weights
/// of a priority fit 32 bits, every address an IP literal with a port and in the resource once.
fn check_endpoints(name: &str, assignment: &endpoint::ClusterLoadAssignment) -> Result<(), String> {
    ensure(assignment.cluster_name == name, "the name asked for")?;
    ensure(
        assignment.named_endpoints.is_empty(),
        "nothing in maps without order",
    )?;
    let mut localities = BTreeSet::new();
    let mut weights: BTreeMap<u32, u64> = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for group in &assignment.endpoints {
        let locality = group.locality.as_ref().ok_or("a locality is named")?;
        let key = (
            group.priority,
            locality.region.clone(),
            locality.zone.clone(),
        );
        ensure(
            localities.insert(key),
            "a locality is unique within its priority",
        )?;
        let weight = group.load_balancing_weight.map_or(0, |w| w.value);
        ensure(weight > 0, "a locality has a weight")?;
        *weights.entry(group.priority).or_default() += u64::from(weight);
        ensure(!group.lb_endpoints.is_empty(), "a locality has endpoints")?;
        let mut sum = 0;
        for lb in &group.lb_endpoints {
            sum += u64::from(check_lb_endpoint(lb, &mut addresses)?);
        }
        ensure(
            sum == u64::from(weight),
            "a locality weighs what its endpoints do",
        )?;
    }
    let gapless = weights
        .keys()
        .copied()
        .eq(0..u32::try_from(weights.len()).unwrap());
    ensure(gapless, "priorities have no gaps")?;
    let fits = weights.values().all(|sum| *sum <= u64::from(u32::MAX));
    ensure(fits, "the weights of a priority fit 32 bits")
}

fn check_lb_endpoint(
    lb: &endpoint::LbEndpoint,
    addresses: &mut BTreeSet<String>,
) -> Result<u32, String> {
    let weight = lb.load_balancing_weight.map_or(0, |w| w.value);
    ensure(weight > 0, "an endpoint's weight is at least 1")?;
    let Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)) = &lb.host_identifier
    else {
        return Err("an endpoint is given by its address".to_owned());
    };
    let others = endpoint
        .additional_addresses
        .iter()
        .map(|a| a.address.as_ref());
    for address in std::iter::once(endpoint.address.as_ref()).chain(others) {
        let Some(core::address::Address::SocketAddress(socket)) =
            address.and_then(|a| a.address.as_ref())
        else {
            return Err("an address is a socket address".to_owned());
        };
        let is_literal = socket.address.parse::<std::net::IpAddr>().is_ok();
        ensure(is_literal, "an address is an IP literal")?;
        let Some(core::socket_address::PortSpecifier::PortValue(port)) = socket.port_specifier
        else {
            return Err("an address has a port".to_owned());
        };
        ensure(port <= u32::from(u16::MAX), "a port is one")?;
        let unique = addresses.insert(format!("{}|{port}", socket.address));
        ensure(unique, "an address is in the resource once")?;
    }
    Ok(weight)
}

fn check_ads(source: Option<&core::ConfigSource>) -> Result<(), String> {
    let specifier = source.and_then(|s| s.config_source_specifier.as_ref());
    ensure(
        matches!(specifier, Some(ConfigSourceSpecifier::Ads(_))),
        "the source is ADS",
    )
}
