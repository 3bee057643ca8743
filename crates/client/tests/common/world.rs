//! An Observer in this process over the log in memory, with instances that a test announces. Used by the
//! tests of the engine too.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use waypost_admin_api::LogKind;
use waypost_core::record::{Delivery, LogIdentity};
use waypost_core::{
    Announcement, AnnouncementLog, ClusterName, Headers, InstanceKey, InstanceUri, LifeId,
    NewRecord, RecordKind, Timestamp, Topic,
};
use waypost_log::{ManualClock, MemoryLog};
use waypost_observer::{LogWrites, Observer, RunningObserver, Settings};

/// Longest wait for anything; a test that needs it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

const START: Timestamp = Timestamp(1_700_000_000_000);

/// A log and what was announced in it.
pub(crate) struct World {
    pub(crate) log: MemoryLog,
}

impl World {
    pub(crate) fn new() -> Self {
        let log = MemoryLog::new(2, ManualClock::new(START));
        log.write_identity(LogIdentity(7));
        Self { log }
    }

    /// An Observer that serves, on this address or a free port.
    pub(crate) async fn observer_at(&self, listen: Option<SocketAddr>) -> RunningObserver {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let settings = Settings {
            listen: listen.unwrap_or(any),
            admin: any,
            log_kind: LogKind::Memory,
            log_writes: LogWrites::Keep,
            newborn_grace: Duration::ZERO,
            expiry_window: Duration::from_secs(60),
            drain: Duration::ZERO,
            fabric: "east".to_owned(),
            zone: "a".to_owned(),
            shown: BTreeMap::new(),
        };
        let log: Arc<dyn AnnouncementLog> = Arc::new(self.log.clone());
        let observer = Observer::new(settings, log)
            .with_tick_interval(Duration::from_millis(100))
            .with_threads(1)
            .start()
            .await
            .expect("the Observer starts");
        soon("the Observer is ready", observer.ready()).await;
        observer
    }

    pub(crate) async fn observer(&self) -> RunningObserver {
        self.observer_at(None).await
    }

    /// Announces an instance of `cluster` at a port of 127.0.0.1.
    pub(crate) async fn announce(&self, cluster: &str, port: u16) {
        self.announce_with(cluster, port, |_| ()).await;
    }

    pub(crate) async fn announce_with(
        &self,
        cluster: &str,
        port: u16,
        change: impl FnOnce(&mut Announcement),
    ) {
        let mut announcement = mk_announcement(cluster, port);
        change(&mut announcement);
        let value = waypost_proto::announcement::encode(&announcement);
        self.append(&announcement, RecordKind::Announce, Some(value))
            .await;
    }

    pub(crate) async fn withdraw(&self, cluster: &str, port: u16) {
        let announcement = mk_announcement(cluster, port);
        self.append(&announcement, RecordKind::Withdraw, None).await;
    }

    async fn append(
        &self,
        announcement: &Announcement,
        kind: RecordKind,
        value: Option<bytes::Bytes>,
    ) {
        static SEQ: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let key = InstanceKey {
            cluster: announcement.cluster.clone(),
            uri: announcement.uri.clone(),
        };
        let record = NewRecord {
            topic: Topic::Announcements,
            partition: None,
            key: key.to_record_key(),
            value,
            headers: Headers {
                kind,
                id: Some(LifeId(1)),
                birth: Some(START),
                seq: Some(SEQ.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
                ..Headers::default()
            },
            delivery: Delivery::Change,
        };
        self.log.append(record).await.expect("the log takes it");
    }
}

fn mk_announcement(cluster: &str, port: u16) -> Announcement {
    let mut announcement = Announcement::new(
        ClusterName::parse(cluster).unwrap(),
        InstanceUri::parse(&format!("grpc://127.0.0.1:{port}")).unwrap(),
        START,
    );
    announcement.ttl = Duration::from_secs(10);
    announcement.heartbeat = Duration::from_secs(3);
    announcement
}

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"))
}
