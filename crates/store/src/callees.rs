//! The services that applications call. Nothing else in the store depends on them.

use std::sync::Arc;

use hashbrown::HashMap;
use waypost_core::{ApplicationName, CalleesDefinition, SourceSlot, Timestamp};

use crate::change::ChangeSet;
use crate::limits::REMOVED_NAMES_MAX;
use crate::shards::Shards;
use crate::slots::Slots;
use crate::store::Store;

/// What every source says of every application that any says something of.
#[derive(Debug, Default)]
pub(crate) struct Callees(Shards<HashMap<ApplicationName, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    slots: Slots<Arc<CalleesDefinition>>,
    generation: u64,
}

/// The callees of an application at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalleesState {
    /// Whose the definition is.
    pub source: SourceSlot,
    /// What is served.
    pub definition: Arc<CalleesDefinition>,
    /// Changes with the definition; never used twice in a process.
    pub generation: u64,
}

impl Store {
    /// What an application calls, or `None` where nobody said so.
    #[must_use]
    pub fn find_callees(&self, application: &str) -> Option<CalleesState> {
        let by_application = self.0.callees.0.of(application).read();
        let entry = by_application.get(application)?;
        let (source, definition) = entry.slots.served()?;
        Some(CalleesState {
            source,
            definition: Arc::clone(definition),
            generation: entry.generation,
        })
    }

    /// The sources that say what an application calls, highest priority first.
    #[must_use]
    pub fn callees_sources(&self, application: &str) -> Vec<SourceSlot> {
        let by_application = self.0.callees.0.of(application).read();
        let filled = by_application.get(application).map(|e| e.slots.filled());
        filled.map_or_else(Vec::new, |filled| filled.map(|(slot, _)| slot).collect())
    }

    /// The applications whose callees are known, in name order.
    #[must_use]
    pub fn applications(&self) -> Vec<ApplicationName> {
        let shards = self.0.callees.0.iter();
        let mut names: Vec<_> = shards
            .flat_map(|shard| shard.read().keys().cloned().collect::<Vec<_>>())
            .collect();
        names.sort_unstable();
        names
    }

    /// Applications whose callees were deleted not long ago and are not back, in order.
    #[must_use]
    pub fn removed_applications(&self) -> Vec<ApplicationName> {
        let removed = self.0.removed.lock();
        removed.applications.names().cloned().collect()
    }

    pub(crate) fn count_callees(&self) -> usize {
        self.0.callees.0.iter().map(|s| s.read().len()).sum()
    }

    /// Takes what a source says of an application at a time; `generation` is new.
    pub(crate) fn set_callees(
        &self,
        (slot, generation, now): (SourceSlot, u64, Timestamp),
        application: ApplicationName,
        value: Option<CalleesDefinition>,
        changes: &mut ChangeSet,
    ) {
        let mut by_application = self.0.callees.0.of(application.as_str()).write();
        let entry = by_application.entry(application.clone()).or_default();
        let old = entry.slots.served().map(|(_, d)| Arc::clone(d));
        if entry.slots.get(slot).map(Arc::as_ref) != value.as_ref() {
            entry.slots.set(slot, value.map(Arc::new));
        }
        let is_changed = entry.slots.served().map(|(_, d)| d) != old.as_ref();
        if is_changed {
            entry.generation = generation;
        }
        let is_there = !entry.slots.is_empty();
        if !is_there {
            by_application.remove(&application);
        }
        drop(by_application);
        if !is_changed {
            return;
        }
        let removed = &mut self.0.removed.lock().applications;
        if is_there {
            removed.forget(&application);
        } else {
            removed.remember(application.clone(), now, REMOVED_NAMES_MAX);
        }
        changes.applications.insert(application);
    }

    /// Remembers that a definition which was never stated here was deleted at a time.
    pub(crate) fn remember_absent_callees(&self, at: Timestamp, application: ApplicationName) {
        let is_known = self.find_callees(application.as_str()).is_some();
        let removed = &mut self.0.removed.lock().applications;
        if !is_known && !removed.contains(&application) {
            removed.remember(application, at, REMOVED_NAMES_MAX);
        }
    }
}
