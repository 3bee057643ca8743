//! Not loaded is not empty: until everything that existed at start was read nothing is answered,
//! and everybody who asks hears why.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use waypost_admin_api::Status;
use waypost_core::record::Appended;
use waypost_core::{
    AnnouncementLog, LogError, LogReader, NewRecord, Offset, PartitionId, Record, Topic,
};
use waypost_log::memory::Pause;
use waypost_observer::health::ADS_SERVICE;
use waypost_observer::{FatalError, Observer, RunningObserver};

use common::xds::{Delta, Sotw};
use common::{DEADLINE, Life, eventually, get, get_json, mk_announcement, mk_log, mk_settings};

async fn health(observer: &RunningObserver, service: &str) -> Result<ServingStatus, Code> {
    let mut client = HealthClient::new(common::channel(observer).await);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let response = client
        .check(request)
        .await
        .map_err(|status| status.code())?;
    Ok(response.into_inner().status())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_refused_with_the_reason_until_the_log_was_read() {
    let log = mk_log(2);
    Life::new(&log, 1, mk_announcement("greeter", 1))
        .announce()
        .await;
    log.pause_reads(Pause::Hang);
    let observer = common::start_with(&log, mk_settings()).await;

    let delta = Delta::open(&observer).await.err().expect("refused");
    let sotw = Sotw::open(&observer).await.err().expect("refused");
    for status in [delta, sotw] {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.message().contains("not loaded"), "{status:?}");
    }
    for service in ["", ADS_SERVICE] {
        assert_eq!(
            health(&observer, service).await,
            Ok(ServingStatus::NotServing)
        );
    }
    let (status, text) = get(&observer, "/ready").await;
    assert_eq!(status, 503);
    assert!(text.contains("not ready: announcements: "), "{text}");
    assert_eq!(get(&observer, "/live").await.0, 200);
    assert_eq!(get(&observer, "/api/v1/watch/greeter").await.0, 503);

    log.resume();
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap();
    assert_eq!(get(&observer, "/ready").await, (200, "ready\n".to_owned()));
    for service in ["", ADS_SERVICE] {
        eventually("health says SERVING", || async {
            (health(&observer, service).await == Ok(ServingStatus::Serving)).then_some(())
        })
        .await;
    }
    assert_eq!(health(&observer, "no.such").await, Err(Code::NotFound));
    assert!(Delta::open(&observer).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newborn_log_is_not_served_before_its_announcers_had_time_to_beat() {
    let log = mk_log(2);
    let mut settings = mk_settings();
    settings.newborn_grace = Duration::from_secs(10);
    let observer = common::start_with(&log, settings).await;
    let pending = eventually("readiness names the log's age", || async {
        let pending = observer.readiness().pending();
        pending
            .iter()
            .any(|t| t.name == "log-age")
            .then_some(pending)
    })
    .await;
    assert!(!observer.readiness().is_ready(), "{pending:?}");
    // Time passes only with ticks that are read: each adds two seconds at most.
    eventually("the log grows old enough", || async {
        log.clock().advance(Duration::from_millis(500));
        observer.readiness().is_ready().then_some(())
    })
    .await;
    let status: Status = get_json(&observer, "/api/v1/status").await;
    for partition in &status.log.topics[0].partitions {
        assert!(partition.log_time_ms >= Some(10_000), "{partition:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_reached_is_asked_again_and_named_by_readiness() {
    let log = mk_log(1);
    log.pause(Pause::Refuse(
        "no broker at 127.0.0.1:9092 answers".to_owned(),
    ));
    let observer = common::start_with(&log, mk_settings()).await;
    eventually("readiness names it", || async {
        let (status, text) = get(&observer, "/ready").await;
        (status == 503 && text.contains("no broker at 127.0.0.1:9092 answers")).then_some(())
    })
    .await;
    let refused = Delta::open(&observer).await.err().expect("refused");
    assert!(refused.message().contains("no broker"), "{refused:?}");
    log.resume();
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_set_up_wrongly_ends_the_observer_with_the_command_that_mends_it() {
    let log = mk_log(1);
    let attempts = std::sync::atomic::AtomicU32::new(0);
    let wrong = "topic waypost.config is missing; run: waypost topics create";
    let check = Box::new(move || {
        let attempt = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let result = Err(match attempt {
            0 => LogError::Unavailable("no broker answers".to_owned()),
            _ => LogError::Misconfigured(wrong.to_owned()),
        });
        Box::pin(async move { result }) as _
    });
    let observer = Observer::new(mk_settings(), Arc::new(log))
        .with_start_check(check)
        .start()
        .await
        .unwrap();
    let error = tokio::time::timeout(DEADLINE, observer.failed())
        .await
        .unwrap();
    assert_eq!(error, LogError::Misconfigured(wrong.to_owned()).into());
    let (status, text) = get(&observer, "/ready").await;
    assert!(
        status == 503 && text.contains("waypost topics create"),
        "{text}"
    );
}

/// A Kafka that hangs is the moment at which operators ask what is going on.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_log_is_checked_the_observer_says_how_things_stand() {
    let check = Box::new(|| Box::pin(std::future::pending()) as _);
    let observer = Observer::new(mk_settings(), Arc::new(mk_log(1)))
        .with_start_check(check)
        .start()
        .await
        .unwrap();
    let status: Status = get_json(&observer, "/api/v1/status").await;
    assert!(!status.ready && !status.pending.is_empty(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_an_error_that_names_it_and_the_flag() {
    let log = mk_log(1);
    let first = common::start(&log).await;
    let mut settings = mk_settings();
    settings.listen = first.grpc_address();
    let log: Arc<dyn AnnouncementLog> = Arc::new(log);
    let error = Observer::new(settings, Arc::clone(&log)).start().await;
    let text = error.expect_err("refused").to_string();
    assert!(text.contains(&first.grpc_address().to_string()), "{text}");
    assert!(
        text.contains("in use") && text.contains("--listen"),
        "{text}"
    );
    let mut settings = mk_settings();
    settings.admin = first.admin_address();
    let error = Observer::new(settings, log).start().await;
    let text = error.expect_err("refused").to_string();
    assert!(
        text.contains("in use") && text.contains("--admin"),
        "{text}"
    );
}

/// A log whose every method panics: a fault of ours.
#[derive(Debug)]
struct Broken;

#[async_trait::async_trait]
impl AnnouncementLog for Broken {
    async fn partition_count(&self, _: Topic) -> Result<u32, LogError> {
        panic!("broken")
    }

    async fn append(&self, _: NewRecord) -> Result<Appended, LogError> {
        panic!("broken")
    }

    async fn append_if(&self, _: NewRecord, _: Option<Offset>) -> Result<Appended, LogError> {
        panic!("broken")
    }

    async fn read(
        &self,
        _: Topic,
        _: &[(PartitionId, Offset)],
    ) -> Result<Box<dyn LogReader>, LogError> {
        panic!("broken")
    }

    async fn read_at(
        &self,
        _: Topic,
        _: PartitionId,
        _: Offset,
    ) -> Result<Option<Record>, LogError> {
        panic!("broken")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_cannot_read_any_more_says_so_instead_of_going_stale_in_silence() {
    let started = Observer::new(mk_settings(), Arc::new(Broken)).start().await;
    let observer = started.unwrap();
    let error = tokio::time::timeout(DEADLINE, observer.failed())
        .await
        .unwrap();
    assert!(matches!(error, FatalError::IngestDied(_)), "{error:?}");
    let (status, text) = get(&observer, "/ready").await;
    assert!(status == 503 && text.contains("its task ended"), "{text}");
    let (status, text) = get(&observer, "/api/v1/status").await;
    assert!(status == 503 && text.contains("does not answer"), "{text}");
}
