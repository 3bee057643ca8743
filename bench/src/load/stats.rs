//! What a load has seen since its last mark, as it tells the runner.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::clock::Stopwatch;

/// The longest time that is told apart from longer ones.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Significant digits of times: enough to tell 250 from 251 ms.
const DIGITS: u8 = 3;

/// Times in microseconds, by how often each was seen.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// # Errors
    /// Never, in fact: the bounds are constants.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let micros_max = u64::try_from(TIME_MAX.as_micros())?;
        Ok(Self(Histogram::new_with_max(micros_max, DIGITS)?))
    }

    pub(super) fn record(&mut self, micros: u64) {
        self.0.saturating_record(micros);
    }

    /// The time that a share (0.99 for p99) of all stayed within; zero of none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        Duration::from_micros(self.0.value_at_quantile(share))
    }

    /// The longest; zero of none.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }

    fn clear(&mut self) {
        self.0.reset();
    }

    fn to_counts(&self) -> Vec<(u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect()
    }

    fn add_counts(&mut self, counts: &[(u64, u64)]) {
        for (micros, count) in counts {
            self.0.saturating_record_n(*micros, *count);
        }
    }
}

/// What was counted since the last mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Resources delivered, each to one stream.
    pub(crate) resources: u64,
    /// Those of them that were changed since the mark.
    pub(crate) fresh: u64,
    pub(crate) responses: u64,
    /// Names that a server said are gone.
    pub(crate) removed: u64,
    /// Bytes read from sockets.
    pub(crate) bytes: u64,
    /// Streams that had their first response.
    pub(crate) answered: u64,
    /// Streams that ended though their connection lives.
    pub(crate) failed: u64,
    /// Messages that are no responses.
    pub(crate) malformed: u64,
    /// Connections that were lost and made anew.
    pub(crate) reconnected: u64,
}

/// What a load counts and times.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) counts: Counts,
    /// From the change to its receipt.
    pub(super) ages: Times,
    /// From the mark to the first response of a stream.
    pub(super) answers: Times,
    marked: Stopwatch,
}

/// [`Stats`] as one line of JSON; times as pairs of microseconds and how often.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    reached: bool,
    elapsed_us: u64,
    counts: Counts,
    ages: Vec<(u64, u64)>,
    answers: Vec<(u64, u64)>,
}

/// What all processes of a load have seen since the last mark.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Whether what was waited for came in time.
    pub(crate) reached: bool,
    /// Since the mark; of the process that took longest.
    pub(crate) elapsed: Duration,
    pub(crate) counts: Counts,
    /// From the change to its receipt.
    pub(crate) ages: Times,
    /// From the mark to the first response of a stream.
    pub(crate) answers: Times,
}

impl Stats {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            counts: Counts::default(),
            ages: Times::new()?,
            answers: Times::new()?,
            marked: Stopwatch::start(),
        })
    }

    /// Forgets all.
    pub(super) fn mark(&mut self) {
        self.counts = Counts::default();
        self.ages.clear();
        self.answers.clear();
        self.marked = Stopwatch::start();
    }

    /// A resource came that was changed so long ago.
    pub(super) fn on_change(&mut self, age_micros: u64) {
        self.ages.record(age_micros);
        self.counts.fresh += u64::from(age_micros < self.marked.micros());
    }

    /// A stream had its first response.
    pub(super) fn on_answer(&mut self) {
        self.counts.answered += 1;
        self.answers.record(self.marked.micros());
    }

    pub(super) fn to_line(&self, reached: bool) -> Line {
        Line {
            reached,
            elapsed_us: self.marked.micros(),
            counts: self.counts,
            ages: self.ages.to_counts(),
            answers: self.answers.to_counts(),
        }
    }
}

impl Report {
    /// Adds up what the processes of one load say.
    ///
    /// # Errors
    /// As [`Times::new`].
    pub(crate) fn of(lines: &[Line]) -> anyhow::Result<Self> {
        let mut whole = Self {
            reached: true,
            elapsed: Duration::ZERO,
            counts: Counts::default(),
            ages: Times::new()?,
            answers: Times::new()?,
        };
        for line in lines {
            whole.reached &= line.reached;
            whole.elapsed = whole.elapsed.max(Duration::from_micros(line.elapsed_us));
            whole.counts.add(&line.counts);
            whole.ages.add_counts(&line.ages);
            whole.answers.add_counts(&line.answers);
        }
        Ok(whole)
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.resources += other.resources;
        self.fresh += other.fresh;
        self.responses += other.responses;
        self.removed += other.removed;
        self.bytes += other.bytes;
        self.answered += other.answered;
        self.failed += other.failed;
        self.malformed += other.malformed;
        self.reconnected += other.reconnected;
    }
}
