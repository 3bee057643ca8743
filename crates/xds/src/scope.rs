//! What a proxy calls and where it listens, out of its node's metadata. A proxy asks for everything
//! (`*`) of clusters and listeners; what that means for it is up to the server (xDS protocol, "How the
//! client specifies what resources to return"), and nobody wants to be told of a whole fleet.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use prost_types::{Struct, Value, value::Kind};
use waypost_core::limits::NAME_BYTES_MAX;
use waypost_core::{Scope, UpstreamTls};

use crate::limits::SCOPE_SERVICES_MAX;
use crate::node::words;
use crate::status::{Code, Status};

/// Metadata key by which a proxy names the services that it calls: a string or a list of strings.
pub const SERVICES_KEY: &str = "waypost.services";

/// Metadata key by which a proxy that names no services says which application it belongs to: a string.
/// Without it, its node's `cluster` is the application.
pub const APPLICATION_KEY: &str = "waypost.application";

/// Metadata key by which a proxy names the port on which it wants to listen for calls to its
/// services, 0 to 65,535 (0: a free one). Without it there is no such listener.
pub const OUTBOUND_PORT_KEY: &str = "waypost.outbound_port";

/// Metadata key of the IP address of that port; without it 127.0.0.1.
pub const OUTBOUND_ADDRESS_KEY: &str = "waypost.outbound_address";

/// Metadata key by which a proxy says what it has for TLS to instances: `none`, `server` (authorities to
/// verify them with) or `mutual` (and a certificate of its own). Without it `none`.
pub const UPSTREAM_TLS_KEY: &str = "waypost.upstream_tls";

/// Reads what a proxy has for TLS.
pub(crate) fn read_upstream_tls(metadata: Option<&Struct>) -> Result<UpstreamTls, Status> {
    let Some(value) = metadata.and_then(|m| m.fields.get(UPSTREAM_TLS_KEY)) else {
        return Ok(UpstreamTls::None);
    };
    match &value.kind {
        Some(Kind::StringValue(text)) if text == "none" => Ok(UpstreamTls::None),
        Some(Kind::StringValue(text)) if text == "server" => Ok(UpstreamTls::Server),
        Some(Kind::StringValue(text)) if text == "mutual" => Ok(UpstreamTls::Mutual),
        _ => Err(wrong(UPSTREAM_TLS_KEY, "none, server or mutual")),
    }
}

