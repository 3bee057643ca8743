//! Partitions of the log and the rule that maps a key to one.

/// A Kafka partition of a topic (or its equal in the embedded and in-memory logs).
///
/// Not to be confused with a D2 partition, which is always written `d2_partition`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

impl std::fmt::Display for PartitionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The partition that a record with `key` belongs to: murmur2 of the key, made positive, modulo the
/// number of partitions. The same choice as Kafka's Java client makes by default and librdkafka
/// with `partitioner=murmur2_random`.
///
/// `partitions` of 0 is read as 1.
#[must_use]
pub fn partition_for_key(key: &[u8], partitions: u32) -> PartitionId {
    PartitionId((murmur2(key) & 0x7fff_ffff) % partitions.max(1))
}

/// 32-bit murmur2 with Kafka's seed.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut h = SEED ^ length;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (i, byte) in tail.iter().enumerate() {
        h ^= u32::from(*byte) << (8 * i);
    }
    if !tail.is_empty() {
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::murmur2;

    /// The vectors that Kafka's own `UtilsTest` publishes for its `murmur2`.
    #[test]
    fn murmur2_agrees_with_kafkas_published_vectors() {
        let cases: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ];
        for (text, expected) in cases {
            assert_eq!(murmur2(text.as_bytes()), expected.cast_unsigned(), "{text}");
        }
    }
}
