//! Resources under names of gRPC's federation.

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;
use waypost_core::{EncodedResource, ResourceLocator as _, ResourceType, Variant};

use super::Locator;
use super::cache::Source;
use crate::render::Rendered;
use crate::render::federated::FederatedName;

impl Locator {
    /// What is served under the plain name, with names of the form that is asked for.
    pub(super) fn find_federated(
        &self,
        resource_type: ResourceType,
        name: &str,
        federated: &FederatedName<'_>,
        variant: Variant,
    ) -> Option<EncodedResource> {
        let plain = self.find(resource_type, federated.plain(), variant)?;
        // Made from the plain one, it is as new as that one is.
        let source = Source::Number(plain.version().0);
        let key = (resource_type, name, variant);
        let render = || {
            let response = DiscoveryResponse::decode(plain.sotw()).ok()?;
            let value = federated.rename(&response.resources.first()?.value, name)?;
            let origin = plain.origin();
            Some((Rendered { value, origin }, source.clone()))
        };
        let cache = &self.0.cache;
        cache.get_or_encode(key, || Some(source.clone()), render)
    }
}
