//! What a delivery costs: a server with an indexed map behind it, clients in a second process, both
//! on loopback.
//!
//! `fanout [STREAMS] [DELIVERIES PER SECOND] [SECONDS]` prints deliveries (a response and its ACK)
//! per CPU-second of the server process, publishing included, and its resident bytes per stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::Instant;
use waypost_core::{
    EncodedResource, Interest, ResourceLocator, ResourceName, ResourceType, ResourceVersion,
    Subscriber, SubscriptionToken, Timestamp, Variant,
};
use waypost_xds::{
    AdsServer, AdsSettings, Event, EventHandler, ListenSettings, Listener, Transport,
};

type Error = Box<dyn std::error::Error + Send + Sync>;

const TYPE: ResourceType = ResourceType::ClusterLoadAssignment;
const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const NAMES: usize = 1000;
const NAMES_PER_STREAM: usize = 10;
const VALUE_BYTES: usize = 300;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| {
        args.get(index)
            .map_or(Ok(default), |arg| arg.parse::<usize>())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if args.first().is_some_and(|arg| arg == "load") {
        let address = args.get(1).ok_or("load ADDRESS STREAMS")?.parse()?;
        return runtime.block_on(load(address, number(2, 1000)?));
    }
    let (streams, rate, seconds) = (number(0, 1000)?, number(1, 10_000)?, number(2, 10)?);
    runtime.block_on(serve(streams, rate, seconds))
}

async fn serve(streams: usize, rate: usize, seconds: usize) -> Result<(), Error> {
    let locator = Arc::new(IndexedLocator::default());
    for index in 0..NAMES {
        locator.set(&name(index), 0);
    }
    let counts = Arc::new(Counts::default());
    let port = Arc::clone(&locator) as Arc<dyn ResourceLocator>;
    let events = Arc::clone(&counts) as Arc<dyn EventHandler>;
    let server = AdsServer::new(port, AdsSettings::new("fanout"), events);
    let settings = ListenSettings {
        threads: Some(1),
        ..ListenSettings::default()
    };
    let listener = Listener::bind(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr();
    let before = resident_bytes()?;
    let serving = listener.serve(server, tower::service_fn(no_other), settings)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["load", &address.to_string(), &streams.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut String::new())?;
    let per_stream = resident_bytes()?.saturating_sub(before) / streams;

    let per_set = streams * NAMES_PER_STREAM / NAMES;
    let interval = Duration::from_secs_f64(per_set as f64 / rate as f64);
    let (start, cpu, sent) = (Instant::now(), cpu_seconds()?, counts.sent());
    let mut sets = 0_u32;
    while start.elapsed() < Duration::from_secs(seconds as u64) {
        sets += 1;
        locator.set(&name(sets as usize % NAMES), sets);
        tokio::time::sleep_until(start + interval * sets).await;
    }
    let cpu = cpu_seconds()? - cpu;
    let delivered = counts.sent() - sent;
    println!("{streams} streams of {NAMES_PER_STREAM} names, {VALUE_BYTES} byte resources");
    println!(
        "{delivered} deliveries in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    println!(
        "{cpu:.2} CPU-s: {:.0} deliveries per CPU-second",
        delivered as f64 / cpu
    );
    println!("{per_stream} resident bytes per connection with its stream");
    child.kill()?;
    child.wait()?;
    serving.shut_down(Duration::ZERO).await;
    Ok(())
}

fn name(index: usize) -> String {
    format!("cluster-{index:04}")
}

async fn no_other(
    _request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    Ok(http::Response::new(Full::new(Bytes::new())))
}

/// User and system time of this process, seconds.
fn cpu_seconds() -> Result<f64, Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("stat")?;
    let mut ticks = fields.split_whitespace().skip(11).take(2);
    let mut next = || {
        ticks
            .next()
            .ok_or("stat")?
            .parse::<f64>()
            .map_err(Error::from)
    };
    Ok((next()? + next()?) / 100.0)
}

fn resident_bytes() -> Result<usize, Error> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split_whitespace().nth(1).ok_or("statm")?.parse()?;
    Ok(pages * 4096)
}

#[derive(Default)]
struct Counts(AtomicU64);

