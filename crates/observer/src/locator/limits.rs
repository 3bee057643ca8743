//! Bounds of the locator.

/// Bytes of encoded resources that are kept for the next asker, all types together. Enough for the
/// encodings of 500,000 instances of 500 bytes; what does not fit is encoded again when asked for.
pub(super) const ENCODED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What an entry of that cache costs besides the encoding itself, bytes: key, name, two allocations
/// and its place in the map.
pub(super) const ENCODED_ENTRY_BYTES: usize = 256;

/// The cache is cut into this many parts, each with its own lock.
pub(super) const ENCODED_SHARDS: usize = 64;

// The largest resource that clients take (4 MiB) must fit one generation of one part.
const _: () = assert!(ENCODED_BYTES_MAX / ENCODED_SHARDS / 2 >= 2 * 1024 * 1024);
