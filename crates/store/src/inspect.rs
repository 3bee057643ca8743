//! What the store asks of content that it otherwise keeps as opaque bytes.

use std::sync::Arc;

use bytes::Bytes;
use waypost_core::{ClusterDefinition, ClusterName, Health, Override};

use crate::limits::MIN_HEALTHY_PERCENT_DEFAULT;

/// Reads the little that the store has to know of the content it keeps. Plain functions, so that
/// the answer depends on the bytes alone and every replica gives the same.
#[derive(Clone, Copy, Debug)]
pub struct Inspector {
    /// Reads an announcement's bytes. They were accepted by the fold before; bytes that cannot be
    /// read are unhealthy and on no partition.
    pub instance: fn(&[u8]) -> InstanceFacts,
    /// Puts an override over an announcement: the bytes that are served instead. It keeps the D2
    /// partitions. Bytes that cannot be read stay as they are.
    pub overlay: fn(&[u8], &Override) -> Bytes,
    /// Reads a cluster's definition. A document that cannot be read says nothing.
    pub cluster: fn(&ClusterDefinition) -> ClusterFacts,
}

/// What the store knows of an announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    /// How the instance judges itself.
    pub health: Health,
    /// The D2 partitions that its weights name. Empty means partition 0 alone (nearly all), so that
    /// the common case allocates nothing.
    pub d2_partitions: Vec<i32>,
}

/// What the store knows of a cluster's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Health is ignored while fewer than this share of the instances would be left, percent
    /// (0: never).
    pub min_healthy_percent: u8,
    /// How many D2 partitions the definition declares; 0 where it declares none.
    pub d2_partition_count: u32,
    /// Clusters that get copies of requests to this one from whoever calls it, in name order. None for
    /// nearly all.
    pub mirrors: Option<Arc<[ClusterName]>>,
    /// URIs of instances that get no traffic, in order; D2 clients see to that themselves. None for nearly
    /// all.
    pub banned_uris: Option<Arc<[Box<str>]>>,
}

impl ClusterFacts {
    /// Whether an instance gets no traffic.
    #[must_use]
    pub fn is_banned(&self, uri: &str) -> bool {
        let banned = self.banned_uris.as_deref();
        banned.is_some_and(|banned| banned.binary_search_by(|held| (**held).cmp(uri)).is_ok())
    }
}

impl Default for ClusterFacts {
    fn default() -> Self {
        Self {
            min_healthy_percent: MIN_HEALTHY_PERCENT_DEFAULT,
            d2_partition_count: 0,
            mirrors: None,
            banned_uris: None,
        }
    }
}
