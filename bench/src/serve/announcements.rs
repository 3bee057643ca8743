//! The instances that the server under test holds: clusters of one size, and a first instance whose
//! weight is a stamp.

use std::net::Ipv4Addr;

use waypost_core::limits::TTL_MAX;
use waypost_core::record::{Delivery, LifeId};
use waypost_core::{
    Announcement, ClusterName, InstanceUri, NewRecord, PartitionWeights, Timestamp,
};

use crate::fleet::record::{Life, announce};
use crate::fleet::{stamp_weight, to_timestamp};

/// When every instance was born and first announced: a fixed moment, so that two servers of the same
/// size serve the same versions.
const BORN: Timestamp = Timestamp(1_700_000_000_000);

/// What is announced, and how often each cluster was changed.
#[derive(Debug)]
pub(crate) struct Announcements {
    clusters: Vec<Cluster>,
    endpoints: u32,
}

#[derive(Debug)]
struct Cluster {
    name: ClusterName,
    changes: u64,
    /// The first instance as it is announced now.
    first: Announcement,
}

impl Announcements {
    /// `clusters` clusters, `cluster-0` and so on, of `endpoints` instances.
    pub(crate) fn new(clusters: u32, endpoints: u32) -> anyhow::Result<Self> {
        let clusters = (0..clusters).map(|cluster| {
            let name = ClusterName::parse(&format!("cluster-{cluster}"))?;
            let first = mk_announcement(&name, cluster, 0)?;
            anyhow::Ok(Cluster {
                name,
                changes: 0,
                first,
            })
        });
        Ok(Self {
            clusters: clusters.collect::<anyhow::Result<_>>()?,
            endpoints,
        })
    }

    pub(crate) fn cluster_count(&self) -> usize {
        self.clusters.len()
    }

    pub(crate) fn instance_count(&self) -> usize {
        self.clusters.len() * self.endpoints as usize
    }

    /// Instance `number` of all, as it is announced now: its first announcement, or its heartbeat.
    pub(crate) fn announce(&self, number: usize, delivery: Delivery) -> anyhow::Result<NewRecord> {
        let endpoints = self.endpoints as usize;
        let (cluster, endpoint) = (number / endpoints, number % endpoints);
        let Cluster {
            name,
            changes,
            first,
        } = &self.clusters[cluster];
        if endpoint == 0 {
            let life = mk_life(number, *changes);
            return Ok(announce(first, life, delivery));
        }
        let announcement =
            mk_announcement(name, u32::try_from(cluster)?, u32::try_from(endpoint)?)?;
        Ok(announce(&announcement, mk_life(number, 0), delivery))
    }

    /// Changes the first instance of a cluster: its weight becomes the stamp of `now_micros`, its time
    /// of origin `now_micros` in milliseconds.
    pub(crate) fn change(&mut self, cluster: usize, now_micros: u64) -> NewRecord {
        let number = cluster * self.endpoints as usize;
        let cluster = &mut self.clusters[cluster];
        cluster.changes += 1;
        cluster.first.weights = PartitionWeights::from([(0, stamp_weight(now_micros))]);
        cluster.first.origin = to_timestamp(now_micros);
        let life = mk_life(number, cluster.changes);
        announce(&cluster.first, life, Delivery::Change)
    }
}

fn mk_life(number: usize, changes: u64) -> Life {
    Life {
        id: LifeId(number as u64 + 1),
        birth: BORN,
        seq: changes + 1,
    }
}

fn mk_announcement(
    name: &ClusterName,
    cluster: u32,
    endpoint: u32,
) -> anyhow::Result<Announcement> {
    let octet = |n: u32| u8::try_from(n % 250);
    let address = Ipv4Addr::new(10, octet(cluster / 250)?, octet(cluster)?, octet(endpoint)?);
    let port = 8_000 + endpoint;
    let uri = InstanceUri::parse(&format!("grpc://{address}:{port}"))?;
    let mut announcement = Announcement::new(name.clone(), uri, BORN);
    announcement.ttl = TTL_MAX;
    announcement.heartbeat = TTL_MAX / 3;
    Ok(announcement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_are_announced_by_equal_records() {
        let of_all = || {
            let announcements = Announcements::new(3, 4).unwrap();
            let numbers = 0..announcements.instance_count();
            let all = numbers.map(|number| announcements.announce(number, Delivery::Change));
            all.collect::<anyhow::Result<Vec<_>>>().unwrap()
        };
        assert_eq!(of_all(), of_all());
        assert_eq!(of_all().len(), 12);
    }
}
