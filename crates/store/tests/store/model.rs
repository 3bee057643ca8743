//! Any sequence of statements of any source leaves the store as a naive model of the rules says, and
//! whatever is then served differently was named to the listener, and nothing if nothing is.

#[cfg(test)]
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{
    INSPECTOR, cluster_name, define_cluster, define_service, down, drain, mk_store, set, up, uri,
    weigh,
};
use proptest::prelude::*;
use waypost_core::{Health, InstanceUri, SourceSlot, StoreInput, Timestamp};
use waypost_store::{ChangeSet, Store};

const CLUSTERS: [&str; 2] = ["a", "b"];
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];
const VALUES: [&str; 5] = ["h", "h0", "u", "d3", "h13"];
const OVERRIDES: [&str; 2] = ["drain", "weight"];
const DOCUMENTS: [&str; 3] = ["0", "50 3", "100"];

type Key = (u8, &'static str, &'static str);

/// What every source says, in one map, and nothing else: the rules are applied when it is read.
#[derive(Default)]
struct Model {
    by_key: BTreeMap<(Key, SourceSlot), String>,
    emptied: BTreeSet<&'static str>,
    partitions: BTreeMap<&'static str, BTreeSet<i32>>,
}

/// What is served, as far as anybody can see.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    definition: Option<String>,
    instances: Vec<(InstanceUri, String)>,
    visible: Vec<InstanceUri>,
    d2_partitions: Vec<i32>,
    leads_to: Option<String>,
    /// Services with a definition that lead here.
    led_by: Vec<String>,
}

impl Model {
    fn served(&self, key: Key) -> Option<&String> {
        let mut slots = SourceSlot::ALL.into_iter();
        slots.find_map(|slot| self.by_key.get(&(key, slot)))
    }

    fn hosts(&self, cluster: &'static str) -> Vec<(&'static str, String)> {
        let value = |host| {
            let value = self.served((1, cluster, host))?;
            let value = match self.served((3, cluster, host)).map(String::as_str) {
                Some("drain") => value.replace('h', "d"),
                Some(_) => value.replace('h', "H").replace('u', "U").replace('d', "D"),
                None => value.clone(),
            };
            Some((host, value))
        };
        HOSTS.into_iter().filter_map(value).collect()
    }

    fn set(&mut self, slot: SourceSlot, key: Key, value: Option<String>) {
        let (kind, cluster, _) = key;
        // What an operator set is nobody's slot.
        let slot = if kind == 3 { SourceSlot::Log } else { slot };
        let was_there = self.served(key).is_some();
        match value {
            Some(value) => self.by_key.insert((key, slot), value),
            None => self.by_key.remove(&(key, slot)),
        };
        if kind != 1 {
            return;
        }
        if !self.hosts(cluster).is_empty() {
            self.emptied.remove(cluster);
        } else if was_there {
            self.emptied.insert(cluster);
        }
        let values = self.hosts(cluster).into_iter().map(|(_, value)| value);
        let partitions = values.flat_map(|value| {
            let facts = (INSPECTOR.instance)(value.as_bytes());
            match facts.d2_partitions {
                none if none.is_empty() => vec![0],
                some => some,
            }
        });
        let partitions: Vec<_> = partitions.collect();
        self.partitions
            .entry(cluster)
            .or_default()
            .extend(partitions);
    }

    fn see(&self, cluster: &'static str) -> Option<Served> {
        let definition = self.served((0, cluster, ""));
        let hosts = self.hosts(cluster);
        let announced = !hosts.is_empty() || self.emptied.contains(cluster);
        let service = self.served((2, cluster, "")).cloned();
        let leads_to = service.or_else(|| announced.then(|| cluster.to_owned()));
        if definition.is_none() && !announced {
            return None;
        }
        let (percent, count) = match definition.map(String::as_str) {
            Some("0") => (0, 0),
            Some("50 3") => (50, 3),
            Some("100") => (100, 0),
            _ => (50, 0),
        };
        let health = |value: &str| (INSPECTOR.instance)(value.as_bytes()).health;
        let healthy = hosts.iter().filter(|(_, v)| health(v) == Health::Healthy);
        let fail_open = healthy.count() * 100 < percent * hosts.len();
        let seen = |value: &str| fail_open || health(value) == Health::Healthy;
        let mut d2_partitions = self.partitions.get(cluster).cloned().unwrap_or_default();
        d2_partitions.extend(0..count);
        if d2_partitions.iter().all(|number| *number == 0) {
            d2_partitions.clear();
        }
        Some(Served {
            definition: definition.cloned(),
            instances: hosts.iter().map(|(h, v)| (uri(h), v.clone())).collect(),
            visible: hosts
                .iter()
                .filter(|(_, v)| seen(v))
                .map(|(h, _)| uri(h))
                .collect(),
            d2_partitions: d2_partitions.into_iter().collect(),
            leads_to,
            led_by: CLUSTERS
                .into_iter()
                .filter(|service| {
                    self.served((2, service, ""))
                        .is_some_and(|to| to == cluster)
                })
                .map(str::to_owned)
                .collect(),
        })
    }
}

fn see(store: &Store, cluster: &str) -> Option<Served> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let snapshot = store.find_cluster(cluster)?;
    let visible = store.visible_uris(cluster);
    assert_eq!(store.visible_count(cluster), visible.len());
    assert_eq!(store.d2_partitions(cluster), snapshot.d2_partitions);
    for instance in &snapshot.instances {
        let found = store.find_visible_instance(cluster, instance.uri.as_str());
        assert_eq!(found.is_some(), visible.contains(&instance.uri));
    }
    Some(Served {
        definition: snapshot.definition.map(|(_, d)| text(&d.document)),
        instances: snapshot
            .instances
            .iter()
            .map(|i| (i.uri.clone(), text(&i.value)))
            .collect(),
        visible,
        d2_partitions: snapshot.d2_partitions,
        leads_to: store.leads_to(cluster).map(|c| c.to_string()),
        led_by: store
            .definitions_leading_to(cluster)
            .iter()
            .map(|d| d.name.to_string())
            .collect(),
    })
}

