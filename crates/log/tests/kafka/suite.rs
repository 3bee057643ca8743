//! What every announcement log must do, on Kafka.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use waypost_core::port::AnnouncementLog;
use waypost_log::kafka::KafkaLog;
use waypost_log::suite::{self, CompareAndSet, Harness, TestLog};

use crate::support::{broker, fresh_log};

/// A reader that is told its bounds every few seconds never runs out of events: a case that waits for
/// another one ends here.
const CASE_MAX: Duration = Duration::from_secs(240);

struct OnKafka;

#[derive(Debug)]
struct Subject {
    log: Arc<KafkaLog>,
}

#[async_trait]
impl Harness for OnKafka {
    async fn create(&self, partitions: u32) -> Box<dyn TestLog> {
        Box::new(Subject {
            log: fresh_log(broker().await, partitions).await,
        })
    }
}

#[async_trait]
impl TestLog for Subject {
    fn log(&self) -> Arc<dyn AnnouncementLog> {
        Arc::<KafkaLog>::clone(&self.log)
    }

    /// The broker is shared; what its own restart keeps is tested in `kafka_faults.rs`.
    async fn restart(&mut self) {
        self.log = Arc::new(KafkaLog::open(self.log.settings().clone()).unwrap());
    }

    fn advance(&self, _by: Duration) {}

    fn compare_and_set(&self) -> CompareAndSet {
        CompareAndSet::Refused
    }
}

macro_rules! tests {
    ($($case:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let case = tokio::time::timeout(CASE_MAX, suite::$case(&OnKafka));
            case.await.expect("a case waits for what does not come");
        }
    )* };
}
waypost_log::for_each_log_case!(tests);
