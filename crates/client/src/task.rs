//! The client's one task: what is watched goes to the engine, what the engine says goes to the handles
//! and into the file.

mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use waypost_core::ResourceType;
use waypost_xds_client::{
    Codec as _, Driver, Event, Held, Kept, Mark, StreamEvent, Subscription, TypeUrl,
};

use crate::client::Shared;
use crate::codec::{Content, ListCodec};
use crate::endpoints::{EndpointList, Stale, Standing};
use crate::file::{Entries, Entry};
use crate::health::StreamState;

use writer::{Step, Writer};

/// Everything the task owns.
pub(crate) struct Task {
    driver: Driver<ListCodec>,
    shared: Arc<Shared>,
    followed_by_name: BTreeMap<Arc<str>, Followed>,
    writer: Writer,
    types: Types,
}

/// The two types that are asked for.
struct Types {
    clusters: TypeUrl,
    assignments: TypeUrl,
}

/// A cluster that somebody watches.
#[derive(Default)]
struct Followed {
    /// The name of its endpoints, once its `Cluster` is known.
    assignment: Option<Arc<str>>,
    /// An Observer, or nobody in time, said that there is nothing, and nothing is held.
    is_missing: bool,
    /// What is held was read from the file and not confirmed since.
    is_from_file: bool,
}

impl Task {
    pub(crate) fn new(
        driver: Driver<ListCodec>,
        shared: Arc<Shared>,
        path: Option<PathBuf>,
    ) -> Self {
        Self {
            driver,
            shared,
            followed_by_name: BTreeMap::new(),
            writer: Writer::new(path),
            types: Types {
                clusters: ResourceType::Cluster.into(),
                assignments: ResourceType::ClusterLoadAssignment.into(),
            },
        }
    }

