//! Where an announcer's records go.

mod gateway;
mod log;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use waypost_core::record::{Appended, Delivery};
use waypost_core::{Headers, InstanceKey};

pub use gateway::{GatewayAddressError, GatewaySink, connect_lazy, explain};
pub use log::LogSink;

/// One record of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRecord {
    /// Which instance.
    pub key: InstanceKey,
    /// Its encoded announcement; `None` withdraws it.
    pub value: Option<Bytes>,
    /// Order data.
    pub headers: Headers,
    /// How it is treated on its way.
    pub delivery: Delivery,
    /// Whether the announcer wants to know what the Observers make of it.
    pub wants_verdict: bool,
}

/// What a sink answers once the log has a record.
pub struct Receipt {
    /// Where the log has it.
    pub appended: Appended,
    /// What the Observers make of it; `None` where it was not asked for or the sink cannot know.
    pub verdict: Option<BoxFuture<'static, Verdict>>,
}

/// What the Observers make of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One serves it.
    Served,
    /// The log's rules refuse it, for this reason.
    Refused(String),
    /// They refuse it because another life, born later, has withdrawn the instance.
    Withdrawn(String),
    /// Nobody said, for this reason. That is no withdrawal and no refusal.
    Unknown(String),
}

/// Why a record was not acknowledged. It may have been written all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// Trying again soon may help.
    #[error("{0}")]
    Unavailable(String),
    /// Will not be taken until somebody changes something. It is tried again, slowly.
    #[error("{0}")]
    Refused(String),
}

/// Takes records of instances. The announcer never has two records of one instance under way.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Writes one record and returns once the log has it.
    ///
    /// # Errors
    /// See [`SinkError`].
    async fn append(&self, record: InstanceRecord) -> Result<Receipt, SinkError>;
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipt")
            .field("appended", &self.appended)
            .field("verdict", &self.verdict.is_some())
            .finish()
    }
}