/// Whether `changes` names every difference between the two, and none where there is none.
fn check_named(
    cluster: &str,
    before: Option<&Served>,
    after: Option<&Served>,
    changes: &ChangeSet,
) -> Result<(), TestCaseError> {
    let change = changes
        .clusters
        .get(&cluster_name(cluster))
        .cloned()
        .unwrap_or_default();
    prop_assert_eq!(
        before.is_some() != after.is_some(),
        false,
        "{} came or went",
        cluster
    );
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(());
    };
    if before == after {
        prop_assert!(!changes.clusters.contains_key(&cluster_name(cluster)));
        return Ok(());
    }
    prop_assert!(change.definition || before.definition == after.definition);
    prop_assert!(change.services || before.led_by == after.led_by);
    prop_assert!(change.instances || before.instances == after.instances);
    prop_assert!(change.existence || before.d2_partitions == after.d2_partitions);
    prop_assert!(
        changes.services.iter().any(|s| s.as_str() == cluster) || before.leads_to == after.leads_to
    );
    for number in after.d2_partitions.iter().chain(&before.d2_partitions) {
        let named = change.d2_partitions.contains(number);
        let same = endpoints(before, *number) == endpoints(after, *number);
        prop_assert!(named || same, "partition {} not named", number);
    }
    for host in HOSTS {
        let value = |served: &Served| {
            let visible = served.visible.contains(&uri(host));
            let mut instances = served.instances.iter();
            visible.then(|| instances.find(|(u, _)| *u == uri(host)).cloned())
        };
        let named = change.visible.contains(&uri(host));
        prop_assert!(named || value(before) == value(after), "{} not named", host);
    }
    Ok(())
}

/// The instances of one D2 partition that are visible, with what they announce.
fn endpoints(served: &Served, number: i32) -> Vec<(InstanceUri, String)> {
    let is_there = |(uri, value): &&(InstanceUri, String)| {
        let facts = (INSPECTOR.instance)(value.as_bytes());
        let on_it = facts.d2_partitions.contains(&number)
            || (number == 0 && facts.d2_partitions.is_empty());
        on_it && served.visible.contains(uri)
    };
    served.instances.iter().filter(is_there).cloned().collect()
}

#[derive(Clone, Debug)]
struct Step {
    slot: SourceSlot,
    key: Key,
    value: Option<String>,
}

impl Step {
    fn input(&self) -> StoreInput {
        let (kind, cluster, host) = self.key;
        match (kind, self.value.as_deref()) {
            (0, document) => define_cluster(cluster, document),
            (1, Some(value)) => up(cluster, host, value),
            (1, None) => down(cluster, host),
            (2, target) => define_service(cluster, target),
            (_, Some("drain")) => set(cluster, host, Some(drain())),
            (_, Some(_)) => set(cluster, host, Some(weigh())),
            (_, None) => set(cluster, host, None),
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let some = |values: &'static [&'static str]| {
        prop::option::weighted(0.7, prop::sample::select(values).prop_map(str::to_owned))
    };
    let cluster = || prop::sample::select(&CLUSTERS[..]);
    let key_and_value = prop_oneof![
        1 => (cluster(), some(&DOCUMENTS)).prop_map(|(c, v)| ((0, c, ""), v)),
        6 => (cluster(), prop::sample::select(&HOSTS[..]), some(&VALUES))
            .prop_map(|(c, h, v)| ((1, c, h), v)),
        1 => (cluster(), some(&CLUSTERS)).prop_map(|(c, v)| ((2, c, ""), v)),
        2 => (cluster(), prop::sample::select(&HOSTS[..]), some(&OVERRIDES))
            .prop_map(|(c, h, v)| ((3, c, h), v)),
    ];
    (prop::sample::select(&SourceSlot::ALL[..]), key_and_value)
        .prop_map(|(slot, (key, value))| Step { slot, key, value })
}

proptest! {
    #[test]
    fn the_store_agrees_with_the_model(steps in prop::collection::vec(steps(), 1..80)) {
        let (store, _) = mk_store();
        let mut writers = SourceSlot::ALL.map(|slot| store.writer(slot).unwrap());
        writers[0].set_config_loaded();
        let mut model = Model::default();
        // Known from the start, so that coming and going is a matter of the other tests.
        for cluster in CLUSTERS {
            for step in [
                Step { slot: SourceSlot::Other, key: (1, cluster, "h1"), value: Some("h".into()) },
                Step { slot: SourceSlot::Other, key: (1, cluster, "h1"), value: None },
            ] {
                writers[2].apply(Timestamp(0), [step.input()]);
                model.set(step.slot, step.key, step.value);
            }
        }
        for step in steps {
            let before = CLUSTERS.map(|cluster| see(&store, cluster));
            let changes = writers[step.slot as usize].apply(Timestamp(0), [step.input()]);
            model.set(step.slot, step.key, step.value);
            for (cluster, before) in CLUSTERS.into_iter().zip(before) {
                let after = see(&store, cluster);
                prop_assert_eq!(&after, &model.see(cluster));
                check_named(cluster, before.as_ref(), after.as_ref(), &changes)?;
            }
        }
    }
}