    /// Runs until no handle is left.
    pub(crate) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while !shared.is_abandoned.load(Ordering::Acquire) {
            tokio::select! {
                event = self.driver.next() => self.apply(event),
                () = shared.wake.notified() => self.reconcile(),
                step = self.writer.next() => self.write(step),
            }
        }
        self.collect();
        self.writer.finish(&self.shared).await;
        shared.done_tx.send_replace(true);
    }

    /// Follows what handles exist of, and nothing else.
    fn reconcile(&mut self) {
        let watched = self.shared.watched();
        let wanted: BTreeSet<_> = watched.iter().map(|w| Arc::clone(&w.name)).collect();
        let followed: BTreeSet<_> = self.followed_by_name.keys().cloned().collect();
        if !followed.is_subset(&wanted) {
            // What they were is there for the next time, as long as entries are kept.
            self.collect();
        }
        for name in followed.difference(&wanted) {
            self.unfollow(name);
        }
        for name in wanted.difference(&followed) {
            self.follow(name);
        }
        // A handle that came in place of one that had just gone knows nothing yet.
        for watched in watched {
            if watched.list().standing() == Standing::Awaited {
                self.show(&watched.name);
            }
        }
        let mut clusters_by_name = self.shared.clusters_by_name.lock();
        clusters_by_name.retain(|_, watched| watched.strong_count() > 0);
    }

    fn follow(&mut self, name: &Arc<str>) {
        self.followed_by_name
            .insert(Arc::clone(name), Followed::default());
        self.watch(ResourceType::Cluster, name);
    }

    fn unfollow(&mut self, name: &Arc<str>) {
        let Some(followed) = self.followed_by_name.remove(name) else {
            return;
        };
        let machine = self.driver.machine_mut();
        machine.unwatch(&self.types.clusters, &Subscription::new(name));
        if let Some(assignment) = followed.assignment {
            self.release(&assignment);
        }
    }

    /// Watches a resource and gives the engine what the file knows of it.
    fn watch(&mut self, resource_type: ResourceType, name: &Arc<str>) {
        let type_url = TypeUrl::from(resource_type);
        let machine = self.driver.machine_mut();
        if let Err(error) = machine.watch(&type_url, &Subscription::new(name)) {
            tracing::error!(%name, %error, "a resource cannot be watched");
            return;
        }
        let key = (resource_type, name.to_string());
        let Some(entry) = self.shared.kept.lock().get(&key).cloned() else {
            return;
        };
        let restored = machine.restore(&type_url, name, &entry.version, entry.body);
        if let Err(reason) = restored {
            tracing::warn!(%name, %reason, "an entry of the file of lists is not used");
            self.shared
                .own
                .file_read_failures
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Watches endpoints no longer unless another cluster leads to them too.
    fn release(&mut self, assignment: &Arc<str>) {
        if self.leading_to(assignment).is_empty() {
            let machine = self.driver.machine_mut();
            machine.unwatch(&self.types.assignments, &Subscription::new(assignment));
        }
    }

    fn apply(&mut self, event: Event<Content>) {
        match event {
            Event::Changed { name, value, .. } => {
                self.writer.changed();
                match value {
                    Content::Cluster(assignment) => self.lead(&name, &assignment),
                    Content::Assignment(_) => {
                        for cluster in self.leading_to(&name) {
                            self.set_missing(&cluster, false);
                        }
                    }
                }
            }
            Event::Confirmed { type_url, name } => {
                self.writer.changed();
                self.concerned(&type_url, &name)
                    .iter()
                    .for_each(|name| self.show(name));
            }
            Event::Absent {
                type_url,
                name,
                kept,
                ..
            } => {
                let is_missing = kept == Kept::Nothing;
                for cluster in self.concerned(&type_url, &name) {
                    self.set_missing(&cluster, is_missing);
                }
            }
            Event::Rejected {
                type_url,
                name,
                reason,
                kept,
            } => {
                tracing::warn!(%type_url, %name, %reason, "a resource is refused");
                if kept == Kept::Nothing {
                    for cluster in self.concerned(&type_url, &name) {
                        self.set_missing(&cluster, true);
                    }
                }
            }
            Event::Complete { .. } => {}
            Event::Stream(event) => self.note(event),
        }
    }

    /// A cluster leads to these endpoints now. Those before them are let go once others are watched.
    fn lead(&mut self, name: &Arc<str>, assignment: &Arc<str>) {
        let Some(followed) = self.followed_by_name.get_mut(name) else {
            return;
        };
        followed.is_missing = false;
        let before = followed.assignment.replace(Arc::clone(assignment));
        if before.as_ref() != Some(assignment) {
            let key = (ResourceType::ClusterLoadAssignment, assignment.to_string());
            followed.is_from_file = self.shared.kept.lock().contains_key(&key);
            self.watch(ResourceType::ClusterLoadAssignment, assignment);
            if let Some(before) = before {
                self.release(&before);
            }
        }
        self.show(name);
    }

    fn set_missing(&mut self, name: &Arc<str>, is_missing: bool) {
        if let Some(followed) = self.followed_by_name.get_mut(name) {
            followed.is_missing = is_missing;
            self.show(name);
        }
    }

    /// Gives the handles of a cluster what is known now.
    fn show(&mut self, name: &Arc<str>) {
        let Some(followed) = self.followed_by_name.get_mut(name) else {
            return;
        };
        let machine = self.driver.machine();
        let cluster = machine.find_held(&self.types.clusters, name);
        let held = followed.assignment.as_ref();
        let held = held.and_then(|held| machine.find_held(&self.types.assignments, held));
        if held.is_some_and(|held| held.mark == Mark::Fresh) {
            followed.is_from_file = false;
        }
        let list = mk_list(name, followed, cluster, held);
        let Some(watched) = self.shared.find_watched(name) else {
            return;
        };
        // Whoever made the handle has read the list from the file; here it is still being restored.
        let shown = watched.list().standing();
        let is_restoring =
            list.standing() == Standing::Awaited && shown == Standing::Stale(Stale::FromFile);
        if !is_restoring {
            watched.show(list);
        }
    }

    /// Followed clusters that a resource has a part in.
    fn concerned(&self, type_url: &TypeUrl, name: &Arc<str>) -> Vec<Arc<str>> {
        if *type_url == self.types.clusters {
            return vec![Arc::clone(name)];
        }
        self.leading_to(name)
    }

    fn leading_to(&self, assignment: &Arc<str>) -> Vec<Arc<str>> {
        let followed = self.followed_by_name.iter();
        let leading = followed.filter(|(_, f)| f.assignment.as_ref() == Some(assignment));
        leading.map(|(name, _)| Arc::clone(name)).collect()
    }

    fn note(&mut self, event: StreamEvent) {
        let mut stream = self.shared.stream.lock();
        match event {
            StreamEvent::Opening { server } => {
                stream.enter(StreamState::Connecting);
                stream.server = Some(server);
            }
            StreamEvent::Up { .. } => {}
            StreamEvent::Answered {
                server,
                control_plane,
            } => {
                stream.enter(StreamState::Connected);
                stream.server = Some(server);
                tracing::info!(
                    server = self.shared.servers[server],
                    control_plane,
                    "connected"
                );
                stream.control_plane = Some(control_plane).filter(|name| !name.is_empty());
            }
            StreamEvent::Ended { server, reason, .. } => {
                stream.enter(StreamState::Connecting);
                let server = &self.shared.servers[server];
                tracing::info!(server, reason, "the stream to the Observer ended");
                stream.last_error = Some(format!("{server}: {reason}"));
                drop(stream);
                let followed: Vec<_> = self.followed_by_name.keys().cloned().collect();
                followed.iter().for_each(|name| self.show(name));
            }
        }
    }

    fn write(&mut self, step: Step) {
        match step {
            Step::Due => {
                self.collect();
                self.writer.start(&self.shared);
            }
            Step::Written(result) => writer::note(&self.shared, &result),
        }
    }

    /// Brings what is kept for the file up to what is held.
    fn collect(&self) {
        let now = crate::clock::now();
        let machine = self.driver.machine();
        let mut kept = self.shared.kept.lock();
        let types = [
            (ResourceType::Cluster, &self.types.clusters),
            (ResourceType::ClusterLoadAssignment, &self.types.assignments),
        ];
        for (resource_type, type_url) in types {
            for (name, held) in machine.held(type_url) {
                let key = (resource_type, name.to_string());
                let before = kept.get(&key).map(|entry| entry.confirmed);
                let confirmed = match (held.mark, before) {
                    (Mark::Stale | Mark::Gone, Some(before)) => before,
                    (Mark::Fresh, _) | (_, None) => now,
                };
                let entry = Entry {
                    version: held.version.to_string(),
                    body: held.body.clone(),
                    confirmed,
                };
                kept.insert(key, entry);
            }
        }
        writer::drop_old(&mut kept, now);
    }
}

/// The list of a cluster as the file has it.
pub(crate) fn find_kept_list(kept: &Entries, name: &Arc<str>) -> Option<EndpointList> {
    let find = |resource_type: ResourceType, name: &str| {
        let entry = kept.get(&(resource_type, name.to_owned()))?;
        let content = ListCodec.decode(&resource_type.into(), name, &entry.body);
        Some((content.ok()?, entry))
    };
    let (Content::Cluster(assignment), _) = find(ResourceType::Cluster, name)? else {
        return None;
    };
    let found = find(ResourceType::ClusterLoadAssignment, &assignment)?;
    let (Content::Assignment(assignment), entry) = found else {
        return None;
    };
    Some(EndpointList {
        cluster: Arc::clone(name),
        assignment,
        version: entry.version.as_str().into(),
        standing: Standing::Stale(Stale::FromFile),
    })
}

fn mk_list(
    name: &Arc<str>,
    followed: &Followed,
    cluster: Option<&Held<Content>>,
    held: Option<&Held<Content>>,
) -> EndpointList {
    let Some((held, Content::Assignment(assignment))) = held.map(|held| (held, &held.value)) else {
        let mut list = EndpointList::awaited(name);
        if followed.is_missing {
            list.standing = Standing::Missing;
        }
        return list;
    };
    let is_gone = cluster.is_none_or(|cluster| cluster.mark == Mark::Gone);
    let standing = match held.mark {
        _ if is_gone => Standing::Stale(Stale::Removed),
        Mark::Gone => Standing::Stale(Stale::Removed),
        Mark::Fresh => Standing::Fresh,
        Mark::Stale if followed.is_from_file => Standing::Stale(Stale::FromFile),
        Mark::Stale => Standing::Stale(Stale::Disconnected),
    };
    EndpointList {
        cluster: Arc::clone(name),
        assignment: Arc::clone(assignment),
        version: Arc::clone(&held.version),
        standing,
    }
}
