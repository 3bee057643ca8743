//! The commands that serve: `dev` and `observer`.

mod data_directory;
pub(crate) mod dev;
pub(crate) mod observer;

use std::collections::BTreeMap;

use waypost_observer::{RunningObserver, StartError};
use waypost_runtime::StopSignals;

use crate::exit::{Exit, Failure};

/// Runs until a signal asks it to stop (politely; a second one stops at once), or until something is
/// wrong that no waiting mends.
async fn run_until_stopped(
    observer: RunningObserver,
    mut signals: StopSignals,
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
    }
    tracing::info!("stopping: clients are sent away; a second signal stops at once");
    tokio::select! {
        () = observer.shutdown() => {}
        _ = signals.next() => tracing::info!("stopped at once"),
    }
    Ok(Exit::Done)
}

fn install_signals() -> Result<StopSignals, Failure> {
    StopSignals::install().map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))
}

fn start_failure(error: &StartError) -> Failure {
    Failure::failed(error.to_string())
}

/// Settings as `/config_dump` shows them.
fn shown<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}
