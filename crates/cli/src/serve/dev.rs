//! `waypost dev`: everything on one machine.

use std::sync::Arc;
use std::time::Duration;

use waypost_log::embedded::{EmbeddedLog, EmbeddedSettings, OnDamage, Origin};
use waypost_observer::settings::LogKind;
use waypost_observer::{LogWrites, Observer, RunningObserver, Settings};

use crate::args::{ADMIN_DEFAULT, DevArgs, LISTEN_DEFAULT};
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) async fn run(args: DevArgs) -> Result<Exit, Failure> {
    let tls = args.listen.tls.files()?;
    let hangups = super::install_hangups(&args.listen.tls)?;
    let signals = super::install_signals()?;
    let log = open_log(&args).await?;
    let settings = mk_settings(&args);
    let mut observer = Observer::new(settings, Arc::new(log.clone()));
    if let Some(files) = tls {
        observer = observer.with_tls(files);
    }
    let result = match observer.start().await {
        Ok(observer) => {
            output::print_line(&greeting(&args, &observer))?;
            super::run_until_stopped(observer, signals, hangups).await
        }
        Err(error) => Err(super::start_failure(&error)),
    };
    log.close().await;
    result
}

async fn open_log(args: &DevArgs) -> Result<EmbeddedLog, Failure> {
    let settings = EmbeddedSettings {
        on_damage: if args.salvage {
            OnDamage::Salvage
        } else {
            OnDamage::Refuse
        },
        ..EmbeddedSettings::standard()
    };
    let log = EmbeddedLog::open(&args.data, settings)
        .await
        .map_err(|e| Failure::failed(e.to_string()))?;
    if let Origin::Salvaged(salvage) = log.origin() {
        tracing::warn!(?salvage, "the log was damaged; what was intact was saved");
    }
    Ok(log)
}

fn mk_settings(args: &DevArgs) -> Settings {
    Settings {
        listen: args.listen.listen,
        admin: args.listen.admin,
        log_kind: LogKind::Embedded,
        log_writes: LogWrites::Keep,
        // Nobody makes this log anew behind its back: when it was made, nobody had announced to it,
        // and a young one that is started again holds all that was acknowledged.
        newborn_grace: Duration::ZERO,
        expiry_window: args.expiry.expiry_window,
        // There is no other Observer to send anybody to.
        drain: Duration::ZERO,
        fabric: String::new(),
        zone: String::new(),
        shown: super::shown(
            [
                ("command", "dev".to_owned()),
                ("data", args.data.display().to_string()),
                ("listen", args.listen.listen.to_string()),
                ("admin", args.listen.admin.to_string()),
            ],
            &args.listen.tls,
        ),
    }
}

/// What listens where, where the data is, what to type next.
fn greeting(args: &DevArgs, observer: &RunningObserver) -> String {
    let grpc = observer.grpc_address();
    let admin = observer.admin_address();
    let grpc = format!("{}{grpc}", super::grpc_scheme(&args.listen.tls));
    let to = flag_unless("--to", &grpc, LISTEN_DEFAULT);
    let server = flag_unless("--server", &admin.to_string(), ADMIN_DEFAULT);
    format!(
        "waypost {version} dev\n\
         \x20 gRPC   {grpc}  (xDS, gateway, health, reflection)\n\
         \x20 admin  http://{admin}  (/ready, /metrics, /api/v1)\n\
         \x20 data   {data}\n\
         \n\
         Type next, in another terminal:\n\
         \x20 waypost announce{to} --cluster greeter --uri grpc://127.0.0.1:50051 \
         --health-check tcp://127.0.0.1:50051 -- ./my-server\n\
         \x20 waypost bootstrap grpc{to} > bootstrap.json   \
         # then GRPC_XDS_BOOTSTRAP=bootstrap.json, and call xds:///greeter\n\
         \x20 waypost watch{server} greeter\n",
        version = env!("CARGO_PKG_VERSION"),
        data = args.data.display(),
    )
}

fn flag_unless(flag: &str, value: &str, default: &str) -> String {
    if value == default {
        String::new()
    } else {
        format!(" {flag} {value}")
    }
}
