//! The load: thousands of xDS streams in one thread.
//!
//! It must cost less than the server that it measures. So it speaks HTTP/2 itself (no headers are
//! decoded, windows are so large that hardly any is refilled), finds the few fields that it needs by
//! walking over the bytes of a message, and answers all that one read brought by one write. ACKs are
//! real: a nonce in delta, all names again in state of the world.
//!
//! It runs in a process of its own and is told what to do on standard input ([`command`]); the runner
//! starts several where one has not enough descriptors.

pub(crate) mod command;
pub(crate) mod plan;
pub(crate) mod response;
pub(crate) mod stats;

mod client;
mod connection;
mod frame;
mod limits;
mod request;
mod wire;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, sync_channel};

use mio::{Poll, Waker};

use client::Client;
use command::Command;
use connection::{Shared, Texts};
use plan::Kind;
use request::Names;
use response::Variant;
use stats::Stats;

/// A load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadOptions {
    /// The server.
    #[arg(long)]
    pub(crate) grpc: SocketAddr,
    /// Where clients go whose connection is lost, with what they hold; without it, that is an error.
    /// With it, every stream subscribes to a name that nothing has too, so that it has an answer.
    #[arg(long)]
    pub(crate) then: Option<SocketAddr>,
    /// Connections over which streams are spread evenly.
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: usize,
    /// What a stream subscribes to.
    #[arg(long, value_enum, default_value_t = Kind::Endpoints)]
    pub(crate) kind: Kind,
    #[arg(long, value_enum, default_value_t = Variant::Delta)]
    pub(crate) variant: Variant,
    /// How many clusters there are.
    #[arg(long)]
    pub(crate) clusters: usize,
    /// To how many of them a stream subscribes.
    #[arg(long)]
    pub(crate) names: usize,
    /// The number of the first stream, where other processes have those before.
    #[arg(long, default_value_t = 0)]
    pub(crate) first_stream: usize,
    /// How many streams may wait for their first answer while others are opened.
    #[arg(long, default_value_t = 200)]
    pub(crate) unanswered_max: usize,
    /// The share of connections that do not read while the load is told to pause, with small windows.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_percent: usize,
}

/// Runs a load until its standard input ends.
///
/// # Errors
/// The server cannot be reached, or a connection is lost and nobody said where to go then.
pub(crate) fn run(options: LoadOptions) -> anyhow::Result<()> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), client::COMMANDS)?;
    let shared = shared(&options)?;
    let commands_rx = read_commands(waker);
    let mut client = Client::new(options, poll, shared, commands_rx);
    let mut output = std::io::stdout().lock();
    client.run(|line| {
        serde_json::to_writer(&mut output, line)?;
        output.write_all(b"\n")?;
        Ok(output.flush()?)
    })
}

fn shared(options: &LoadOptions) -> anyhow::Result<Shared> {
    let method = match options.variant {
        Variant::Delta => "DeltaAggregatedResources",
        Variant::Sotw => "StreamAggregatedResources",
    };
    let path = format!("/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}");
    let kinds = match options.kind {
        Kind::UriMapAndGlob => vec![Kind::UriMap, Kind::UriGlob],
        one => vec![one],
    };
    let names = |kind| {
        let names = Names::new(kind, options.clusters, options.names);
        match options.then {
            Some(_) => names.with_absent(),
            None => names,
        }
    };
    Ok(Shared {
        variant: options.variant,
        names: kinds.into_iter().map(names).collect(),
        header_block: frame::header_block(&path, &options.grpc.to_string()),
        texts: options.then.map(|_| Texts::default()),
        stats: Stats::new()?,
        unanswered: 0,
        scratch: Vec::new(),
    })
}

/// Reads standard input in a thread of its own; ends with it.
fn read_commands(waker: Waker) -> Receiver<Command> {
    let (commands_tx, commands_rx) = sync_channel(limits::COMMANDS_MAX);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match line.parse() {
                Ok(command) => {
                    if commands_tx.send(command).is_err() {
                        return;
                    }
                    // A poll that is not woken looks again after a tick.
                    drop(waker.wake());
                }
                Err(error) => eprintln!("load: {error:#}"),
            }
        }
    });
    commands_rx
}
