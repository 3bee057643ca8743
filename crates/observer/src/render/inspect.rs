//! What the store asks of announcements and definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use waypost_core::config::OverrideEffect;
use waypost_core::limits::D2_PARTITIONS_MAX;
use waypost_core::{ClusterDefinition, Health, Override};
use waypost_proto::{announcement, v1 as pb};
use waypost_store::{ClusterFacts, Inspector, InstanceFacts};

use super::properties::ClusterProperties;

/// The readers that the store is given.
pub const INSPECTOR: Inspector = Inspector {
    instance: inspect_instance,
    overlay,
    cluster: inspect_cluster,
};

/// The two fields of `waypost.v1.Announcement` that matter here; the others are skipped unread,
/// since this runs once per change of every instance of the fleet.
#[derive(Clone, PartialEq, prost::Message)]
struct Excerpt {
    #[prost(btree_map = "int32, double", tag = "10")]
    partition_weights: BTreeMap<i32, f64>,
    #[prost(enumeration = "pb::Health", tag = "11")]
    health: i32,
}

fn inspect_instance(value: &[u8]) -> InstanceFacts {
    let Ok(excerpt) = Excerpt::decode(value) else {
        return InstanceFacts {
            health: Health::Unhealthy,
            d2_partitions: Vec::new(),
        };
    };
    let mut d2_partitions: Vec<i32> = excerpt.partition_weights.into_keys().collect();
    if d2_partitions == [0] {
        d2_partitions = Vec::new();
    }
    InstanceFacts {
        health: match pb::Health::try_from(excerpt.health) {
            Ok(pb::Health::Healthy) => Health::Healthy,
            Ok(pb::Health::Draining) => Health::Draining,
            Ok(pb::Health::Unhealthy) | Err(_) => Health::Unhealthy,
        },
        d2_partitions,
    }
}

/// Puts what an operator set over what an instance announces. The time of origin is that of the
/// younger of the two, so that clients measure how long this change took and not the one before it.
fn overlay(value: &[u8], above: &Override) -> Bytes {
    let Ok(mut announcement) = announcement::decode(value) else {
        return Bytes::copy_from_slice(value);
    };
    match above.effect {
        OverrideEffect::Weight(weight) => {
            let weights = announcement.weights.values_mut();
            weights.for_each(|announced| *announced = weight.get());
        }
        OverrideEffect::Drain if announcement.health == Health::Healthy => {
            announcement.health = Health::Draining;
        }
        OverrideEffect::Drain => {}
    }
    announcement.origin = announcement.origin.max(above.stat.modified);
    announcement::encode(&announcement)
}

/// Reads `min_healthy_percent` (a property of ours, hence not in D2's spelling) and
/// `partitionProperties.partitionCount` (rest.li `ClusterPropertiesJsonSerializer`). What is not
/// there or cannot be read has its default. Mirrors are those of `darkClusters`, bans those of `bannedUris`.
fn inspect_cluster(definition: &ClusterDefinition) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(&definition.document) else {
        return facts;
    };
    if let Some(percent) = document.get("min_healthy_percent").and_then(to_count) {
        facts.min_healthy_percent = u8::try_from(percent.min(100)).unwrap_or(100);
    }
    let count = document.pointer("/partitionProperties/partitionCount");
    if let Some(count) = count.and_then(to_count) {
        let max = u32::try_from(D2_PARTITIONS_MAX).unwrap_or(u32::MAX);
        facts.d2_partition_count = u32::try_from(count).unwrap_or(max).min(max);
    }
    let has = |property| document.get(property).is_some();
    if has("darkClusters") || has("bannedUris") {
        let properties = ClusterProperties::read(Some(definition));
        let mirrors = properties.mirrors.into_iter().map(|mirror| mirror.cluster);
        let banned = properties
            .banned_uris
            .into_iter()
            .map(String::into_boxed_str);
        facts.mirrors = some(mirrors.collect());
        facts.banned_uris = some(banned.collect());
    }
    facts
}

fn some<T>(list: Vec<T>) -> Option<Arc<[T]>> {
    (!list.is_empty()).then(|| list.into())
}

