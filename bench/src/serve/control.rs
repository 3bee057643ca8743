//! The control port: HTTP, text answers, the same for every server under test (`/beat` is ours
//! alone: other servers have no heartbeats).
//!
//! | path | what it does | answer |
//! |---|---|---|
//! | `/start?rate=U` | begins to make U changes a second, 0 for as many as can be; counts from 0 | |
//! | `/stop` | ends that | changes made |
//! | `/count` | | changes made, then `offered=N unread=N` |
//! | `/once?i=I` | changes cluster I | |
//! | `/beat?rounds=R` | announces everybody again R times, as fast as it is read | heartbeats |

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use serde::Deserialize;

use super::updater::{Counts, Updater};

#[derive(Debug, Deserialize)]
struct Start {
    rate: u32,
}

#[derive(Debug, Deserialize)]
struct Once {
    i: u32,
}

#[derive(Debug, Deserialize)]
struct Beat {
    rounds: u32,
}

type Answer<T> = Result<T, (StatusCode, String)>;

/// The routes of the control port.
pub(crate) fn routes(updater: Updater) -> Router {
    Router::new()
        .route("/start", get(start))
        .route("/stop", get(stop))
        .route("/count", get(count))
        .route("/once", get(once))
        .route("/beat", get(beat))
        .with_state(updater)
}

async fn start(State(updater): State<Updater>, Query(Start { rate }): Query<Start>) {
    updater.start(rate).await;
}

async fn stop(State(updater): State<Updater>) -> String {
    format!("{}\n", updater.stop().await.made)
}

async fn count(State(updater): State<Updater>) -> String {
    let Counts {
        offered,
        made,
        unread,
    } = updater.counts();
    format!("{made} offered={offered} unread={unread}\n")
}

async fn once(State(updater): State<Updater>, Query(Once { i }): Query<Once>) -> Answer<()> {
    updater.change(i).map_err(failed)
}

async fn beat(
    State(updater): State<Updater>,
    Query(Beat { rounds }): Query<Beat>,
) -> Answer<String> {
    let count = updater.beat(rounds).await.map_err(failed)?;
    Ok(format!("{count}\n"))
}

fn failed(error: anyhow::Error) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
