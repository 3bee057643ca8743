//! Properties of a cluster (rest.li `ClusterPropertiesJsonSerializer`, `PropertyKeys`).

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::OutlierDetection;
use waypost_core::{ClientKind, ClusterDefinition, ClusterName};

use super::read::{LeftOut, Reader, count, flag, number, object, texts};
use super::{Policy, Ring, outlier};
use crate::render::names;

/// What a cluster's definition says to gRPC and Envoy. What it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterProperties {
    /// `loadBalancingPolicies`.
    policies: Policies,
    /// `slowStartProperties`, unless they say that they are off.
    pub(crate) slow_start: Option<SlowStart>,
    /// `outlierDetectionConfig`.
    pub(crate) outlier_detection: Option<OutlierDetection>,
    /// `sslSessionValidationStrings`: names of which the instances' certificates have one.
    pub(crate) peer_names: Vec<String>,
    /// `bannedUris`: instances that get no traffic, in order.
    pub(crate) banned_uris: Vec<String>,
    /// `darkClusters` of which a property of Waypost's own says that callers send them copies
    /// (`mirrored_by_callers`), in name order. Without it the servers do, as rest.li's have it.
    pub(crate) mirrors: Vec<Mirror>,
    /// `load_reports`: whether clients are asked to report their load. A property of Waypost's own, and not
    /// by default, since each client opens one more stream for it.
    pub(crate) load_reports: bool,
    /// What could not be read.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A cluster that gets copies of requests; what it answers is thrown away.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mirror {
    /// Which.
    pub(crate) cluster: ClusterName,
    /// Of so large a share of the requests, 0 to 1.
    pub(crate) share: f64,
}

/// New instances get their share little by little.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlowStart {
    /// For how long.
    pub(crate) window: Duration,
    /// How the share grows with time: 1 is evenly, more is faster at first.
    pub(crate) aggression: f64,
    /// What it begins with, percent of the weight.
    pub(crate) min_weight_percent: f64,
}

/// Entries that a ring may have: gRPC refuses a cluster with more (gRFC A42), Envoy too.
const RING_SIZE_MAX: u32 = 8_388_608;

/// Instances that may be drawn for one request: Envoy refuses fewer than two, gRPC takes ten for more
/// (gRFC A48).
const CHOICES_MAX: u32 = 10;

impl ClusterProperties {
    pub(crate) fn read(definition: Option<&ClusterDefinition>) -> Self {
        // The document of a symlink is a path.
        let is_document = |d: &&ClusterDefinition| !names::is_symlink(d.name.as_str());
        let Some(definition) = definition.filter(is_document) else {
            return Self::default();
        };
        let mut reader = Reader::new(&definition.document);
        Self {
            policies: Policies::read(&mut reader),
            slow_start: slow_start(&mut reader),
            outlier_detection: outlier::read(&mut reader),
            peer_names: reader
                .read("/sslSessionValidationStrings", texts)
                .unwrap_or_default(),
            banned_uris: banned_uris(&mut reader),
            mirrors: mirrors(&mut reader),
            load_reports: reader.read("/load_reports", flag).unwrap_or(false),
            left_out: reader.finish(),
        }
    }

    /// What it states for a kind of client.
    pub(crate) fn policy(&self, client: ClientKind) -> Option<Policy> {
        match client {
            ClientKind::Envoy => self.policies.envoy,
            ClientKind::Grpc | ClientKind::D2 => self.policies.grpc,
        }
    }
}

/// The first entry of `loadBalancingPolicies` for each kind of client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Policies {
    envoy: Option<Policy>,
    grpc: Option<Policy>,
}

impl Policies {
    fn read(reader: &mut Reader) -> Self {
        let pointer = "/loadBalancingPolicies";
        let count = |value: &serde_json::Value| {
            let entries = value.as_array().map(Vec::len);
            entries.ok_or_else(|| "a list".to_owned())
        };
        let mut found = Self::default();
        for n in 0..reader.read(pointer, count).unwrap_or(0) {
            let entry = format!("{pointer}/{n}");
            let clients = reader.read(&format!("{entry}/clientTypes"), texts);
            let is_for = |kind| {
                let listed = |clients: &Vec<String>| clients.iter().any(|client| client == kind);
                clients.as_ref().is_none_or(listed)
            };
            let (of_envoy, of_grpc) = (is_for("ENVOY"), is_for("GRPC"));
            if !of_envoy && !of_grpc {
                continue;
            }
            let policy = policy(reader, &format!("{entry}/config"));
            if of_envoy {
                found.envoy = found.envoy.or(policy);
            }
            if of_grpc {
                found.grpc = found.grpc.or(policy);
            }
        }
        found
    }
}

