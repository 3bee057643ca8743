//! Service and cluster documents, read by the rules of rest.li's readers (rest.li
//! `ServicePropertiesJsonSerializer`, `ClusterPropertiesJsonSerializer`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::partition::Partitioning;

/// What a call needs of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) cluster: String,
    pub(crate) path: String,
    /// In order of preference; without any no host is ever chosen.
    pub(crate) schemes: Vec<String>,
}

/// What a call needs of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) banned: BTreeSet<String>,
    pub(crate) partitioning: Partitioning,
}

impl Service {
    /// Reads a document. Why it is rejected as a whole, if it is.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, String> {
        let document = object(data)?;
        get_text(&document, "serviceName")?;
        let strategies = find_texts(&document, "loadBalancerStrategyList")?;
        if strategies.is_empty() {
            return Err("loadBalancerStrategyList is missing or empty".to_owned());
        }
        Ok(Self {
            cluster: get_text(&document, "clusterName")?,
            path: get_text(&document, "path")?,
            schemes: find_texts(&document, "prioritizedSchemes")?,
        })
    }
}

impl Cluster {
    /// Reads a document. Why it is rejected as a whole, if it is.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, String> {
        let document = object(data)?;
        get_text(&document, "clusterName")?;
        let banned = find_texts(&document, "bannedUris")?;
        Ok(Self {
            banned: banned.into_iter().collect(),
            partitioning: Partitioning::parse(document.get("partitionProperties"))?,
        })
    }
}

fn object(data: &[u8]) -> Result<Map<String, Value>, String> {
    serde_json::from_slice(data).map_err(|e| format!("no JSON object: {e}"))
}

fn get_text(document: &Map<String, Value>, key: &str) -> Result<String, String> {
    let text = document.get(key).and_then(Value::as_str);
    Ok(text
        .ok_or_else(|| format!("{key} is no string"))?
        .to_owned())
}

/// A list of strings; empty where it is missing.
fn find_texts(document: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let Some(value) = document.get(key) else {
        return Ok(Vec::new());
    };
    let wrong = || format!("{key} is no list of strings");
    let values = value.as_array().ok_or_else(wrong)?.iter();
    let texts = values.map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_needs_names_a_path_and_strategies_and_ignores_what_it_does_not_know() {
        let good = br#"{"serviceName":"s","clusterName":"$cMaster","path":"/p",
            "loadBalancerStrategyList":["relative"],"prioritizedSchemes":["https","http"],"new":{}}"#;
        let service = Service::parse(good).unwrap();
        assert_eq!((&*service.cluster, &*service.path), ("$cMaster", "/p"));
        assert_eq!(service.schemes, ["https", "http"]);
        for bad in [
            r#"{"clusterName":"c","path":"","loadBalancerStrategyList":["random"]}"#,
            r#"{"serviceName":"s","path":"","loadBalancerStrategyList":["random"]}"#,
            r#"{"serviceName":"s","clusterName":"c","loadBalancerStrategyList":["random"]}"#,
            r#"{"serviceName":"s","clusterName":"c","path":"","loadBalancerStrategyList":[]}"#,
            r#"{"serviceName":"s","clusterName":"c","path":""}"#,
            r#"{"serviceName":"s","clusterName":"c","path":"","loadBalancerStrategyList":"x"}"#,
            "[]",
            "",
        ] {
            assert!(Service::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cluster_needs_its_name_and_rejects_partitions_that_it_cannot_read() {
        let good = br#"{"clusterName":"c","bannedUris":["http://h:1"]}"#;
        let cluster = Cluster::parse(good).unwrap();
        assert!(cluster.banned.contains("http://h:1"));
        for bad in [
            "{}",
            r#"{"clusterName":7}"#,
            r#"{"clusterName":"c","partitionProperties":{"partitionType":"RANGE"}}"#,
        ] {
            assert!(Cluster::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
