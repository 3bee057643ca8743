//! Not loaded is not empty (DESIGN invariant 9).

use std::sync::Arc;

use parking_lot::RwLock;

/// Holds back every answer until what existed at start was read, then never again. Clones are
/// handles to the same gate.
#[derive(Clone, Debug)]
pub struct LoadGate(Arc<RwLock<Option<String>>>);

impl LoadGate {
    /// A closed gate; `reason` is what askers are told.
    #[must_use]
    pub fn closed(reason: impl Into<String>) -> Self {
        Self(Arc::new(RwLock::new(Some(reason.into()))))
    }

    /// Gives another reason. Does nothing once the gate is open.
    pub fn set_reason(&self, reason: impl Into<String>) {
        if let Some(held) = &mut *self.0.write() {
            *held = reason.into();
        }
    }

    /// Opens it for good: stale is not unloaded.
    pub fn open(&self) {
        *self.0.write() = None;
    }

    /// Why nothing may be answered yet, or `None` once open.
    #[must_use]
    pub fn not_loaded(&self) -> Option<String> {
        self.0.read().clone()
    }
}
