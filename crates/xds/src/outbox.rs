//! What waits to be sent on one stream: names and why, never messages. The latest state wins since
//! what a name means is looked up only at the write; memory is bounded by what is subscribed.

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Waker;
use tokio::time::Instant;
use waypost_core::{ResourceName, ResourceType, ResourceVersion, Subscriber};

use crate::limits::OUTBOX_NAMES_MAX;
use crate::mailbox::Mailbox;
use crate::name_map::NameMap;
use crate::settings::TypeSet;

/// Why a name waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The resource appeared, changed or vanished: nothing is sent if the client was told the
    /// outcome already.
    Changed,
    /// The client says that it holds this version: nothing is sent if it is the current one.
    Held(ResourceVersion),
    /// The client asked: sent even if unchanged.
    Asked,
}

/// The names of one type that wait.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    by_name: NameMap<Why>,
}

impl Pending {
    /// Adds a reason. `Asked` outranks `Held`, which outranks `Changed`.
    pub(crate) fn add(&mut self, name: ResourceName, why: Why) {
        self.by_name.insert_or(name, why, |kept| {
            if rank(why) > rank(*kept) {
                *kept = why;
            }
        });
    }

    /// Adds a reason unless the name waits already.
    pub(crate) fn add_if_absent(&mut self, name: ResourceName, why: Why) {
        self.by_name.insert_or(name, why, |_| {});
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Why> {
        let (_, why) = self.by_name.remove(name)?;
        Some(why)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.by_name.names()
    }

    /// Makes room for so many more names.
    pub(crate) fn reserve(&mut self, names: usize) {
        self.by_name.reserve(names);
    }

    /// Takes everything, in name order, and gives the memory back.
    pub(crate) fn take_sorted(&mut self) -> Vec<(ResourceName, Why)> {
        let mut names = self.by_name.take();
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        names
    }
}

fn rank(why: Why) -> u8 {
    match why {
        Why::Changed => 0,
        Why::Held(_) => 1,
        Why::Asked => 2,
    }
}

/// The side of the outbox that the ingest path marks. One per stream.
#[derive(Default)]
pub(crate) struct Outbox {
    changes: Mutex<Changes>,
    waker: AtomicWaker,
    /// Of the thread that writes the stream.
    mailbox: Option<Arc<Mailbox>>,
}

#[derive(Default)]
struct Changes {
    types_by_name: NameMap<TypeSet>,
    /// When the first of them was marked: who marks it wakes the stream, nobody else does.
    since: Option<Instant>,
    overflowed: bool,
}

const _: () = assert!(size_of::<Outbox>() <= 88);

/// How an outbox does, for whoever cuts off clients that do not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// Nothing waits.
    None,
    /// Something waits since then.
    Since(Instant),
    /// More waits than is kept.
    Overflow,
}

impl Outbox {
    /// An outbox of a stream that this thread will write.
    pub(crate) fn on_this_thread() -> Self {
        Self {
            mailbox: Mailbox::current(),
            ..Self::default()
        }
    }

    /// From now on marks wake `waker`.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Wakes the stream.
    pub(crate) fn wake(&self) {
        match (self.waker.take(), &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox.post(waker),
            (Some(waker), None) => waker.wake(),
            // It is being polled, or will be for an earlier wake.
            (None, _) => {}
        }
    }

    /// Takes all marks: names, and the types in which each changed.
    pub(crate) fn take(&self) -> Vec<(ResourceName, TypeSet)> {
        let mut changes = self.changes.lock();
        changes.since = None;
        changes.types_by_name.take()
    }

    /// Names of one type that are marked, at most `max`. They stay marked.
    pub(crate) fn marked(&self, resource_type: ResourceType, max: usize) -> Vec<ResourceName> {
        let changes = self.changes.lock();
        let marked = changes.types_by_name.iter();
        let of_type = marked.filter(|(_, types)| types.contains(resource_type));
        of_type.take(max).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn backlog(&self) -> Backlog {
        let changes = self.changes.lock();
        match changes.since {
            _ if changes.overflowed => Backlog::Overflow,
            Some(since) => Backlog::Since(since),
            None => Backlog::None,
        }
    }
}

impl Subscriber for Outbox {
    fn mark_changed(&self, resource_type: ResourceType, name: &ResourceName) {
        let first = {
            let mut changes = self.changes.lock();
            if changes.types_by_name.len() >= OUTBOX_NAMES_MAX {
                changes.overflowed = true;
                return;
            }
            let types = TypeSet::NONE.with(resource_type);
            let marked = &mut changes.types_by_name;
            marked.insert_or(name.clone(), types, |all| *all = all.with(resource_type));
            let first = changes.since.is_none();
            if first {
                changes.since = Some(Instant::now());
            }
            first
        };
        if first {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::CountWakes;

    #[test]
    fn many_marks_are_one_wake_and_one_entry_per_name() {
        let outbox = Outbox::default();
        let wakes = Arc::new(CountWakes::default());
        outbox.register(&Waker::from(Arc::clone(&wakes)));
        for _ in 0..100 {
            outbox.mark_changed(ResourceType::Cluster, &"a".into());
            outbox.mark_changed(ResourceType::Cluster, &"b".into());
        }
        assert_eq!(wakes.count(), 1);
        assert!(matches!(outbox.backlog(), Backlog::Since(_)));
        assert_eq!(outbox.take().len(), 2);
        assert_eq!(outbox.backlog(), Backlog::None);

        outbox.register(&Waker::from(Arc::clone(&wakes)));
        outbox.mark_changed(ResourceType::Cluster, &"a".into());
        assert_eq!(wakes.count(), 2);
    }

    #[test]
    fn the_strongest_reason_stays() {
        let held = Why::Held(ResourceVersion(1));
        for (first, second, kept) in [
            (Why::Changed, Why::Asked, Why::Asked),
            (Why::Asked, Why::Changed, Why::Asked),
            (Why::Asked, held, Why::Asked),
            (Why::Changed, held, held),
            (held, Why::Changed, held),
        ] {
            let mut pending = Pending::default();
            pending.add("a".into(), first);
            pending.add("a".into(), second);
            assert_eq!(pending.take_sorted(), [("a".into(), kept)]);
            assert!(pending.is_empty());
        }
    }
}
