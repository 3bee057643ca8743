//! What follows from what the engine says: properties that are published, symlinks that are followed.
//! No I/O: the client's task hands in events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use waypost_core::ResourceType;
use waypost_proto::indis::d2_cluster_or_service_name::Type;
use waypost_proto::indis::{D2uri, D2uriMap};
use waypost_xds_client::{
    Absence, Event, Kept, KnownVersions, Machine, StreamEvent, Subscription, TypeUrl,
};

use crate::client::Mode;
use crate::codec::{D2Codec, Value};
use crate::documents::{Cluster, Service};
use crate::names;
use crate::view::{Hosts, View, publish};

/// What somebody needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Service(String),
    Cluster(String),
    Hosts(String),
    /// One instance, by its name on the wire.
    Uri(String),
    Directory,
    Callees(String),
}

/// The client without its connections.
#[derive(Debug)]
pub(crate) struct Book {
    mode: Mode,
    view_tx: watch::Sender<View>,
    watched: BTreeSet<(TypeUrl, String)>,
    targets_by_symlink: BTreeMap<String, String>,
    /// Resources and removals that had come when the stream was opened.
    before_stream: (u64, u64),
}

impl Book {
    pub(crate) fn new(mode: Mode, view_tx: watch::Sender<View>) -> Self {
        Self {
            mode,
            view_tx,
            watched: BTreeSet::new(),
            targets_by_symlink: BTreeMap::new(),
            before_stream: (0, 0),
        }
    }

    /// What rest.li watches before anybody calls.
    pub(crate) fn start(&mut self, machine: &mut Machine<D2Codec>) {
        let never = names::NON_EXISTENT_CLUSTER.to_owned();
        self.want(Want::Cluster(never), machine);
    }

    /// Watches what is wanted, from now on and for ever.
    pub(crate) fn want(&mut self, want: Want, machine: &mut Machine<D2Codec>) {
        let node = TypeUrl::from(ResourceType::D2Node);
        let (type_url, name) = match want {
            Want::Service(service) => (node, format!("{}{service}", names::SERVICES)),
            Want::Cluster(cluster) => (node, format!("{}{cluster}", names::CLUSTERS)),
            Want::Hosts(cluster) if names::is_symlink(&cluster) => {
                (node, format!("{}{cluster}", names::URIS))
            }
            Want::Hosts(cluster) => match self.mode {
                Mode::Map => {
                    let name = format!("{}{cluster}", names::URIS);
                    (ResourceType::D2UriMap.into(), name)
                }
                Mode::Glob(_) => (ResourceType::D2Uri.into(), names::glob(&cluster)),
            },
            Want::Uri(name) => (ResourceType::D2Uri.into(), name),
            Want::Directory => {
                let directory = ResourceType::D2ClusterOrServiceName;
                (directory.into(), "*".to_owned())
            }
            Want::Callees(name) => (ResourceType::D2CalleeServices.into(), name),
        };
        if self.watched.insert((type_url.clone(), name.clone())) {
            let watched = machine.watch(&type_url, &Subscription::new(&name));
            debug_assert_eq!(watched, Ok(()), "the engine takes a million names");
            self.change(|view| view.report.awaited.insert(name));
        }
    }

    /// Takes what happened.
    pub(crate) fn handle(&mut self, event: Event<Value>, machine: &mut Machine<D2Codec>) {
        match event {
            Event::Changed {
                type_url,
                name,
                value,
                ..
            } => self.take(&type_url, &name, value, machine),
            Event::Confirmed { type_url, name } => {
                // What was removed and is back as it was is only confirmed.
                let held = machine.find_held(&type_url, &name);
                if let Some(value) = held.map(|held| held.value.clone()) {
                    self.take(&type_url, &name, value, machine);
                }
            }
            Event::Absent {
                type_url,
                name,
                why: Absence::Stated,
                ..
            } => self.remove(&type_url, &name),
            Event::Absent { .. } => {}
            Event::Rejected {
                type_url,
                name,
                kept,
                ..
            } => {
                self.invalid(&name);
                if kept == Kept::Nothing {
                    self.release(&type_url, &name);
                }
            }
            Event::Complete { subscription, .. } => {
                self.answered(subscription.as_str());
                if subscription == Subscription::wildcard() {
                    self.change(|view| view.directory.is_complete = true);
                }
            }
            Event::Stream(event) => self.note(&event, machine),
        }
        self.count(machine);
    }

