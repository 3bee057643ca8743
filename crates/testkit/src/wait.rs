//! Waiting for a condition: never for a time.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::POLL_INTERVAL;

/// Looks at `condition` until it gives a value, for at most `deadline`.
///
/// # Errors
/// The condition gave no value in time: names `what` was waited for and the last reason given.
pub async fn eventually<T, F>(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let end = Instant::now() + deadline;
    loop {
        let reason = match condition().await {
            Ok(value) => return Ok(value),
            Err(reason) => reason,
        };
        if Instant::now() >= end {
            anyhow::bail!("{what}: not within {deadline:?}; last: {reason:#}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
