//! HTTP servers within the test's own process, and a steady load of real requests: what a proxy stands
//! between.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use axum::Router;
use axum::serve::Listener;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::caller::{Call, Calls, Load};
use crate::https::TlsListener;
use crate::limits::STOP_MAX;

/// How long a request may take before it counts as failed.
const REQUEST_MAX: Duration = Duration::from_secs(20);

/// A server that answers every request with its own address.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    stop_tx: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl HttpServer {
    /// Starts it on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is none.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts it on a free port of an address of this machine.
    ///
    /// # Errors
    /// There is none, or it is not this machine's.
    pub async fn start_at(ip: IpAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((ip, 0)).await?;
        Self::serve(listener.local_addr()?, listener)
    }

    /// Starts one of HTTPS on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is none.
    pub async fn start_tls(config: Arc<rustls::ServerConfig>) -> anyhow::Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = tcp.local_addr()?;
        let acceptor = config.into();
        Self::serve(address, TlsListener { tcp, acceptor })
    }

    fn serve<L>(address: SocketAddr, listener: L) -> anyhow::Result<Self>
    where
        L: Listener,
        L::Addr: std::fmt::Debug,
    {
        let app = Router::new().fallback(move || async move { address.to_string() });
        let (stop_tx, stop_rx) = oneshot::channel();
        let serving = axum::serve(listener, app).with_graceful_shutdown(async {
            // An error is the handle's end: it is stopped as well.
            let _ = stop_rx.await;
        });
        let task = tokio::spawn(serving.into_future());
        Ok(Self {
            address,
            stop_tx,
            task,
        })
    }

    /// Where it is; also what it answers with.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, ends those that are idle, waits for the rest.
    ///
    /// # Errors
    /// They do not end.
    pub async fn stop(self) -> anyhow::Result<()> {
        let _ = self.stop_tx.send(());
        let done = tokio::time::timeout(STOP_MAX, self.task).await;
        done.with_context(|| format!("{} does not end", self.address))???;
        Ok(())
    }
}

/// Workers that make requests and note what came of each. They end when this is dropped.
#[derive(Debug)]
pub struct HttpLoad {
    log: Arc<Mutex<Log>>,
    stop_tx: watch::Sender<bool>,
    workers: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Log {
    calls: Vec<Call>,
    /// When the request began that a worker waits for, by worker.
    begun: BTreeMap<u32, f64>,
}

impl HttpLoad {
    /// Requests one authority through a proxy; each worker has a connection of its own. A request fails
    /// if it is not answered with 200.
    ///
    /// # Errors
    /// No client can be made.
    pub fn start(proxy: SocketAddr, authority: &str, load: Load) -> anyhow::Result<Self> {
        Self::start_with(load, || {
            let client = reqwest::Client::builder()
                .no_proxy()
                .timeout(REQUEST_MAX)
                .build()?;
            let request = client
                .get(format!("http://{proxy}/"))
                .header("host", authority)
                .build()?;
            Ok(move || ask(client.clone(), request.try_clone()))
        })
    }

    /// Makes requests in a way of the caller's own: `mk_ask` gives each worker what makes one, whose
    /// result is who answered.
    ///
    /// # Errors
    /// Those of `mk_ask`.
    pub fn start_with<A, R>(
        load: Load,
        mut mk_ask: impl FnMut() -> anyhow::Result<A>,
    ) -> anyhow::Result<Self>
    where
        A: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<String>> + Send + 'static,
    {
        let log = Arc::default();
        let (stop_tx, stop_rx) = watch::channel(false);
        let mut workers = JoinSet::new();
        let pace = Duration::from_secs_f64(f64::from(load.concurrency) / load.rate);
        for number in 0..load.concurrency {
            let worker = Worker {
                number,
                ask: mk_ask()?,
                log: Arc::clone(&log),
            };
            workers.spawn(worker.run(pace, stop_rx.clone()));
        }
        Ok(Self {
            log,
            stop_tx,
            workers,
        })
    }

    /// Whether a request is under way that began before `time`.
    #[must_use]
    pub fn has_older_than(&self, time: f64) -> bool {
        lock(&self.log).begun.values().any(|begun| *begun < time)
    }

    /// What came of the requests that ended so far and began at or after `since`, seconds since
    /// 1970-01-01 UTC.
    #[must_use]
    pub fn calls_since(&self, since: f64) -> Calls {
        let log = lock(&self.log);
        let late = log.calls.iter().filter(|call| call.start >= since);
        Calls(late.cloned().collect())
    }

    /// Lets the requests in flight end and gives all.
    pub async fn finish(mut self) -> Calls {
        let _ = self.stop_tx.send(true);
        while self.workers.join_next().await.is_some() {}
        Calls(std::mem::take(&mut lock(&self.log).calls))
    }
}

struct Worker<A> {
    number: u32,
    ask: A,
    log: Arc<Mutex<Log>>,
}

impl<A, R> Worker<A>
where
    A: Fn() -> R,
    R: Future<Output = anyhow::Result<String>>,
{
    async fn run(self, pace: Duration, stop_rx: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(pace);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*stop_rx.borrow() {
            ticks.tick().await;
            let start = now();
            lock(&self.log).begun.insert(self.number, start);
            let outcome = (self.ask)().await.map_err(|error| format!("{error:#}"));
            let call = Call {
                start,
                end: now(),
                outcome,
            };
            let mut log = lock(&self.log);
            log.begun.remove(&self.number);
            log.calls.push(call);
        }
    }
}

async fn ask(client: reqwest::Client, request: Option<reqwest::Request>) -> anyhow::Result<String> {
    let request = request.context("a body")?;
    let answer = client.execute(request).await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    anyhow::ensure!(status == 200, "HTTP {status}: {text}");
    Ok(text)
}

/// Seconds since 1970-01-01 UTC.
#[expect(
    clippy::disallowed_methods,
    reason = "as the calls of clients in other processes are dated"
)]
fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn lock(log: &Mutex<Log>) -> std::sync::MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
