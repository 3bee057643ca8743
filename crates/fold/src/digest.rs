//! Digests of a partition's state: whether two Observers agree, and if not, about which keys.
//!
//! A digest covers key, order data and content of every live key, and neither offsets nor times, so
//! a heartbeat does not move it and it does not matter in which order the keys came. Two Observers
//! that are compared stand at different positions, hence the digests as they were at the last ticks
//! are kept: a tick has one offset for everybody.

use std::collections::VecDeque;

use waypost_core::{InstanceKey, Offset, PartitionId};

use crate::clock::PartitionClock;
use crate::event::Life;
use crate::limits::{DIGEST_BUCKETS, TICK_DIGESTS};

/// One number for every bucket. A key's bucket is the top of its hash, the same in every process.
pub type BucketDigests = [u64; DIGEST_BUCKETS];

/// The digests of one partition: now, and as they were at its last ticks.
#[derive(Clone, Debug)]
pub struct PartitionDigests {
    now: Box<BucketDigests>,
    /// By offset, oldest first, at most [`TICK_DIGESTS`].
    at_ticks: VecDeque<(Offset, Box<BucketDigests>)>,
}

/// What one key adds to its partition's digest. Nothing, unless it is live.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyDigest {
    pub(crate) key_hash: u64,
    pub(crate) value: u64,
}

/// A live key as digests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestedKey {
    /// Which instance.
    pub key: InstanceKey,
    /// The hash that its bucket is made of.
    pub key_hash: u64,
    /// Its order data.
    pub life: Life,
    /// Hash of its announcement's bytes.
    pub content: u64,
    /// Offset of its last accepted announcement. Not part of the digest.
    pub offset: Offset,
}

/// Live keys of one bucket of one partition, as they are at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPage {
    /// Of which partition.
    pub partition: PartitionId,
    /// Every record below this was read, and none at or above it.
    pub position: Offset,
    /// In the order of their hashes.
    pub keys: Vec<DigestedKey>,
    /// Hash of the last of these, if there are more.
    pub next: Option<u64>,
}

impl Default for PartitionDigests {
    fn default() -> Self {
        Self {
            now: Box::new([0; DIGEST_BUCKETS]),
            at_ticks: VecDeque::new(),
        }
    }
}

impl PartitionDigests {
    /// Of all live keys, at the position.
    #[must_use]
    pub fn now(&self) -> u64 {
        total(&self.now)
    }

    /// Offset of each of the last ticks, and the digest after it; oldest first. Ticks at which the
    /// state cannot be compared, since something before them may have been compacted away unread,
    /// are left out.
    pub fn at_ticks(&self) -> impl Iterator<Item = (Offset, u64)> {
        let ticks = self.at_ticks.iter();
        ticks.map(|(offset, buckets)| (*offset, total(buckets)))
    }

    /// The digests by bucket after the tick at `offset`, if that is remembered.
    #[must_use]
    pub fn find_at_tick(&self, offset: Offset) -> Option<&BucketDigests> {
        let by_offset = self.at_ticks.binary_search_by_key(&offset, |tick| tick.0);
        let (_, buckets) = self.at_ticks.get(by_offset.ok()?)?;
        Some(buckets)
    }

    pub(crate) fn add(&mut self, key: KeyDigest) {
        let bucket = &mut self.now[bucket_of(key.key_hash)];
        *bucket = bucket.wrapping_add(key.value);
    }

    pub(crate) fn subtract(&mut self, key: KeyDigest) {
        let bucket = &mut self.now[bucket_of(key.key_hash)];
        *bucket = bucket.wrapping_sub(key.value);
    }

    /// A tick was read. If the one before it was not, the records between may have been compacted:
    /// others that read them before are at another state in between, so remembering starts anew.
    pub(crate) fn on_tick(&mut self, clock: &PartitionClock) {
        let Some(tick) = clock.last_tick().filter(|_| clock.is_unbroken()) else {
            self.at_ticks.clear();
            return;
        };
        let oldest = (self.at_ticks.len() == TICK_DIGESTS).then(|| self.at_ticks.pop_front());
        let buckets = match oldest.flatten() {
            Some((_, mut buckets)) => {
                buckets.copy_from_slice(&*self.now);
                buckets
            }
            None => self.now.clone(),
        };
        self.at_ticks.push_back((tick.at.offset, buckets));
    }
}

/// Which bucket a key of this hash is in.
#[must_use]
pub fn bucket_of(key_hash: u64) -> usize {
    // The top six bits, so that the keys of a bucket are neighbours in the order of their hashes.
    (key_hash >> (u64::BITS - DIGEST_BUCKETS.trailing_zeros())) as usize
}

fn total(buckets: &BucketDigests) -> u64 {
    buckets
        .iter()
        .fold(0, |sum, bucket| sum.wrapping_add(*bucket))
}

