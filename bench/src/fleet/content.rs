//! What an instance says of itself: as much, and of the same kind, as servers of a large site say.

use std::net::{Ipv4Addr, Ipv6Addr};

use waypost_core::{Announcement, ClusterName, InstanceKey, InstanceUri, Timestamp};

use super::{FleetSpec, Shape};

/// The port that described ones listen on.
const PORT: u16 = 8443;

/// One process: the `generation`-th that took place `index` of its cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) cluster: u32,
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Content {
    /// The key that it is announced under.
    pub(super) fn key(self, shape: Shape) -> anyhow::Result<InstanceKey> {
        Ok(InstanceKey {
            cluster: ClusterName::parse(&format!("cluster-{}", self.cluster))?,
            uri: InstanceUri::parse(&self.uri(shape)?)?,
        })
    }

    /// All of it but weight and time of origin.
    pub(super) fn announcement(self, spec: &FleetSpec) -> anyhow::Result<Announcement> {
        let InstanceKey { cluster, uri } = self.key(spec.shape)?;
        let mut announcement = Announcement::new(cluster, uri, Timestamp::default());
        announcement.heartbeat = spec.heartbeat;
        announcement.ttl = spec.ttl;
        if matches!(spec.shape, Shape::Tailed { .. }) {
            self.describe(&mut announcement);
        }
        Ok(announcement)
    }

    /// Adds what the instances of a large site say.
    fn describe(self, announcement: &mut Announcement) {
        let address = Ipv4Addr::from(0x0a00_0000 | (self.mix() & 0x00ff_ffff));
        announcement.hostname = self.host();
        announcement.ipv4 = Some(address);
        announcement.ipv6 = Some(Ipv6Addr::from(
            0x2001_0db8_0000_0000_0000_0000_0000_0000 | u128::from(u32::from(address)),
        ));
        announcement.ipv4_in_san = true;
        announcement.fabric = "east".to_owned();
        announcement.zone = ["a", "b", "c"][self.cluster as usize % 3].to_owned();
        announcement.application = format!("application-{}", self.cluster);
        announcement.metadata = format!(
            r#"{{"build":"4.{}.{}","container":"i{:08x}","pool":"main","started":{}}}"#,
            self.cluster % 100,
            self.generation,
            self.mix(),
            1_700_000_000 + u64::from(self.generation),
        );
        announcement.tracing_id = format!(
            "{:08x}-0000-4000-8000-{:08x}{:04x}",
            self.mix(),
            self.cluster,
            self.generation & 0xffff
        );
    }

    fn uri(self, shape: Shape) -> anyhow::Result<String> {
        Ok(match shape {
            Shape::Even { .. } => {
                let octet = |n: u32| u8::try_from(n % 250);
                let (high, low) = (octet(self.cluster / 250)?, octet(self.cluster)?);
                let address = Ipv4Addr::new(10, high, low, octet(self.index)?);
                format!("grpc://{address}:{}", 8_000 + self.index)
            }
            Shape::Tailed { .. } => {
                let host = self.host();
                format!("https://{host}:{PORT}/application-{}", self.cluster)
            }
        })
    }

    fn host(self) -> String {
        let Self {
            cluster,
            index,
            generation,
        } = self;
        format!("east1-app{cluster}-{index}-{generation}.prod.example.com")
    }

    /// Thirty-two bits that differ between the processes of a cluster: multiplication by an odd number is
    /// a permutation.
    fn mix(self) -> u32 {
        let process = self
            .index
            .wrapping_add(self.generation.wrapping_mul(65_537));
        process.wrapping_mul(0x9e37_79b1) ^ self.cluster.wrapping_mul(0x85eb_ca6b)
    }
}
