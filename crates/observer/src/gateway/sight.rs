//! What the gateway sees of the Observer that it is part of. It looks and never touches.

use waypost_core::{ConfigKey, ConfigValue, InstanceKey, ReleaseScope};
use waypost_fold::Replica;
use waypost_store::Store;

use crate::ingest::Questions;
use crate::locator::{LoadGate, Locator};

/// The store, the ingest task and whether everything was read. Clones share them.
#[derive(Clone, Debug)]
pub struct Sight {
    store: Store,
    questions: Questions,
    gate: LoadGate,
}

impl Sight {
    /// Sees what `locator` serves, what the ingest task answers, and whether `gate` is open.
    pub(crate) fn new(locator: &Locator, questions: &Questions, gate: &LoadGate) -> Self {
        Self {
            store: locator.store().clone(),
            questions: questions.clone(),
            gate: gate.clone(),
        }
    }

    /// Whether anybody announces an instance; `None` while not everything was read.
    pub(super) fn is_announced(&self, key: &InstanceKey) -> Option<bool> {
        if self.gate.not_loaded().is_some() {
            return None;
        }
        let (cluster, uri) = (key.cluster.as_str(), key.uri.as_str());
        Some(!self.store.instance_sources(cluster, uri).is_empty())
    }

    /// How many expiries are held; `None` while not everything was read.
    pub(super) async fn held(&self, scope: &ReleaseScope) -> Option<u64> {
        if self.gate.not_loaded().is_some() {
            return None;
        }
        let scope = scope.clone();
        let held = self.questions.look(move |replica| held(replica, &scope));
        held.await.ok()
    }

    /// Records that the log lost and this Observer kept, in the order of their keys: those that are
    /// in force, then who did what.
    pub(super) async fn orphans(&self) -> Option<Vec<(ConfigKey, ConfigValue)>> {
        let orphans = self.questions.look(|replica| {
            let config = replica.logs().config;
            let orphans = config.orphans().chain(config.orphaned_history());
            let orphans =
                orphans.filter_map(|(key, held)| Some((key.clone(), held.value.clone()?)));
            orphans.collect::<Vec<_>>()
        });
        let mut orphans = orphans.await.ok()?;
        orphans.sort_by(|(a, _), (b, _)| a.cmp(b));
        Some(orphans)
    }
}

fn held(replica: &Replica, scope: &ReleaseScope) -> u64 {
    let fold = replica.logs().announcements;
    let holding = fold.holding();
    let overdue = match scope {
        // A fleet that holds holds every cluster.
        ReleaseScope::All => match holding.fleet {
            Some(fleet) => fleet.overdue,
            None => holding.clusters.iter().map(|(_, h)| h.overdue).sum(),
        },
        ReleaseScope::Cluster(name) if holding.fleet.is_some() => fold.find_census(name).overdue,
        ReleaseScope::Cluster(name) => fold.find_holding(name).map_or(0, |h| h.overdue),
    };
    u64::from(overdue)
}
