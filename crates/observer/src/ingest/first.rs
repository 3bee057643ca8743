//! What is said of instances before anything is served, kept by cluster.
//!
//! A log is in the order in which its announcers spoke, so that of two records in a row hardly ever two are
//! of one cluster. Written as it comes, a fleet of millions finds nothing of its clusters in a cache: each
//! instance costs a miss for every step of the search for its place. Nobody may ask before everything was
//! read, so it is written then, one cluster after another.

use std::collections::HashMap;

use waypost_core::{ClusterName, InstanceKey, InstanceUri, InstanceValue, StoreInput, Timestamp};
use waypost_store::Writer;

/// Statements that the store has not heard yet; as many as the log has records of instances.
#[derive(Debug, Default)]
pub(super) struct FirstStatements(HashMap<ClusterName, Vec<Statement>>);

#[derive(Debug)]
struct Statement {
    at: Timestamp,
    what: What,
}

#[derive(Debug)]
enum What {
    Announced(InstanceValue),
    Left(InstanceUri),
    /// It was not there when it was said to have left.
    Absent(InstanceUri),
}

// 3 million of these are held for a moment.
const _: () = assert!(size_of::<Statement>() <= 24);

impl FirstStatements {
    /// `key` announces `value`, or has left.
    pub(super) fn hold(&mut self, at: Timestamp, key: InstanceKey, value: Option<InstanceValue>) {
        let what = match value {
            Some(value) => What::Announced(value),
            None => What::Left(key.uri),
        };
        self.push(key.cluster, Statement { at, what });
    }

    /// `key` is said to have left and was not there.
    pub(super) fn hold_absent(&mut self, at: Timestamp, key: InstanceKey) {
        let what = What::Absent(key.uri);
        self.push(key.cluster, Statement { at, what });
    }

    /// Writes everything, each cluster's in the order in which it was said.
    pub(super) fn write(&mut self, writer: &mut Writer) {
        for (cluster, statements) in std::mem::take(&mut self.0) {
            for alike in statements.chunk_by(|a, b| a.is_announced() && b.is_announced()) {
                write_alike(&cluster, alike, writer);
            }
        }
    }

    fn push(&mut self, cluster: ClusterName, statement: Statement) {
        self.0.entry(cluster).or_default().push(statement);
    }
}

impl Statement {
    fn is_announced(&self) -> bool {
        matches!(self.what, What::Announced(_))
    }

    fn key(&self, cluster: &ClusterName) -> InstanceKey {
        let uri = match &self.what {
            What::Announced(value) => value.uri(),
            What::Left(uri) | What::Absent(uri) => uri.clone(),
        };
        let cluster = cluster.clone();
        InstanceKey { cluster, uri }
    }
}

/// One statement, or several announcements in a row: the time matters only for what leaves.
fn write_alike(cluster: &ClusterName, statements: &[Statement], writer: &mut Writer) {
    let Some(Statement { at, what }) = statements.first() else {
        return;
    };
    if let What::Absent(_) = what {
        let absent = statements.iter().map(|one| (one.at, one.key(cluster)));
        writer.remember_absent(absent);
        return;
    }
    let inputs = statements.iter().map(|one| StoreInput::Instance {
        key: one.key(cluster),
        value: match &one.what {
            What::Announced(value) => Some(value.clone()),
            What::Left(_) | What::Absent(_) => None,
        },
    });
    writer.apply(*at, inputs);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use waypost_core::SourceSlot;
    use waypost_core::time::millis;
    use waypost_store::limits::REMEMBER;
    use waypost_store::{ChangeListener, ChangeSet, Store};

    use super::*;
    use crate::render::inspect::INSPECTOR;

    struct Deaf;

    impl ChangeListener for Deaf {
        fn changed(&self, _: &ChangeSet) {}
    }

    #[derive(Clone, Copy, Debug)]
    enum Said {
        Announced(u8),
        Left,
        Absent,
    }

    fn mk_store() -> (Store, Writer) {
        let store = Store::new(INSPECTOR, Arc::new(Deaf));
        let writer = store.writer(SourceSlot::Log).unwrap();
        (store, writer)
    }

    fn mk_key(cluster: u8, instance: u8) -> InstanceKey {
        InstanceKey {
            cluster: ClusterName::parse(&format!("c{cluster}")).unwrap(),
            uri: InstanceUri::parse(&format!("http://h:{}", 1 + u16::from(instance))).unwrap(),
        }
    }

    fn value_of(key: &InstanceKey, said: Said) -> Option<InstanceValue> {
        match said {
            Said::Announced(byte) => Some(InstanceValue::new(&key.uri, &[byte])),
            Said::Left | Said::Absent => None,
        }
    }

    /// Everything that a store says of clusters and of what left them.
    fn look(store: &Store) -> Vec<String> {
        let names = (0..3).map(|cluster| mk_key(cluster, 0).cluster);
        let clusters = names.map(|name| {
            let found = store.find_cluster(name.as_str());
            let instances = found.map(|cluster| cluster.instances);
            let removed = store.removed_instances(name.as_str());
            format!("{name} {instances:?} {removed:?}")
        });
        let left = format!("{:?}", store.removed_clusters());
        clusters.chain([left]).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_by_cluster_is_what_was_said_one_by_one(
            steps in prop::collection::vec((0..3_u8, 0..4_u8, 0..5_u8), 0..60)
        ) {
            let (direct, mut direct_writer) = mk_store();
            let (grouped, mut grouped_writer) = mk_store();
            let mut first = FirstStatements::default();
            for (at, (cluster, instance, said)) in (0..).map(Timestamp).zip(steps) {
                let key = mk_key(cluster, instance);
                let is_there = direct.find_announced(key.cluster.as_str(), key.uri.as_str());
                // Who leaves was there, who is absent was not: the fold says it so.
                let said = match (said, is_there) {
                    (0..3, _) => Said::Announced(said),
                    (_, Some(_)) => Said::Left,
                    (_, None) => Said::Absent,
                };
                let value = value_of(&key, said);
                match said {
                    Said::Announced(_) | Said::Left => {
                        first.hold(at, key.clone(), value.clone());
                        direct_writer.apply(at, [StoreInput::Instance { key, value }]);
                    }
                    Said::Absent => {
                        first.hold_absent(at, key.clone());
                        direct_writer.remember_absent([(at, key)]);
                    }
                }
            }
            first.write(&mut grouped_writer);
            direct_writer.set_config_loaded();
            grouped_writer.set_config_loaded();
            prop_assert_eq!(look(&grouped), look(&direct));
            // What is remembered is remembered for as long.
            for at in (0..70).step_by(7) {
                let now = Timestamp(at + millis(REMEMBER));
                direct_writer.forget(now);
                grouped_writer.forget(now);
                prop_assert_eq!(look(&grouped), look(&direct));
            }
        }
    }
}
