//! The services that applications call.

use waypost_core::{EncodedResource, ResourceType, Variant};

use super::Locator;
use super::cache::Source;
use crate::render::d2;

impl Locator {
    /// The callees of an application, under the name that a client of it uses.
    pub(super) fn find_callees(&self, name: &str, application: &str) -> Option<EncodedResource> {
        let key = (ResourceType::D2CalleeServices, name, Variant::default());
        let callees = || self.0.store.find_callees(application);
        self.0.cache.get_or_encode(
            key,
            || callees().map(|state| Source::Number(state.generation)),
            || {
                let state = callees()?;
                let number = Source::Number(state.generation);
                Some((d2::callees(&state.definition), number))
            },
        )
    }
}
