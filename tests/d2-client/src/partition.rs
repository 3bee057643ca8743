//! D2 partitions and hosts of a call (rest.li `balancer/util/partitions`, `SimpleLoadBalancer`).

use rand::Rng as _;
use regex::Regex;
use serde_json::Value;

use crate::documents::{Cluster, Service};
use crate::view::Hosts;

/// How a cluster finds the partition of a call.
#[derive(Clone, Debug)]
pub(crate) enum Partitioning {
    /// Everything is partition 0.
    None,
    /// By ranges of a number in the request's URI.
    Range {
        key: Regex,
        start: i64,
        size: i64,
        count: i32,
    },
    /// By a number in the request's URI modulo the count.
    Modulo { key: Regex, count: i32 },
    /// By a hash, or a class, that this client has not.
    NotSpoken(String),
}

impl Partitioning {
    /// Reads `partitionProperties`; numbers must be JSON numbers.
    pub(crate) fn parse(properties: Option<&Value>) -> Result<Self, String> {
        let Some(properties) = properties else {
            return Ok(Self::None);
        };
        let text = |key: &str| {
            let text = properties[key].as_str().map(str::to_owned);
            text.ok_or_else(|| format!("partitionProperties.{key} is no string"))
        };
        let number = |key: &str| {
            let number = properties[key].as_i64();
            number.ok_or_else(|| format!("partitionProperties.{key} is no number"))
        };
        let count = || {
            let count = i32::try_from(number("partitionCount")?).ok();
            let count = count.filter(|count| *count > 0);
            count.ok_or_else(|| "partitionProperties.partitionCount is out of range".to_owned())
        };
        let key = || {
            let key = Regex::new(&text("partitionKeyRegex")?);
            key.map_err(|e| format!("partitionProperties.partitionKeyRegex: {e}"))
        };
        match text("partitionType")?.to_uppercase().as_str() {
            "NONE" => Ok(Self::None),
            "RANGE" => Ok(Self::Range {
                key: key()?,
                start: number("keyRangeStart")?,
                size: number("partitionSize")?.max(1),
                count: count()?,
            }),
            "HASH" => match text("hashAlgorithm")?.to_uppercase().as_str() {
                "MODULO" => Ok(Self::Modulo {
                    key: key()?,
                    count: count()?,
                }),
                other => Ok(Self::NotSpoken(other.to_owned())),
            },
            other => Ok(Self::NotSpoken(other.to_owned())),
        }
    }

    /// The partition of a call. Where it cannot be told it is 0, without a word.
    pub(crate) fn find(&self, url: &str) -> Result<i32, String> {
        let found = match self {
            Self::None => Some(0),
            Self::Range {
                key,
                start,
                size,
                count,
            } => {
                let number = key_of(key, url).filter(|number| *number >= 0);
                let offset = number.and_then(|number| number.checked_sub(*start));
                let partition = offset.and_then(|offset| i32::try_from(offset / size).ok());
                partition.filter(|p| (0..*count).contains(p))
            }
            Self::Modulo { key, count } => {
                let number = key_of(key, url).map(|number| number % i64::from(*count));
                number.and_then(|number| i32::try_from(number.abs()).ok())
            }
            Self::NotSpoken(what) => return Err(format!("partitions by {what} are not spoken")),
        };
        Ok(found.unwrap_or(0))
    }
}

/// Chooses a host: those of the first scheme that has any for the partition, by weight. `None`: there
/// is no candidate.
pub(crate) fn choose<'a>(
    service: &Service,
    cluster: &Cluster,
    hosts: &'a Hosts,
    partition: i32,
) -> Option<&'a str> {
    service.schemes.iter().find_map(|scheme| {
        let candidates: Vec<(&str, f64)> = hosts
            .values()
            .filter(|host| scheme_of(&host.uri) == scheme && !cluster.banned.contains(&host.uri))
            .filter_map(|host| Some((&*host.uri, *host.partition_desc.get(&partition)?)))
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        let sum: f64 = candidates.iter().map(|(_, weight)| weight).sum();
        let mut left = sum * rand::rng().random::<f64>();
        let chosen = candidates.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        // What rounding leaves over is the last one's.
        chosen.or(candidates.last()).map(|(uri, _)| *uri)
    })
}

