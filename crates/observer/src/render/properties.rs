//! D2 properties that mean something to gRPC and Envoy, read out of definitions. What becomes of each of
//! them is in docs/d2-properties.md.
//!
//! A value that cannot be meant, or that some client would refuse, is left out and named: it costs itself
//! and nothing else. Numbers may be strings, as D2's own tools write them.

mod cluster;
mod hash_key;
pub(crate) mod outlier;
mod read;
mod service;
#[cfg(test)]
mod tests;

pub(crate) use cluster::{ClusterProperties, Mirror, SlowStart};
pub(crate) use hash_key::HashKeys;
pub(crate) use read::LeftOut;
pub(crate) use service::{ServiceProperties, Strategy};

/// How a client chooses among instances, in the words of the one that is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// In turn, each as often as its weight says.
    #[default]
    RoundRobin,
    /// At random, weights aside.
    Random,
    /// Slow and failing instances get less: what D2's `relative` and `degrader` are for.
    Adaptive,
    /// Of some that are drawn the one with the fewest requests.
    LeastRequest {
        /// How many are drawn; the client's default without it.
        choices: Option<u32>,
    },
    /// By a key of the request, the same instance for the same key; at random by weight without a key.
    RingHash(Ring),
}

/// A hash ring. What is not said is up to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring {
    /// Entries that it has at least.
    pub(crate) size_min: Option<u32>,
    /// Entries that it has at most.
    pub(crate) size_max: Option<u32>,
    /// How much more than the mean an instance may have in flight before others get its keys,
    /// percent of the mean (100 and more).
    pub(crate) load_max_percent: Option<u32>,
}
