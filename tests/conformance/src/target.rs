//! What cases are played against.

use waypost_core::{ClientKind, ResourceType};

/// A server that can be told what to serve. What a target cannot do is an error of the case, never
/// passed over.
pub trait Target: Send + Sync {
    /// Its address, `HOST:PORT`.
    fn address(&self) -> String;

    /// It has this resource from now on; `bytes` pads it.
    ///
    /// # Errors
    /// It cannot.
    fn set(
        &self,
        resource_type: ResourceType,
        name: &str,
        value: &str,
        bytes: usize,
    ) -> anyhow::Result<()>;

    /// What clients of one kind get for it instead.
    ///
    /// # Errors
    /// It cannot.
    fn set_for(
        &self,
        client: ClientKind,
        resource_type: ResourceType,
        name: &str,
        value: &str,
    ) -> anyhow::Result<()>;

    /// It no longer has the resource.
    ///
    /// # Errors
    /// It cannot.
    fn remove(&self, resource_type: ResourceType, name: &str) -> anyhow::Result<()>;

    /// Clients ask for the endpoints of a cluster under this name.
    ///
    /// # Errors
    /// It cannot.
    fn set_endpoints_name(&self, cluster: &str, endpoints: &str) -> anyhow::Result<()>;

    /// Its clients are told of the resource although nothing changed.
    ///
    /// # Errors
    /// It cannot.
    fn touch(&self, resource_type: ResourceType, name: &str) -> anyhow::Result<()>;

    /// It forgets which resources it once had.
    ///
    /// # Errors
    /// It cannot.
    fn forget_removed(&self) -> anyhow::Result<()>;

    /// Why it may not answer yet; `None`: it may.
    ///
    /// # Errors
    /// It cannot.
    fn set_not_loaded(&self, why: Option<&str>) -> anyhow::Result<()>;

    /// The `value` that a resource's payload was made from.
    fn value_of(&self, payload: &[u8]) -> String;

    /// The name of a resource of which only the payload is known (`SotW`).
    fn name_of(&self, payload: &[u8]) -> String;
}
