//! Makers and fakes for tests of the store.
//!
//! Announcements are made up: one byte of health (`h`, `d` or `u`), then one byte per D2 partition.
//! An override drains (`h` becomes `d`), or sets a weight (the health in upper case).

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use waypost_core::config::{OverrideEffect, Signed, Weight};
use waypost_core::definition::DefinitionStat;
use waypost_core::{
    ClusterDefinition, ClusterName, Health, InstanceKey, InstanceUri, InstanceValue, Override,
    ResourceName, ResourceType, ServiceDefinition, ServiceName, StoreInput, Subscriber, Timestamp,
};
use waypost_store::{ChangeListener, ChangeSet, ClusterFacts, Inspector, InstanceFacts, Store};

pub(crate) const INSPECTOR: Inspector = Inspector {
    instance: |value| InstanceFacts {
        health: match value.first().map(u8::to_ascii_lowercase) {
            Some(b'h') => Health::Healthy,
            Some(b'd') => Health::Draining,
            _ => Health::Unhealthy,
        },
        d2_partitions: match value.get(1..).unwrap_or_default() {
            [] | [b'0'] => Vec::new(),
            digits => digits.iter().map(|d| i32::from(d - b'0')).collect(),
        },
    },
    overlay: |value, above| {
        let mut value = value.to_vec();
        if let Some(health) = value.first_mut() {
            match above.effect {
                OverrideEffect::Drain if *health == b'h' => *health = b'd',
                OverrideEffect::Drain => {}
                OverrideEffect::Weight(_) => health.make_ascii_uppercase(),
            }
        }
        value.into()
    },
    cluster: |definition| {
        let text = std::str::from_utf8(&definition.document).unwrap_or_default();
        let mut numbers = text.split(' ').map(str::parse::<u32>);
        let defaults = ClusterFacts::default();
        let percent = numbers.next().and_then(Result::ok);
        ClusterFacts {
            min_healthy_percent: percent
                .and_then(|p| u8::try_from(p).ok())
                .unwrap_or(defaults.min_healthy_percent),
            d2_partition_count: numbers.next().and_then(Result::ok).unwrap_or(0),
            banned_uris: text.split(' ').nth(2).map(|uri| [uri.into()].into()),
            ..defaults
        }
    },
};

/// Remembers what it was told.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<ChangeSet>>);

impl Recorder {
    pub(crate) fn take(&self) -> Vec<ChangeSet> {
        std::mem::take(&mut self.0.lock())
    }
}

impl ChangeListener for Recorder {
    fn changed(&self, changes: &ChangeSet) {
        self.0.lock().push(changes.clone());
    }
}

/// Remembers the names that it was told of.
#[derive(Default)]
pub(crate) struct Marks(Mutex<Vec<(ResourceType, ResourceName)>>);

impl Marks {
    pub(crate) fn take(&self) -> Vec<String> {
        let marks = std::mem::take(&mut *self.0.lock());
        marks
            .into_iter()
            .map(|(_, name)| name.to_string())
            .collect()
    }
}

impl Subscriber for Marks {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        self.0.lock().push((resource_type, name.clone()));
    }
}

pub(crate) fn mk_store() -> (Store, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (Store::new(INSPECTOR, recorder.clone()), recorder)
}

pub(crate) fn cluster_name(name: &str) -> ClusterName {
    ClusterName::parse(name).unwrap()
}

pub(crate) fn service_name(name: &str) -> ServiceName {
    ServiceName::parse(name).unwrap()
}

pub(crate) fn uri(host: &str) -> InstanceUri {
    InstanceUri::parse(&format!("http://{host}:1")).unwrap()
}

pub(crate) fn up(cluster: &str, host: &str, value: &str) -> StoreInput {
    let uri = uri(host);
    StoreInput::Instance {
        value: Some(InstanceValue::new(&uri, value.as_bytes())),
        key: InstanceKey {
            cluster: cluster_name(cluster),
            uri,
        },
    }
}

pub(crate) fn down(cluster: &str, host: &str) -> StoreInput {
    StoreInput::Instance {
        key: InstanceKey {
            cluster: cluster_name(cluster),
            uri: uri(host),
        },
        value: None,
    }
}

pub(crate) fn drain() -> OverrideEffect {
    OverrideEffect::Drain
}

pub(crate) fn weigh() -> OverrideEffect {
    OverrideEffect::Weight(Weight::new(0.5).unwrap())
}

pub(crate) fn set(cluster: &str, host: &str, effect: Option<OverrideEffect>) -> StoreInput {
    let key = InstanceKey {
        cluster: cluster_name(cluster),
        uri: uri(host),
    };
    StoreInput::Override {
        key: key.clone(),
        value: effect.map(|effect| Override {
            instance: key,
            effect,
            signed: Signed {
                author: "ann@ops".into(),
                reason: "INC-7".into(),
                at: Timestamp(5),
            },
            stat: DefinitionStat::default(),
        }),
    }
}

/// `document` is the percentage of healthy instances, the number of D2 partitions and a URI that is banned.
pub(crate) fn define_cluster(name: &str, document: Option<&str>) -> StoreInput {
    StoreInput::Cluster {
        name: cluster_name(name),
        value: document.map(|document| ClusterDefinition {
            name: cluster_name(name),
            document: Bytes::copy_from_slice(document.as_bytes()),
            stat: DefinitionStat::default(),
            author: "".into(),
        }),
    }
}

pub(crate) fn define_service(name: &str, cluster: Option<&str>) -> StoreInput {
    StoreInput::Service {
        name: service_name(name),
        value: cluster.map(|cluster| ServiceDefinition {
            name: service_name(name),
            cluster: cluster_name(cluster),
            path: String::new(),
            document: Bytes::new(),
            stat: DefinitionStat::default(),
            author: "".into(),
        }),
    }
}
