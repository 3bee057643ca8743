//! tonic-xds, unmodified: calls one target at a steady rate until SIGTERM, and writes down each call. Says
//! "called" after the first answer. It takes the same words as the programs beside it.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tonic_xds::{XdsChannelBuilder, XdsChannelConfig, XdsChannelGrpc, XdsUri};

const HELLO: &str = "/waypost.test.Greeter/Hello";

/// google.protobuf.StringValue.
#[derive(Clone, PartialEq, prost::Message)]
struct StringValue {
    #[prost(string, tag = "1")]
    value: String,
}

struct Caller {
    channel: XdsChannelGrpc,
    out: File,
    deadline: Duration,
    /// From one call of a worker to its next, at least.
    pace: Duration,
    answered: Cell<bool>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // Its futures do not go from thread to thread.
    LocalSet::new().run_until(run()).await
}

async fn run() -> anyhow::Result<()> {
    let flags = Flags::read(std::env::args().skip(1))?;
    let concurrency = flags.number("--concurrency", 4)?;
    let target = XdsUri::parse(flags.text("--target")?).map_err(|e| anyhow!("--target: {e}"))?;
    let channel = XdsChannelBuilder::new(XdsChannelConfig::new(target)).build_grpc_channel();
    let out = flags.text("--out")?;
    let caller = Rc::new(Caller {
        channel: channel.map_err(|e| anyhow!("no channel: {e}"))?,
        out: OpenOptions::new().create(true).append(true).open(out)?,
        deadline: Duration::from_secs(flags.number("--deadline", 5)?),
        pace: Duration::from_secs(concurrency) / u32::try_from(flags.number("--rate", 100)?)?,
        answered: Cell::new(false),
    });
    let first = Duration::from_secs(flags.number("--first", 30)?);
    caller.until_first_answer(first).await?;

    let (stop_tx, stop_rx) = watch::channel(());
    let mut workers = JoinSet::new();
    for number in 0..u32::try_from(concurrency)? {
        // One after the other: together they would call in bursts, with nothing in flight between.
        let rest = caller.pace * number / u32::try_from(concurrency)?;
        workers.spawn_local(work(Rc::clone(&caller), stop_rx.clone(), rest));
    }
    signal(SignalKind::terminate())?.recv().await;
    drop(stop_tx);
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Makes one call at a time, the first after `rest`.
async fn work(
    caller: Rc<Caller>,
    mut stop_rx: watch::Receiver<()>,
    mut rest: Duration,
) -> anyhow::Result<()> {
    while timeout(rest, stop_rx.changed()).await.is_err() {
        let began = Instant::now();
        caller.call_once().await?;
        rest = caller.pace.saturating_sub(began.elapsed());
    }
    Ok(())
}

impl Caller {
    /// Its channel does not wait for addresses where a call is told to: the first one is made until it succeeds.
    async fn until_first_answer(&self, within: Duration) -> anyhow::Result<()> {
        let tries = async {
            while let Err(status) = self.hello().await {
                eprintln!("no first answer yet: {status}");
                sleep(self.pace).await;
            }
        };
        timeout(within, tries).await.context("no first answer")
    }

    async fn call_once(&self) -> anyhow::Result<()> {
        let start = epoch()?;
        let mut line = match timeout(self.deadline, self.hello()).await {
            Ok(Ok(by)) => {
                if !self.answered.replace(true) {
                    println!("called");
                }
                json!({"ok": true, "by": by})
            }
            Ok(Err(status)) => failed(&format!("{:?}", status.code()), status.message()),
            Err(_) => failed("DeadlineExceeded", "no answer in time"),
        };
        line["start"] = json!(start);
        line["end"] = json!(epoch()?);
        // In one piece: it is read while it is written.
        (&self.out).write_all(format!("{line}\n").as_bytes())?;
        Ok(())
    }

    async fn hello(&self) -> Result<String, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        let ready = client.ready().await;
        ready.map_err(|e| Status::unavailable(format!("not ready: {e}")))?;
        let request = Request::new(StringValue::default());
        let codec = ProstCodec::<StringValue, StringValue>::default();
        let answer = client.unary(request, PathAndQuery::from_static(HELLO), codec);
        Ok(answer.await?.into_inner().value)
    }
}

fn failed(code: &str, why: &str) -> Value {
    json!({"ok": false, "code": code, "why": why})
}

fn epoch() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// `--name value` pairs.
struct Flags(HashMap<String, String>);

impl Flags {
    fn read(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut by_name = HashMap::new();
        while let Some(name) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{name} has no value"))?;
            by_name.insert(name, value);
        }
        Ok(Self(by_name))
    }

    fn text(&self, name: &str) -> anyhow::Result<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.with_context(|| format!("{name} must be given"))
    }

    fn number(&self, name: &str, default: u64) -> anyhow::Result<u64> {
        let Some(value) = self.0.get(name) else {
            return Ok(default);
        };
        // Rates are written with a fraction.
        let whole = value.split('.').next().unwrap_or_default();
        whole.parse().with_context(|| format!("{name} {value}"))
    }
}
