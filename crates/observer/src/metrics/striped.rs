//! Counters and histograms that several threads add to for every response. Each thread adds to a
//! stripe of its own, so that threads do not take a cache line from each other; a scrape adds the
//! stripes up.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::{Atomic, Counter};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::limits::METRIC_STRIPES;

/// A counter of stripes.
pub(super) type StripedCounter = Counter<u64, Stripes>;

thread_local! {
    static STRIPE: Cell<usize> = Cell::new(next_stripe());
}

fn next_stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) % METRIC_STRIPES
}

/// Two cache lines, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// One number as the sum of one per stripe.
#[derive(Debug, Default)]
pub(super) struct Stripes([Padded<AtomicU64>; METRIC_STRIPES]);

impl Atomic<u64> for Stripes {
    fn inc(&self) -> u64 {
        self.inc_by(1)
    }

    /// Returns what this stripe had before.
    fn inc_by(&self, count: u64) -> u64 {
        self.0[STRIPE.get()].0.fetch_add(count, Ordering::Relaxed)
    }

    fn get(&self) -> u64 {
        let stripes = self.0.iter();
        stripes.map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// A histogram of durations with `N` upper ends of buckets, seconds, in rising order.
pub(super) struct StripedHistogram<const N: usize> {
    upper_ends: &'static [f64; N],
    stripes: Arc<[Padded<Counts<N>>; METRIC_STRIPES]>,
}

#[derive(Debug)]
struct Counts<const N: usize> {
    buckets: [AtomicU64; N],
    /// Longer than the last upper end.
    over: AtomicU64,
    sum_micros: AtomicU64,
}

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            over: AtomicU64::new(0),
            sum_micros: AtomicU64::new(0),
        }
    }
}

impl<const N: usize> StripedHistogram<N> {
    pub(super) fn new(upper_ends: &'static [f64; N]) -> Self {
        Self {
            upper_ends,
            stripes: Arc::new(std::array::from_fn(|_| Padded::default())),
        }
    }

    pub(super) fn observe(&self, duration: Duration) {
        let Padded(counts) = &self.stripes[STRIPE.get()];
        let seconds = duration.as_secs_f64();
        let ends = self.upper_ends.iter();
        let bucket = ends.zip(&counts.buckets).find(|(end, _)| seconds <= **end);
        let bucket = bucket.map_or(&counts.over, |(_, count)| count);
        bucket.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        counts.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The sum of one number over all stripes.
    fn total(&self, number: impl Fn(&Counts<N>) -> &AtomicU64) -> u64 {
        let stripes = self.stripes.iter();
        stripes
            .map(|Padded(counts)| number(counts).load(Ordering::Relaxed))
            .sum()
    }
}

impl<const N: usize> Clone for StripedHistogram<N> {
    fn clone(&self) -> Self {
        Self {
            upper_ends: self.upper_ends,
            stripes: Arc::clone(&self.stripes),
        }
    }
}

impl<const N: usize> fmt::Debug for StripedHistogram<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedHistogram").finish_non_exhaustive()
    }
}

impl<const N: usize> TypedMetric for StripedHistogram<N> {
    const TYPE: MetricType = MetricType::Histogram;
}

impl<const N: usize> EncodeMetric for StripedHistogram<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let ends = self.upper_ends.iter().enumerate();
        let mut buckets: Vec<(f64, u64)> = ends
            .map(|(index, end)| (*end, self.total(|counts| &counts.buckets[index])))
            .collect();
        buckets.push((f64::INFINITY, self.total(|counts| &counts.over)));
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_micros(self.total(|counts| &counts.sum_micros)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn what_threads_add_is_shown_as_one_sum() {
        let counter = StripedCounter::default();
        let delays = StripedHistogram::new(&[0.001, 1.0]);
        let mut registry = Registry::default();
        registry.register("delay_seconds", "d", delays.clone());
        std::thread::scope(|scope| {
            for millis in [0, 1, 20, 1000, 1500] {
                let (counter, delays) = (&counter, &delays);
                scope.spawn(move || {
                    counter.inc_by(millis);
                    delays.observe(Duration::from_millis(millis));
                });
            }
        });
        assert_eq!(counter.get(), 2521);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "delay_seconds_sum 2.521",
            "delay_seconds_count 5",
            "delay_seconds_bucket{le=\"0.001\"} 2",
            "delay_seconds_bucket{le=\"1.0\"} 4",
            "delay_seconds_bucket{le=\"+Inf\"} 5",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
