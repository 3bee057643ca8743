//! Makers for tests of this crate.

use bytes::Bytes;
use waypost_core::config::{OverrideEffect, Signed};
use waypost_core::definition::DefinitionStat;
use waypost_core::{
    Announcement, ClusterDefinition, ClusterName, InstanceKey, InstanceUri, Override,
    ServiceDefinition, ServiceName, Timestamp,
};

pub(crate) fn mk_announcement(cluster: &str, uri: &str) -> Announcement {
    Announcement::new(
        ClusterName::parse(cluster).unwrap(),
        InstanceUri::parse(uri).unwrap(),
        Timestamp(1_700_000_000_123),
    )
}

pub(crate) fn mk_cluster(name: &str, document: &str, stat: DefinitionStat) -> ClusterDefinition {
    ClusterDefinition {
        name: ClusterName::parse(name).unwrap(),
        document: Bytes::copy_from_slice(document.as_bytes()),
        stat,
        author: "".into(),
    }
}

pub(crate) fn mk_service(name: &str, cluster: &str, document: &str) -> ServiceDefinition {
    ServiceDefinition {
        name: ServiceName::parse(name).unwrap(),
        cluster: ClusterName::parse(cluster).unwrap(),
        path: String::new(),
        document: Bytes::copy_from_slice(document.as_bytes()),
        stat: DefinitionStat::default(),
        author: "".into(),
    }
}

pub(crate) fn mk_override(
    cluster: &str,
    uri: &str,
    effect: OverrideEffect,
    modified: Timestamp,
) -> Override {
    Override {
        instance: InstanceKey {
            cluster: ClusterName::parse(cluster).unwrap(),
            uri: InstanceUri::parse(uri).unwrap(),
        },
        effect,
        signed: Signed {
            author: "ann@ops1".into(),
            reason: "INC-7: slow disk".into(),
            at: modified,
        },
        stat: DefinitionStat {
            created: modified,
            modified,
            revision: 0,
        },
    }
}
