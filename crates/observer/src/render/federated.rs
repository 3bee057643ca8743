//! The names of gRPC's federation (gRFC A47; cncf/xds TP1): `xdstp://AUTHORITY/TYPE/ID?CONTEXT`. The same
//! resources as under their plain names, with what they refer to in the same form and of the same authority.
//!
//! A resource under such a name is made from the plain one's bytes, so there is nothing that the two could
//! differ by but names.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::{RouteAction, RouteConfiguration};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::Message as _;
use waypost_core::ResourceType;

const SCHEME: &str = "xdstp://";

/// What stays in the path of a name as it is (RFC 3986: unreserved, sub-delims, `:`, `@`), and the slash.
const PATH_SAFE: &[u8] = b"-._~!$&'()*+,;=:@/";

/// A name of this form, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FederatedName<'a> {
    authority: &'a str,
    resource_type: ResourceType,
    /// What the resource is called otherwise.
    plain: String,
}

impl<'a> FederatedName<'a> {
    /// Reads a name of a type that gRPC and Envoy use; `None` for one of another form, and for a collection.
    /// Any authority is taken: clients ask only those servers for one that their bootstrap names for it. A name
    /// whose plain one is again of this form is none: it would be taken apart once for each time it is wrapped.
    #[must_use]
    pub fn parse(resource_type: ResourceType, name: &'a str) -> Option<Self> {
        let type_name = type_name(resource_type)?;
        let rest = name.strip_prefix(SCHEME)?;
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (path, context) = match rest.split_once('?') {
            Some((path, context)) => (path, Some(context)),
            None => (rest, None),
        };
        let (authority, path) = path.split_once('/')?;
        let id = path.strip_prefix(type_name)?.strip_prefix('/')?;
        if id.is_empty() || id == "*" || id.ends_with("/*") {
            return None;
        }
        let mut plain = decode(id)?;
        if let Some(context) = context.filter(|context| !context.is_empty()) {
            // The order of parameters means nothing (TP1): one order stands for all of them.
            let mut parameters: Vec<&str> = context.split('&').collect();
            parameters.sort_unstable();
            plain.push('?');
            plain.push_str(&decode(&parameters.join("&"))?);
        }
        if plain.starts_with(SCHEME) {
            return None;
        }
        Some(Self {
            authority,
            resource_type,
            plain,
        })
    }

    /// The name without authority and type, decoded.
    #[must_use]
    pub fn plain(&self) -> &str {
        &self.plain
    }

    /// The name of the endpoints of the cluster of this name: clusters of ours never name others as theirs.
    #[must_use]
    pub fn endpoints(&self) -> String {
        self.refer(ResourceType::ClusterLoadAssignment, &self.plain)
    }

    /// The resource under this name: `plain` is the one under the plain name, `name` is this one as it was spelled.
    /// `None` if the bytes are not those of such a resource.
    #[must_use]
    pub fn rename(&self, plain: &[u8], name: &str) -> Option<Vec<u8>> {
        let name = name.to_owned();
        match self.resource_type {
            ResourceType::Listener => {
                let mut listener = Listener::decode(plain).ok()?;
                listener.name = name;
                self.rename_routes_of(&mut listener);
                Some(listener.encode_to_vec())
            }
            ResourceType::RouteConfiguration => {
                let mut routes = RouteConfiguration::decode(plain).ok()?;
                routes.name = name;
                self.rename_clusters_of(&mut routes);
                Some(routes.encode_to_vec())
            }
            ResourceType::Cluster => {
                let mut cluster = Cluster::decode(plain).ok()?;
                if let Some(eds) = &mut cluster.eds_cluster_config {
                    eds.service_name = self.endpoints();
                }
                cluster.name = name;
                Some(cluster.encode_to_vec())
            }
            ResourceType::ClusterLoadAssignment => {
                let mut assignment = ClusterLoadAssignment::decode(plain).ok()?;
                assignment.cluster_name = name;
                Some(assignment.encode_to_vec())
            }
            _ => None,
        }
    }

    fn rename_routes_of(&self, listener: &mut Listener) {
        if let Some(api) = &mut listener.api_listener
            && let Some(any) = &mut api.api_listener
        {
            self.rename_routes_in(any);
        }
        let chains = listener.filter_chains.iter_mut();
        let chains = chains.chain(&mut listener.default_filter_chain);
        for filter in chains.flat_map(|chain| &mut chain.filters) {
            if let Some(ConfigType::TypedConfig(any)) = &mut filter.config_type {
                self.rename_routes_in(any);
            }
        }
    }

