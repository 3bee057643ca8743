//! Properties of a service (rest.li `ServicePropertiesJsonSerializer`, `PropertyKeys`).

use std::time::Duration;

use waypost_core::ServiceDefinition;
use waypost_store::ServiceState;

use super::hash_key::{HashKeys, to_header, to_path_key};
use super::read::{LeftOut, Reader, count, flag, millis, number, text, texts};

/// What a service's definition says to gRPC and Envoy. What it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceProperties {
    /// The first strategy of `loadBalancerStrategyList` that is known.
    pub(crate) strategy: Option<Strategy>,
    /// What requests are told apart by; nothing for most.
    pub(crate) hash_keys: HashKeys,
    /// `boundedLoadBalancingFactor` of D2's ring, percent.
    pub(crate) ring_load_max_percent: Option<u32>,
    /// `http.requestTimeout`.
    pub(crate) request_timeout: Option<Duration>,
    /// `http.maxConcurrentConnections`: over HTTP/1.1, as D2 has it, requests at once.
    pub(crate) requests_max: Option<u32>,
    /// `http.poolWaiterSize`: requests that wait for a connection.
    pub(crate) waiting_max: Option<u32>,
    /// `http.poolSize`: connections to one instance.
    pub(crate) connections_per_instance_max: Option<u32>,
    /// `http.maxClientRequestRetryRatio`, 0 to 1.
    pub(crate) retry_ratio: Option<f64>,
    /// The service's path, which D2 puts before that of a request: with a slash at both ends. `None`
    /// for a service without one.
    pub(crate) path_prefix: Option<String>,
    /// What could not be read.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A strategy of D2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// `relative`: instances that are slower than the others get less.
    Relative,
    /// `degrader`: instances that are slow get less.
    Degrader,
    /// `random`.
    Random,
}

const TRANSPORT: &str = "/transportClientProperties";
const DEGRADER: &str = "/loadBalancerStrategyProperties/http.loadBalancer.";
const RING: &str = "/relativeStrategyProperties/ringProperties/";

impl ServiceProperties {
    /// Those of a service; of an implicit one there are none.
    pub(crate) fn of(service: &ServiceState) -> Self {
        match service {
            ServiceState::Defined { definition, .. } => Self::read(definition),
            ServiceState::Implicit { .. } => Self::default(),
        }
    }

    pub(crate) fn read(definition: &ServiceDefinition) -> Self {
        let mut reader = Reader::new(&definition.document);
        let strategies = reader.read("/loadBalancerStrategyList", texts);
        let known = |name: &String| match name.as_str() {
            "relative" => Some(Strategy::Relative),
            "degrader" => Some(Strategy::Degrader),
            "random" => Some(Strategy::Random),
            _ => None,
        };
        let strategy = strategies.and_then(|names| names.iter().find_map(known));
        let mut transport = |key: &str| {
            let pointer = format!("{TRANSPORT}/{key}");
            reader.read(&pointer, count(1..=u32::MAX))
        };
        let requests_max = transport("http.maxConcurrentConnections");
        let waiting_max = transport("http.poolWaiterSize");
        let connections_per_instance_max = transport("http.poolSize");
        Self {
            strategy,
            hash_keys: hash_keys(&mut reader, strategy),
            ring_load_max_percent: ring_load_max(&mut reader, strategy),
            request_timeout: reader.read(&format!("{TRANSPORT}/http.requestTimeout"), millis),
            requests_max,
            waiting_max,
            connections_per_instance_max,
            retry_ratio: reader.read(
                &format!("{TRANSPORT}/http.maxClientRequestRetryRatio"),
                number(0.0..=1.0),
            ),
            path_prefix: path_prefix(&mut reader, &definition.path),
            left_out: reader.finish(),
        }
    }
}

fn path_prefix(reader: &mut Reader, path: &str) -> Option<String> {
    let inner = path.trim_matches('/');
    if inner
        .chars()
        .any(|c| !c.is_ascii_graphic() || "?#".contains(c))
    {
        reader.leave_out("path", "expected a path without query and fragment");
        return None;
    }
    (!inner.is_empty()).then(|| format!("/{inner}/"))
}

/// Where the strategy has its ring's properties. A `relative` one that has none there takes those that all
/// strategies before it had.
fn ring_prefix(reader: &Reader, strategy: Option<Strategy>, key: &str) -> &'static str {
    let own = strategy == Some(Strategy::Relative) && reader.has(&format!("{RING}{key}"));
    if own { RING } else { DEGRADER }
}

fn hash_keys(reader: &mut Reader, strategy: Option<Strategy>) -> HashKeys {
    let header = reader.read("/hash_header", |value| to_header(&text(value)?));
    let prefix = ring_prefix(reader, strategy, "hashMethod");
    let by_path = reader.read(&format!("{prefix}hashMethod"), |value| {
        match value.as_str() {
            Some("uriRegex") => Ok(true),
            Some("none" | "random") => Ok(false),
            _ => Err("none, random or uriRegex".to_owned()),
        }
    });
    let path = by_path.filter(|by_path| *by_path).and_then(|_| {
        let pointer = format!("{prefix}hashConfig");
        let fails = reader.read(&format!("{pointer}/failOnNoMatch"), flag);
        if fails == Some(true) {
            let why = "proxies do not fail requests that no expression matches";
            reader.leave_out(&format!("{pointer}/failOnNoMatch"), why);
        }
        reader.read(&format!("{pointer}/regexes"), |value| {
            to_path_key(&texts(value)?)
        })
    });
    HashKeys { header, path }
}

/// D2 has it as a factor of the mean, and anything of 1 or less for "no bound".
fn ring_load_max(reader: &mut Reader, strategy: Option<Strategy>) -> Option<u32> {
    let relative = "boundedLoadBalancingFactor";
    let pointer = match ring_prefix(reader, strategy, relative) {
        RING => format!("{RING}{relative}"),
        prefix => format!("{prefix}consistentHashBoundedLoadBalancingFactor"),
    };
    let factor = reader.read(&pointer, number(-1.0..=1_000.0))?;
    let percent = (factor * 100.0).round();
    (percent > 100.0)
        .then(|| percent.to_string().parse().ok())
        .flatten()
}
