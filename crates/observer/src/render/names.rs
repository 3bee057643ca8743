//! Names of resources and what they stand for (docs/resources.md, "Names").

use waypost_core::ResourceType;

use super::federated::FederatedName;
use super::server::ListeningAddress;

/// Neither gRPC nor Envoy can follow a symlink.
pub use waypost_core::name::is_symlink;

const CLUSTERS: &str = "/d2/clusters/";
const SERVICES: &str = "/d2/services/";
const URIS: &str = "/d2/uris/";
/// What stands between an application, its instance and its client in the name of a list of callees
/// (rest.li `IndisBasedDownstreamServicesFetcher`).
const IN_APPLICATION: char = ':';
const URI_PREFIX: &str = "xdstp:///indis.D2URI/";

/// What a name stands for within its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A cluster: its document, its directory entry or all its instances.
    Cluster(&'a str),
    /// One D2 partition of a cluster (`NAME#P`), for gRPC and Envoy.
    D2Partition(&'a str, i32),
    /// A service.
    Service(&'a str),
    /// One instance.
    Instance(&'a str, String),
    /// An application.
    Application(&'a str),
    /// An xDS-enabled gRPC server, by where it listens.
    Server(ListeningAddress<'a>),
}

impl<'a> Target<'a> {
    /// Reads a name; `None` for one that no resource of the type can have.
    #[must_use]
    pub fn parse(resource_type: ResourceType, name: &'a str) -> Option<Self> {
        match resource_type {
            ResourceType::Listener => ListeningAddress::parse(name)
                .map(Self::Server)
                .or(Some(Self::Service(name))),
            ResourceType::RouteConfiguration => Some(Self::Service(name)),
            ResourceType::Cluster | ResourceType::ClusterLoadAssignment => parse_cluster(name),
            ResourceType::D2Node | ResourceType::D2ClusterOrServiceName => name
                .strip_prefix(CLUSTERS)
                .map(Self::Cluster)
                .or_else(|| name.strip_prefix(SERVICES).map(Self::Service)),
            ResourceType::D2UriMap => name.strip_prefix(URIS).map(Self::Cluster),
            ResourceType::D2CalleeServices => {
                let (application, _) = name.split_once(IN_APPLICATION).unwrap_or((name, ""));
                (!application.is_empty()).then_some(Self::Application(application))
            }
            ResourceType::D2Uri => {
                let (cluster, segment) = name.strip_prefix(URI_PREFIX)?.rsplit_once('/')?;
                let uri = decode_form(segment)?;
                (uri != "*").then_some(Self::Instance(cluster, uri))
            }
        }
    }
}

/// The cluster whose instances are the members of a `D2URI` glob with this prefix.
#[must_use]
pub fn parse_uri_prefix(prefix: &str) -> Option<&str> {
    prefix.strip_prefix(URI_PREFIX)?.strip_suffix('/')
}

/// `/d2/clusters/C`.
#[must_use]
pub fn cluster_node(cluster: &str) -> String {
    format!("{CLUSTERS}{cluster}")
}

/// `/d2/services/S`.
#[must_use]
pub fn service_node(service: &str) -> String {
    format!("{SERVICES}{service}")
}

/// `/d2/uris/C`.
#[must_use]
pub fn uri_map(cluster: &str) -> String {
    format!("{URIS}{cluster}")
}

/// `xdstp:///indis.D2URI/C/ENCODED`: the cluster as it is spelled, the URI in the form encoding of
/// Java's `URLEncoder` (`A-Z a-z 0-9 . - * _` stay, a space becomes `+`, everything else `%XX`).
#[must_use]
pub fn instance(cluster: &str, uri: &str) -> String {
    let mut name = format!("{URI_PREFIX}{cluster}/");
    name.extend(form_urlencoded::byte_serialize(uri.as_bytes()));
    name
}

/// `NAME#P`.
#[must_use]
pub fn d2_partition(cluster: &str, d2_partition: i32) -> String {
    format!("{cluster}#{d2_partition}")
}

/// The spelling that Waypost itself gives a resource's name, where `name` has another one that
/// means the same; clients that asked in theirs are answered in theirs.
#[must_use]
pub fn respell(resource_type: ResourceType, name: &str) -> Option<String> {
    if let Some(federated) = FederatedName::parse(resource_type, name) {
        return Some(federated.plain().to_owned());
    }
    match Target::parse(resource_type, name)? {
        Target::Instance(cluster, uri) => Some(instance(cluster, &uri)).filter(|own| own != name),
        Target::Application(own) => (own != name).then(|| own.to_owned()),
        _ => None,
    }
}

fn parse_cluster(name: &str) -> Option<Target<'_>> {
    let Some((cluster, digits)) = name.rsplit_once('#') else {
        return Some(Target::Cluster(name));
    };
    let number: i32 = digits.parse().ok()?;
    // One partition has one name: no sign, no leading zeros.
    (number >= 0 && number.to_string() == digits).then_some(Target::D2Partition(cluster, number))
}

/// Undoes form encoding; `None` for a malformed escape or bytes that are not UTF-8.
fn decode_form(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().filter(|uri| !uri.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Java's `URLEncoder` gives for each.
    const ENCODINGS: [(&str, &str); 7] = [
        (
            "https://h-1.example.net:8443/alpha",
            "https%3A%2F%2Fh-1.example.net%3A8443%2Falpha",
        ),
        (
            "http://h_2.example.net:80/~bob/a*b",
            "http%3A%2F%2Fh_2.example.net%3A80%2F%7Ebob%2Fa*b",
        ),
        (
            "http://[2001:db8::5]:8080/x",
            "http%3A%2F%2F%5B2001%3Adb8%3A%3A5%5D%3A8080%2Fx",
        ),
        (
            "https://h.example.net:1/a/../b;v=2,@$",
            "https%3A%2F%2Fh.example.net%3A1%2Fa%2F..%2Fb%3Bv%3D2%2C%40%24",
        ),
        ("a b+c%d", "a+b%2Bc%25d"),
        ("!'()~", "%21%27%28%29%7E"),
        ("Größe", "Gr%C3%B6%C3%9Fe"),
    ];

    #[test]
    fn uris_are_encoded_as_java_does_and_read_back() {
        for (uri, segment) in ENCODINGS {
            let name = instance("C.x_y-$é%", uri);
            assert_eq!(name, format!("xdstp:///indis.D2URI/C.x_y-$é%/{segment}"));
            let target = Target::parse(ResourceType::D2Uri, &name);
            assert_eq!(target, Some(Target::Instance("C.x_y-$é%", uri.to_owned())));
            assert_eq!(respell(ResourceType::D2Uri, &name), None);
        }
    }

    #[test]
    fn other_spellings_mean_the_same_instance() {
        let own = instance("c", "http://h:1/~a*b");
        for other in [
            "xdstp:///indis.D2URI/c/http%3A%2F%2Fh%3A1%2F~a%2Ab",
            "xdstp:///indis.D2URI/c/http%3a%2f%2fh%3a1%2f%7ea*b",
            "xdstp:///indis.D2URI/c/http:%2F%2Fh:1%2F~a*b",
        ] {
            assert_eq!(
                respell(ResourceType::D2Uri, other).as_ref(),
                Some(&own),
                "{other}"
            );
        }
    }

    #[test]
    fn the_callees_of_an_application_are_the_same_for_each_of_its_clients() {
        let callees = ResourceType::D2CalleeServices;
        for (name, own) in [
            ("app", None),
            ("app:i001:service", Some("app")),
            ("app:", Some("app")),
            ("app.v2:i:a:b", Some("app.v2")),
        ] {
            let application = own.unwrap_or(name);
            let target = Target::parse(callees, name);
            assert_eq!(target, Some(Target::Application(application)));
            assert_eq!(respell(callees, name).as_deref(), own, "{name}");
        }
        assert_eq!(Target::parse(callees, ":i001:service"), None);
        assert_eq!(Target::parse(callees, ""), None);
    }

    #[test]
    fn names_that_no_resource_has_are_refused() {
        use ResourceType::{Cluster, D2ClusterOrServiceName, D2Node, D2Uri, D2UriMap};
        for (resource_type, name) in [
            (D2Uri, "xdstp:///indis.D2URI/c"),
            (D2Uri, "xdstp:///indis.D2URI/c/"),
            (D2Uri, "xdstp:///indis.D2URI/c/*"),
            (D2Uri, "xdstp:///indis.D2URI/c/%2A"),
            (D2Uri, "xdstp:///indis.D2URI/c/a%2"),
            (D2Uri, "xdstp:///indis.D2URI/c/a%zz"),
            (D2Uri, "xdstp:///indis.D2URI/c/%FF"),
            (D2Uri, "/d2/uris/c"),
            (D2Node, "/d2/uris/$cMaster"),
            (D2Node, "c"),
            (D2ClusterOrServiceName, "/d2/other/c"),
            (D2UriMap, "/d2/clusters/c"),
            (Cluster, "c#"),
            (Cluster, "c#01"),
            (Cluster, "c#+1"),
            (Cluster, "c#-1"),
            (Cluster, "c#99999999999"),
        ] {
            assert_eq!(Target::parse(resource_type, name), None, "{name}");
        }
    }

    #[test]
    fn names_are_read_as_what_they_stand_for() {
        use ResourceType::{ClusterLoadAssignment, D2Node, D2UriMap, Listener};
        for (resource_type, name, target) in [
            (D2Node, "/d2/clusters/$cMaster", Target::Cluster("$cMaster")),
            (D2Node, "/d2/services/s", Target::Service("s")),
            (D2UriMap, "/d2/uris/c", Target::Cluster("c")),
            (ClusterLoadAssignment, "c", Target::Cluster("c")),
            (ClusterLoadAssignment, "c#0", Target::D2Partition("c", 0)),
            (ClusterLoadAssignment, "c#12", Target::D2Partition("c", 12)),
            (Listener, "s", Target::Service("s")),
        ] {
            assert_eq!(Target::parse(resource_type, name), Some(target), "{name}");
        }
        assert_eq!(parse_uri_prefix("xdstp:///indis.D2URI/c/"), Some("c"));
        assert_eq!(parse_uri_prefix("xdstp:///indis.Other/c/"), None);
    }
}
