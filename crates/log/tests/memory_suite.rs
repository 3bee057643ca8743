//! The log in memory answers to the suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use waypost_core::port::AnnouncementLog;
use waypost_core::record::LogIdentity;
use waypost_core::time::Timestamp;
use waypost_log::suite::{self, CompareAndSet, Harness, TestLog};
use waypost_log::{ManualClock, MemoryLog};

#[derive(Debug)]
struct MemoryHarness;

#[async_trait]
impl Harness for MemoryHarness {
    async fn create(&self, partitions: u32) -> Box<dyn TestLog> {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000));
        let log = MemoryLog::new(partitions, clock);
        log.write_identity(LogIdentity(1));
        Box::new(TestMemoryLog { log })
    }
}

#[derive(Debug)]
struct TestMemoryLog {
    log: MemoryLog,
}

#[async_trait]
impl TestLog for TestMemoryLog {
    fn log(&self) -> Arc<dyn AnnouncementLog> {
        Arc::new(self.log.clone())
    }

    /// A log in memory is never closed; this is a new handle of the same one.
    async fn restart(&mut self) {
        self.log = self.log.clone();
    }

    fn advance(&self, by: Duration) {
        self.log.clock().advance(by);
    }

    fn compare_and_set(&self) -> CompareAndSet {
        CompareAndSet::Supported
    }
}

macro_rules! tests {
    ($($case:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            suite::$case(&MemoryHarness).await;
        }
    )* };
}
waypost_log::for_each_log_case!(tests);
