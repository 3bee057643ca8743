//! The commands that serve: `dev` and `observer`.

mod data_directory;
pub(crate) mod dev;
pub(crate) mod observer;

use std::collections::BTreeMap;

use waypost_observer::{RunningObserver, StartError};
use waypost_runtime::{HangupSignals, StopSignals};

use crate::args::ListenTlsArgs;
use crate::exit::{Exit, Failure};

/// Runs until a signal asks it to stop (politely; a second one stops at once), or until something is
/// wrong that no waiting mends.
async fn run_until_stopped(
    observer: RunningObserver,
    mut signals: StopSignals,
    hangups: Option<HangupSignals>,
) -> Result<Exit, Failure> {
    let said_ready = async {
        observer.ready().await;
        tracing::info!(grpc = %observer.grpc_address(), "ready: clients are served");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        error = observer.failed() => {
            observer.stop_within(std::time::Duration::ZERO).await;
            return Err(Failure::failed(error.to_string()));
        }
        _ = signals.next() => {}
        () = said_ready => {}
        () = reload_on(hangups, &observer) => {}
    }
    tracing::info!("stopping: clients are sent away; a second signal stops at once");
    tokio::select! {
        () = observer.shutdown() => {}
        _ = signals.next() => tracing::info!("stopped at once"),
    }
    Ok(Exit::Done)
}

fn install_signals() -> Result<StopSignals, Failure> {
    StopSignals::install().map_err(signal_failure)
}

/// SIGHUP reads certificates again where there are any; elsewhere it ends the process, as ever.
fn install_hangups(tls: &ListenTlsArgs) -> Result<Option<HangupSignals>, Failure> {
    let wanted = tls.tls_cert.is_some();
    let installed = wanted.then(HangupSignals::install).transpose();
    installed.map_err(signal_failure)
}

/// Never returns.
async fn reload_on(hangups: Option<HangupSignals>, observer: &RunningObserver) {
    let Some(mut hangups) = hangups else {
        return std::future::pending().await;
    };
    loop {
        hangups.next().await;
        observer.reload_tls();
    }
}

/// Which way of serving the gRPC port, for the lines that a server begins with.
fn grpc_scheme(tls: &ListenTlsArgs) -> &'static str {
    match tls.tls_cert {
        Some(_) => "https://",
        None => "",
    }
}

fn signal_failure(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot listen for signals: {error}"))
}

fn start_failure(error: &StartError) -> Failure {
    Failure::failed(error.to_string())
}

/// Settings as `/config_dump` shows them.
fn shown<const N: usize>(
    pairs: [(&str, String); N],
    tls: &ListenTlsArgs,
) -> BTreeMap<String, String> {
    let pairs = pairs.into_iter().chain(tls.shown());
    pairs
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
