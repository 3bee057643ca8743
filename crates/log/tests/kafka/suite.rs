//! What every announcement log must do, on Kafka.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use waypost_core::port::AnnouncementLog;
use waypost_log::kafka::KafkaLog;
use waypost_log::suite::{self, CompareAndSet, Harness, TestLog};

use crate::support::{broker, fresh_log};

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
            suite::$case(&OnKafka).await;
        }
    )* };
}
waypost_log::for_each_log_case!(tests);
