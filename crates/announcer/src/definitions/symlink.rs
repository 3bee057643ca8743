//! Symlinks: names of clusters that begin with `$` and lead to another cluster. D2 clients follow them;
//! a service that is to be moved from one cluster to another leads to one.
//!
//! Sources: rest.li `SymlinkUtil` for ZooKeeper, `XdsToD2PropertiesAdaptor` for xDS, which takes a `$`
//! anywhere in a cluster's name for a symlink, follows one step, and follows one symlink to a cluster only.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use waypost_core::{ClusterName, Definition};
use waypost_fold::ConfigFold;

use super::{DefinitionInput, Mistake};

/// What D2 clients take for a symlink wherever it stands in the name of a cluster.
const MARK: char = '$';

/// The path that a symlink holds.
pub(super) fn to_document(target: &ClusterName) -> Bytes {
    format!("/d2/clusters/{target}").into()
}

/// What is wrong with the name of a cluster that is none; `None` if nothing is.
pub(super) fn mistake_of_cluster(name: &ClusterName) -> Option<&'static str> {
    let is_taken_for_one = name.as_str().contains(MARK);
    is_taken_for_one.then_some("holds a $, by which D2 clients take it for a symlink")
}

/// What is wrong with the name of a symlink; `None` if nothing is.
pub(super) fn mistake_of_name(name: &ClusterName) -> Option<&'static str> {
    let is_bare = name.as_str().trim_start_matches(MARK).is_empty();
    is_bare.then_some("is nothing but $; expected for example $greeterMaster")
}

/// What is wrong with the cluster that a symlink is to lead to; `None` if nothing is.
pub(super) fn mistake_of_target(target: &ClusterName) -> Option<&'static str> {
    let is_symlink = target.as_str().contains(MARK);
    is_symlink.then_some("is a symlink itself, and D2 clients follow one step; name the cluster")
}

/// Adds each symlink of a request that would lead where another one leads, be it of the request or of
/// `standing`: D2 clients would follow only the first that they meet.
pub(super) fn check_targets(
    inputs: &[(usize, DefinitionInput)],
    standing: Option<&ConfigFold>,
    mistakes: &mut Vec<Mistake>,
) {
    let symlinks = || {
        inputs.iter().filter_map(|(index, input)| match input {
            DefinitionInput::Symlink { name, target } => Some((*index, name, target)),
            _ => None,
        })
    };
    let definitions = standing.into_iter().flat_map(ConfigFold::definitions);
    let mut targets_by_name: BTreeMap<&str, &str> = definitions
        .filter_map(|(_, definition)| match definition {
            Definition::Cluster(c) => Some((c.name.as_str(), c.find_symlink_target()?)),
            Definition::Service(_) | Definition::Callees(_) => None,
        })
        .collect();
    targets_by_name.extend(symlinks().map(|(_, name, target)| (name.as_str(), target.as_str())));
    let mut names_by_target: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, target) in targets_by_name {
        names_by_target.entry(target).or_default().insert(name);
    }
    for (index, name, target) in symlinks() {
        let names = names_by_target.get(target.as_str()).into_iter().flatten();
        if let Some(other) = names.copied().find(|other| *other != name.as_str()) {
            mistakes.push(Mistake {
                index,
                name: name.to_string(),
                field: "cluster".to_owned(),
                why: format!(
                    "is {target}, where {other} leads too; D2 clients follow only one symlink to a cluster"
                ),
            });
        }
    }
}
