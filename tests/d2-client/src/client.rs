//! The client: its task, and calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use waypost_proto::indis::D2uri;
use waypost_xds_client::{Driver, KnownVersions, Machine, Policy, ServerAddressError};

use crate::book::{Book, Want};
use crate::codec::D2Codec;
use crate::documents::{Cluster, Service};
use crate::limits::{DIRECTORY_WAIT_MAX, PROPERTY_WAIT_MAX, REQUEST_MAX, WANTS_QUEUED_MAX};
use crate::names;
use crate::partition::choose;
use crate::pre_check::pre_check;
use crate::view::{Directory, Hosts, Report, View};

/// How instances are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One map for each cluster, which is rest.li's default; versions are not told.
    Map,
    /// A glob for each cluster (`subscribeToUriGlobCollection`), with or without versions
    /// (`xdsInitialResourceVersionsEnabled`).
    Glob(KnownVersions),
}

impl Mode {
    /// The modes that proofs show, and what they are called.
    pub const ALL: [(&'static str, Self); 3] = [
        ("map", Self::Map),
        ("glob", Self::Glob(KnownVersions::Omitted)),
        ("glob with versions", Self::Glob(KnownVersions::Told)),
    ];

    pub(crate) fn known_versions(self) -> KnownVersions {
        match self {
            Self::Map => KnownVersions::Omitted,
            Self::Glob(known_versions) => known_versions,
        }
    }
}

/// Why a call failed. The codes are those of rest.li's messages.
#[derive(Debug, thiserror::Error)]
pub enum D2Error {
    /// The server's address is none.
    #[error(transparent)]
    Server(#[from] ServerAddressError),
    /// Not of the form `d2://SERVICE/…`.
    #[error("{0} is no d2:// URL")]
    Url(String),
    /// Nobody answered in time.
    #[error("PEGA_1011: no answer about {0} within {wait:?}", wait = PROPERTY_WAIT_MAX)]
    NoAnswer(String),
    /// A server said that there is nothing, or what it said cannot be read.
    #[error("PEGA_1012: there is no {0}")]
    Nothing(String),
    /// Nothing is announced for the call's partition and the service's schemes.
    #[error("PEGA_1015: no host of {cluster} for partition {partition}")]
    NoHost {
        /// The cluster as the service names it.
        cluster: String,
        /// The partition.
        partition: i32,
    },
    /// The cluster's partitions are found in a way that this client does not know.
    #[error("{0}")]
    Partitioning(String),
    /// The request failed.
    #[error("{url}: {source}")]
    Request {
        /// Where to.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The host answered with another status than 200.
    #[error("{url}: HTTP {status}")]
    Status {
        /// Where to.
        url: String,
        /// The status.
        status: u16,
    },
    /// The client's task has ended.
    #[error("the client has ended")]
    Ended,
}

/// What a host answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where the request went.
    pub url: String,
    /// The body.
    pub body: String,
}

/// A running client; it ends when dropped.
#[derive(Debug)]
pub struct D2Client {
    wants_tx: mpsc::Sender<Want>,
    view_rx: watch::Receiver<View>,
    pre_check: Result<(), String>,
    http: reqwest::Client,
    task: JoinHandle<()>,
}

impl Drop for D2Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl D2Client {
    /// Tries the server (`HOST:PORT`) as rest.li does before it starts, then opens the stream, whatever
    /// came of that. `host_name` is what the node's id is made from.
    ///
    /// # Errors
    /// No address.
    pub async fn start(server: &str, host_name: &str, mode: Mode) -> Result<Self, D2Error> {
        let policy = Policy::d2(mode.known_versions());
        let seed = u64::from(std::process::id());
        let mut machine = Machine::new(policy, mk_node(host_name), D2Codec, 1, seed);
        let (view_tx, view_rx) = watch::channel(View::default());
        let mut book = Book::new(mode, view_tx);
        let pre_check = pre_check(server).await;
        book.start(&mut machine);
        let driver = Driver::new(machine, &[server])?;
        let (wants_tx, wants_rx) = mpsc::channel(WANTS_QUEUED_MAX);
        let http = reqwest::Client::builder().no_proxy().timeout(REQUEST_MAX);
        let http = http.build().map_err(|source| D2Error::Request {
            url: String::new(),
            source,
        })?;
        Ok(Self {
            wants_tx,
            view_rx,
            pre_check,
            http,
            task: tokio::spawn(run(driver, book, wants_rx)),
        })
    }

    /// What came of the connection and the health check before the start.
    ///
    /// # Errors
    /// They failed; why.
    pub fn pre_check(&self) -> Result<(), &str> {
        self.pre_check.as_ref().map_err(String::as_str).copied()
    }

    /// One request to `d2://SERVICE/PATH?QUERY`.
    ///
    /// # Errors
    /// See [`D2Error`].
    pub async fn get(&self, url: &str) -> Result<Answer, D2Error> {
        let url = self.resolve(url).await?;
        let failed = |source| D2Error::Request {
            url: url.clone(),
            source,
        };
        let answer = self.http.get(&url).send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        let body = answer.text().await.map_err(failed)?;
        if status != 200 {
            return Err(D2Error::Status { url, status });
        }
        Ok(Answer { url, body })
    }

    /// Where a request goes now: the URI of a host that is chosen, the path of the service, and the rest
    /// of the URL.
    ///
    /// # Errors
    /// See [`D2Error`].
    pub async fn resolve(&self, url: &str) -> Result<String, D2Error> {
        let not_d2 = || D2Error::Url(url.to_owned());
        let rest = url.strip_prefix("d2://").ok_or_else(not_d2)?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (service, rest) = rest.split_at(end);
        if service.is_empty() {
            return Err(not_d2());
        }
        let service = self.service(service).await?;
        let (cluster, hosts) = self.cluster(&service.cluster).await?;
        let partition = cluster.partitioning.find(url);
        let partition = partition.map_err(D2Error::Partitioning)?;
        let host = choose(&service, &cluster, &hosts, partition);
        let host = host.ok_or_else(|| D2Error::NoHost {
            cluster: service.cluster.clone(),
            partition,
        })?;
        let host = host.trim_end_matches('/');
        Ok(format!("{host}{}{rest}", service.path))
    }

