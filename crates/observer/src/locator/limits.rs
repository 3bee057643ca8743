//! Bounds of the locator.

/// Bytes of encoded resources that are kept for the next asker, all types together. Enough for the
/// encodings of 500,000 instances of 500 bytes; what does not fit is encoded again when asked for.
pub(super) const ENCODED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What an entry of that cache costs besides the encoding itself, bytes: key, name, two allocations
/// and its place in the map.
pub(super) const ENCODED_ENTRY_BYTES: usize = 256;

/// The cache is cut into this many parts, each with its own lock.
pub(super) const ENCODED_SHARDS: usize = 64;

/// Bytes that a thread keeps of what it found lately, entries and all: the encodings of some thousand
/// clusters, which are as many as change while a thread goes round its connections once.
pub(super) const MEMO_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Names that a thread remembers to have been asked for once, of 8 bytes each: as many as are likely to be asked for
/// again while they are remembered, and far fewer than a fleet has.
pub(super) const MEMO_ASKED_ONCE_MAX: usize = 4_096;

/// Encodings up to this size are copied for a thread of their own, bytes: the copy is small beside
/// the first message that is made of it. Above, the bytes cost so much that a shared count is nothing.
pub(super) const MEMO_COPY_BYTES_MAX: usize = 16 * 1024;

/// Changes are counted for so many groups of clusters. A change of one has its whole group looked
/// up again; a count takes 8 bytes.
pub(super) const OWNER_STRIPES: usize = 4096;

/// Fabrics that askers are told apart by, at most: each is one more encoding of the endpoints that its
/// clients ask for, and a company has a handful. Names come from clients, so they are bounded in length too,
/// bytes.
pub(super) const FABRICS_MAX: u16 = 64;
pub(super) const FABRIC_BYTES_MAX: usize = 128;

/// Scopes that nobody uses any more are swept out when so many are known, or twice as many as were
/// in use at the last time.
pub(super) const SCOPES_SWEPT_MIN: usize = 64;

// The largest resource that clients take (4 MiB) must fit one generation of one part.
const _: () = assert!(ENCODED_BYTES_MAX / ENCODED_SHARDS / 2 >= 2 * 1024 * 1024);
