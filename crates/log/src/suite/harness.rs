//! What the suite needs from a log under test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use waypost_core::port::AnnouncementLog;

/// How long a case waits for what must happen. Generous: it is spent only when a case fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Makes logs to test.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A fresh log whose announcements have `partitions` partitions. It may hold an identity record.
    async fn create(&self, partitions: u32) -> Box<dyn TestLog>;
}

/// One log under test.
#[async_trait]
pub trait TestLog: Send + Sync + fmt::Debug {
    /// The log as it is open now.
    fn log(&self) -> Arc<dyn AnnouncementLog>;

    /// Closes the log and opens it again. Handles and readers from before are dropped by then.
    async fn restart(&mut self);

    /// Moves the log's clock where it is driven by hand; elsewhere time passes by itself.
    fn advance(&self, by: Duration);

    /// Whether `append_if` works.
    fn compare_and_set(&self) -> CompareAndSet;
}

/// Whether a log can compare and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAndSet {
    /// It can.
    Supported,
    /// It says `Refused` (Kafka).
    Refused,
}
