//! The streams that are open: a read-only view for people, and the handles by which they are ended
//! from outside.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use waypost_core::Variant;

use crate::ack::AckView;
use crate::events::{EndReason, Transport};
use crate::inventory::Inventory;
use crate::node::NodeInfo;
use crate::outbox::{Backlog, Outbox};
use crate::stream::Stream;

/// A stream's number, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// What is known of one stream at one moment.
#[derive(Clone, Debug)]
pub struct StreamView {
    /// Its number.
    pub id: StreamId,
    /// The address of the other side.
    pub peer: SocketAddr,
    /// Which way it talks.
    pub transport: Transport,
    /// Who asks; `None` before the first request with a node.
    pub node: Option<NodeInfo>,
    /// What its answers depend on besides names.
    pub variant: Variant,
    /// How long it has been open.
    pub age: Duration,
    /// How long changes have been waiting for the client to read; `None` if none wait.
    pub backlog_age: Option<Duration>,
    /// Each type that it ever asked for.
    pub types: Vec<TypeView>,
}

/// What one stream has to do with one type.
#[derive(Clone, Debug)]
pub struct TypeView {
    /// Responses and their acknowledgement.
    pub acks: AckView,
    /// Subscriptions: explicit names, globs, and one for `*`.
    pub subscriptions: usize,
    /// Their names, in order, at most as many as were asked for.
    pub names: Vec<String>,
}

/// One open stream as others see it.
pub(crate) struct StreamHandle {
    pub(crate) id: StreamId,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) opened_at: Instant,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) stream: Mutex<Stream>,
    /// Set by whoever ends the stream from outside.
    pub(crate) end: OnceLock<EndReason>,
    /// The stream is to be dropped although its client takes no trailers.
    pub(crate) is_cut_off: AtomicBool,
}

const _: () = assert!(size_of::<StreamHandle>() <= 232);

impl StreamHandle {
    /// Lets the stream end by itself, with a status.
    pub(crate) fn end(&self, reason: EndReason) {
        let _ = self.end.set(reason);
        self.outbox.wake();
    }

    /// Ends the stream whatever its client does. The HTTP/2 layer resets it.
    pub(crate) fn cut_off(&self, reason: EndReason) {
        let _ = self.end.set(reason);
        self.is_cut_off.store(true, Ordering::Release);
        self.outbox.wake();
    }

    /// Ready once [`cut_off`](Self::cut_off) was called.
    pub(crate) fn poll_cut_off(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.outbox.register(cx.waker());
        if self.is_cut_off.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn view(&self, names_max: usize) -> StreamView {
        let backlog_age = match self.outbox.backlog() {
            Backlog::Since(since) => Some(since.elapsed()),
            Backlog::None | Backlog::Overflow => None,
        };
        let stream = self.stream.lock();
        StreamView {
            id: self.id,
            peer: self.peer,
            transport: self.transport,
            node: stream.node().cloned(),
            variant: stream.variant(),
            age: self.opened_at.elapsed(),
            backlog_age,
            types: stream.view(names_max),
        }
    }
}

/// All open streams of a server. Clones share it.
#[derive(Clone, Default)]
pub struct StreamRegistry {
    /// Those of a connection stand together: they are ended together, among tens of thousands.
    by_connection: Arc<Mutex<ByConnection>>,
}

type ByConnection = BTreeMap<(SocketAddr, StreamId), Weak<StreamHandle>>;

impl StreamRegistry {
    /// Open streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_connection.lock().len()
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every open stream, the oldest first, each with at most `names_max` names per type. Each is
    /// looked at by itself: this is no snapshot of one moment.
    #[must_use]
    pub fn view(&self, names_max: usize) -> Vec<StreamView> {
        let handles = self.handles();
        handles.iter().map(|h| h.view(names_max)).collect()
    }

    /// What each open stream was told of each resource, streams in order; `None` for one that `wants` refuses
    /// by its node. Looks at one stream when the next item is asked for.
    pub fn inventories(
        &self,
        wants: impl Fn(Option<&NodeInfo>) -> bool,
        resources_max: usize,
    ) -> impl Iterator<Item = Inventory> {
        let handles = self.handles().into_iter();
        handles.filter_map(move |handle| {
            let stream = handle.view(0);
            if !wants(stream.node.as_ref()) {
                return None;
            }
            let known = handle.stream.lock().inventory(resources_max);
            Some(Inventory::new(stream, known, resources_max))
        })
    }

    /// One open stream.
    #[must_use]
    pub fn find(&self, id: StreamId, names_max: usize) -> Option<StreamView> {
        let is_it = |((_, of), _): &(&(SocketAddr, StreamId), _)| *of == id;
        let found = self.by_connection.lock().iter().find(is_it)?.1.upgrade()?;
        Some(found.view(names_max))
    }

    pub(crate) fn insert(&self, handle: &Arc<StreamHandle>) {
        let mut all = self.by_connection.lock();
        all.insert((handle.peer, handle.id), Arc::downgrade(handle));
    }

    pub(crate) fn remove(&self, handle: &StreamHandle) {
        self.by_connection.lock().remove(&(handle.peer, handle.id));
    }

    pub(crate) fn handles(&self) -> Vec<Arc<StreamHandle>> {
        let all = self.by_connection.lock();
        let mut handles: Vec<_> = all.values().filter_map(Weak::upgrade).collect();
        drop(all);
        handles.sort_unstable_by_key(|handle| handle.id);
        handles
    }

    /// Ends the streams of a connection by themselves.
    pub(crate) fn end_those_of(&self, peer: SocketAddr, reason: EndReason) {
        let ids = (peer, StreamId(0))..=(peer, StreamId(u64::MAX));
        let all = self.by_connection.lock();
        let of_peer = all.range(ids).filter_map(|(_, handle)| handle.upgrade());
        // The last one who lets go of a stream takes it out of here: not under the lock.
        let of_peer: Vec<_> = of_peer.collect();
        drop(all);
        of_peer.iter().for_each(|handle| handle.end(reason));
    }

    /// Cuts off the streams whose clients have not read for `stall_timeout`.
    pub(crate) fn cut_off_stalled(&self, stall_timeout: Duration) {
        for handle in self.handles() {
            let stalled = match handle.outbox.backlog() {
                Backlog::None => false,
                Backlog::Since(since) => since.elapsed() >= stall_timeout,
                Backlog::Overflow => true,
            };
            if stalled {
                handle.cut_off(EndReason::Stalled);
            }
        }
    }
}
