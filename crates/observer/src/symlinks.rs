//! Where symlinks lead, for people. Clients follow them by themselves: they are served as they are.

use std::collections::BTreeMap;

use waypost_core::ClusterName;
use waypost_core::name::is_symlink;
use waypost_store::Store;

/// Where a symlink leads; `None` for what is none.
pub(crate) fn find_target(store: &Store, name: &str) -> Option<String> {
    let (_, definition) = store.find_outline(name)?.definition?;
    definition.find_symlink_target().map(str::to_owned)
}

/// The clusters to which several symlinks lead, and these, in name order. D2 clients follow only the
/// first of them that they meet: calls through the others fail (rest.li `XdsToD2PropertiesAdaptor`).
pub(crate) fn shared_targets(store: &Store) -> BTreeMap<String, Vec<ClusterName>> {
    let mut by_target: BTreeMap<String, Vec<ClusterName>> = BTreeMap::new();
    for symlink in store.cluster_names_where(|name| is_symlink(name.as_str())) {
        if let Some(target) = find_target(store, symlink.as_str()) {
            by_target.entry(target).or_default().push(symlink);
        }
    }
    by_target.retain(|_, symlinks| symlinks.len() > 1);
    by_target
}
