//! One stream as a state machine without I/O: requests in, responses out.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use waypost_core::{ResourceLocator, ResourceType, Variant};

use crate::buf::MessageBuf;
use crate::events::{EventHandler, Transport};
use crate::node::NodeInfo;
use crate::outbox::Outbox;
use crate::registry::TypeView;
use crate::settings::AdsSettings;
use crate::status::Status;

/// What a stream is made from.
pub(crate) struct StreamConfig {
    pub(crate) transport: Transport,
    pub(crate) only_type: Option<ResourceType>,
    pub(crate) locator: Arc<dyn ResourceLocator>,
    pub(crate) settings: Arc<AdsSettings>,
    pub(crate) events: Arc<dyn EventHandler>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) nonce_seed: u64,
}

/// One stream.
pub(crate) struct Stream {
    config: StreamConfig,
    node: Option<NodeInfo>,
    variant: Variant,
}

impl Stream {
    pub(crate) fn new(config: StreamConfig) -> Self {
        Self {
            config,
            node: None,
            variant: Variant::default(),
        }
    }

    /// Applies the bytes of one request. An error ends the stream.
    pub(crate) fn on_message(&mut self, _message: Bytes) -> Result<(), Status> {
        Ok(())
    }

    /// The next response, decided now; `None` if there is nothing to say.
    pub(crate) fn next_response(&mut self, _now: Instant) -> Option<MessageBuf> {
        let _ = &self.config;
        None
    }

    /// When `next_response` should be asked again although nothing happened.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&mut self) {}

    pub(crate) fn node(&self) -> Option<&NodeInfo> {
        self.node.as_ref()
    }

    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    pub(crate) fn view(&self, _names_max: usize) -> Vec<TypeView> {
        Vec::new()
    }
}