    /// The URIs of the hosts that the client knows of a cluster, or of a symlink to one; `None` if it
    /// was never asked for or there is none.
    #[must_use]
    pub fn find_hosts(&self, cluster: &str) -> Option<BTreeSet<String>> {
        let view = self.view_rx.borrow();
        let hosts = view.hosts.get(cluster)?.as_ref()?;
        Some(hosts.values().map(|host| host.uri.clone()).collect())
    }

    /// The instances of a cluster as they came, by their keys, once there is an answer.
    ///
    /// # Errors
    /// See [`D2Error`].
    pub async fn instances(&self, cluster: &str) -> Result<BTreeMap<String, D2uri>, D2Error> {
        let want = Want::Hosts(cluster.to_owned());
        let hosts = self.wait(want, cluster, |view| view.hosts.get(cluster).cloned());
        let hosts = hosts.await?;
        let hosts = hosts.iter();
        let hosts = hosts.map(|(key, uri)| (key.clone(), uri.as_ref().clone()));
        Ok(hosts.collect())
    }

    /// Watches one instance by itself; gives what is known of it once there is an answer.
    ///
    /// # Errors
    /// See [`D2Error`]; [`D2Error::Nothing`] while it does not exist.
    pub async fn uri(&self, cluster: &str, uri: &str) -> Result<D2uri, D2Error> {
        let name = names::instance(cluster, uri);
        let want = Want::Uri(name.clone());
        let uri = self.wait(want, &name, |view| view.uris.get(&name).cloned());
        Ok(uri.await?.as_ref().clone())
    }

    /// All names, once the end of the snapshot was read, or what is there when the wait for it is over.
    ///
    /// # Errors
    /// The client's task has ended.
    pub async fn directory(&self) -> Result<Directory, D2Error> {
        self.want(Want::Directory).await?;
        let mut view_rx = self.view_rx.clone();
        let complete = view_rx.wait_for(|view| view.directory.is_complete);
        // Whether in time or not: what is there is there.
        let _ = timeout(DIRECTORY_WAIT_MAX, complete).await;
        Ok(self.view_rx.borrow().directory.clone())
    }

    /// What an application calls, by its name on the wire.
    ///
    /// # Errors
    /// See [`D2Error`]; [`D2Error::NoAnswer`] where the server keeps silent, on which rest.li takes its own list.
    pub async fn callees(&self, name: &str) -> Result<Vec<String>, D2Error> {
        let want = Want::Callees(name.to_owned());
        let callees = self.wait(want, name, |view| view.callees.get(name).cloned());
        Ok(callees.await?.as_ref().clone())
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.view_rx.borrow().report.clone()
    }

    async fn service(&self, name: &str) -> Result<Arc<Service>, D2Error> {
        let want = Want::Service(name.to_owned());
        self.wait(want, name, |view| view.services.get(name).cloned())
            .await
    }

    /// Document and hosts of a cluster: both are asked for before either is waited for.
    async fn cluster(&self, name: &str) -> Result<(Arc<Cluster>, Arc<Hosts>), D2Error> {
        if !self.view_rx.borrow().clusters.contains_key(name) {
            self.want(Want::Cluster(name.to_owned())).await?;
        }
        let want = Want::Hosts(name.to_owned());
        let hosts = self.wait(want, name, |view| view.hosts.get(name).cloned());
        let hosts = hosts.await?;
        let want = Want::Cluster(name.to_owned());
        let cluster = self.wait(want, name, |view| view.clusters.get(name).cloned());
        Ok((cluster.await?, hosts))
    }

    /// Waits for a property, and asks for it if nobody did.
    async fn wait<T>(
        &self,
        want: Want,
        name: &str,
        find: impl Fn(&View) -> Option<Option<Arc<T>>>,
    ) -> Result<Arc<T>, D2Error> {
        let mut found = find(&self.view_rx.borrow());
        if found.is_none() {
            self.want(want).await?;
            let mut view_rx = self.view_rx.clone();
            let known = view_rx.wait_for(|view| find(view).is_some());
            let known = timeout(PROPERTY_WAIT_MAX, known).await;
            let known = known.map_err(|_| D2Error::NoAnswer(name.to_owned()))?;
            let view = known.map_err(|_| D2Error::Ended)?;
            found = find(&view);
        }
        found
            .flatten()
            .ok_or_else(|| D2Error::Nothing(name.to_owned()))
    }

    async fn want(&self, want: Want) -> Result<(), D2Error> {
        let sent = self.wants_tx.send(want).await;
        sent.map_err(|_| D2Error::Ended)
    }
}

async fn run(mut driver: Driver<D2Codec>, mut book: Book, mut wants_rx: mpsc::Receiver<Want>) {
    loop {
        tokio::select! {
            event = driver.next() => book.handle(event, driver.machine_mut()),
            want = wants_rx.recv() => match want {
                Some(want) => book.want(want, driver.machine_mut()),
                None => return,
            },
        }
    }
}

/// The node of every request (rest.li `xds/Node`).
fn mk_node(host_name: &str) -> Node {
    Node {
        id: format!("restli~{host_name}~.default~default.svc.cluster.local"),
        cluster: "svc.cluster.local".to_owned(),
        user_agent_name: "rest.li".to_owned(),
        ..Node::default()
    }
}