fn policy(reader: &mut Reader, config: &str) -> Option<Policy> {
    let ring = format!("{config}/ringHashLbConfig");
    let least = format!("{config}/leastRequestLbConfig");
    let round = format!("{config}/roundRobinLbConfig");
    if reader.read(&ring, object).is_some() {
        let size = || count(1..=RING_SIZE_MAX);
        let size_min = reader.read_member(&ring, "minimumRingSize", size());
        let mut size_max = reader.read_member(&ring, "maximumRingSize", size());
        if size_min > size_max && size_max.is_some() {
            let why = "less than the smallest size";
            reader.leave_out(&format!("{ring}/maximumRingSize"), why);
            size_max = None;
        }
        return Some(Policy::RingHash(Ring {
            size_min,
            size_max,
            load_max_percent: None,
        }));
    }
    if reader.read(&least, object).is_some() {
        let choices = reader.read_member(&least, "choiceCount", count(2..=CHOICES_MAX));
        return Some(Policy::LeastRequest { choices });
    }
    if reader.read(&round, object).is_some() {
        return Some(Policy::RoundRobin);
    }
    let why = "expected one of ringHashLbConfig, leastRequestLbConfig, roundRobinLbConfig";
    reader.leave_out(config, why);
    None
}

fn banned_uris(reader: &mut Reader) -> Vec<String> {
    let mut banned = reader.read("/bannedUris", texts).unwrap_or_default();
    banned.sort_unstable();
    banned.dedup();
    banned
}

/// A `multiplier` of more than 1 is all requests once: a proxy makes one copy.
fn mirrors(reader: &mut Reader) -> Vec<Mirror> {
    const POINTER: &str = "/darkClusters";
    let names = |value: &serde_json::Value| {
        let entries = value.as_object().ok_or_else(|| "an object".to_owned())?;
        Ok(entries.keys().cloned().collect::<Vec<_>>())
    };
    let mut mirrors = Vec::new();
    for name in reader.read(POINTER, names).unwrap_or_default() {
        // A JSON pointer spells these two otherwise (RFC 6901).
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let entry = format!("{POINTER}/{escaped}");
        let by_callers = reader.read(&format!("{entry}/mirrored_by_callers"), flag);
        if by_callers != Some(true) {
            continue;
        }
        let constant = reader.read(&format!("{entry}/darkClusterStrategyList"), texts);
        if constant.is_some_and(|list| list.first().is_some_and(|s| s == "CONSTANT_QPS")) {
            let why = "callers send copies of a share of the requests, not so many a second";
            reader.leave_out(&format!("{entry}/darkClusterStrategyList"), why);
            continue;
        }
        let multiplier = reader.read(&format!("{entry}/multiplier"), number(0.0..=1_000_000.0));
        let share = multiplier.unwrap_or(0.0).min(1.0);
        match ClusterName::parse(&name) {
            Ok(cluster) if share > 0.0 => mirrors.push(Mirror { cluster, share }),
            Ok(_) => {}
            Err(_) => reader.leave_out(&entry, "not the name of a cluster"),
        }
    }
    mirrors.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    mirrors
}

/// All four are there or none (rest.li `SlowStartProperties`).
fn slow_start(reader: &mut Reader) -> Option<SlowStart> {
    const POINTER: &str = "/slowStartProperties";
    /// A day: longer ones are mistakes of unit.
    const WINDOW_MAX: u32 = 86_400;
    reader.read(POINTER, object)?;
    let is_off = reader.read(&format!("{POINTER}/disabled"), flag)?;
    let window = reader.read(
        &format!("{POINTER}/windowDurationSeconds"),
        count(1..=WINDOW_MAX),
    );
    let aggression = reader.read(&format!("{POINTER}/aggression"), number(0.001..=1_000.0));
    let percent = number(0.0..=100.0);
    let min_weight = reader.read(&format!("{POINTER}/minWeightPercent"), percent);
    let slow_start = SlowStart {
        window: Duration::from_secs(window?.into()),
        aggression: aggression?,
        min_weight_percent: min_weight?,
    };
    (!is_off).then_some(slow_start)
}
