//! What one phase cost: counted from its start to its end.

use std::time::Duration;

use anyhow::ensure;

use super::stage::Stage;
use super::witness::Seen;
use crate::clock::now;
use crate::figures::Figures;

/// A phase that runs.
#[derive(Debug)]
pub(super) struct Report {
    name: &'static str,
    began: f64,
    changes: usize,
    seen: Vec<Seen>,
}

impl Report {
    /// Notes where everything stands.
    pub(super) fn begin(name: &'static str, stage: &Stage) -> Self {
        Self {
            name,
            began: now(),
            changes: stage.changes,
            seen: stage.seen(),
        }
    }

    /// Adds the phase's figures. `converged` is what it took until both Observers served a change that
    /// was made after the fault.
    ///
    /// # Errors
    /// A call failed, an instance was missing, an Observer said more than there was to say, or it
    /// took too long.
    pub(super) fn end(
        self,
        stage: &Stage,
        figures: &mut Figures,
        converged: Duration,
        within: Duration,
    ) -> anyhow::Result<()> {
        let calls = stage.clients.calls()?.since(self.began);
        let changes = stage.changes - self.changes;
        let after = stage.seen();
        let pairs = || after.iter().zip(&self.seen);
        let responses: Vec<usize> = pairs().map(|(a, b)| a.responses - b.responses).collect();
        let streams: Vec<usize> = pairs().map(|(a, b)| a.streams - b.streams).collect();
        let mut lost: Vec<&str> = pairs()
            .flat_map(|(a, b)| a.lost.difference(&b.lost))
            .map(String::as_str)
            .collect();
        lost.sort_unstable();
        lost.dedup();
        figures.add(
            self.name,
            format_args!(
                "{} of {} calls failed, {} instances lost, {responses:?} responses for {changes} \
                 changes and {streams:?} new streams, converged in {:.1} s, took {:.0} s",
                calls.failed(),
                calls.0.len(),
                lost.len(),
                converged.as_secs_f64(),
                now() - self.began,
            ),
        );
        ensure!(calls.failed() == 0, "calls failed: {:?}", calls.failures());
        ensure!(!calls.0.is_empty(), "nobody called");
        let some: Vec<&str> = lost.iter().take(5).copied().collect();
        let by_gateway = lost.iter().filter(|name| stage.is_by_gateway(name));
        let by_gateway = by_gateway.count();
        ensure!(
            lost.is_empty(),
            "{} lost, {by_gateway} of them announced through gateways: {some:?} …",
            lost.len()
        );
        for (responses, streams) in responses.iter().zip(&streams) {
            ensure!(
                *responses <= changes + streams,
                "{responses} responses for {changes} changes and {streams} new streams"
            );
        }
        ensure!(
            converged <= within,
            "converged after {converged:?}, at most {within:?}"
        );
        Ok(())
    }
}
