//! Fabrics of askers, by number.

use std::sync::Arc;

use parking_lot::RwLock;
use waypost_core::FabricId;

use super::limits::{FABRIC_BYTES_MAX, FABRICS_MAX};

/// The fabrics that askers named so far, bounded. Numbers mean nothing outside of this process.
#[derive(Debug, Default)]
pub(super) struct Fabrics(RwLock<Vec<Arc<str>>>);

impl Fabrics {
    /// The number of a fabric; that of none for no name, a name that cannot be one, and one too many.
    pub(super) fn id(&self, name: &str) -> FabricId {
        if name.is_empty() || name.len() > FABRIC_BYTES_MAX {
            return FabricId::default();
        }
        if let Some(id) = position(&self.0.read(), name) {
            return id;
        }
        let mut names = self.0.write();
        if let Some(id) = position(&names, name) {
            return id;
        }
        if names.len() >= usize::from(FABRICS_MAX) {
            tracing::warn!(
                fabric = name,
                "clients name more than {FABRICS_MAX} fabrics: this one is not told apart"
            );
            return FabricId::default();
        }
        names.push(name.into());
        position(&names, name).unwrap_or_default()
    }

    /// The name behind a number.
    pub(super) fn find(&self, id: FabricId) -> Option<Arc<str>> {
        let index = usize::from(id.0).checked_sub(1)?;
        self.0.read().get(index).cloned()
    }
}

/// Numbers start at 1: 0 is "none".
fn position(names: &[Arc<str>], name: &str) -> Option<FabricId> {
    let index = names.iter().position(|held| **held == *name)?;
    u16::try_from(index + 1).ok().map(FabricId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_has_one_number_and_those_that_are_too_many_have_none() {
        let fabrics = Fabrics::default();
        let east = fabrics.id("east");
        assert_eq!((east, fabrics.id("east")), (FabricId(1), FabricId(1)));
        assert_eq!(fabrics.find(east).as_deref(), Some("east"));
        for none in ["", &"x".repeat(FABRIC_BYTES_MAX + 1)] {
            assert_eq!(fabrics.id(none), FabricId::default());
        }
        assert_eq!(fabrics.find(FabricId::default()), None);
        let many: Vec<_> = (0..200).map(|n| fabrics.id(&n.to_string())).collect();
        let told_apart = many.iter().filter(|id| **id != FabricId::default());
        assert_eq!(told_apart.count(), usize::from(FABRICS_MAX) - 1);
        assert_eq!(fabrics.id("east"), east);
    }
}
