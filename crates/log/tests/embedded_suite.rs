//! The embedded log answers to the suite.
#![expect(clippy::expect_used, reason = "a test fails by panicking, helpers too")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use waypost_core::port::AnnouncementLog;
use waypost_log::suite::{self, CompareAndSet, Harness, TestLog};
use waypost_log::{EmbeddedLog, EmbeddedSettings};

#[derive(Debug)]
struct EmbeddedHarness;

#[async_trait]
impl Harness for EmbeddedHarness {
    async fn create(&self, partitions: u32) -> Box<dyn TestLog> {
        let dir = tempfile::tempdir().expect("a directory");
        let log = open(dir.path(), partitions).await;
        Box::new(TestEmbeddedLog { dir, log })
    }
}

async fn open(dir: &Path, partitions: u32) -> EmbeddedLog {
    let settings = EmbeddedSettings {
        partitions,
        bounds_interval: Duration::from_millis(50),
        ..EmbeddedSettings::standard()
    };
    EmbeddedLog::open(dir, settings)
        .await
        .expect("the log opens")
}

#[derive(Debug)]
struct TestEmbeddedLog {
    dir: TempDir,
    log: EmbeddedLog,
}

#[async_trait]
impl TestLog for TestEmbeddedLog {
    fn log(&self) -> Arc<dyn AnnouncementLog> {
        Arc::new(self.log.clone())
    }

    async fn restart(&mut self) {
        self.log.close().await;
        self.log = open(self.dir.path(), 1).await;
    }

    /// Its clock is the machine's, which goes by itself.
    fn advance(&self, _by: Duration) {}

    fn compare_and_set(&self) -> CompareAndSet {
        CompareAndSet::Supported
    }
}

macro_rules! tests {
    ($($case:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            suite::$case(&EmbeddedHarness).await;
        }
    )* };
}
waypost_log::for_each_log_case!(tests);