/// The last capture group of the expression, as a number.
fn key_of(key: &Regex, url: &str) -> Option<i64> {
    let captures = key.captures(url)?;
    let last = captures.len().checked_sub(1)?;
    captures.get(last)?.as_str().parse().ok()
}

fn scheme_of(uri: &str) -> &str {
    uri.split_once(':').map_or("", |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use waypost_proto::indis::D2uri;

    use super::*;

    fn hosts(hosts: &[(&str, i32, f64)]) -> Hosts {
        let host = |uri: &str, partition, weight| D2uri {
            uri: uri.to_owned(),
            partition_desc: [(partition, weight)].into_iter().collect(),
            ..D2uri::default()
        };
        let hosts = hosts.iter();
        let hosts = hosts.map(|(uri, p, w)| ((*uri).to_owned(), Arc::new(host(uri, *p, *w))));
        hosts.collect()
    }

    #[test]
    fn the_last_group_of_the_expression_is_the_key_and_what_cannot_be_told_is_partition_0() {
        let range = json!({"partitionType": "range", "partitionKeyRegex": "[?&](id|key)=([0-9]+)",
            "keyRangeStart": 100, "partitionSize": 10, "partitionCount": 3});
        let range = Partitioning::parse(Some(&range)).unwrap();
        for (url, partition) in [
            ("d2://s/x?id=100", 0),
            ("d2://s/x?a=1&key=129", 2),
            ("d2://s/x?id=130", 0),
            ("d2://s/x?id=99999999999999999999", 0),
            ("d2://s/x", 0),
        ] {
            assert_eq!(range.find(url), Ok(partition), "{url}");
        }
        let modulo = json!({"partitionType": "HASH", "hashAlgorithm": "modulo",
            "partitionKeyRegex": "id=(-?[0-9]+)", "partitionCount": 4});
        let modulo = Partitioning::parse(Some(&modulo)).unwrap();
        assert_eq!(modulo.find("d2://s/x?id=10"), Ok(2));
        assert_eq!(modulo.find("d2://s/x?id=-10"), Ok(2));
        let text = json!({"partitionType": "HASH", "hashAlgorithm": "MODULO",
            "partitionKeyRegex": "x", "partitionCount": "4"});
        assert!(
            Partitioning::parse(Some(&text)).is_err(),
            "a string is no number"
        );
    }

    #[test]
    fn a_host_is_of_the_first_scheme_that_has_any_of_the_partition_and_never_banned_or_of_weight_0()
    {
        let service = Service {
            cluster: "c".to_owned(),
            path: String::new(),
            schemes: vec!["https".to_owned(), "http".to_owned()],
        };
        let cluster = Cluster::parse(br#"{"clusterName":"c","bannedUris":["https://banned:1"]}"#);
        let cluster = cluster.unwrap();
        let all = hosts(&[
            ("https://banned:1", 0, 9.0),
            ("https://idle:1", 0, 0.0),
            ("https://other:1", 1, 9.0),
            ("http://h:1", 0, 0.5),
        ]);
        assert_eq!(choose(&service, &cluster, &all, 0), Some("http://h:1"));
        assert_eq!(choose(&service, &cluster, &all, 1), Some("https://other:1"));
        assert_eq!(choose(&service, &cluster, &all, 2), None);
    }

    #[test]
    fn hosts_are_chosen_by_weight() {
        let service = Service {
            cluster: "c".to_owned(),
            path: String::new(),
            schemes: vec!["http".to_owned()],
        };
        let cluster = Cluster::parse(br#"{"clusterName":"c"}"#).unwrap();
        let all = hosts(&[("http://a:1", 0, 3.0), ("http://b:1", 0, 1.0)]);
        let of_a = (0..4000).filter(|_| choose(&service, &cluster, &all, 0) == Some("http://a:1"));
        let of_a = of_a.count();
        // Twenty standard deviations either way.
        assert!((2450..=3550).contains(&of_a), "{of_a} of 4000");
    }
}