/// Reads the scope. What cannot be meant is an error, so that whoever wrote it reads of it in the
/// proxy's own log. `node_cluster` is the node's.
pub(crate) fn read_scope(metadata: Option<&Struct>, node_cluster: &str) -> Result<Scope, Status> {
    let find = |key: &str| metadata.and_then(|m| m.fields.get(key));
    let services: BTreeSet<&str> = find(SERVICES_KEY)
        .map(words)
        .into_iter()
        .flatten()
        .collect();
    if services.len() > SCOPE_SERVICES_MAX {
        let text = format!(
            "node metadata {SERVICES_KEY}: {} services are over the limit of {SCOPE_SERVICES_MAX}",
            services.len()
        );
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    let address = find(OUTBOUND_ADDRESS_KEY).map(read_address).transpose()?;
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = find(OUTBOUND_PORT_KEY).map(read_port).transpose()?;
    let application = find(APPLICATION_KEY).map(read_application).transpose()?;
    let application = application.unwrap_or(node_cluster);
    let can_be_known = (1..=NAME_BYTES_MAX).contains(&application.len());
    let is_needed = services.is_empty() && can_be_known;
    Ok(Scope {
        application: is_needed.then(|| application.into()),
        services: services.into_iter().map(Box::from).collect(),
        outbound: port.map(|port| SocketAddr::new(address, port)),
    })
}

fn read_application(value: &Value) -> Result<&str, Status> {
    match &value.kind {
        Some(Kind::StringValue(text)) => Ok(text),
        _ => Err(wrong(APPLICATION_KEY, "the name of an application")),
    }
}

fn read_port(value: &Value) -> Result<u16, Status> {
    let number = match &value.kind {
        // Every number of a `Struct` is a double.
        Some(Kind::NumberValue(number)) => number.to_string().parse().ok(),
        Some(Kind::StringValue(text)) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| wrong(OUTBOUND_PORT_KEY, "a port, 0 to 65535"))
}

fn read_address(value: &Value) -> Result<IpAddr, Status> {
    let text = match &value.kind {
        Some(Kind::StringValue(text)) => text.parse().ok(),
        _ => None,
    };
    text.ok_or_else(|| wrong(OUTBOUND_ADDRESS_KEY, "an IP address"))
}

fn wrong(key: &str, expected: &str) -> Status {
    let text = format!("node metadata {key}: expected {expected}");
    Status::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(&'static str, Kind)>;

    fn mk_metadata(fields: &[(&str, Kind)]) -> Struct {
        let value = |kind: &Kind| Value {
            kind: Some(kind.clone()),
        };
        let fields = fields.iter();
        Struct {
            fields: fields.map(|(k, v)| ((*k).to_owned(), value(v))).collect(),
        }
    }

    fn text(text: &str) -> Kind {
        Kind::StringValue(text.to_owned())
    }

    fn list(words: impl IntoIterator<Item = String>) -> Kind {
        let values = words.into_iter().map(|word| Value {
            kind: Some(text(&word)),
        });
        Kind::ListValue(prost_types::ListValue {
            values: values.collect(),
        })
    }

    #[test]
    fn a_scope_is_read_from_metadata() {
        let services = |names: &[&str]| list(names.iter().map(|name| (*name).to_owned()));
        let port = Kind::NumberValue(10_000.0);
        type Case = (Fields, &'static [&'static str], Option<&'static str>);
        let cases: [Case; 5] = [
            (vec![], &[], None),
            (vec![(SERVICES_KEY, text("a"))], &["a"], None),
            (
                vec![
                    (SERVICES_KEY, services(&["b", "a", "b"])),
                    (OUTBOUND_PORT_KEY, port.clone()),
                ],
                &["a", "b"],
                Some("127.0.0.1:10000"),
            ),
            (
                vec![
                    (OUTBOUND_PORT_KEY, text("0")),
                    (OUTBOUND_ADDRESS_KEY, text("::1")),
                ],
                &[],
                Some("[::1]:0"),
            ),
            (vec![(OUTBOUND_ADDRESS_KEY, text("0.0.0.0"))], &[], None),
        ];
        for (fields, names, outbound) in cases {
            let scope = read_scope(Some(&mk_metadata(&fields)), "").unwrap();
            let read: Vec<&str> = scope.services.iter().map(|name| &**name).collect();
            assert_eq!(read, names, "{fields:?}");
            assert_eq!(scope.outbound, outbound.map(|a| a.parse().unwrap()));
        }
        assert_eq!(read_scope(None, "").unwrap(), Scope::default());
    }

    #[test]
    fn who_names_no_services_belongs_to_an_application() {
        let cases: [(Fields, &str, Option<&str>); 5] = [
            (vec![], "app", Some("app")),
            (vec![(APPLICATION_KEY, text("other"))], "app", Some("other")),
            (vec![(APPLICATION_KEY, text(""))], "app", None),
            (vec![(SERVICES_KEY, list([]))], "app", Some("app")),
            (vec![(SERVICES_KEY, text("a"))], "app", None),
        ];
        for (fields, node_cluster, expected) in cases {
            let scope = read_scope(Some(&mk_metadata(&fields)), node_cluster).unwrap();
            assert_eq!(scope.application.as_deref(), expected, "{fields:?}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_an_error_that_names_the_key() {
        let many = list((0..=SCOPE_SERVICES_MAX).map(|n| n.to_string()));
        for (key, kind, code) in [
            (
                OUTBOUND_PORT_KEY,
                Kind::NumberValue(65_536.0),
                Code::InvalidArgument,
            ),
            (
                OUTBOUND_PORT_KEY,
                Kind::NumberValue(80.5),
                Code::InvalidArgument,
            ),
            (OUTBOUND_PORT_KEY, text("http"), Code::InvalidArgument),
            (
                OUTBOUND_ADDRESS_KEY,
                text("localhost"),
                Code::InvalidArgument,
            ),
            (
                APPLICATION_KEY,
                Kind::BoolValue(true),
                Code::InvalidArgument,
            ),
            (SERVICES_KEY, many, Code::ResourceExhausted),
        ] {
            let status = read_scope(Some(&mk_metadata(&[(key, kind)])), "").unwrap_err();
            assert_eq!(status.code, code, "{key}");
            assert!(status.message.contains(key), "{}", status.message);
        }
    }

    #[test]
    fn what_it_has_for_tls_is_one_of_three_words() {
        let read = |kind| read_upstream_tls(Some(&mk_metadata(&[(UPSTREAM_TLS_KEY, kind)])));
        for (word, expected) in [
            ("none", UpstreamTls::None),
            ("server", UpstreamTls::Server),
            ("mutual", UpstreamTls::Mutual),
        ] {
            assert_eq!(read(text(word)).unwrap(), expected);
        }
        assert_eq!(read_upstream_tls(None).unwrap(), UpstreamTls::None);
        for kind in [text("yes"), Kind::BoolValue(true)] {
            let status = read(kind).unwrap_err();
            assert_eq!(status.code, Code::InvalidArgument);
            assert!(status.message.contains(UPSTREAM_TLS_KEY));
        }
    }
}
