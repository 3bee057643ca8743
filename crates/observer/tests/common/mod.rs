//! A whole Observer on free ports over the log in memory, whose clock the test moves by hand.

#![expect(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod xds;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::transport::Channel;
use waypost_admin_api::LogKind;
use waypost_core::record::{Appended, Delivery};
use waypost_core::{
    Announcement, AnnouncementLog, ClusterName, Headers, InstanceKey, InstanceUri, LifeId,
    NewRecord, RecordKind, Timestamp, Topic,
};
use waypost_log::{ManualClock, MemoryLog};
use waypost_observer::{LogWrites, Observer, RunningObserver, Settings};
use waypost_proto::v1::gateway_client::GatewayClient;

/// Longest wait for anything; a test that needs it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// How often a condition is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// Where the log's clock starts.
pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);

/// An empty log with an identity.
pub(crate) fn mk_log(partitions: u32) -> MemoryLog {
    let log = MemoryLog::new(partitions, ManualClock::new(START));
    log.write_identity(waypost_core::record::LogIdentity(7));
    log
}

/// Settings of an Observer that serves at once, on free ports.
pub(crate) fn mk_settings() -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        admin: ([127, 0, 0, 1], 0).into(),
        log_kind: LogKind::Memory,
        log_writes: LogWrites::Keep,
        newborn_grace: Duration::ZERO,
        expiry_window: Duration::from_secs(60),
        drain: Duration::ZERO,
        fabric: "east".to_owned(),
        zone: "a".to_owned(),
        shown: BTreeMap::from([("listen".to_owned(), "127.0.0.1:0".to_owned())]),
    }
}

/// Starts an Observer that ticks ten times a second.
pub(crate) async fn start_with(log: &MemoryLog, settings: Settings) -> RunningObserver {
    let log: Arc<dyn AnnouncementLog> = Arc::new(log.clone());
    Observer::new(settings, log)
        .with_tick_interval(Duration::from_millis(100))
        .with_threads(1)
        .start()
        .await
        .expect("the Observer starts")
}

/// Starts an Observer and waits until it serves.
pub(crate) async fn start(log: &MemoryLog) -> RunningObserver {
    let observer = start_with(log, mk_settings()).await;
    tokio::time::timeout(DEADLINE, observer.ready())
        .await
        .unwrap_or_else(|_| panic!("not ready: {:?}", observer.readiness().pending()));
    observer
}

/// An instance of `cluster` on a port of its own.
pub(crate) fn mk_announcement(cluster: &str, port: u16) -> Announcement {
    let mut announcement = Announcement::new(
        ClusterName::parse(cluster).unwrap(),
        InstanceUri::parse(&format!("grpc://127.0.0.1:{port}")).unwrap(),
        START,
    );
    announcement.tracing_id = format!("{cluster}-{port}");
    announcement.ttl = Duration::from_secs(10);
    announcement.heartbeat = Duration::from_secs(3);
    announcement
}

pub(crate) fn key_of(announcement: &Announcement) -> InstanceKey {
    InstanceKey {
        cluster: announcement.cluster.clone(),
        uri: announcement.uri.clone(),
    }
}

/// One process that announces one instance.
pub(crate) struct Life {
    pub(crate) log: MemoryLog,
    pub(crate) id: LifeId,
    pub(crate) seq: u64,
    pub(crate) announcement: Announcement,
}

impl Life {
    pub(crate) fn new(log: &MemoryLog, id: u64, announcement: Announcement) -> Self {
        Self {
            log: log.clone(),
            id: LifeId(id),
            seq: 1,
            announcement,
        }
    }

    fn record(&self, kind: RecordKind, delivery: Delivery) -> NewRecord {
        let value = waypost_proto::announcement::encode(&self.announcement);
        NewRecord {
            topic: Topic::Announcements,
            partition: None,
            key: key_of(&self.announcement).to_record_key(),
            value: (kind == RecordKind::Announce).then_some(value),
            headers: Headers {
                kind,
                id: Some(self.id),
                birth: Some(START),
                seq: Some(self.seq),
                ..Headers::default()
            },
            delivery,
        }
    }

    /// Announces, or beats.
    pub(crate) async fn announce(&self) -> Appended {
        let record = self.record(RecordKind::Announce, Delivery::Change);
        self.log.append(record).await.unwrap()
    }

    /// Announces a change.
    pub(crate) async fn change(&mut self, change: impl FnOnce(&mut Announcement)) -> Appended {
        self.seq += 1;
        change(&mut self.announcement);
        self.announce().await
    }

    pub(crate) async fn withdraw(&mut self) -> Appended {
        self.seq += 1;
        let record = self.record(RecordKind::Withdraw, Delivery::Change);
        self.log.append(record).await.unwrap()
    }
}

/// Waits until `condition` gives a value.
pub(crate) async fn eventually<T, F>(what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let waited = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(DEADLINE, waited)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// One `GET` to the admin port: status and body.
pub(crate) async fn get(observer: &RunningObserver, path: &str) -> (u16, String) {
    let url = format!("http://{}{path}", observer.admin_address());
    let response = reqwest::get(&url).await.expect("the admin port answers");
    let status = response.status().as_u16();
    (status, response.text().await.unwrap())
}

/// One `GET` whose answer must be 200 and of type `T`.
pub(crate) async fn get_json<T: serde::de::DeserializeOwned>(
    observer: &RunningObserver,
    path: &str,
) -> T {
    let (status, text) = get(observer, path).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"))
}

/// The value of a metric without labels, or with these exact ones.
pub(crate) async fn metric(observer: &RunningObserver, name_and_labels: &str) -> f64 {
    let (_, text) = get(observer, "/metrics").await;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name_and_labels)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

pub(crate) async fn channel(observer: &RunningObserver) -> Channel {
    let url = format!("http://{}", observer.grpc_address());
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

pub(crate) async fn gateway(observer: &RunningObserver) -> GatewayClient<Channel> {
    GatewayClient::new(channel(observer).await)
}

/// Puts a record into the log as any producer could.
pub(crate) fn append_raw(log: &MemoryLog, key: Option<&[u8]>, value: Option<&[u8]>, kind: &str) {
    let headers: &[(&str, &[u8])] = &[("waypost-kind", kind.as_bytes())];
    let headers = if kind.is_empty() { &[] } else { headers };
    log.append_raw(
        Topic::Announcements,
        waypost_core::PartitionId(0),
        key.map(Bytes::copy_from_slice),
        value.map(Bytes::copy_from_slice),
        headers,
    )
    .unwrap();
}