/// The first `keys_max` keys in the order of their hashes, and where the rest begins. Keys of one
/// hash are never parted.
pub(crate) fn cut(mut keys: Vec<DigestedKey>, keys_max: usize) -> (Vec<DigestedKey>, Option<u64>) {
    keys.sort_unstable_by(|a, b| (a.key_hash, &a.key).cmp(&(b.key_hash, &b.key)));
    let Some(last) = keys_max.checked_sub(1).and_then(|last| keys.get(last)) else {
        return (keys, None);
    };
    let last = last.key_hash;
    let end = keys.partition_point(|key| key.key_hash <= last);
    let next = (end < keys.len()).then_some(last);
    keys.truncate(end);
    (keys, next)
}

#[cfg(test)]
mod tests {
    use waypost_core::record::{KeeperId, TickRef};
    use waypost_core::{ClusterName, Headers, InstanceUri, Timestamp};

    use super::*;

    fn digest(hash: u64, value: u64) -> KeyDigest {
        KeyDigest {
            key_hash: hash,
            value,
        }
    }

    fn tick(clock: &mut PartitionClock, offset: i64, prev: Option<i64>) {
        let at = |offset| TickRef {
            offset: Offset(offset),
            append_time: Timestamp(offset * 100),
        };
        let headers = Headers {
            prev: prev.map(at),
            ..Headers::default()
        };
        clock.tick(at(offset), KeeperId(1), &headers);
    }

    #[test]
    fn ticks_are_remembered_with_their_digests_up_to_a_number() {
        let mut clock = PartitionClock::default();
        let mut digests = PartitionDigests::default();
        let count = i64::try_from(TICK_DIGESTS).unwrap() + 10;
        for offset in 0..count {
            digests.add(digest(u64::MAX, 1));
            tick(&mut clock, offset, (offset > 0).then(|| offset - 1));
            digests.on_tick(&clock);
        }
        let kept: Vec<_> = digests.at_ticks().collect();
        assert_eq!(kept.len(), TICK_DIGESTS);
        assert_eq!(kept.first(), Some(&(Offset(10), 11)));
        assert_eq!(kept.last(), Some(&(Offset(count - 1), digests.now())));
        let buckets = digests.find_at_tick(Offset(20)).unwrap();
        assert_eq!(buckets[DIGEST_BUCKETS - 1], 21);
        assert_eq!(digests.find_at_tick(Offset(9)), None);
    }

    #[test]
    fn what_may_lack_compacted_records_is_not_compared() {
        let mut clock = PartitionClock::default();
        let mut digests = PartitionDigests::default();
        let mut read = |offset, prev| {
            tick(&mut clock, offset, prev);
            digests.on_tick(&clock);
            digests.at_ticks().map(|(offset, _)| offset.0).collect()
        };
        let cases: [(i64, Option<i64>, &[i64]); 5] = [
            (10, Some(5), &[]),
            (11, Some(10), &[11]),
            (15, Some(11), &[11, 15]),
            (90, Some(80), &[]),
            (95, Some(90), &[95]),
        ];
        for (offset, prev, expected) in cases {
            let kept: Vec<i64> = read(offset, prev);
            assert_eq!(kept, expected, "after the tick at {offset}");
        }
    }

    #[test]
    fn what_is_taken_out_leaves_no_trace() {
        let mut digests = PartitionDigests::default();
        for (hash, value) in [(1, 77), (u64::MAX, u64::MAX), (1 << 60, 5)] {
            digests.add(digest(hash, value));
        }
        for (hash, value) in [(u64::MAX, u64::MAX), (1 << 60, 5), (1, 77)] {
            digests.subtract(digest(hash, value));
        }
        assert_eq!(digests.now(), 0);
    }

    #[test]
    fn pages_follow_the_hashes_and_part_no_two_of_one_hash() {
        let mk = |hash: u64, name: &str| DigestedKey {
            key: InstanceKey {
                cluster: ClusterName::parse(name).unwrap(),
                uri: InstanceUri::parse("grpc://h:1").unwrap(),
            },
            key_hash: hash,
            life: Life {
                id: None,
                birth: None,
                seq: 0,
            },
            content: 0,
            offset: Offset(0),
        };
        let all = || vec![mk(9, "d"), mk(3, "c"), mk(1, "a"), mk(3, "b")];
        let names = |keys: &[DigestedKey]| -> String {
            keys.iter().map(|key| key.key.cluster.as_str()).collect()
        };
        let cases = [
            (1, "a", Some(1)),
            (2, "abc", Some(3)),
            (3, "abc", Some(3)),
            (4, "abcd", None),
            (9, "abcd", None),
        ];
        for (keys_max, expected, next) in cases {
            let (keys, more) = cut(all(), keys_max);
            assert_eq!((names(&keys).as_str(), more), (expected, next));
        }
    }
}
