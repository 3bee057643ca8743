//! `waypost observer`: one Observer of a fleet.

use std::sync::Arc;

use waypost_core::LogError;
use waypost_log::kafka::KafkaSettings;
use waypost_log::kafka::topics::{self, Severity, TopicsSpec};
use waypost_observer::app::StartCheck;
use waypost_observer::settings::LogKind;
use waypost_observer::{LogWrites, Observer, Settings, SnapshotSettings};

use super::data_directory::DataDirectory;
use crate::args::ObserverArgs;
use crate::exit::{Exit, Failure};
use crate::values::show_duration;
use crate::{kafka, output};

pub(crate) async fn run(args: ObserverArgs) -> Result<Exit, Failure> {
    let tls = args.listen.tls.files()?;
    let hangups = super::install_hangups(&args.listen.tls)?;
    let signals = super::install_signals()?;
    let kafka_settings = kafka::settings(&args.kafka, &args.topics)?;
    let log = kafka::open(&args.kafka, &args.topics)?;
    let mut observer = Observer::new(mk_settings(&args), log)
        .with_start_check(mk_start_check(kafka_settings))
        .with_connection_age_max(args.connection_age_max);
    if let Some(files) = tls {
        observer = observer.with_tls(files);
    }
    let _data = match &args.data {
        Some(directory) => Some(DataDirectory::take(directory)?),
        None => None,
    };
    if let Some(directory) = &args.data {
        observer = observer.with_snapshot(SnapshotSettings {
            directory: directory.clone(),
            interval: args.snapshot_interval,
            serve_after: args.serve_snapshot_after,
        });
    }
    let observer = observer
        .start()
        .await
        .map_err(|e| super::start_failure(&e))?;
    output::print_line(&format!(
        "waypost {version} observer\n\
         \x20 gRPC   {grpc}  (xDS, gateway, health, reflection)\n\
         \x20 admin  http://{admin}  (/ready, /metrics, /api/v1)\n\
         \x20 Kafka  {brokers}, topics {prefix}.announcements, {prefix}.config, {prefix}.control",
        version = env!("CARGO_PKG_VERSION"),
        grpc = format_args!(
            "{}{}",
            super::grpc_scheme(&args.listen.tls),
            observer.grpc_address()
        ),
        admin = observer.admin_address(),
        brokers = args.kafka,
        prefix = args.topics.topic_prefix,
    ))?;
    super::run_until_stopped(observer, signals, hangups).await
}

fn mk_settings(args: &ObserverArgs) -> Settings {
    Settings {
        listen: args.listen.listen,
        admin: args.listen.admin,
        log_kind: LogKind::Kafka,
        log_writes: if args.read_only {
            LogWrites::ReadOnly
        } else {
            LogWrites::Keep
        },
        newborn_grace: args.newborn_grace,
        expiry_window: args.expiry.expiry_window,
        drain: args.drain,
        fabric: args.place.fabric.clone(),
        zone: args.place.zone.clone(),
        shown: super::shown(
            [
                ("command", "observer".to_owned()),
                ("kafka", args.kafka.clone()),
                ("topic-prefix", args.topics.topic_prefix.clone()),
                ("listen", args.listen.listen.to_string()),
                ("admin", args.listen.admin.to_string()),
                ("fabric", args.place.fabric.clone()),
                ("zone", args.place.zone.clone()),
                ("read-only", args.read_only.to_string()),
                ("drain", show_duration(args.drain)),
                ("connection-age-max", show_duration(args.connection_age_max)),
                ("newborn-grace", show_duration(args.newborn_grace)),
                (
                    "data",
                    args.data
                        .as_ref()
                        .map_or_else(String::new, |d| d.display().to_string()),
                ),
                ("snapshot-interval", show_duration(args.snapshot_interval)),
                (
                    "serve-snapshot-after",
                    show_duration(args.serve_snapshot_after),
                ),
            ],
            &args.listen.tls,
        ),
    }
}

/// The rules of the log must hold; what only risks data when a broker is lost is the operator's.
fn mk_start_check(settings: KafkaSettings) -> StartCheck {
    let settings = Arc::new(settings);
    Box::new(move || {
        let settings = Arc::clone(&settings);
        Box::pin(async move {
            let findings = topics::check(&settings, &TopicsSpec::development()).await?;
            let breaks = findings.iter().filter(|f| f.severity == Severity::Breaks);
            let texts: Vec<_> = breaks.map(ToString::to_string).collect();
            if texts.is_empty() {
                Ok(())
            } else {
                Err(LogError::Misconfigured(texts.join("; ")))
            }
        })
    })
}
