//! What the client knows: written by its task, read by calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use waypost_proto::indis::D2uri;
use waypost_xds_client::Counters;

use crate::documents::{Cluster, Service};

/// Instances of a cluster, by the key under which they came.
pub(crate) type Hosts = BTreeMap<String, Arc<D2uri>>;

/// Properties by name: nothing is known; it was said to be nothing; or what it is.
pub(crate) type Properties<T> = BTreeMap<String, Option<Arc<T>>>;

/// Everything that calls read.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) services: Properties<Service>,
    /// Under their own names and those of symlinks.
    pub(crate) clusters: Properties<Cluster>,
    /// By cluster, or symlink.
    pub(crate) hosts: Properties<Hosts>,
    /// Instances that are watched one by one, by name.
    pub(crate) uris: Properties<D2uri>,
    pub(crate) callees: Properties<Vec<String>>,
    pub(crate) directory: Directory,
    pub(crate) report: Report,
}

/// The names of all clusters and services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Of clusters, symlinks among them.
    pub clusters: BTreeSet<String>,
    /// Of services.
    pub services: BTreeSet<String>,
    /// The end of the snapshot was read.
    pub is_complete: bool,
}

/// What rest.li's `XdsClientJmx` says of a client, and a little more.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the engine counted.
    pub counters: Counters,
    /// The server has accepted the stream and it has not ended.
    pub is_connected: bool,
    /// Streams that had at least one response.
    pub streams_answered: u64,
    /// Resources that came on the last stream, whether they were new or not.
    pub resources_of_stream: u64,
    /// Members that were removed on the last stream.
    pub removals_of_stream: u64,
    /// Watched names of which a server said that there is nothing.
    pub not_found: BTreeSet<String>,
    /// Names whose content was of no use: undecodable, empty, or a document that cannot be read.
    pub invalid: BTreeSet<String>,
    /// Watched names that wait for the first answer, or for the first of this stream.
    pub awaited: BTreeSet<String>,
    /// Symlinks to a cluster that another one leads to; they are not followed.
    pub conflicting_symlinks: BTreeSet<String>,
}

/// Publishes a property. That it is nothing never replaces what it was.
pub(crate) fn publish<T>(properties: &mut Properties<T>, name: &str, value: Option<Arc<T>>) {
    match value {
        Some(value) => {
            properties.insert(name.to_owned(), Some(value));
        }
        None => {
            properties.entry(name.to_owned()).or_insert(None);
        }
    }
}