    fn take(
        &mut self,
        type_url: &TypeUrl,
        name: &str,
        value: Value,
        machine: &mut Machine<D2Codec>,
    ) {
        self.answered(name);
        match value {
            Value::Node(data) => self.take_node(name, &data, machine),
            Value::UriMap(map) => {
                let cluster = name.strip_prefix(names::URIS).unwrap_or(name);
                self.publish_hosts(cluster, Some(Arc::new(to_hosts(&map))));
            }
            Value::Uri(uri) => {
                if self.is_watched(type_url, name) {
                    let uri = Some(Arc::clone(&uri));
                    self.change(|view| view.uris.insert(name.to_owned(), uri));
                }
                self.patch(name, Some(&uri));
            }
            Value::Name(of) => self.change(|view| {
                match of {
                    Type::ClusterName(name) => view.directory.clusters.insert(name),
                    Type::ServiceName(name) => view.directory.services.insert(name),
                };
            }),
            Value::Callees(services) => {
                self.change(|view| publish(&mut view.callees, name, Some(services)));
            }
        }
    }

    fn take_node(&mut self, name: &str, data: &Bytes, machine: &mut Machine<D2Codec>) {
        if data.is_empty() {
            self.invalid(name);
            return self.release(&ResourceType::D2Node.into(), name);
        }
        if let Some(service) = name.strip_prefix(names::SERVICES) {
            let document = self.read(name, Service::parse(data));
            self.change(|view| publish(&mut view.services, service, document));
            return;
        }
        let cluster = name.strip_prefix(names::CLUSTERS);
        match cluster.or_else(|| name.strip_prefix(names::URIS)) {
            Some(symlink) if names::is_symlink(symlink) => {
                self.follow(symlink, names::symlink_target(data), machine);
            }
            Some(cluster) => {
                let document = self.read(name, Cluster::parse(data));
                self.publish_cluster(cluster, document);
            }
            None => self.invalid(name),
        }
    }

    /// A symlink leads to this cluster now. What is known of it is known under the symlink at once.
    fn follow(&mut self, symlink: &str, target: String, machine: &mut Machine<D2Codec>) {
        let mut others = self.targets_by_symlink.iter();
        if others.any(|(other, theirs)| other != symlink && *theirs == target) {
            self.change(|view| view.report.conflicting_symlinks.insert(symlink.to_owned()));
            return;
        }
        self.targets_by_symlink
            .insert(symlink.to_owned(), target.clone());
        self.want(Want::Cluster(target.clone()), machine);
        self.want(Want::Hosts(target.clone()), machine);
        self.change(|view| {
            if let Some(cluster) = view.clusters.get(&target).cloned() {
                publish(&mut view.clusters, symlink, cluster);
            }
            if let Some(hosts) = view.hosts.get(&target).cloned() {
                publish(&mut view.hosts, symlink, hosts);
            }
        });
    }

    /// A server says that there is nothing of this name.
    fn remove(&mut self, type_url: &TypeUrl, name: &str) {
        self.answered(name);
        if self.is_watched(type_url, name) {
            self.change(|view| view.report.not_found.insert(name.to_owned()));
        }
        match type_url.resource_type() {
            Some(ResourceType::D2Uri) => match names::parse_instance(name) {
                // An empty collection is a cluster without hosts; hosts that are known stay.
                Some((cluster, uri)) if uri == "*" => {
                    let known = self.view_tx.borrow().hosts.get(cluster).cloned().flatten();
                    self.publish_hosts(cluster, Some(known.unwrap_or_default()));
                }
                _ => {
                    if self.is_watched(type_url, name) {
                        self.change(|view| view.uris.insert(name.to_owned(), None));
                    }
                    self.patch(name, None);
                }
            },
            Some(ResourceType::D2ClusterOrServiceName) => self.change(|view| {
                if let Some(cluster) = name.strip_prefix(names::CLUSTERS) {
                    view.directory.clusters.remove(cluster);
                } else if let Some(service) = name.strip_prefix(names::SERVICES) {
                    view.directory.services.remove(service);
                }
            }),
            _ => self.release(type_url, name),
        }
    }

    /// Whoever waits for it learns that there is nothing. What is known stays.
    fn release(&mut self, type_url: &TypeUrl, name: &str) {
        self.answered(name);
        if type_url.resource_type() == Some(ResourceType::D2CalleeServices) {
            self.change(|view| publish(&mut view.callees, name, Some(Arc::default())));
        } else if let Some(service) = name.strip_prefix(names::SERVICES) {
            self.change(|view| publish(&mut view.services, service, None));
        } else if let Some(cluster) = name.strip_prefix(names::CLUSTERS) {
            self.publish_cluster(cluster, None);
        } else if let Some(cluster) = name.strip_prefix(names::URIS) {
            self.publish_hosts(cluster, None);
        }
    }

