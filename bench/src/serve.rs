//! `waypost-bench serve`: the server under test. A whole Observer, as `waypost observer` builds it, over
//! a log in this process: what is measured holds reading, folding, storing, rendering and encoding of
//! every change, and the appends too.
//!
//! The keeper ticks as ever. Nobody beats, since the peers' instances do not: a time-to-live is as long
//! as may be, and before the first is over all are announced again ([`keep_alive`]).

mod control;
mod passing_log;
mod updater;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use waypost_core::Topic;
use waypost_core::limits::TTL_MAX;
use waypost_core::record::Delivery;
use waypost_observer::settings::LogKind;
use waypost_observer::{LogWrites, Observer, Settings};
use waypost_runtime::StopSignals;

use passing_log::PassingLog;
use updater::Updater;

use crate::fleet::{Fleet, FleetSpec, Shape};

/// Partitions of the announcements: more than one, as in a fabric.
const PARTITIONS: u32 = 8;

/// Announcements that may wait to be read while the fleet is announced: the log must not be the memory
/// that is measured afterwards.
const UNREAD_MAX: usize = 4_096;

/// Parts in which all instances are announced again, one a second.
const KEEP_ALIVE_PARTS: u32 = 100;

/// What is served, and where.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Clusters, named cluster-0, cluster-1, and so on.
    #[arg(long, default_value_t = 1_000)]
    clusters: u32,
    /// Instances of each.
    #[arg(long, default_value_t = 20)]
    endpoints: u32,
    /// So many instances in clusters of very different sizes, who say as much as real ones do.
    #[arg(long, conflicts_with = "endpoints")]
    instances: Option<u32>,
    /// Where xDS is served; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where the control port is served.
    #[arg(long, default_value = "127.0.0.1:0")]
    control: SocketAddr,
}

/// Serves until it is told to stop. Says `ready pid=P grpc=A control=A admin=A` once it does.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    waypost_runtime::telemetry::init(waypost_runtime::LogFormat::Text, "warn")?;
    // The runtime of `waypost observer`; connections have one thread a core beside it.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().build()?.block_on(serve(args))
}

async fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let mut signals = StopSignals::install()?;
    let log = PassingLog::new(PARTITIONS)?;
    let fleet = Fleet::new(mk_spec(args));
    let observer = Observer::new(mk_settings(args.listen), Arc::new(log.clone()));
    let observer = observer.start().await?;
    observer.ready().await;
    for slot in 0..fleet.slot_count() {
        log.push(fleet.announce(slot, Delivery::Change)?)?;
        log.waiting_at_most(Topic::Announcements, UNREAD_MAX).await;
    }
    log.all_read(Topic::Announcements).await;

    let updater = Updater::new(log.clone(), fleet);
    tokio::spawn(keep_alive(updater.clone()));
    let listener = TcpListener::bind(args.control).await?;
    let control = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, control::routes(updater)).await });

    println!(
        "ready pid={} grpc={} control={control} admin={}",
        std::process::id(),
        observer.grpc_address(),
        observer.admin_address(),
    );
    std::io::stdout().flush()?;
    tokio::select! {
        _ = signals.next() => observer.shutdown().await,
        failed = observer.failed() => return Err(failed.into()),
    }
    Ok(())
}

/// Announces all instances again, a part of them each second, from half of their time-to-live on.
async fn keep_alive(updater: Updater) {
    loop {
        tokio::time::sleep(TTL_MAX / 2).await;
        for part in 0..KEEP_ALIVE_PARTS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Err(error) = updater.announce_again(part, KEEP_ALIVE_PARTS as usize) {
                tracing::error!(%error, "instances are not announced again");
            }
        }
    }
}

fn mk_spec(args: &ServeArgs) -> FleetSpec {
    let endpoints = args.endpoints;
    FleetSpec {
        clusters: args.clusters,
        shape: match args.instances {
            Some(instances) => Shape::Tailed { instances },
            None => Shape::Even { endpoints },
        },
        heartbeat: TTL_MAX / 3,
        ttl: TTL_MAX,
    }
}

fn mk_settings(listen: SocketAddr) -> Settings {
    Settings {
        listen,
        admin: ([127, 0, 0, 1], 0).into(),
        log_kind: LogKind::Memory,
        log_writes: LogWrites::Keep,
        // This process has just made the log.
        newborn_grace: Duration::ZERO,
        expiry_window: waypost_fold::limits::CAP_WINDOW,
        drain: Duration::ZERO,
        fabric: String::new(),
        zone: String::new(),
        shown: BTreeMap::new(),
    }
}

const _: () = assert!(TTL_MAX.as_secs() / 2 + (KEEP_ALIVE_PARTS as u64) < TTL_MAX.as_secs());
