//! The Listener of an xDS-enabled gRPC server (gRFC A36), which serves nothing until it has one.
//!
//! A server names the address that it listens on in the resource's name, and everything in the Listener
//! follows from that name: it is there before the server is announced, and never changes.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::util::pack_any;
use waypost_core::Timestamp;

use super::Rendered;
use super::envoy::router_filter;

/// What the name of every such Listener begins with; the address follows. No service can be called so:
/// names of services have no slash.
pub const SERVER_PREFIX: &str = "grpc/server?xds.resource.listening_address=";

/// What its statistics and filter chain are called.
const INBOUND: &str = "waypost_inbound";

/// Where a server says that it listens: an IP address as it spelled it, and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningAddress<'a> {
    ip: &'a str,
    port: u16,
}

impl<'a> ListeningAddress<'a> {
    /// Reads it out of a Listener's name: `IPV4:PORT` or `[IPV6]:PORT` behind [`SERVER_PREFIX`]. `None`
    /// for any other name, and for addresses that no server can have told: port 0, an IPv6 zone
    /// (meaningful on one machine only).
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let address = name.strip_prefix(SERVER_PREFIX)?;
        let parsed: SocketAddr = address.parse().ok()?;
        let (ip, _) = address.rsplit_once(':')?;
        let bare = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let ip = bare.unwrap_or(ip);
        (parsed.port() != 0 && !ip.contains('%')).then_some(Self {
            ip,
            port: parsed.port(),
        })
    }
}

/// The Listener called `name` of a server at `address`: every connection, without TLS of its own (a
/// server's fallback credentials apply), every path of every authority to the server itself.
///
/// The IP address is spelled as in the name, without brackets: grpc-go compares the text, others what it
/// means. Routes are inlined, so that nothing else is to be fetched before the server serves.
#[must_use]
pub fn listener(name: &str, address: ListeningAddress<'_>) -> Rendered {
    let manager = hcm::HttpConnectionManager {
        stat_prefix: INBOUND.to_owned(),
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::RouteConfig(
            to_itself(),
        )),
        http_filters: vec![router_filter()],
        ..hcm::HttpConnectionManager::default()
    };
    let filter = listener::Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(pack_any(manager))),
    };
    let socket = core::SocketAddress {
        address: address.ip.to_owned(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
            address.port.into(),
        )),
        ..core::SocketAddress::default()
    };
    let message = listener::Listener {
        name: name.to_owned(),
        address: Some(core::Address {
            address: Some(core::address::Address::SocketAddress(socket)),
        }),
        filter_chains: vec![listener::FilterChain {
            name: INBOUND.to_owned(),
            filters: vec![filter],
            ..listener::FilterChain::default()
        }],
        traffic_direction: core::TrafficDirection::Inbound.into(),
        ..listener::Listener::default()
    };
    Rendered::new(&message, Timestamp::default())
}

/// One route for everything. It leads nowhere, as a server's must: others fail every call (gRFC A36).
fn to_itself() -> route::RouteConfiguration {
    let everything = route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix(String::new())),
        ..route::RouteMatch::default()
    };
    route::RouteConfiguration {
        name: INBOUND.to_owned(),
        virtual_hosts: vec![route::VirtualHost {
            name: INBOUND.to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![route::Route {
                r#match: Some(everything),
                action: Some(route::route::Action::NonForwardingAction(
                    route::NonForwardingAction {},
                )),
                ..route::Route::default()
            }],
            ..route::VirtualHost::default()
        }],
        ..route::RouteConfiguration::default()
    }
}

#[cfg(test)]
mod tests {
    use waypost_core::ResourceType;

    use super::*;
    use crate::render::checker;

    #[test]
    fn a_server_is_accepted_at_the_address_that_it_named_in_its_own_spelling() {
        for (address, ip, port) in [
            ("127.0.0.1:50051", "127.0.0.1", 50051),
            ("0.0.0.0:1", "0.0.0.0", 1),
            ("[::]:50051", "::", 50051),
            ("[0:0:0:0:0:0:0:1]:50051", "0:0:0:0:0:0:0:1", 50051),
            ("[2001:DB8::5]:65535", "2001:DB8::5", 65535),
            ("[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80),
        ] {
            let name = format!("{SERVER_PREFIX}{address}");
            let read = ListeningAddress::parse(&name).unwrap();
            assert_eq!(read, ListeningAddress { ip, port });
            let rendered = listener(&name, read);
            let refusal = checker::refusal(ResourceType::Listener, &name, &rendered.value);
            assert_eq!(refusal, None, "{address}");
        }
    }

    #[test]
    fn an_address_that_no_server_can_listen_on_has_no_listener() {
        for address in [
            "",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "127.1:80",
            "::1:80",
            "[::1]",
            "[fe80::1%2]:80",
            "localhost:80",
            "[127.0.0.1]:80",
            " 127.0.0.1:80",
            "127.0.0.1:80/x",
        ] {
            let name = format!("{SERVER_PREFIX}{address}");
            assert_eq!(ListeningAddress::parse(&name), None, "{address:?}");
        }
        assert_eq!(ListeningAddress::parse("127.0.0.1:80"), None);
    }
}