impl Counts {
    fn sent(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl EventHandler for Counts {
    fn on_event(&self, event: &Event<'_>) {
        if let Event::ResponseSent {
            transport: Transport::Delta,
            ..
        } = event
        {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Explicit names only, by hash.
#[derive(Default)]
struct IndexedLocator {
    by_name: Mutex<HashMap<ResourceName, Slot>>,
    next_token: AtomicU64,
}

#[derive(Default)]
struct Slot {
    resource: Option<EncodedResource>,
    subscribers: HashMap<u64, Arc<dyn Subscriber>>,
}

impl IndexedLocator {
    fn set(&self, name: &str, value: u32) {
        let name = ResourceName::from(name);
        let mut by_name = self.by_name.lock();
        let slot = by_name.entry(name.clone()).or_default();
        slot.resource = Some(encode(&name, value));
        for subscriber in slot.subscribers.values() {
            subscriber.mark_changed(TYPE, &name);
        }
    }
}

impl ResourceLocator for IndexedLocator {
    fn not_loaded(&self) -> Option<String> {
        None
    }

    fn find(&self, _: ResourceType, name: &str, _: Variant) -> Option<EncodedResource> {
        self.by_name.lock().get(name)?.resource.clone()
    }

    fn members(&self, _: ResourceType, _: Option<&str>, _: Variant) -> Vec<ResourceName> {
        Vec::new()
    }

    fn subscribe(
        &self,
        _: ResourceType,
        interest: &Interest,
        subscriber: Arc<dyn Subscriber>,
    ) -> SubscriptionToken {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        if let Interest::Explicit(name) = interest {
            let mut by_name = self.by_name.lock();
            let slot = by_name.entry(name.clone()).or_default();
            slot.subscribers.insert(token, subscriber);
        }
        SubscriptionToken(token)
    }

    fn unsubscribe(&self, _: ResourceType, interest: &Interest, token: SubscriptionToken) {
        if let Interest::Explicit(name) = interest
            && let Some(slot) = self.by_name.lock().get_mut(name)
        {
            slot.subscribers.remove(&token.0);
        }
    }
}

/// A resource of a delta response, tag included, its `Any` last.
fn encode(name: &str, value: u32) -> EncodedResource {
    let field = |tag: u8, payload: &[u8]| {
        let mut out = BytesMut::new();
        out.put_u8(tag);
        prost::encoding::encode_varint(payload.len() as u64, &mut out);
        out.put_slice(payload);
        out
    };
    let value_bytes = vec![value as u8; VALUE_BYTES];
    let any = [
        field(0x0a, TYPE.type_url().as_bytes()),
        field(0x12, &value_bytes),
    ]
    .concat();
    let version = ResourceVersion(u64::from(value));
    let any = field(0x12, &any);
    let head = [
        field(0x1a, name.as_bytes()),
        field(0x0a, version.to_string().as_bytes()),
    ]
    .concat();
    let resource = field(0x12, &[&head[..], &any].concat());
    let start = resource.len() - any.len();
    EncodedResource::new(version, resource.freeze(), start as u32, Timestamp(0))
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    subscribe: Vec<String>,
    #[prost(string, tag = "6")]
    nonce: String,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "5")]
    nonce: String,
}

/// Opens the streams, says so in a line, and confirms what comes.
async fn load(address: SocketAddr, streams: usize) -> Result<(), Error> {
    let mut clients = Vec::new();
    for index in 0..streams {
        clients.push(tokio::spawn(client(address, index)));
        if index % 50 == 49 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("ready");
    for client in clients {
        client.await??;
    }
    Ok(())
}

async fn client(address: SocketAddr, index: usize) -> Result<(), Error> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    let (requests_tx, requests_rx) = tokio::sync::mpsc::channel::<Request>(16);
    let subscribe = (0..NAMES_PER_STREAM).map(|i| name((index * NAMES_PER_STREAM + i) % NAMES));
    requests_tx
        .send(Request {
            type_url: TYPE.type_url().to_owned(),
            subscribe: subscribe.collect(),
            nonce: String::new(),
        })
        .await?;
    let frames = futures::stream::unfold(requests_rx, |mut requests_rx| async {
        let request = requests_rx.recv().await?;
        let message = request.encode_to_vec();
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(message.len() as u32);
        frame.put_slice(&message);
        let frame = Ok::<_, Infallible>(Frame::data(frame.freeze()));
        Some((frame, requests_rx))
    });
    let request = http::Request::post(format!("http://{address}{PATH}"))
        .header("content-type", "application/grpc")
        .body(StreamBody::new(Box::pin(frames)))?;
    let mut body = sender.send_request(request).await?.into_body();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            read.extend_from_slice(&data);
        }
        while let Some(prefix) = read.first_chunk::<5>() {
            let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
            if read.len() < 5 + length {
                break;
            }
            let message = read.split_to(5 + length).freeze().slice(5..);
            let nonce = Response::decode(message)?.nonce;
            let request = Request {
                type_url: TYPE.type_url().to_owned(),
                subscribe: Vec::new(),
                nonce,
            };
            requests_tx.send(request).await?;
        }
    }
    Ok(())
}
