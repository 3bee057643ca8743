//! `waypost announce`: the agent beside a server in any language.
//!
//! It starts COMMAND, waits for its health check, announces, and keeps announcing. Told to stop, it
//! withdraws first, waits for calls to drain, and only then passes the signal on, so that nobody is
//! sent to a server that is already going.

mod agent;
mod command;
mod health;
mod report;
mod resolve;

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_announcer::{AnnouncerPool, GatewaySink, LogSink, PoolOptions, Sink};
use waypost_core::{Announcement, PartitionWeights, Timestamp};

use crate::args::AnnounceArgs;
use crate::exit::{Exit, Failure};
use crate::kafka;
use crate::limits::HEALTH_INTERVAL_MIN;

pub(crate) use health::HealthCheck;

pub(crate) async fn run(args: AnnounceArgs) -> Result<Exit, Failure> {
    let announcement = mk_announcement(&args)?;
    let sink = mk_sink(&args)?;
    let signals = command::Signals::install()
        .map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))?;
    let pool = AnnouncerPool::spawn(sink, PoolOptions::default());
    let announcer = pool
        .add(announcement)
        .map_err(|e| Failure::usage(e.to_string()))?;
    let command = match args.command.split_first() {
        None => None,
        Some((program, words)) => Some(command::Command::start(program, words)?),
    };
    agent::Agent::new(announcer, command, signals, &args)
        .run()
        .await
}

fn mk_announcement(args: &AnnounceArgs) -> Result<Announcement, Failure> {
    if args.health_interval < HEALTH_INTERVAL_MIN {
        return Err(Failure::usage(format!(
            "--health-interval must be at least {}ms",
            HEALTH_INTERVAL_MIN.as_millis()
        )));
    }
    let mut announcement = Announcement::new(
        args.cluster.clone(),
        args.uri.clone(),
        // Each change is stamped when it is made.
        Timestamp::default(),
    );
    announcement.hostname = resolve::hostname(&args.uri);
    let addresses = resolve::Addresses::from_flags(&args.address).map_err(Failure::usage)?;
    (announcement.ipv4, announcement.ipv6) = (addresses.v4, addresses.v6);
    announcement.weights = mk_weights(args)?;
    announcement.metadata = mk_metadata(args)?;
    announcement.application.clone_from(&args.application);
    announcement.fabric.clone_from(&args.place.fabric);
    announcement.zone.clone_from(&args.place.zone);
    announcement.heartbeat = args.heartbeat;
    announcement.ttl = args.ttl;
    waypost_announcer::check(&announcement).map_err(|e| Failure::usage(e.to_string()))?;
    Ok(announcement)
}

fn mk_weights(args: &AnnounceArgs) -> Result<PartitionWeights, Failure> {
    let mut weights = PartitionWeights::new();
    for weight in &args.weight {
        let partition = weight.d2_partition;
        if weights.insert(partition, weight.weight).is_some() {
            return Err(Failure::usage(format!(
                "--weight names D2 partition {partition} twice"
            )));
        }
    }
    if weights.is_empty() {
        weights.insert(0, 1.0);
    }
    Ok(weights)
}

fn mk_metadata(args: &AnnounceArgs) -> Result<String, Failure> {
    let mut metadata = Map::new();
    for entry in &args.metadata {
        let value = entry.value.clone();
        if metadata.insert(entry.key.clone(), value).is_some() {
            return Err(Failure::usage(format!(
                "--metadata names {} twice",
                entry.key
            )));
        }
    }
    Ok(Value::Object(metadata).to_string())
}

fn mk_sink(args: &AnnounceArgs) -> Result<Arc<dyn Sink>, Failure> {
    match &args.to.kafka {
        Some(brokers) => {
            let log = kafka::open(brokers, &args.to.topics)?;
            Ok(Arc::new(LogSink::new(log)))
        }
        None => {
            let gateways = &args.to.gateway;
            let tls = gateways.tls.client(&gateways.to)?;
            let sink = GatewaySink::with_tls(&gateways.to, &tls);
            let sink = sink.map_err(|e| Failure::usage(e.to_string()))?;
            Ok(Arc::new(sink))
        }
    }
}
