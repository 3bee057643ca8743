//! A fleet at work, at its pace, on any log.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout};
use waypost_core::{AnnouncementLog, NewRecord};

use super::activity::Activity;
use crate::clock::now_micros;

/// How often it is looked what is due: below what a change takes on its way, far above a timer's grain.
const STEP: Duration = Duration::from_millis(2);

/// Records that wait for their acknowledgement at once: a second of the headline's.
const IN_FLIGHT_MAX: usize = 10_000;

/// How long the last records may take to be acknowledged.
const LAST_ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// How much goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Heartbeats a second.
    pub(crate) beats: f64,
    /// Clusters a second whose first instance is stamped.
    pub(crate) changes: f64,
    /// Deploy waves a second.
    pub(crate) waves: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worked {
    /// Records that the log acknowledged.
    pub(crate) acknowledged: u64,
    /// Records that it did not.
    pub(crate) failed: u64,
    /// Records that should have been written by the end and were not: the writer was the limit.
    pub(crate) late: u64,
}

/// Works for `time`.
pub(crate) async fn work(
    activity: &mut Activity,
    log: &dyn AnnouncementLog,
    pace: Pace,
    time: Duration,
) -> anyhow::Result<Worked> {
    let began = Instant::now();
    let mut appends = FuturesUnordered::new();
    let mut worked = Worked::default();
    let mut done = [0_u64; 3];
    let mut next = began;
    loop {
        let elapsed = began.elapsed().min(time);
        let due = pace.due(elapsed);
        while done != due && appends.len() < IN_FLIGHT_MAX {
            for record in step(activity, &mut done, due)? {
                appends.push(log.append(record));
            }
        }
        if elapsed == time {
            worked.late = due.iter().zip(done).map(|(due, done)| due - done).sum();
            break;
        }
        next = (next + STEP).max(Instant::now());
        let step_over = sleep_until(next);
        tokio::pin!(step_over);
        loop {
            tokio::select! {
                () = &mut step_over => break,
                Some(appended) = appends.next() => worked.count(appended.is_ok()),
            }
        }
    }
    let rest = async {
        while let Some(appended) = appends.next().await {
            worked.count(appended.is_ok());
        }
    };
    let _ = timeout(LAST_ACKNOWLEDGED_WITHIN, rest).await;
    worked.failed += appends.len() as u64;
    Ok(worked)
}

/// One thing of each kind that is behind.
fn step(
    activity: &mut Activity,
    done: &mut [u64; 3],
    due: [u64; 3],
) -> anyhow::Result<Vec<NewRecord>> {
    let mut records = Vec::new();
    let [beats, changes, waves] = done;
    if *beats < due[0] {
        *beats += 1;
        records.push(activity.beat()?);
    }
    if *changes < due[1] {
        *changes += 1;
        records.push(activity.change(now_micros())?);
    }
    if *waves < due[2] {
        *waves += 1;
        records.extend(activity.deploy_wave(now_micros())?);
    }
    Ok(records)
}

impl Pace {
    /// Heartbeats, changes and waves that are due `elapsed` after the beginning.
    fn due(self, elapsed: Duration) -> [u64; 3] {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole events, none below 0"
        )]
        let due = |rate: f64| (rate * elapsed.as_secs_f64()) as u64;
        [due(self.beats), due(self.changes), due(self.waves)]
    }
}

impl Worked {
    fn count(&mut self, is_taken: bool) {
        self.acknowledged += u64::from(is_taken);
        self.failed += u64::from(!is_taken);
    }
}

#[cfg(test)]
mod tests {
    use waypost_core::Timestamp;
    use waypost_log::{ManualClock, MemoryLog};

    use super::*;
    use crate::fleet::{Fleet, FleetSpec, Shape};

    #[tokio::test(start_paused = true)]
    async fn as_much_goes_on_as_the_pace_says() {
        let log = MemoryLog::new(1, ManualClock::new(Timestamp(1_800_000_000_000)));
        let mut activity = Activity::new(Fleet::new(FleetSpec {
            clusters: 20,
            shape: Shape::Tailed { instances: 20 },
            heartbeat: Duration::from_secs(10),
            ttl: Duration::from_secs(30),
        }));
        let pace = Pace {
            beats: 50.0,
            changes: 5.0,
            waves: 1.0,
        };
        let worked = work(&mut activity, &log, pace, Duration::from_secs(2))
            .await
            .unwrap();
        // A wave of a cluster of one is a withdrawal and an announcement.
        let acknowledged = 100 + 10 + 2 * 2;
        let expected = Worked {
            acknowledged,
            ..Worked::default()
        };
        assert_eq!(worked, expected);
        assert_eq!(log.appended(), acknowledged);
    }
}
