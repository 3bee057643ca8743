//! The types of rest.li's D2 client (rest.li `XdsD2.proto`, `XdsToD2PropertiesAdaptor`).

use std::collections::BTreeMap;

use bytes::Bytes;
use waypost_core::definition::DefinitionStat;
use waypost_core::{Announcement, CalleesDefinition, Timestamp};
use waypost_proto::indis;
use waypost_proto::indis::d2_cluster_or_service_name::Type;
use waypost_store::{ClusterOutline, ClusterSnapshot, ServedInstance, ServiceState};

use super::{Rendered, json, read_announcement};

/// `indis.Node` of a cluster: its document byte for byte (a symlink's is the target path), or for an
/// implicit cluster a document that names it and nothing else.
#[must_use]
pub fn cluster_node(cluster: &ClusterOutline) -> Rendered {
    match &cluster.definition {
        Some((_, definition)) => node(definition.document.clone(), definition.stat),
        None => node(
            implicit_cluster(cluster.name.as_str()),
            DefinitionStat::default(),
        ),
    }
}

/// `indis.Node` of a service: its document byte for byte, or for an implicit service one with what
/// a D2 client insists on.
#[must_use]
pub fn service_node(service: &ServiceState) -> Rendered {
    match service {
        ServiceState::Defined { definition, .. } => {
            node(definition.document.clone(), definition.stat)
        }
        ServiceState::Implicit { cluster } => node(
            implicit_service(cluster.as_str()),
            DefinitionStat::default(),
        ),
    }
}

/// `indis.D2ClusterOrServiceName` of a cluster.
#[must_use]
pub fn cluster_name(name: &str) -> Rendered {
    directory_entry(Type::ClusterName(name.to_owned()))
}

/// `indis.D2ClusterOrServiceName` of a service.
#[must_use]
pub fn service_name(name: &str) -> Rendered {
    directory_entry(Type::ServiceName(name.to_owned()))
}

/// `indis.D2CalleeServices` of an application, in the order in which its services were written: clients
/// warm them up in it.
#[must_use]
pub fn callees(definition: &CalleesDefinition) -> Rendered {
    let services = definition.services.iter().map(ToString::to_string);
    let message = indis::D2CalleeServices {
        services: services.collect(),
    };
    Rendered::new(&message, definition.stat.modified)
}

/// `indis.D2URI` of one instance; `None` if its announcement cannot be read.
#[must_use]
pub fn uri(instance: &ServedInstance) -> Option<Rendered> {
    let announcement = read_announcement(instance)?;
    let origin = announcement.origin;
    Some(Rendered::new(&to_d2_uri(announcement), origin))
}

/// `indis.D2URIMap` of a cluster: every instance that is not hidden for its health, by URI.
#[must_use]
pub fn uri_map(cluster: &ClusterSnapshot) -> Rendered {
    let mut uris = BTreeMap::new();
    let mut newest = Timestamp::default();
    for instance in cluster.instances.iter().filter(|i| cluster.is_visible(i)) {
        if let Some(announcement) = read_announcement(instance) {
            newest = newest.max(announcement.origin);
            uris.insert(instance.uri.as_str().to_owned(), to_d2_uri(announcement));
        }
    }
    Rendered::new(&indis::D2uriMap { uris }, newest)
}

/// The map of a cluster that is gone. A client that still holds its instances drops them on this
/// and not on a removal (rest.li `XdsClientImpl`).
#[must_use]
pub fn empty_uri_map() -> Rendered {
    Rendered::new(&indis::D2uriMap::default(), Timestamp::default())
}

/// The `Stat` of a definition: what a D2 client takes as the version of a document is `Mzxid`.
///
/// `Czxid` is the time of creation and `Mzxid` that plus the number of changes, so it grows with
/// every change whatever the clocks of those who make them say, and across deletion and new
/// creation as long as the clocks do not go back.
#[must_use]
pub fn stat(document: &[u8], stat: DefinitionStat) -> indis::Stat {
    let created = stat.created.0.max(0);
    let last_change = created.saturating_add(stat.revision.into());
    indis::Stat {
        czxid: created,
        mzxid: last_change,
        ctime: created,
        mtime: stat.modified.0.max(0),
        version: i32::try_from(stat.revision).unwrap_or(i32::MAX),
        data_length: i32::try_from(document.len()).unwrap_or(i32::MAX),
        pzxid: created,
        ..indis::Stat::default()
    }
}

fn node(document: Bytes, history: DefinitionStat) -> Rendered {
    let message = indis::Node {
        stat: Some(stat(&document, history)),
        data: document,
    };
    Rendered::new(&message, history.modified)
}

fn directory_entry(name: Type) -> Rendered {
    let message = indis::D2ClusterOrServiceName { r#type: Some(name) };
    Rendered::new(&message, Timestamp::default())
}

fn implicit_cluster(name: &str) -> Bytes {
    serde_json::json!({ "clusterName": name })
        .to_string()
        .into()
}

/// The same document as applying a service without properties gives.
fn implicit_service(name: &str) -> Bytes {
    let document = serde_json::json!({
        "serviceName": name,
        "clusterName": name,
        "path": "",
        "loadBalancerStrategyList": ["relative", "degrader"],
        "prioritizedSchemes": ["https", "http"],
    });
    document.to_string().into()
}

fn to_d2_uri(announcement: Announcement) -> indis::D2uri {
    // Clients log a negative version as invalid and compute latencies from the time.
    let origin = announcement.origin.0.max(0);
    indis::D2uri {
        version: origin,
        modified_time: Some(prost_types::Timestamp {
            seconds: origin / 1000,
            nanos: i32::try_from(origin % 1000 * 1_000_000).unwrap_or(0),
        }),
        cluster_name: announcement.cluster.as_str().to_owned(),
        uri: announcement.uri.as_str().to_owned(),
        partition_desc: announcement.weights,
        uri_specific_properties: json::to_struct(&announcement.metadata),
        tracing_id: announcement.tracing_id,
        hostname: announcement.hostname,
        ipv4_address: announcement
            .ipv4
            .map(|ip| Bytes::copy_from_slice(&ip.octets()))
            .unwrap_or_default(),
        ipv6_address: announcement
            .ipv6
            .map(|ip| Bytes::copy_from_slice(&ip.octets()))
            .unwrap_or_default(),
        is_ipv4_in_san: announcement.ipv4_in_san,
        is_ipv6_in_san: announcement.ipv6_in_san,
    }
}
