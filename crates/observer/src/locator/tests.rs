//! The locator over a store: names, variants, encodings, marks.

mod encoding;
mod federated;
mod marks;
mod overrides;
mod reports;
mod resources;
mod scoped;

use std::sync::Arc;

use parking_lot::Mutex;
use waypost_core::definition::DefinitionStat;
use waypost_core::{
    Announcement, ClusterName, InstanceKey, InstanceUri, InstanceValue, ResourceName, ResourceType,
    ServiceName, SourceSlot, StoreInput, Subscriber, Timestamp,
};
use waypost_store::Writer;

use super::{LoadGate, Locator};
use crate::render::testing::{mk_announcement, mk_cluster, mk_service};

const NOW: Timestamp = Timestamp(1_000);

/// A locator whose definitions are all there, and the right to write to its store.
fn mk_locator() -> (Locator, Writer) {
    let locator = Locator::new(LoadGate::closed("reading"));
    let mut writer = locator.store().writer(SourceSlot::Log).unwrap();
    writer.set_config_loaded();
    (locator, writer)
}

fn announce(announcement: &Announcement) -> StoreInput {
    StoreInput::Instance {
        key: InstanceKey {
            cluster: announcement.cluster.clone(),
            uri: announcement.uri.clone(),
        },
        value: Some(InstanceValue::new(
            &announcement.uri,
            &waypost_proto::announcement::encode(announcement),
        )),
    }
}

fn up(cluster: &str, uri: &str) -> StoreInput {
    announce(&mk_announcement(cluster, uri))
}

fn down(cluster: &str, uri: &str) -> StoreInput {
    StoreInput::Instance {
        key: InstanceKey {
            cluster: ClusterName::parse(cluster).unwrap(),
            uri: InstanceUri::parse(uri).unwrap(),
        },
        value: None,
    }
}

fn define_cluster(name: &str, document: Option<&str>) -> StoreInput {
    StoreInput::Cluster {
        name: ClusterName::parse(name).unwrap(),
        value: document.map(|document| mk_cluster(name, document, DefinitionStat::default())),
    }
}

fn define_service(name: &str, cluster: Option<&str>) -> StoreInput {
    StoreInput::Service {
        name: ServiceName::parse(name).unwrap(),
        value: cluster.map(|cluster| mk_service(name, cluster, "{}")),
    }
}

/// Remembers what it was told of, as an outbox does.
#[derive(Default)]
struct Marks(Mutex<Vec<(ResourceType, ResourceName)>>);

impl Subscriber for Marks {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        self.0.lock().push((resource_type, Arc::clone(name)));
    }
}

impl Marks {
    /// `LABEL NAME` of each, in order.
    fn take(&self) -> Vec<String> {
        let mut marks: Vec<_> = std::mem::take(&mut *self.0.lock())
            .into_iter()
            .map(|(resource_type, name)| format!("{} {name}", resource_type.label()))
            .collect();
        marks.sort_unstable();
        marks
    }
}

#[test]
fn the_gate_opens_once_and_says_why_it_is_closed_until_then() {
    use waypost_core::ResourceLocator as _;
    let gate = LoadGate::closed("reading");
    let locator = Locator::new(gate.clone());
    assert_eq!(locator.not_loaded().as_deref(), Some("reading"));
    gate.set_reason("partition 3");
    assert_eq!(locator.not_loaded().as_deref(), Some("partition 3"));
    gate.open();
    gate.set_reason("late");
    assert_eq!(locator.not_loaded(), None);
}
