//! The gateway sink against gateways that answer, refuse, hang and vanish.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot set up fails"
)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};
use waypost_announcer::{
    Announcement, AnnouncerPool, GatewayAddressError, GatewaySink, PoolOptions, Progress,
};
use waypost_core::{ClusterName, InstanceUri, Timestamp};
use waypost_proto::v1 as pb;
use waypost_proto::v1::append_progress::Event;
use waypost_proto::v1::append_request::Kind;
use waypost_proto::v1::gateway_server::{Gateway, GatewayServer};

/// What a gateway of the test does with every request.
#[derive(Clone, Debug)]
enum Habit {
    Serves,
    RefusesByTheRules(&'static str),
    SaysNothing,
    BreaksAfterAppended,
    Fails(tonic::Code),
}

#[derive(Clone)]
struct FakeGateway {
    habit: Habit,
    requests: Arc<Mutex<Vec<pb::AppendRequest>>>,
}

struct Running {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<pb::AppendRequest>>>,
    /// A runtime of its own, so that stopping it also cuts its connections, as a crash would.
    runtime: Option<Runtime>,
}

impl Running {
    fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

#[tonic::async_trait]
impl Gateway for FakeGateway {
    type AppendStream = ReceiverStream<Result<pb::AppendProgress, Status>>;

    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let request = request.into_inner();
        let offset = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            i64::try_from(requests.len()).unwrap()
        };
        let appended = Event::Appended(pb::Appended {
            partition: 3,
            offset,
            append_time_ms: Some(1_700_000_000_000),
        });
        let (progress_tx, progress_rx) = mpsc::channel(4);
        let say = |event| Ok(pb::AppendProgress { event: Some(event) });
        let say_all: Vec<_> = match &self.habit {
            Habit::Serves => vec![say(appended), say(Event::Served(pb::Served {}))],
            Habit::RefusesByTheRules(reason) => {
                let reason = (*reason).to_owned();
                vec![
                    say(appended),
                    say(Event::Refused(pb::Refused {
                        reason,
                        ..pb::Refused::default()
                    })),
                ]
            }
            Habit::BreaksAfterAppended => {
                vec![say(appended), Err(Status::unavailable("going away"))]
            }
            Habit::SaysNothing => {
                tokio::spawn(async move { progress_tx.closed().await });
                return Ok(Response::new(ReceiverStream::new(progress_rx)));
            }
            Habit::Fails(code) => return Err(Status::new(*code, "not today")),
        };
        for progress in say_all {
            progress_tx.send(progress).await.unwrap();
        }
        Ok(Response::new(ReceiverStream::new(progress_rx)))
    }