/// A number, or a number in a string, as D2's own tools write both.
fn to_count(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use waypost_core::config::Weight;
    use waypost_core::definition::DefinitionStat;
    use waypost_core::{Announcement, PartitionWeights, Timestamp};

    use super::*;
    use crate::render::testing::{mk_announcement, mk_cluster, mk_override};

    #[test]
    fn the_excerpt_agrees_with_the_whole_announcement() {
        type Weights = &'static [(i32, f64)];
        let cases: [(Health, Weights, &[i32]); 4] = [
            (Health::Healthy, &[(0, 1.0)], &[]),
            (Health::Draining, &[(0, 0.0), (3, 2.0)], &[0, 3]),
            (Health::Unhealthy, &[(7, 1.0)], &[7]),
            (Health::Healthy, &[], &[]),
        ];
        for (health, weights, d2_partitions) in cases {
            let mut announcement = mk_announcement("c", "http://h:1");
            announcement.health = health;
            announcement.weights = PartitionWeights::from_iter(weights.iter().copied());
            let bytes = waypost_proto::announcement::encode(&announcement);
            let facts = InstanceFacts {
                health,
                d2_partitions: d2_partitions.to_vec(),
            };
            assert_eq!(inspect_instance(&bytes), facts);
        }
    }

    #[test]
    fn an_override_replaces_every_weight_or_drains_and_leaves_the_rest_alone() {
        let mut announced = mk_announcement("c", "http://h:1");
        announced.weights = PartitionWeights::from([(0, 1.0), (3, 2.0)]);
        announced.metadata = r#"{"n":1.10}"#.to_owned();
        let modified = Timestamp(announced.origin.0 + 7);
        let weight = OverrideEffect::Weight(Weight::new(0.25).unwrap());
        let weights = PartitionWeights::from([(0, 0.25), (3, 0.25)]);
        let cases = [
            (weight, Health::Unhealthy, Health::Unhealthy, weights),
            (
                OverrideEffect::Drain,
                Health::Healthy,
                Health::Draining,
                announced.weights.clone(),
            ),
            (
                OverrideEffect::Drain,
                Health::Unhealthy,
                Health::Unhealthy,
                announced.weights.clone(),
            ),
        ];
        for (effect, health, expected, weights) in cases {
            announced.health = health;
            let served = overlay(
                &announcement::encode(&announced),
                &mk_override("c", "http://h:1", effect, modified),
            );
            let expected = Announcement {
                health: expected,
                weights,
                origin: modified,
                ..announced.clone()
            };
            assert_eq!(announcement::decode(&served), Ok(expected));
        }
        let noise = Bytes::from_static(b"\xff");
        let above = mk_override("c", "http://h:1", OverrideEffect::Drain, modified);
        assert_eq!(overlay(&noise, &above), noise);
    }

    #[test]
    fn bytes_that_are_no_announcement_take_no_traffic() {
        assert_eq!(inspect_instance(b"\xff").health, Health::Unhealthy);
        // A health of a later release: field 11, value 9.
        assert_eq!(inspect_instance(&[0x58, 9]).health, Health::Unhealthy);
    }

    #[test]
    fn a_definition_is_read_for_what_matters_and_a_bad_one_says_nothing() {
        let cases = [
            ("", 50, 0),
            ("not json", 50, 0),
            (r#"{"min_healthy_percent":0}"#, 0, 0),
            (r#"{"min_healthy_percent":"30"}"#, 30, 0),
            (r#"{"min_healthy_percent":900}"#, 100, 0),
            (r#"{"min_healthy_percent":-1}"#, 50, 0),
            (r#"{"partitionProperties":{"partitionCount":16}}"#, 50, 16),
            (
                r#"{"partitionProperties":{"partitionCount":9999999999}}"#,
                50,
                4096,
            ),
        ];
        for (document, min_healthy_percent, d2_partition_count) in cases {
            let facts = ClusterFacts {
                min_healthy_percent,
                d2_partition_count,
                mirrors: None,
                banned_uris: None,
            };
            let definition = mk_cluster("c", document, DefinitionStat::default());
            assert_eq!(inspect_cluster(&definition), facts, "{document}");
        }
    }
}