    /// `any` may be an `HttpConnectionManager`.
    fn rename_routes_in(&self, any: &mut Any) {
        if !any.type_url.ends_with(".HttpConnectionManager") {
            return;
        }
        let Ok(mut manager) = HttpConnectionManager::decode(&*any.value) else {
            return;
        };
        match &mut manager.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                let routes = &rds.route_config_name;
                rds.route_config_name = self.refer(ResourceType::RouteConfiguration, routes);
            }
            Some(RouteSpecifier::RouteConfig(routes)) => self.rename_clusters_of(routes),
            _ => {}
        }
        *any = pack_any(manager);
    }

    fn rename_clusters_of(&self, routes: &mut RouteConfiguration) {
        for host in &mut routes.virtual_hosts {
            for route in &mut host.routes {
                if let Some(Action::Route(action)) = &mut route.action {
                    self.rename_clusters_in(action);
                }
            }
        }
    }

    fn rename_clusters_in(&self, action: &mut RouteAction) {
        let rename = |name: &mut String| {
            if !name.is_empty() {
                *name = self.refer(ResourceType::Cluster, name);
            }
        };
        match &mut action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => rename(name),
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                weighted
                    .clusters
                    .iter_mut()
                    .for_each(|one| rename(&mut one.name));
            }
            _ => {}
        }
        let mirrors = action.request_mirror_policies.iter_mut();
        mirrors.for_each(|mirror| rename(&mut mirror.cluster));
    }

    /// The name of another resource in the form of this one.
    fn refer(&self, resource_type: ResourceType, plain: &str) -> String {
        let type_name = type_name(resource_type).unwrap_or_default();
        let authority = self.authority;
        format!("{SCHEME}{authority}/{type_name}/{}", encode(plain))
    }
}

/// The type as it stands in a name; `None` for one that has no such names.
fn type_name(resource_type: ResourceType) -> Option<&'static str> {
    let has_names = matches!(
        resource_type,
        ResourceType::Listener
            | ResourceType::RouteConfiguration
            | ResourceType::Cluster
            | ResourceType::ClusterLoadAssignment
    );
    let url = has_names.then(|| resource_type.type_url())?;
    url.strip_prefix("type.googleapis.com/")
}

fn encode(plain: &str) -> String {
    let mut encoded = String::with_capacity(plain.len());
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || PATH_SAFE.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.extend(['%', hex(byte >> 4), hex(byte & 0xf)]);
        }
    }
    encoded
}

fn hex(digit: u8) -> char {
    char::from_digit(digit.into(), 16).map_or('0', |digit| digit.to_ascii_uppercase())
}

/// Undoes percent-encoding; `None` for a malformed escape or bytes that are not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResourceType::{Cluster as C, ClusterLoadAssignment as E, D2Node, Listener as L};

    const LISTENER: &str = "envoy.config.listener.v3.Listener";
    const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

    fn plain(resource_type: ResourceType, name: &str) -> Option<String> {
        FederatedName::parse(resource_type, name).map(|name| name.plain)
    }

    #[test]
    fn names_are_taken_apart_and_equal_ones_stand_for_the_same() {
        for (resource_type, name, expected) in [
            (L, format!("xdstp://a/{LISTENER}/greeter"), "greeter"),
            (L, format!("xdstp:///{LISTENER}/greeter"), "greeter"),
            (L, format!("xdstp://a/{LISTENER}/x/y"), "x/y"),
            (L, format!("xdstp://a/{LISTENER}/gr%65eter"), "greeter"),
            (L, format!("xdstp://a/{LISTENER}/g?b=2&a=1"), "g?a=1&b=2"),
            (L, format!("xdstp://a/{LISTENER}/g?a=1&b=2"), "g?a=1&b=2"),
            (L, format!("xdstp://a/{LISTENER}/g#alt=xdstp://b/t/i"), "g"),
            (C, format!("xdstp://a/{CLUSTER}/c%231"), "c#1"),
            (
                L,
                format!(
                    "xdstp://a/{LISTENER}/grpc/server?xds.resource.listening_address=%5B::%5D:80"
                ),
                "grpc/server?xds.resource.listening_address=[::]:80",
            ),
        ] {
            assert_eq!(
                plain(resource_type, &name).as_deref(),
                Some(expected),
                "{name}"
            );
        }
    }

    #[test]
    fn other_forms_are_none() {
        for (resource_type, name) in [
            (L, "greeter".to_owned()),
            (L, format!("xdstp://a/{CLUSTER}/greeter")),
            (L, format!("xdstp://a/{LISTENER}")),
            (L, format!("xdstp://a/{LISTENER}/")),
            (L, format!("xdstp://a/{LISTENER}/*")),
            (L, format!("xdstp://a/{LISTENER}/x/*")),
            (L, format!("xdstp://a/{LISTENER}/%zz")),
            (L, format!("xdstp://a/{LISTENER}/xdstp://a/{LISTENER}/g")),
            (L, format!("xdstp://a/{LISTENER}/xdstp%3A//a/{LISTENER}/g")),
            (L, "xdstp://a".to_owned()),
            (D2Node, "xdstp://a/indis.Node/x".to_owned()),
        ] {
            assert_eq!(plain(resource_type, &name), None, "{name}");
        }
    }

    #[test]
    fn what_a_name_refers_to_is_read_back_as_it_was() {
        let name = format!("xdstp://an.authority:1/{CLUSTER}/c");
        let name = FederatedName::parse(C, &name).unwrap();
        for plain_name in ["c", "c#1", "a b", "Größe%", "x?y&z", "[::1]"] {
            let referred = name.refer(E, plain_name);
            assert!(referred.starts_with("xdstp://an.authority:1/envoy.config.endpoint.v3."));
            assert_eq!(
                plain(E, &referred).as_deref(),
                Some(plain_name),
                "{referred}"
            );
        }
    }
}
