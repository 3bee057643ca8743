//! Which heartbeats wait for Kafka. While it is away each key holds one place, not one a beat.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use waypost_core::record::Topic;

/// The places of one producer.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    waiting: Mutex<HashSet<(Topic, Bytes)>>,
}

/// A heartbeat's place; given back when Kafka has answered or librdkafka has given up.
#[derive(Debug)]
pub(super) struct HeartbeatPlace {
    heartbeats: Arc<Heartbeats>,
    key: (Topic, Bytes),
}

impl Heartbeats {
    /// A place for this key; `None` while another holds it.
    pub(super) fn take_place(
        self: &Arc<Self>,
        topic: Topic,
        key: &Bytes,
    ) -> Option<HeartbeatPlace> {
        let key = (topic, key.clone());
        let is_free = self.waiting.lock().insert(key.clone());
        is_free.then(|| HeartbeatPlace {
            heartbeats: Arc::clone(self),
            key,
        })
    }
}

impl Drop for HeartbeatPlace {
    fn drop(&mut self) {
        self.heartbeats.waiting.lock().remove(&self.key);
    }
}