    async fn apply(
        &self,
        _: Request<pb::ApplyRequest>,
    ) -> Result<Response<pb::ApplyResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn delete(
        &self,
        _: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::DeleteResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn set(&self, _: Request<pb::SetRequest>) -> Result<Response<pb::SetResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn evict(
        &self,
        _: Request<pb::EvictRequest>,
    ) -> Result<Response<pb::EvictResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn release(
        &self,
        _: Request<pb::ReleaseRequest>,
    ) -> Result<Response<pb::ReleaseResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn restore(
        &self,
        _: Request<pb::RestoreRequest>,
    ) -> Result<Response<pb::RestoreResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

async fn start(habit: Habit) -> Running {
    let requests = Arc::default();
    let gateway = FakeGateway {
        habit,
        requests: Arc::clone(&requests),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listening = runtime.spawn(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(GatewayServer::new(gateway))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        address
    });
    Running {
        address: listening.await.unwrap(),
        requests,
        runtime: Some(runtime),
    }
}

fn mk_pool(addresses: &[SocketAddr]) -> AnnouncerPool {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let sink = GatewaySink::new(&addresses).unwrap();
    AnnouncerPool::spawn(Arc::new(sink), PoolOptions::default())
}

fn mk_announcement() -> Announcement {
    Announcement::new(
        ClusterName::parse("greeter").unwrap(),
        InstanceUri::parse("grpc://10.0.0.1:1").unwrap(),
        Timestamp(0),
    )
}

/// An address at which nobody listens.
async fn mk_dead_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("did not happen within 30 s")
}

#[tokio::test]
async fn an_announcement_is_acknowledged_then_served_and_its_birth_follows() {
    let gateway = start(Habit::Serves).await;
    let pool = mk_pool(&[gateway.address]);
    let announcer = pool.announce(mk_announcement()).unwrap();
    let status = within(announcer.judged()).await.unwrap();
    assert!(matches!(status.progress, Progress::Served(a) if a.partition.0 == 3));
    announcer.mark_down();
    within(announcer.settled()).await.unwrap();
    let requests = gateway.requests.lock().unwrap();
    let kinds: Vec<_> = requests.iter().map(pb::AppendRequest::kind).collect();
    assert_eq!(kinds.first(), Some(&Kind::Announce));
    assert_eq!(kinds.last(), Some(&Kind::Withdraw));
    assert_eq!((requests[0].age_ms, requests[0].birth_ms), (Some(0), None));
    assert!(requests[1].birth_ms.is_some());
    assert_eq!(requests[0].announcement, requests[1].announcement);
    assert_eq!(requests.last().unwrap().seq, requests[0].seq.map(|s| s + 1));
}

#[tokio::test]
async fn another_gateway_takes_over_from_one_that_is_gone_fails_or_says_nothing() {
    let failing = start(Habit::Fails(tonic::Code::Unavailable)).await;
    let read_only = start(Habit::Fails(tonic::Code::FailedPrecondition)).await;
    let silent = start(Habit::SaysNothing).await;
    let dead = mk_dead_address().await;
    for bad in [dead, failing.address, read_only.address, silent.address] {
        let good = start(Habit::Serves).await;
        let pool = mk_pool(&[bad, good.address]);
        let announcer = pool.announce(mk_announcement()).unwrap();
        within(announcer.judged()).await.unwrap();
        assert_eq!(announcer.status().trouble, None, "{bad}");
        // It stays with the one that works: the second write asks nobody else.
        announcer.mark_down();
        let quick = tokio::time::timeout(Duration::from_secs(2), announcer.settled());
        quick
            .await
            .expect("the broken gateway was asked again")
            .unwrap();
    }
}

#[tokio::test]
async fn a_gateway_that_vanishes_costs_no_withdrawal_and_the_other_is_told_the_same_life() {
    let (mut first, second) = (start(Habit::Serves).await, start(Habit::Serves).await);
    let pool = mk_pool(&[first.address, second.address]);
    let mut announcement = mk_announcement();
    announcement.heartbeat = Duration::from_millis(200);
    let announcer = pool.announce(announcement).unwrap();
    // The announcement, and the second one that carries the birth.
    within(async {
        while first.requests.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    within(announcer.settled()).await.unwrap();
    first.stop();
    let beats = async {
        while second.requests.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(beats).await;
    let (before, after) = (
        first.requests.lock().unwrap(),
        second.requests.lock().unwrap(),
    );
    assert!(
        before
            .iter()
            .chain(after.iter())
            .all(|r| r.kind() != Kind::Withdraw)
    );
    let last = before.last().unwrap();
    assert_eq!(
        (after[0].id, after[0].birth_ms, after[0].seq),
        (last.id, last.birth_ms, last.seq)
    );
    assert_eq!(after[0].announcement, last.announcement);
}

#[tokio::test]
async fn what_the_rules_refuse_is_told_and_goes_on_beating() {
    let gateway = start(Habit::RefusesByTheRules("a later born process stands")).await;
    let pool = mk_pool(&[gateway.address]);
    let mut announcement = mk_announcement();
    announcement.heartbeat = Duration::from_millis(200);
    let announcer = pool.announce(announcement).unwrap();
    let status = within(announcer.judged()).await.unwrap();
    assert!(matches!(
        &status.progress,
        Progress::Refused { reason, .. } if reason == "a later born process stands"
    ));
    let beats = async {
        while gateway.requests.lock().unwrap().len() < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(beats).await;
    assert!(
        gateway
            .requests
            .lock()
            .unwrap()
            .iter()
            .all(|r| r.until_served)
    );
}

#[tokio::test]
async fn a_broken_stream_is_asked_about_again_with_the_next_beat() {
    let gateway = start(Habit::BreaksAfterAppended).await;
    let pool = mk_pool(&[gateway.address]);
    let mut announcement = mk_announcement();
    announcement.heartbeat = Duration::from_millis(200);
    let announcer = pool.announce(announcement).unwrap();
    within(announcer.settled()).await.unwrap();
    let beats = async {
        while gateway.requests.lock().unwrap().len() < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(beats).await;
    let requests = gateway.requests.lock().unwrap();
    assert!(
        requests
            .iter()
            .all(|r| r.until_served && r.kind() != Kind::Withdraw)
    );
    assert!(matches!(
        announcer.status().progress,
        Progress::Acknowledged(_)
    ));
}

#[tokio::test]
async fn trouble_names_the_gateway_and_the_cause() {
    let dead = mk_dead_address().await;
    let pool = mk_pool(&[dead]);
    let announcer = pool.announce(mk_announcement()).unwrap();
    let mut statuses = announcer.statuses();
    let status = within(statuses.wait_for(|s| s.trouble.is_some()))
        .await
        .unwrap();
    let trouble = status.trouble.clone().unwrap();
    assert!(trouble.contains(&dead.to_string()), "{trouble}");
    assert!(trouble.to_lowercase().contains("refused"), "{trouble}");
}

#[tokio::test]
async fn addresses_that_cannot_be_used_are_refused_at_once() {
    assert_eq!(
        GatewaySink::new::<&str>(&[]).err(),
        Some(GatewayAddressError::None)
    );
    for bad in ["", "localhost", "http://h:1", "h:x", ":1", "u@h:1", "h:1/x"] {
        let error = GatewaySink::new(&[bad]).err();
        assert_eq!(
            error,
            Some(GatewayAddressError::Bad(bad.to_owned())),
            "{bad}"
        );
    }
    GatewaySink::new(&["localhost:1", "[::1]:1", "10.0.0.1:1"]).unwrap();
}