    /// Puts one instance into the hosts of its cluster, or takes it out.
    fn patch(&mut self, name: &str, uri: Option<&Arc<D2uri>>) {
        let Some((cluster, key)) = names::parse_instance(name) else {
            return;
        };
        if !self.is_watched(&ResourceType::D2Uri.into(), &names::glob(cluster)) {
            return;
        }
        let known = self.view_tx.borrow().hosts.get(cluster).cloned().flatten();
        let mut hosts = known.unwrap_or_default();
        match uri {
            Some(uri) => Arc::make_mut(&mut hosts).insert(key, Arc::clone(uri)),
            None => Arc::make_mut(&mut hosts).remove(&key),
        };
        self.publish_hosts(cluster, Some(hosts));
    }

    fn publish_cluster(&mut self, cluster: &str, document: Option<Arc<Cluster>>) {
        let symlink = self.symlink_to(cluster);
        self.change(|view| {
            for name in symlink.iter().map(String::as_str).chain([cluster]) {
                publish(&mut view.clusters, name, document.clone());
            }
        });
    }

    fn publish_hosts(&mut self, cluster: &str, hosts: Option<Arc<Hosts>>) {
        let symlink = self.symlink_to(cluster);
        self.change(|view| {
            for name in symlink.iter().map(String::as_str).chain([cluster]) {
                publish(&mut view.hosts, name, hosts.clone());
            }
        });
    }

    fn symlink_to(&self, cluster: &str) -> Option<String> {
        let mut symlinks = self.targets_by_symlink.iter();
        let leading = symlinks.find(|(_, target)| *target == cluster);
        leading.map(|(symlink, _)| symlink.clone())
    }

    fn read<T>(&mut self, name: &str, document: Result<T, String>) -> Option<Arc<T>> {
        if document.is_err() {
            self.invalid(name);
        }
        document.ok().map(Arc::new)
    }

    fn invalid(&mut self, name: &str) {
        self.change(|view| view.report.invalid.insert(name.to_owned()));
    }

    /// It, or the collection that it is a member of, waits no longer.
    fn answered(&mut self, name: &str) {
        let glob = names::parse_instance(name).map(|(cluster, _)| names::glob(cluster));
        self.change(|view| {
            view.report.awaited.remove(name);
            if let Some(glob) = glob {
                view.report.awaited.remove(&glob);
            }
        });
    }

    fn note(&mut self, event: &StreamEvent, machine: &Machine<D2Codec>) {
        match event {
            StreamEvent::Opening { .. } => self.before_stream = totals(machine),
            StreamEvent::Up { .. } => {
                // With versions told, silence is an answer.
                let waits = self.mode.known_versions() == KnownVersions::Omitted;
                let watched = self.watched.iter().map(|(_, name)| name.clone());
                let watched: Vec<_> = watched.filter(|_| waits).collect();
                self.change(|view| {
                    view.report.is_connected = true;
                    view.report.awaited.extend(watched);
                });
            }
            StreamEvent::Answered { .. } => {
                self.change(|view| view.report.streams_answered += 1);
            }
            StreamEvent::Ended { .. } => self.change(|view| view.report.is_connected = false),
        }
    }

    fn count(&mut self, machine: &Machine<D2Codec>) {
        let (resources, removals) = totals(machine);
        let before = self.before_stream;
        self.change(|view| {
            view.report.counters = machine.counters();
            view.report.resources_of_stream = resources - before.0;
            view.report.removals_of_stream = removals - before.1;
        });
    }

    fn is_watched(&self, type_url: &TypeUrl, name: &str) -> bool {
        self.watched.contains(&(type_url.clone(), name.to_owned()))
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut View) -> R) {
        self.view_tx.send_modify(|view| {
            change(view);
        });
    }
}

fn totals(machine: &Machine<D2Codec>) -> (u64, u64) {
    let counters = machine.counters();
    let resources = counters.resources_changed + counters.resources_unchanged;
    (
        resources + counters.resources_rejected,
        counters.resources_absent,
    )
}

fn to_hosts(map: &D2uriMap) -> Hosts {
    let uris = map.uris.iter();
    uris.map(|(key, uri)| (key.clone(), Arc::new(uri.clone())))
        .collect()
}

#[cfg(test)]
mod tests;
