//! Whether what is served may be out of date: how far each partition is behind, and since when.

use std::collections::BTreeMap;
use std::time::Duration;

use waypost_core::{Offset, PartitionId, Topic};

use crate::limits::{LOG_SILENCE_MAX, STALE_AFTER};

/// Ends and silences of the log. `now` is any monotonic time.
#[derive(Clone, Debug, Default)]
pub(super) struct Freshness {
    partitions: BTreeMap<(Topic, PartitionId), Place>,
    away: BTreeMap<Topic, String>,
    heard_at: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    position: Offset,
    end: Option<Offset>,
    /// An end that was not reached when the log named it, and when it did.
    awaited: Option<(Offset, Duration)>,
}

impl Freshness {
    /// The log was heard: it is not silent.
    pub(super) fn on_heard(&mut self, now: Duration) {
        self.heard_at = now;
    }

    /// The log says where a partition ends.
    pub(super) fn on_end(
        &mut self,
        topic: Topic,
        partition: PartitionId,
        end: Offset,
        now: Duration,
    ) {
        let place = self.partitions.entry((topic, partition)).or_default();
        place.end = Some(end);
        if end > place.position && place.awaited.is_none() {
            place.awaited = Some((end, now));
        }
    }

    /// A partition was read up to `position`.
    pub(super) fn on_position(&mut self, topic: Topic, partition: PartitionId, position: Offset) {
        let place = self.partitions.entry((topic, partition)).or_default();
        place.position = position;
        if place.awaited.is_some_and(|(end, _)| position >= end) {
            place.awaited = None;
        }
    }

    /// A topic cannot be read at present.
    pub(super) fn on_away(&mut self, topic: Topic, reason: String) {
        self.away.insert(topic, reason);
    }

    /// A topic can be read again.
    pub(super) fn on_back(&mut self, topic: Topic) {
        self.away.remove(&topic);
    }

    /// Forgets positions and ends of a topic that is read again from its beginning.
    pub(super) fn forget(&mut self, topic: Topic) {
        self.partitions.retain(|(t, _), _| *t != topic);
    }

    /// Why the log cannot be read at present.
    pub(super) fn away(&self) -> Option<String> {
        let (topic, reason) = self.away.first_key_value()?;
        Some(format!("topic {}: {reason}", topic.suffix()))
    }

    /// Where a partition ends, as the log said last.
    pub(super) fn end(&self, topic: Topic, partition: PartitionId) -> Option<Offset> {
        self.partitions.get(&(topic, partition))?.end
    }

    /// Records below the known ends that were not read yet, by partition. A position beyond the last
    /// known end counts as no lag.
    pub(super) fn lags(&self) -> impl Iterator<Item = ((Topic, PartitionId), u64)> {
        self.partitions.iter().filter_map(|(place, p)| {
            let behind = p.end?.0.saturating_sub(p.position.0);
            Some((*place, u64::try_from(behind).unwrap_or(0)))
        })
    }

    /// The first reason why what is served may be out of date; `None` when it is fresh.
    pub(super) fn stale_reason(&self, now: Duration) -> Option<String> {
        if let Some(away) = self.away() {
            return Some(format!("the log cannot be read: {away}"));
        }
        let silence = now.saturating_sub(self.heard_at);
        if silence >= LOG_SILENCE_MAX {
            let seconds = silence.as_secs();
            return Some(format!("nothing was heard from the log for {seconds} s"));
        }
        self.partitions.iter().find_map(|((topic, partition), p)| {
            let (end, since) = p.awaited?;
            let waited = now.saturating_sub(since);
            (waited >= STALE_AFTER).then(|| {
                format!(
                    "topic {} partition {partition} is at {}, {} s ago the log ended at {end}",
                    topic.suffix(),
                    p.position,
                    waited.as_secs()
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: Topic = Topic::Announcements;
    const P: PartitionId = PartitionId(2);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_partition_that_does_not_reach_a_known_end_is_stale_until_it_does() {
        let mut freshness = Freshness::default();
        freshness.on_heard(s(0));
        freshness.on_end(TOPIC, P, Offset(10), s(0));
        assert_eq!(freshness.stale_reason(s(7)), None);
        freshness.on_end(TOPIC, P, Offset(20), s(7));
        let reason = freshness.stale_reason(s(9)).unwrap();
        assert!(
            reason.contains("announcements partition 2 is at 0"),
            "{reason}"
        );
        assert_eq!(freshness.lags().next(), Some(((TOPIC, P), 20)));
        freshness.on_position(TOPIC, P, Offset(10));
        assert_eq!(freshness.stale_reason(s(9)), None);
        freshness.on_position(TOPIC, P, Offset(25));
        assert_eq!(freshness.lags().next(), Some(((TOPIC, P), 0)));
    }

    #[test]
    fn a_log_that_is_away_or_silent_is_stale() {
        let mut freshness = Freshness::default();
        freshness.on_heard(s(100));
        assert_eq!(freshness.stale_reason(s(110)), None);
        assert!(freshness.stale_reason(s(115)).unwrap().contains("15 s"));
        freshness.on_away(TOPIC, "no broker answers".to_owned());
        let reason = freshness.stale_reason(s(101)).unwrap();
        assert!(reason.contains("no broker answers"), "{reason}");
        freshness.on_back(TOPIC);
        assert_eq!(freshness.stale_reason(s(101)), None);
    }
}
